//! Real servers, as npm and PyPI have them, and peers built on the official Rust SDK.
//!
//! Each is connected, listed, called, called wrongly, killed in the middle of a call, and used again. They are installed
//! by `proof/install`, which `./check` runs; where one is missing the test fails, it is never left out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly, and starts servers of its own"
)]

mod codegen;
mod http;
mod learnt;
mod node;
mod offers;
mod packages;
mod process;
mod provider;
#[path = "../it/provider_checker.rs"]
#[allow(dead_code, reason = "the judge has more uses elsewhere")]
mod provider_checker;
mod python;
mod rmcp;
mod seeds;
mod walk;
