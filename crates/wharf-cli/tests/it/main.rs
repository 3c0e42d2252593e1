//! The `wharf` command, driven from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod call;
mod desk;
mod edit;
mod exit_codes;
mod listing;
mod test_server;
mod trust;
