//! The end of a gateway: calls may end by themselves for a while, and then they must.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::mcp::code;
use crate::wire::{Json, RpcError};

/// Whether the end has come. Whoever waits for it costs nothing until then.
#[derive(Debug, Default)]
pub(super) struct Ending {
    over: AtomicBool,
    changed: Notify,
}

impl Ending {
    /// Whatever is still under way is given up.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Does some work, unless the end comes first.
    pub(super) async fn or_over<T>(
        &self,
        work: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, RpcError> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.until_over() => Err(over()),
        }
    }

    async fn until_over(&self) {
        loop {
            let changed = self.changed.notified();
            if self.over.load(Ordering::Acquire) {
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
