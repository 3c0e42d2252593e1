//! HTTP/1.1 as callers speak it: requests come in here, replies go out.
//!
//! In: a connection. Out: heads and bodies within limits, and replies written in one piece where they are small. What is
//! asked is not known here. By hand, and why: `docs/decisions/0020-requests-read-by-hand.md`.

mod head;
mod intake;
mod lines;
mod outlet;
#[cfg(test)]
mod tests;
mod trial;

pub(super) use head::{Head, Usual};
pub(super) use intake::{BadBody, Intake, Over};
pub(super) use outlet::{Outlet, STALLED};
pub use trial::{RequestHead, read_request_head};

/// The largest head of a request.
pub(super) const HEAD: usize = 32 * 1024;
