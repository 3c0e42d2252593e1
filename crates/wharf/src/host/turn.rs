//! The calls of one turn, side by side.
//!
//! In: a model's calls. Out: each with its outcome, in the same order. A call that fails, or that cannot be run at all,
//! ends no other. How one call is made is the host's or a session's business.

#[cfg(test)]
mod tests;

use futures_util::StreamExt;

use super::{CallOptions, Host};
use crate::outcome::Outcome;
use crate::provider::ToolCall;
use crate::registry::Route;
use crate::wire::Json;

/// How many calls of a turn run at the same time.
const AT_ONCE: usize = 16;

impl Host {
    /// Runs the calls of a model's answer, several at a time. The outcomes come in the order of the calls, and every
    /// call has one. Dropping the future cancels those that are under way.
    pub async fn run_calls(&self, calls: Vec<ToolCall>) -> Vec<(ToolCall, Outcome)> {
        run_calls(calls, |route: Route, arguments: Json| {
            let host = self.clone();
            async move { host.run(&route, &arguments, CallOptions::default()).await }
        })
        .await
    }
}

/// Runs the calls that can be run with `run`, several at a time, and gives the others the outcome of their problem.
///
/// The future of a call owns what it needs, so that a turn can run on a task of its own.
pub(super) async fn run_calls<F: Future<Output = Outcome>>(
    calls: Vec<ToolCall>,
    run: impl Fn(Route, Json) -> F,
) -> Vec<(ToolCall, Outcome)> {
    let run = &run;
    let running = calls.into_iter().map(|call| async move {
        let outcome = match call.ready() {
            Ok((route, arguments)) => run(route.clone(), arguments.clone()).await,
            Err(problem) => call.failed(problem),
        };
        (call, outcome)
    });
    futures_util::stream::iter(running).buffered(AT_ONCE).collect().await
}
