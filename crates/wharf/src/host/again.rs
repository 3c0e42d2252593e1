//! A call on its way, and once more where that is safe.
//!
//! In: a call that may be sent. Out: its result, or the error that says the most about it. What certainly never reached
//! the server goes once more over a fresh connection; what may have run is sent again only if the operator says that the
//! tool may be run twice, a few times, with pauses, within the time of the one call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::Host;
use super::confirmed::Judged;
use super::lanes::Way;
use super::patience::Patience;
use super::server::Server;
use crate::ask::Asker;
use crate::call::{self, Call, OnProgress};
use crate::connect::{Progress, growing};
use crate::error::{Error, Light};
use crate::event::Event;
use crate::mcp::method;
use crate::wire::Json;

/// Where a call goes, and in what time.
pub(super) struct Trip<'a> {
    pub(super) server: &'a Arc<Server>,
    pub(super) way: &'a mut Way,
    pub(super) patience: &'a Patience,
    pub(super) judged: Judged<'a>,
}

/// What is left of a call's tries.
struct Tries {
    /// Once more, where nothing was sent; at each other instance, where there are several.
    at_once: usize,
    /// As often again, where a tool may be run twice.
    marked: u32,
    /// How many pauses there were.
    pauses: u32,
    /// The end of an attempt that may have run. Whatever else fails later, this is what must be known.
    unknown: Option<Box<Error>>,
}

/// A server that wants to be left alone for longer is.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl Host {
    /// Sends a call, and again where that is safe.
    pub(super) async fn send(
        &self,
        trip: Trip<'_>,
        call: &Call<'_>,
        asker: &Arc<dyn Asker>,
        mut on_progress: Option<OnProgress<'_>>,
    ) -> Light<Json> {
        let first = on_progress.as_mut().map(|listener| &mut **listener as OnProgress<'_>);
        match call::send(&trip.way.connection, call, asker, first).await {
            Ok(raw) => Ok(raw),
            Err(error) => self.again(trip, (call, asker), on_progress, error).boxed().await,
        }
    }

    async fn again(
        &self,
        trip: Trip<'_>,
        (call, asker): (&Call<'_>, &Arc<dyn Asker>),
        mut on_progress: Option<OnProgress<'_>>,
        mut error: Box<Error>,
    ) -> Light<Json> {
        let Trip { server, way, patience, judged } = trip;
        let marked = if may_run_twice(server, call) { server.config.resilience.retries } else { 0 };
        let others = server.fleet.as_ref().map_or(0, |fleet| fleet.berths().count() - 1);
        let mut tries = Tries { at_once: others.max(1), marked, pauses: 0, unknown: None };
        // Progress only grows, also over several attempts.
        let mut highest = f64::NEG_INFINITY;
        loop {
            let Some(pause) = self.pause(way, &error, &mut tries).filter(|pause| *pause < patience.left())
            else {
                return Err(tries.worst(*error));
            };
            if let Error::UnknownOutcome { .. } = *error {
                tries.unknown.get_or_insert_with(|| error.clone());
            }
            tokio::time::sleep(pause).await;
            if let Err(unreached) = patience.wait(server, way.again(server, error.is_unsent())).await {
                *error = unreached;
                continue;
            }
            // Whatever is at the other end now was not looked at before the call was let go.
            let newer = match server.is_locked() && way.is_unseen(server) {
                true => match self.confirmed_over((server, &*way, patience), judged).await {
                    Ok(newer) => newer,
                    Err(refused) => {
                        error = refused;
                        continue;
                    }
                },
                false => None,
            };
            let hard_timeout = match patience.rest(server) {
                Ok(left) => Some(left),
                Err(late) => return Err(tries.worst(late)),
            };
            let mut listener = on_progress.as_mut().map(|tell| {
                |step: Progress| {
                    if step.progress > highest {
                        highest = step.progress;
                        tell(step);
                    }
                }
            });
            let listener = listener.as_mut().map(|listener| listener as OnProgress<'_>);
            let tool = newer.as_deref().unwrap_or(call.tool);
            let call = Call { tool, hard_timeout, since: None, ..*call };
            self.tell_of_retry(server, &call, &error);
            match call::send(&way.connection, &call, asker, listener).await {
                Ok(raw) => return Ok(raw),
                Err(next) => error = next,
            }
        }
    }

    /// How long to wait before the next attempt, if there is one.
    fn pause(&self, way: &Way, error: &Error, tries: &mut Tries) -> Option<Duration> {
        let elsewhere = !way.connection.is_open() || way.has_others();
        if tries.at_once > 0 && error.is_unsent() && elsewhere {
            tries.at_once -= 1;
            return Some(Duration::ZERO);
        }
        let repeats = matches!(
            error,
            Error::UnknownOutcome { .. } | Error::Busy { .. } | Error::Connection { retryable: true, .. }
        );
        if !repeats || tries.marked == 0 {
            return None;
        }
        tries.marked -= 1;
        tries.pauses += 1;
        match way.connection.asked_to_wait() {
            Some(wait) => (wait <= LONGEST_WAIT).then_some(wait),
            None => Some(growing(self.scope.pool.dock().retry_pause, tries.pauses)),
        }
    }

    fn tell_of_retry(&self, server: &Server, call: &Call<'_>, error: &Error) {
        let whole = server.view.as_ref().map_or(server, |view| &view.of);
        whole.retries.fetch_add(1, Ordering::Relaxed);
        let (server, tool) = (server.config.name.clone(), call.tool.name.clone());
        self.core.events.publish(|| Event::Retried { server, tool, reason: error.to_string() });
    }
}

/// Whether the operator says so; what the server says of its tool does not count. What a caller goes on with has begun.
fn may_run_twice(server: &Server, call: &Call<'_>) -> bool {
    let goes_on = call.relayed.is_some_and(|relayed| relayed.goes_on());
    server.config.resilience.is_idempotent(call.tool.name.as_str()) && !goes_on
}

// === impl Tries ===

impl Tries {
    /// The error that says the most: a call that may have run is not one that did not, whatever became of the last attempt.
    fn worst(self, error: Error) -> Box<Error> {
        match (self.unknown, error) {
            (None, error) | (_, error @ Error::UnknownOutcome { .. }) => error.into(),
            (Some(unknown), error) => match error.once_begun(method::TOOLS_CALL) {
                Error::UnknownOutcome { .. } => unknown,
                error => error.into(),
            },
        }
    }
}
