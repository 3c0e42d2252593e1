//! Promises, proved at the boundary of the library.

mod calls;
mod names;
mod outcome;
mod policy_env;
mod policy_launch;
mod policy_remote;
mod schema;
mod support;
