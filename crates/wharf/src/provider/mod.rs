//! The tools in each model provider's own form, and its tool calls back.
//!
//! In: routes of the registry, and a provider's answer. Out: the `tools` of a request with a report of what was lost, the
//! calls of an answer, and outcomes as the provider's messages. Nothing here talks to a provider or runs a call.

mod answers;
mod calls;
mod compile;
mod family;
mod history;
mod loss;
mod media;
mod message;
mod results;
mod rules;
mod schema;
mod toolset;

pub use calls::{ARGUMENTS_MAX, Answer, CALLS_MAX, Stop, ToolCall};
pub use compile::{Compiled, Compiler, LeftOut, MANY_TOOLS, Strict, ToolLosses};
pub use family::Provider;
pub use history::History;
pub use loss::{How, Loss};
pub use media::{DATA_MAX, Format};
pub use message::{Part, ToolMessage};
pub use toolset::Toolset;
