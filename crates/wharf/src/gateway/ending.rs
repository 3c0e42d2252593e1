//! The end of a gateway, in two steps: first streams end and calls may, then calls must.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

use crate::mcp::code;
use crate::wire::{Json, RpcError};

/// How far the end has come. Whoever waits costs nothing until then.
#[derive(Debug, Default)]
pub(super) struct Ending {
    step: AtomicU8,
    changed: Notify,
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

    /// Does some work, unless the end comes first.
    pub(super) async fn or_over<T>(
        &self,
        work: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, RpcError> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.until(OVER) => Err(over()),
        }
    }

    fn reach(&self, step: u8) {
        self.step.fetch_max(step, Ordering::AcqRel);
        self.changed.notify_waiters();
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

fn over() -> RpcError {
    let data = serde_json::json!({ "kind": "cancelled", "retryable": false });
    let error = RpcError::new(code::INTERNAL, "the gateway stops, so the call was cancelled");
    RpcError { data: Some(Json::of(&data)), ..error }
}
