//! What is to be written to a caller at the other end of a pipe.
//!
//! In: messages, from whoever has one. Out: the same, to the one who writes. A caller that takes too little of what it is
//! told is not listened to meanwhile: so it cannot ask for more than it takes.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};

/// The end that is written from. Dropped, nobody writes any more.
#[derive(Debug)]
pub(super) struct Outgoing {
    messages: mpsc::Receiver<Vec<u8>>,
    taken: Arc<Notify>,
}

/// Whether its caller takes what it is told.
#[derive(Debug)]
pub(super) struct Taking {
    out: mpsc::Sender<Vec<u8>>,
    taken: Arc<Notify>,
}

/// How many messages may wait to be written.
const WAITING: usize = 1024;
/// How many may wait while requests are still taken. The others are for those under way.
const AHEAD: usize = 256;

/// The two ends, and how full it is between them.
pub(super) fn channel() -> (mpsc::Sender<Vec<u8>>, Taking, Outgoing) {
    let ((out, messages), taken) = (mpsc::channel(WAITING), Arc::new(Notify::new()));
    let taking = Taking { out: out.clone(), taken: Arc::clone(&taken) };
    (out, taking, Outgoing { messages, taken })
}

// === impl Taking ===

impl Taking {
    /// Waits while too much waits to be taken; not for a caller to whom nobody writes any more.
    pub(super) async fn is_ahead(&self) {
        loop {
            let taken = self.taken.notified();
            if self.out.max_capacity() - self.out.capacity() <= AHEAD || self.out.is_closed() {
                return;
            }
            taken.await;
        }
    }
}

// === impl Outgoing ===

impl Outgoing {
    /// The next message, when there is one. `None`: there will be no more.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        let message = self.messages.recv().await;
        self.taken.notify_one();
        message
    }

    /// One that is there already.
    pub(super) fn more(&mut self) -> Option<Vec<u8>> {
        let message = self.messages.try_recv().ok();
        self.taken.notify_one();
        message
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.messages.close();
        self.taken.notify_one();
    }
}
