//! The end of what is served at one door, in two steps: first streams end and calls may, then calls must. And the end of
//! what one caller does, when what let it in or what it was given is taken back.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;

use tokio::sync::Notify;

use super::barred::{Bar, Whence};
use super::bell::{Bell, Listener};
use super::desk::Desk;
use super::line::Line;
use super::stay::{Guest, Withdrawn};
use crate::mcp::code;
use crate::wire::{Json, RpcError};

/// What is heard at every door. Whoever waits costs nothing until then.
#[derive(Debug, Default)]
pub(super) struct Bells {
    /// For what waits long.
    changed: Notify,
    /// For requests.
    bell: Bell,
}

/// The desk as it is served at one door, from its opening to its end. Other doors go on.
#[derive(Debug)]
pub(super) struct Shift {
    desk: Arc<Desk>,
    /// How far the end has come.
    step: AtomicU8,
}

/// Whoever serves at a door. Dropped, also before an orderly end, everything that was let in there ends.
#[derive(Debug)]
pub(super) struct OnDuty(Arc<Shift>);

const STOPPING: u8 = 1;
const OVER: u8 = 2;

// === impl Bells ===

impl Bells {
    /// Something was taken back from somebody, or a door closes: whoever has something under way looks whether it is
    /// theirs.
    pub(super) fn ring(&self) {
        self.changed.notify_waiters();
        self.bell.ring();
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so() {
                return;
            }
            changed.await;
        }
    }
}

// === impl OnDuty ===

impl OnDuty {
    pub(super) fn at(shift: &Arc<Shift>) -> Self {
        Self(Arc::clone(shift))
    }
}

impl Drop for OnDuty {
    fn drop(&mut self) {
        self.0.end();
        // Nobody can come back for them.
        self.0.parking.withdraw();
    }
}

// === impl Shift ===

impl Shift {
    /// A door is opened.
    pub(super) fn begin(desk: &Arc<Desk>) -> Arc<Self> {
        Arc::new(Self { desk: Arc::clone(desk), step: AtomicU8::new(0) })
    }

    /// The desk, which outlives the door.
    pub(super) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Nothing new is begun, and what would never end by itself ends now.
    pub(super) fn stop(&self) {
        self.reach(STOPPING);
    }

    /// Whatever is still under way is given up.
    pub(super) fn end(&self) {
        self.reach(OVER);
    }

    /// Whether nothing new is begun. The one thing that a request is judged by, when all of it is there and before any of it
    /// is done: what was begun before that is under way, and may end.
    pub(super) fn is_stopping(&self) -> bool {
        self.step.load(Ordering::Acquire) >= STOPPING
    }

    /// Whether calls must end, too.
    pub(super) fn is_over(&self) -> bool {
        self.step.load(Ordering::Acquire) >= OVER
    }

    /// Waits until streams end.
    pub(super) async fn until_stopping(&self) {
        self.bells.until(|| self.is_stopping()).await;
    }

    /// Does something now, and whenever something was taken back. Never ends by itself.
    pub(super) async fn at_every_withdrawal(&self, look: impl Fn()) {
        let look_again = || {
            look();
            false
        };
        self.bells.until(look_again).await;
    }

    /// Waits until what let a caller in is taken back.
    pub(super) async fn until_out(&self, guest: &Guest) {
        self.bells.until(|| guest.stay().is_over()).await;
    }

    /// Whoever hears when a request must end; it may listen for one request after the other.
    pub(super) fn listener(&self) -> Listener<'_> {
        self.bells.bell.listener()
    }

    /// Waits until a request must end. `None`: because everything does.
    async fn until_given_up(&self, listener: &mut Listener<'_>, line: &Line) -> Option<Withdrawn> {
        poll_fn(|cx| {
            if !listener.hears(cx) {
                return Poll::Pending;
            }
            if self.is_over() {
                return Poll::Ready(None);
            }
            line.withdrawn().map_or(Poll::Pending, |withdrawn| Poll::Ready(Some(withdrawn)))
        })
        .await
    }

    fn reach(&self, step: u8) {
        self.step.fetch_max(step, Ordering::AcqRel);
        self.bells.ring();
    }

    /// Does the work of a request, unless its end comes first: that of the gateway, or of what the request needs.
    pub(super) async fn or_over<T>(
        &self,
        line: &Line,
        work: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, RpcError> {
        let mut listener = self.listener();
        tokio::select! {
            biased;
            done = work => done,
            over = self.over(&mut listener, line) => Err(over),
        }
    }

    /// Waits until a request must end, and says why.
    pub(super) async fn over(&self, listener: &mut Listener<'_>, line: &Line) -> RpcError {
        let Some(withdrawn) = self.until_given_up(listener, line).await else {
            return ended("cancelled", "the gateway stops, so the call was cancelled");
        };
        let (caller, server) = line.between();
        self.gate.turn_away(Whence::Caller(caller, server), Bar::Withdrawn(withdrawn));
        match withdrawn {
            Withdrawn::Entry => ended(
                "denied",
                "the caller's key or token was taken back or has expired, so the call was ended",
            ),
            Withdrawn::Gift => {
                ended("denied", "this is not given to the caller any more, so the call was ended")
            }
        }
    }
}

impl Deref for Shift {
    type Target = Desk;

    fn deref(&self) -> &Desk {
        &self.desk
    }
}

/// Waits at the stop until the runtime has looked for what has arrived: whoever has asked by then is told that nothing
/// was done, and not cut off as if it had nothing to ask.
pub(super) async fn has_looked() {
    tokio::task::yield_now().await;
}

/// What is said to whoever asks for something while the gateway stops.
pub(super) const STOPS: &str = "the gateway stops; nothing was done";

/// The same as an error.
pub(super) fn stops() -> RpcError {
    let data = serde_json::json!({
        "kind": "unavailable", "retryable": true, "mayHaveRun": false, "retryAfterMs": 1000,
    });
    RpcError { data: Some(Json::of(&data)), ..RpcError::new(code::INTERNAL, STOPS) }
}

/// The error of a call that was ended, wherever it was on its way.
pub(super) fn ended(kind: &str, why: &str) -> RpcError {
    let data = serde_json::json!({ "kind": kind, "retryable": false, "mayHaveRun": true });
    RpcError { data: Some(Json::of(&data)), ..RpcError::new(code::INTERNAL, why) }
}
