//! A tool is called, a resource read, a prompt fetched.
//!
//! In: a permit, a route and arguments, or an address or a name. Out: the raw reply, or what is in it, or an error.
//! Arguments are checked before anything is sent, a call is sent once, and it always ends. What the reply of a tool
//! means is `outcome`'s business.

mod fetch;
mod held;
mod relayed;
mod rounds;
mod schema;
mod send;

pub(crate) use fetch::forward;
pub use fetch::{
    Asked, Completing, PromptFetched, ResourceRead, complete, find_prompt, prompt, read_resource,
    set_log_level,
};
pub use relayed::{OnLog, Relayed};
pub use schema::{Misfit, Validators, limits};
pub(crate) use send::HARD_FACTOR;
pub use send::{Call, OnProgress, send};
