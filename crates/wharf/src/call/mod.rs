//! A tool is called.
//!
//! In: a permit, a route and arguments. Out: the raw reply, or an error.

mod schema;

pub use schema::{Misfit, Validators, limits};
