//! Promises, proved at the boundary of the library.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test may fail loudly")]

mod ask;
mod calls;
mod catalog;
mod eras;
mod frames;
mod interleavings;
mod lifecycle;
mod names;
mod names_secret;
mod net;
mod outcome;
mod policy_env;
mod policy_launch;
mod policy_remote;
mod processes;
mod schema;
mod support;
mod tidy;
mod wire;
