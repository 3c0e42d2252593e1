//! The kit is held to its own word: rmcp must find its honest servers honest, and its scripts must play as written.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "tests start the puppet themselves")]

mod fixture;
mod http;
mod puppet;
mod rmcp;
