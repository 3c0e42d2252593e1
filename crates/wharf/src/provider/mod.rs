//! The tools in each model provider's own form, and its tool calls back.
//!
//! In: routes of the registry, and a provider's answer. Out: the `tools` of a request with a report of what was lost, the
//! calls of an answer, and outcomes as the provider's messages. Nothing here talks to a provider or runs a call.

mod compile;
mod family;
mod loss;
mod rules;
mod schema;
mod toolset;

pub use compile::{Compiled, Compiler, LeftOut, MANY_TOOLS, Strict, ToolLosses};
pub use family::Provider;
pub use loss::{How, Loss};
pub use toolset::Toolset;
