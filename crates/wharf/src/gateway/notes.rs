//! Messages that wait for one reader: what is said to a caller before its answer.
//!
//! Most requests are answered without a word before, so that must cost next to nothing: no allocation, no block of slots
//! as a channel has.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Where messages are put, and read.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Vec<u8>>,
    reader: Option<Waker>,
    closed: bool,
}

/// How many messages may wait for a slow caller.
const WAITING: usize = 1024;

// === impl Notes ===

impl Notes {
    /// Puts a message there. `None` if nobody reads; false if too many wait already.
    pub(super) fn put(&self, message: Vec<u8>) -> Option<bool> {
        let mut waiting = self.lock();
        if waiting.closed {
            return None;
        }
        if waiting.messages.len() >= WAITING {
            return Some(false);
        }
        waiting.messages.push_back(message);
        let reader = waiting.reader.take();
        drop(waiting);
        if let Some(reader) = reader {
            reader.wake();
        }
        Some(true)
    }

    /// The next message, if one waits.
    pub(super) fn take(&self) -> Option<Vec<u8>> {
        self.lock().messages.pop_front()
    }

    /// Waits for the next message. There is none any more after [`Notes::close`].
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Vec<u8>>> {
        let mut waiting = self.lock();
        if let Some(message) = waiting.messages.pop_front() {
            return Poll::Ready(Some(message));
        }
        if waiting.closed {
            return Poll::Ready(None);
        }
        if !waiting.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            waiting.reader = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The same.
    pub(super) async fn next(&self) -> Option<Vec<u8>> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Nothing more is put there; what waits can still be read.
    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
