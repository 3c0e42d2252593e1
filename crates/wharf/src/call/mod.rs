//! A tool is called.
//!
//! In: a permit, a route and arguments. Out: the raw reply, or an error. The arguments are checked before anything is
//! sent, the call is sent once, and it always ends. What the reply means is `outcome`'s business.

mod schema;
mod send;

pub use schema::{Misfit, Validators, limits};
pub use send::{Call, OnProgress, send};
