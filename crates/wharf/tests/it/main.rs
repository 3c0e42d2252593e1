//! Promises, proved at the boundary of the library.

mod calls;
mod net;
mod policy_env;
mod policy_launch;
mod policy_remote;
mod support;
