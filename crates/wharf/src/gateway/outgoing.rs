//! What is to be written to a caller at the other end of a pipe.
//!
//! In: messages, from whoever has one. Out: the same, to the one who writes. A caller that takes too little of what it is
//! told is not listened to meanwhile: so it cannot ask for more than it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, mpsc};

/// The end that is written from. Dropped, nobody writes any more.
#[derive(Debug)]
pub(super) struct Outgoing {
    messages: mpsc::Receiver<Vec<u8>>,
    between: Arc<Between>,
}

/// Whether its caller takes what it is told.
#[derive(Clone, Debug)]
pub(super) struct Taking {
    out: mpsc::Sender<Vec<u8>>,
    between: Arc<Between>,
}

#[derive(Debug, Default)]
struct Between {
    /// Rung when something was taken.
    taken: Notify,
    /// The same for whoever waits for the last of it, once somebody does.
    leaving: AtomicBool,
    left: Notify,
}

/// How many messages may wait to be written.
const WAITING: usize = 1024;
/// How many may wait while requests are still taken. The others are for those under way.
const AHEAD: usize = 256;
/// What stands behind the last message. No message is empty.
const LAST: Vec<u8> = Vec::new();

/// The two ends, and how full it is between them.
pub(super) fn channel() -> (mpsc::Sender<Vec<u8>>, Taking, Outgoing) {
    let ((out, messages), between) = (mpsc::channel(WAITING), Arc::<Between>::default());
    let taking = Taking { out: out.clone(), between: Arc::clone(&between) };
    (out, taking, Outgoing { messages, between })
}

// === impl Taking ===

impl Taking {
    /// Waits while too much waits to be taken; not for a caller to whom nobody writes any more.
    pub(super) async fn is_ahead(&self) {
        loop {
            let taken = self.between.taken.notified();
            if self.out.max_capacity() - self.out.capacity() <= AHEAD || self.out.is_closed() {
                return;
            }
            taken.await;
        }
    }

    /// Lets nothing more be said once it is so; what was said by then is still written. It is looked again whenever
    /// something was taken: whoever ends says so before its last word.
    pub(super) async fn end_when(&self, is_so: impl Fn() -> bool) {
        self.between.leaving.store(true, Ordering::SeqCst);
        loop {
            let left = self.between.left.notified();
            if is_so() || self.out.is_closed() {
                break;
            }
            left.await;
        }
        // An error means that nobody writes any more.
        let _ = self.out.send(LAST).await;
    }

    /// Says something, if there is room for it.
    pub(super) fn try_say(&self, message: Vec<u8>) {
        // Whoever takes nothing hears nothing.
        let _ = self.out.try_send(message);
    }

    /// Something ended without a word.
    pub(super) fn look_again(&self) {
        self.between.look_again();
    }
}

// === impl Outgoing ===

impl Outgoing {
    /// The next message, when there is one. `None`: there will be no more.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let message = self.messages.recv().await;
            if let Some(message) = self.unless_last(message) {
                return message;
            }
        }
    }

    /// One that is there already.
    pub(super) fn more(&mut self) -> Option<Vec<u8>> {
        loop {
            let message = self.messages.try_recv().ok();
            if let Some(message) = self.unless_last(message) {
                return message;
            }
        }
    }

    /// What is handed on. `None`: it was the mark behind the last one, and what is still on its way may come.
    fn unless_last(&mut self, message: Option<Vec<u8>>) -> Option<Option<Vec<u8>>> {
        self.between.taken.notify_one();
        self.between.look_again();
        if message.as_ref().is_some_and(Vec::is_empty) {
            self.messages.close();
            return None;
        }
        Some(message)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.messages.close();
        self.between.taken.notify_one();
        self.between.look_again();
    }
}

// === impl Between ===

impl Between {
    fn look_again(&self) {
        if self.leaving.load(Ordering::SeqCst) {
            self.left.notify_one();
        }
    }
}
