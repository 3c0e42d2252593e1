//! The end of a gateway, in two steps: first streams end and calls may, then calls must. And the end of what one caller
//! does, when what let it in or what it was given is taken back.

use std::future::poll_fn;
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

/// How far the end has come. Whoever waits costs nothing until then.
#[derive(Debug, Default)]
pub(super) struct Ending {
    step: AtomicU8,
    /// For what waits long.
    changed: Notify,
    /// For requests.
    bell: Bell,
}

const STOPPING: u8 = 1;
const OVER: u8 = 2;

impl Ending {
    /// Nothing new is begun, and what would never end by itself ends now.
    pub(super) fn stop(&self) {
        self.reach(STOPPING);
    }

    /// Whatever is still under way is given up.
    pub(super) fn end(&self) {
        self.reach(OVER);
    }

    /// Whether nothing new is begun.
    pub(super) fn is_stopping(&self) -> bool {
        self.step.load(Ordering::Acquire) >= STOPPING
    }

    /// Waits until streams end.
    pub(super) async fn until_stopping(&self) {
        self.until(STOPPING).await;
    }

    /// Something was taken back from somebody: whoever has something under way looks whether it was from them.
    pub(super) fn withdraw(&self) {
        self.tell();
    }

    /// Does something now, and whenever something was taken back. Never ends by itself.
    pub(super) async fn at_every_withdrawal(&self, look: impl Fn()) {
        loop {
            let changed = self.changed.notified();
            look();
            changed.await;
        }
    }

    /// Waits until what let a caller in is taken back.
    pub(super) async fn until_out(&self, guest: &Guest) {
        loop {
            let changed = self.changed.notified();
            if guest.stay().is_over() {
                return;
            }
            changed.await;
        }
    }

    /// Whoever hears when a request must end; it may listen for one request after the other.
    pub(super) fn listener(&self) -> Listener<'_> {
        self.bell.listener()
    }

    /// Waits until a request must end. `None`: because everything does.
    async fn until_given_up(&self, listener: &mut Listener<'_>, line: &Line) -> Option<Withdrawn> {
        poll_fn(|cx| {
            if !listener.hears(cx) {
                return Poll::Pending;
            }
            if self.step.load(Ordering::Acquire) >= OVER {
                return Poll::Ready(None);
            }
            line.withdrawn().map_or(Poll::Pending, |withdrawn| Poll::Ready(Some(withdrawn)))
        })
        .await
    }

    fn tell(&self) {
        self.changed.notify_waiters();
        self.bell.ring();
    }

    fn reach(&self, step: u8) {
        self.step.fetch_max(step, Ordering::AcqRel);
        self.tell();
    }

    async fn until(&self, step: u8) {
        loop {
            let changed = self.changed.notified();
            if self.step.load(Ordering::Acquire) >= step {
                return;
            }
            changed.await;
        }
    }
}

// === impl Desk ===

impl Desk {
    /// Does the work of a request, unless its end comes first: that of the gateway, or of what the request needs.
    pub(super) async fn or_over<T>(
        &self,
        line: &Line,
        work: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, RpcError> {
        let mut listener = self.ending.listener();
        tokio::select! {
            biased;
            done = work => done,
            over = self.over(&mut listener, line) => Err(over),
        }
    }

    /// Waits until a request must end, and says why.
    pub(super) async fn over(&self, listener: &mut Listener<'_>, line: &Line) -> RpcError {
        let Some(withdrawn) = self.ending.until_given_up(listener, line).await else {
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

fn ended(kind: &str, why: &str) -> RpcError {
    let data = serde_json::json!({ "kind": kind, "retryable": false });
    RpcError { data: Some(Json::of(&data)), ..RpcError::new(code::INTERNAL, why) }
}
