//! Promises, proved at the boundary of the library.

mod http;
mod net;
mod policy_env;
mod policy_launch;
mod policy_remote;
mod sse;
