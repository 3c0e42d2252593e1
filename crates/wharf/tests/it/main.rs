//! Promises, proved at the boundary of the library.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly"
)]

mod ask;
mod calls;
mod catalog;
mod config;
mod config_edit;
mod config_trust;
mod era_answers;
mod eras;
mod events;
mod frames;
mod http;
mod interleavings;
mod lifecycle;
mod load;
mod local_tools;
mod names;
mod names_secret;
mod net;
mod outcome;
mod planted;
mod policy_env;
mod policy_launch;
mod policy_remote;
mod policy_settings;
mod processes;
mod schema;
mod seeds;
mod sessions;
mod sse;
mod state;
mod support;
mod tidy;
mod visibility;
mod wire;
