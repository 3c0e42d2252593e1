//! Promises of the command, proved on the real binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly"
)]

mod approve;
mod audit;
mod call;
mod clients;
mod clock;
mod codegen;
mod desk;
mod edit;
mod exit_codes;
mod guide;
mod keys;
mod killed;
mod listing;
mod login;
mod lock;
mod logs;
mod piped;
mod provider;
mod reload;
mod render;
mod serve;
mod status;
mod prompts;
mod resources;
mod repl;
mod replicas;
mod repl_terminal;
mod rest;
mod sandbox;
mod screen;
mod seeds;
mod test_server;
mod test_server_offers;
mod trust;
