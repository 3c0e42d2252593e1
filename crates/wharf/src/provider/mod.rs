//! The tools in each model provider's own form, and its tool calls back.
//!
//! In: routes of the registry, and a provider's answer. Out: the `tools` of a request with a report of what was lost, the
//! calls of an answer, and outcomes as the provider's messages. Nothing here talks to a provider or runs a call.

mod family;
mod toolset;

pub use family::Provider;
pub use toolset::Toolset;
