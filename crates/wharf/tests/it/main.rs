//! What Wharf promises, proved at the boundary of the library.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod names_secret;
mod tidy;
mod wire;
