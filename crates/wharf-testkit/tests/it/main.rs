//! The kit is held to its own word: rmcp must find its honest servers honest, and its scripts must play as written.
#![allow(clippy::disallowed_methods, reason = "tests start the puppet themselves")]

mod http;
mod puppet;
mod rmcp;
