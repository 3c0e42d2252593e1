//! Promises, proved at the boundary of the library.

mod net;
mod policy_env;
mod policy_launch;
mod policy_remote;
