//! How a conversation over a pipe ends.
//!
//! In: what is under way, and the end of what is written. Out: everything that was asked is answered, unless that takes too
//! long or nobody reads it. The end of what a caller says is not the end of its reading.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::calls::Calls;
use super::ending::ended;
use super::outgoing::Taking;
use crate::wire::{Json, response_error};

/// What is left to do when a conversation ends.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) calls: Arc<Calls>,
    pub(super) taking: Taking,
}

/// How long a caller may take to read what was said last.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long calls may go on when their caller says nothing more. Whoever closes the input to end the gateway waits about
/// as long before it uses force.
const GRACE: Duration = Duration::from_secs(2);
/// How often is looked whether the caller is gone altogether: no reader is told so, and nobody writes.
const LOOK: Duration = Duration::from_millis(50);

// === impl Leaving ===

impl Leaving {
    /// Waits until nothing is under way and everything was written, or nobody reads any more. `written` is the end of
    /// whoever writes.
    pub(super) async fn settle(&self, written: impl Future<Output = ()>) {
        let end = async {
            self.taking.end_when(|| self.calls.is_empty()).await;
            std::future::pending().await
        };
        tokio::select! {
            () = written => {}
            () = end => {}
        }
    }

    /// The caller says nothing more: what is under way may end within a grace. Then it is cancelled, and its caller told
    /// so. Whoever is gone altogether has everything cancelled at once.
    pub(super) async fn after_the_last_request(
        &self,
        written: impl Future<Output = ()>,
        mut is_gone: impl FnMut() -> bool,
    ) {
        self.calls.cancel_streams();
        let mut written = pin!(written);
        let gone = async {
            while !is_gone() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            biased;
            () = self.settle(&mut written) => return,
            () = gone => return self.cancel(),
            () = tokio::time::sleep(GRACE) => {}
        }
        let why = ended("cancelled", "the input has ended, and the call took too long after it");
        for id in self.calls.cancel_all() {
            if let Ok(id) = Json::parse(id, 1) {
                self.taking.try_say(response_error(&id, &why));
            }
        }
        self.last_words(written).await;
    }

    /// Waits until everything was written, but not for whoever does not read.
    pub(super) async fn last_words(&self, written: impl Future<Output = ()>) {
        let _ = tokio::time::timeout(LAST_WORDS, self.settle(written)).await;
    }

    /// Ends what is under way. Servers hear that nobody waits.
    pub(super) fn cancel(&self) {
        self.calls.cancel_all();
    }
}
