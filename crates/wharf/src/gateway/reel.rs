//! A stream of events that outlives its reader: whoever comes back reads on where it was.
//!
//! In: messages for a caller. Out: events with numbers, to whoever reads now. The newest are kept for a while, so that a
//! caller whose connection broke misses nothing. Legacy callers only: a modern stream ends with its connection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// One stream.
#[derive(Debug)]
pub(super) struct Reel {
    number: u64,
    state: Mutex<State>,
}

/// The streams of one conversation.
#[derive(Debug, Default)]
pub(super) struct Reels(Mutex<Vec<Arc<Reel>>>);

/// Somebody will read, as long as this is held or until they do.
#[derive(Debug)]
pub(super) struct Expected(pub(super) Arc<Reel>);

#[derive(Debug)]
struct State {
    /// The number of the last event.
    last: u64,
    kept: VecDeque<(u64, Bytes)>,
    bytes: usize,
    reader: Reader,
    /// Whoever waits for the first word.
    listener: Option<Waker>,
    over: Option<Instant>,
}

#[derive(Debug)]
enum Reader {
    /// On the way.
    Expected,
    Here(mpsc::Sender<Bytes>),
    Gone,
}

/// The stream that belongs to no request.
pub(super) const ALWAYS: u64 = 0;

/// How many events may wait for a slow reader. Whoever falls behind further is cut off, and may come back.
const WAITING: usize = 1024;
/// How much is kept of one stream. The last event always is.
const KEPT: usize = 256;
const KEPT_BYTES: usize = 1024 * 1024;
/// How many streams that are over are kept, and for how long.
const KEPT_REELS: usize = 8;
const KEPT_FOR: Duration = Duration::from_secs(5 * 60);
/// When a caller whose stream broke should come back, in milliseconds.
const RETRY: u64 = 1000;

// === impl Reel ===

impl Reel {
    fn new(number: u64) -> Self {
        let (kept, reader) = (VecDeque::new(), Reader::Expected);
        let state = State { last: 0, kept, bytes: 0, reader, listener: None, over: None };
        Self { number, state: Mutex::new(state) }
    }

    /// A new stream of a request, in the place of an old one that nobody has any more. It is only found again once it was
    /// kept.
    pub(super) fn fresh(number: u64, old: Option<Arc<Self>>) -> Arc<Self> {
        let mut old = old;
        match old.as_mut().and_then(Arc::get_mut) {
            Some(place) => *place = Self::new(number),
            None => old = None,
        }
        old.unwrap_or_else(|| Arc::new(Self::new(number)))
    }

    /// Says something: to whoever reads, or to whoever comes back. False if nobody reads now.
    pub(super) fn say(&self, message: &[u8]) -> bool {
        let listener = {
            let mut state = self.lock();
            state.put(self.number, message);
            state.listener.take()
        };
        if let Some(listener) = listener {
            listener.wake();
        }
        self.is_read()
    }

    /// The same, but only if somebody reads now.
    pub(super) fn say_now(&self, message: &[u8]) -> bool {
        self.is_read() && self.say(message)
    }

    /// Whether somebody reads, or is about to.
    pub(super) fn is_read(&self) -> bool {
        match &self.lock().reader {
            Reader::Expected => true,
            Reader::Here(reader) => !reader.is_closed(),
            Reader::Gone => false,
        }
    }

    /// Waits until something was said. One may wait.
    pub(super) async fn begun(&self) {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.last > 0 {
                return Poll::Ready(());
            }
            match &mut state.listener {
                Some(listener) => listener.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }

    /// Whether something was said.
    pub(super) fn has_begun(&self) -> bool {
        self.last() > 0
    }

    /// The number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.lock().last
    }

    /// Reads on after an event. Whoever read until now reads no more. `prime` begins with an event that says nothing,
    /// by which the reader knows where to come back to.
    pub(super) fn read_after(&self, event: u64, prime: bool) -> mpsc::Receiver<Bytes> {
        let mut state = self.lock();
        let (sender, receiver) = mpsc::channel(WAITING + KEPT + 1);
        if prime {
            let first = format!("id: {}-{event}\nretry: {RETRY}\ndata:\n\n", self.number);
            // There is room: nothing was sent yet.
            let _ = sender.try_send(first.into());
        }
        for (_, kept) in state.kept.iter().filter(|(number, _)| *number > event) {
            let _ = sender.try_send(kept.clone());
        }
        state.reader = if state.over.is_some() { Reader::Gone } else { Reader::Here(sender) };
        receiver
    }

    /// There is nothing more to say.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.reader = Reader::Gone;
        state.over.get_or_insert_with(Instant::now);
    }

    fn is_old(&self) -> bool {
        self.lock().over.is_some_and(|since| since.elapsed() >= KEPT_FOR)
    }

    fn is_over(&self) -> bool {
        self.lock().over.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn put(&mut self, reel: u64, message: &[u8]) {
        if self.over.is_some() {
            return;
        }
        self.last += 1;
        let mut event = format!("id: {reel}-{}\nevent: message\ndata: ", self.last).into_bytes();
        event.extend_from_slice(message);
        event.extend_from_slice(b"\n\n");
        let event = Bytes::from(event);
        self.bytes += event.len();
        self.kept.push_back((self.last, event.clone()));
        while self.kept.len() > KEPT || (self.bytes > KEPT_BYTES && self.kept.len() > 1) {
            let Some((_, old)) = self.kept.pop_front() else { break };
            self.bytes -= old.len();
        }
        if let Reader::Here(reader) = &self.reader
            && reader.try_send(event).is_err()
        {
            self.reader = Reader::Gone;
        }
    }
}

// === impl Expected ===

impl Drop for Expected {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(state.reader, Reader::Expected) {
            state.reader = Reader::Gone;
        }
    }
}

// === impl Reels ===

impl Reels {
    /// Keeps a stream that a caller has begun to read.
    pub(super) fn keep(&self, reel: &Arc<Reel>) {
        let mut all = self.lock();
        all.retain(|kept| !kept.is_old());
        let over = all.iter().filter(|kept| kept.is_over()).count();
        if over >= KEPT_REELS
            && let Some(oldest) = all.iter().position(|kept| kept.is_over())
        {
            all.remove(oldest);
        }
        all.push(Arc::clone(reel));
    }

    /// The stream that belongs to no request.
    pub(super) fn always(&self) -> Arc<Reel> {
        let mut all = self.lock();
        if let Some(reel) = all.iter().find(|reel| reel.number == ALWAYS) {
            return Arc::clone(reel);
        }
        let reel = Arc::new(Reel::new(ALWAYS));
        all.push(Arc::clone(&reel));
        reel
    }

    /// The stream that an event was of, and the event's number.
    pub(super) fn find(&self, event: &str) -> Option<(Arc<Reel>, u64)> {
        let (reel, event) = event.split_once('-')?;
        let (reel, event): (u64, u64) = (reel.parse().ok()?, event.parse().ok()?);
        let found = self.lock().iter().find(|known| known.number == reel).cloned();
        found.map(|reel| (reel, event))
    }

    /// Whether somebody reads the stream that belongs to no request.
    pub(super) fn is_read(&self) -> bool {
        self.lock().iter().any(|reel| reel.number == ALWAYS && reel.is_read())
    }

    /// Ends the stream that belongs to no request. Those of requests end with them.
    pub(super) fn stop(&self) {
        self.lock().iter().filter(|reel| reel.number == ALWAYS).for_each(|reel| reel.end());
    }

    /// Ends everything.
    pub(super) fn end(&self) {
        self.lock().drain(..).for_each(|reel| reel.end());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Reel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
