//! Everything a server sends, whatever it came through, is sorted here: answers to their calls, progress to its call,
//! requests and news to the owner. What fits nowhere is counted, and too much of it ends the connection.

mod news;
mod strays;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::life::Life;
use super::monitor::Monitor;
use super::reader::Bell;
use super::waiting::later;
use super::{Companion, Peer};
use crate::mcp::{code, method};
use crate::names::ServerName;
use crate::wire::{self, Json, Limits, Malformed, Message, Pending, ReplyId, RpcError, Ticket};
use strays::Counters;
pub use strays::{Strays, StraysByServer};

/// Where the messages of one connection go.
pub(crate) struct Inbox {
    pub(crate) server: ServerName,
    pub(crate) limits: Limits,
    pending: Pending<Arc<Life>>,
    /// Whom a pipe wakes.
    pub(super) bell: Arc<Bell>,
    /// Whether somebody looks who waits long.
    clock: AtomicBool,
    peer: Arc<dyn Peer>,
    /// Answers requests of the server; absent until the link can be written to.
    back: OnceLock<Arc<dyn Fn(Vec<u8>) + Send + Sync>>,
    /// Why the connection ended; `None` while it lives.
    closed: watch::Sender<Option<Closed>>,
    /// Whether it ended, without a lock.
    is_over: AtomicBool,
    batches: AtomicBool,
    /// How many messages answered nothing.
    unasked: AtomicU64,
    unexpected: AtomicUsize,
    /// Requests under way that nobody waits for: they stay open to hear news.
    standing: AtomicUsize,
    counters: Counters,
    /// What was wrong with the first frame that could not be taken.
    untaken: OnceLock<String>,
    /// Requests of the server that are being answered; a server that asks more at once is told to wait.
    asking: Arc<Semaphore>,
    /// When a question of the server was last answered.
    answered: Arc<Mutex<Option<Instant>>>,
    /// Until when the server wants to be left alone.
    rests: Mutex<Option<Instant>>,
    pub(crate) monitor: Monitor,
}

/// Why a connection ended.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    pub(crate) reason: String,
    /// The server broke the protocol, as opposed to having gone away.
    pub(crate) protocol: bool,
}

/// How an awaited answer ended.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server answered with an error.
    Rpc(RpcError),
    /// The answer cannot be taken.
    Malformed(String),
    /// The connection ended first.
    Closed(Closed),
}

/// As many calls at a time are a crowd.
const CROWD: usize = 8;
/// Why a connection ended that we closed.
const CLOSED: &str = "it was closed";
/// The most requests of one server that are answered at the same time.
const ASKING: usize = 16;

// === impl Inbox ===

impl Inbox {
    pub(crate) fn new(
        server: ServerName,
        limits: Limits,
        peer: Arc<dyn Peer>,
        (monitor, strays): (Monitor, &StraysByServer),
    ) -> Arc<Self> {
        let counters = strays.counters(&server);
        Arc::new(Self {
            server,
            limits,
            pending: Pending::default(),
            bell: Bell::new(),
            clock: AtomicBool::new(false),
            peer,
            back: OnceLock::new(),
            closed: watch::channel(None).0,
            is_over: AtomicBool::new(false),
            batches: AtomicBool::new(false),
            unasked: AtomicU64::new(0),
            unexpected: AtomicUsize::new(0),
            standing: AtomicUsize::new(0),
            counters,
            untaken: OnceLock::new(),
            asking: Arc::new(Semaphore::new(ASKING)),
            answered: Arc::default(),
            rests: Mutex::default(),
            monitor,
        })
    }

    /// Sets how requests of the server are answered. Later calls are ignored: a connection has one way back.
    pub(crate) fn answer_through(&self, back: impl Fn(Vec<u8>) + Send + Sync + 'static) {
        let _ = self.back.set(Arc::new(back));
    }

    /// Several messages in one frame are accepted from now on (2025-03-26 only).
    pub(crate) fn allow_batches(&self) {
        self.batches.store(true, Ordering::Relaxed);
    }

    /// Lets a call wait for its answer, and says whether it is one of a crowd.
    pub(crate) fn register(&self, life: Arc<Life>) -> Result<(Ticket, bool), Closed> {
        if self.unexpected.load(Ordering::Relaxed) > 0 && self.is_idle() {
            self.unexpected.store(0, Ordering::Relaxed);
        }
        let counted = self.pending.insert_counted(life);
        counted.map(|(ticket, waiting)| (ticket, waiting >= CROWD)).map_err(|_| {
            self.closed().unwrap_or_else(|| Closed {
                reason: "too many calls wait on this connection".into(),
                protocol: false,
            })
        })
    }

    /// Whether a clock must be started for the calls that wait.
    pub(super) fn start_clock(&self) -> bool {
        !self.clock.load(Ordering::Acquire) && !self.clock.swap(true, Ordering::AcqRel)
    }

    /// Whether the clock may stop: not if a call began to wait in the meantime.
    pub(super) fn stop_clock(&self) -> bool {
        self.clock.store(false, Ordering::SeqCst);
        self.pending.is_empty() || self.clock.swap(true, Ordering::SeqCst)
    }

    /// Tells every call that waits that it takes longer than most, and leaves the reading of their answers to the task.
    /// False if none waits.
    pub(super) fn mark_late(&self) -> bool {
        let mut any = false;
        self.pending.each(|life| {
            any = true;
            life.is_late();
        });
        if any {
            self.bell.call_task();
        }
        any
    }

    /// Nobody waits for this call any more. False if its answer came before.
    pub(crate) fn forget(&self, id: u64) -> bool {
        self.pending.take(id).is_some()
    }

    /// Takes one frame from the server.
    pub(crate) fn take(&self, frame: Bytes) {
        self.take_as(None, frame);
    }

    /// Takes one frame that came in the answer to a call: an error in it without an id is that call's. Says what is
    /// wrong with a frame that cannot be taken and does not say whose it is.
    pub(crate) fn take_for(&self, call: u64, frame: Bytes) -> Option<String> {
        self.take_as(Some(call), frame)
    }

    fn take_as(&self, call: Option<u64>, frame: Bytes) -> Option<String> {
        self.monitor.traffic(&self.server, false, &frame);
        if !wire::is_batch(&frame) {
            return self.take_message(call, wire::parse_message(frame, self.limits.depth));
        }
        let messages = wire::parse_frame(frame, self.limits.depth);
        // A batch of one is a batch.
        if !self.batches.load(Ordering::Relaxed) {
            self.refuse_batch(&messages);
            return None;
        }
        messages.into_iter().filter_map(|message| self.take_message(call, message)).last()
    }

    fn take_message(&self, call: Option<u64>, message: Result<Message, Malformed>) -> Option<String> {
        match (message, call) {
            (
                Ok(Message::Response { id: ReplyId::Null | ReplyId::Unknown, outcome: Err(error) }),
                Some(call),
            ) => self.deliver(call, Err(error)),
            (Ok(message), _) => self.sort(call, message),
            (Err(malformed), _) => {
                let wrong = malformed.id.is_none().then(|| malformed.reason.clone());
                self.malformed(malformed);
                return wrong;
            }
        }
        None
    }

    /// Takes the body of a refusal of a call. If it is an error of JSON-RPC, it is that call's, whatever id it names:
    /// servers that did not read the request cannot know its id.
    pub(crate) fn take_error(&self, call: u64, body: Bytes) -> bool {
        let mut messages = wire::parse_frame(body.clone(), self.limits.depth);
        match messages.pop() {
            Some(Ok(Message::Response { outcome: Err(error), .. })) if messages.is_empty() => {
                self.monitor.traffic(&self.server, false, &body);
                self.deliver(call, Err(error));
                true
            }
            _ => false,
        }
    }

    /// Ends a call whose answer came and cannot be taken. Nothing happens if it ended before.
    pub(crate) fn refuse(&self, call: u64, reason: String) {
        if self.waits(call) {
            self.malformed(Malformed::new(Some(call), reason));
        }
    }

    /// Whether a call still waits for its answer.
    pub(crate) fn waits(&self, call: u64) -> bool {
        self.pending.with(call, |_| ()).is_some()
    }

    /// Takes what a server wrote last, without a line break. Half a message answers nothing, also not with an error: the
    /// server died while it wrote.
    pub(crate) fn take_last(&self, frame: Bytes) {
        let whole = wire::parse_frame(frame.clone(), self.limits.depth).iter().all(Result::is_ok);
        if whole {
            self.take(frame);
        } else {
            self.counters.malformed();
        }
    }

    fn sort(&self, call: Option<u64>, message: Message) {
        match message {
            Message::Response { id: ReplyId::Number(id), outcome } => self.deliver(id, outcome),
            Message::Response { id: ReplyId::Respelt(id), .. } => {
                self.malformed(Malformed::new(Some(id), "its id is not the number that was sent"));
            }
            Message::Response { id: ReplyId::Null, outcome: Err(error) } => self.nameless(error),
            Message::Response { .. } => self.counters.answer(),
            Message::Notification { method, params } => {
                self.unasked.fetch_add(1, Ordering::Relaxed);
                self.news(call, &method, params);
            }
            Message::Request { id, method, params } => {
                self.unasked.fetch_add(1, Ordering::Relaxed);
                self.asked(call, id, &method, params);
            }
        }
    }

    /// How many messages came that answered nothing.
    pub(super) fn unasked(&self) -> u64 {
        self.unasked.load(Ordering::Relaxed)
    }

    fn deliver(&self, id: u64, outcome: Result<Json, RpcError>) {
        // A server that answers works. Without this, a connection that is never idle would end some day.
        self.unexpected.store(0, Ordering::Relaxed);
        match self.pending.take(id) {
            // The caller may have given up in this very moment, which is its right.
            Some(life) => life.answered(outcome.map_err(Failure::Rpc)),
            None => self.counters.answer(),
        }
    }

    /// An error without an id: the server could not read the request. With one call under way it is that one's.
    fn nameless(&self, error: RpcError) {
        match self.pending.only() {
            Some(id) => self.deliver(id, Err(error)),
            None => self.counters.answer(),
        }
    }

    /// Ends the call that a bad frame was meant to answer, where that can be told; the stream goes on.
    pub(crate) fn malformed(&self, malformed: Malformed) {
        self.counters.malformed();
        self.puzzle(|| malformed.reason.clone());
        if let Some(life) = malformed.id.and_then(|id| self.pending.take(id)) {
            life.answered(Err(Failure::Malformed(malformed.reason)));
        }
    }

    /// Counts a line that does not even look like a message.
    pub(super) fn chatter(&self) {
        self.counters.malformed();
    }

    /// Keeps what is wrong with what came, if it is the first: whoever waits in vain for an answer may want to know.
    pub(super) fn puzzle(&self, wrong: impl FnOnce() -> String) {
        self.untaken.get_or_init(wrong);
    }

    /// What was wrong with the first frame that could not be taken.
    pub(super) fn untaken(&self) -> Option<&str> {
        self.untaken.get().map(String::as_str)
    }

    fn refuse_batch(&self, messages: &[Result<Message, Malformed>]) {
        self.counters.malformed();
        for message in messages {
            let id = match message {
                Ok(Message::Response { id, .. }) => id.number(),
                Err(malformed) => malformed.id,
                Ok(_) => None,
            };
            if let Some(life) = id.and_then(|id| self.pending.take(id)) {
                let reason =
                    "it came in a batch, which this revision of the protocol does not have".to_owned();
                life.answered(Err(Failure::Malformed(reason)));
            }
        }
    }

    fn asked(&self, call: Option<u64>, id: Json, name: &str, params: Option<Json>) {
        if name == method::PING {
            self.answer(&id, &Ok(Json::empty_object()));
            return;
        }
        let Ok(slot) = Arc::clone(&self.asking).try_acquire_owned() else {
            self.answer(&id, &Err(RpcError::new(code::INTERNAL, "too many requests at once")));
            return;
        };
        let Some(back) = self.back.get().map(Arc::clone) else {
            return;
        };
        // Where it is certain which call a question belongs to, whoever the call is made for is asked.
        let answer = match self.companion(call) {
            Some(companion) => companion.request(&self.server, name, params),
            None => self.peer.request(&self.server, name, params),
        };
        let mut closed = self.closed.subscribe();
        let answered = Arc::clone(&self.answered);
        tokio::spawn(async move {
            tokio::select! {
                answer = answer => {
                    *answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                    back(write_answer(&id, &answer));
                }
                // With the server gone, whoever is asked need not answer any more.
                _ = closed.wait_for(Option::is_some) => {}
            }
            drop(slot);
        });
    }

    /// Who goes with the call that a message came for, or with the only call that there is.
    fn companion(&self, call: Option<u64>) -> Option<Arc<dyn Companion>> {
        let of = |life: &Life| life.companion.clone();
        if let Some(found) = call.and_then(|call| self.pending.with(call, |life| of(life))) {
            return found;
        }
        let (mut calls, mut found) = (0, None);
        self.pending.each(|life| {
            // What nobody goes with and is no call of a tool is our own housekeeping.
            if life.standing.is_none() && (life.companion.is_some() || life.tool.is_some()) {
                (calls, found) = (calls + 1, of(life));
            }
        });
        found.filter(|_| calls == 1)
    }

    /// Whether a question of the server awaits its answer. The calls on this connection wait with it: which of them it
    /// belongs to, a server does not say.
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.available_permits() < ASKING
    }

    /// When a question of the server was last answered: from then on it has its time again.
    pub(crate) fn last_answered(&self) -> Option<Instant> {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server wants to be left alone for so long.
    pub(super) fn rest(&self, time: Duration) {
        *self.rests.lock().unwrap_or_else(PoisonError::into_inner) = Some(later(Instant::now(), time));
    }

    /// For how much longer the server wants to be left alone.
    pub(super) fn asked_to_wait(&self) -> Option<Duration> {
        let until = (*self.rests.lock().unwrap_or_else(PoisonError::into_inner))?;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    fn answer(&self, id: &Json, outcome: &Result<Json, RpcError>) {
        if let Some(back) = self.back.get() {
            back(write_answer(id, outcome));
        }
    }

    /// Ends the connection: every waiting call fails at once. The first reason stands.
    pub(crate) fn close(&self, why: Closed) {
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            if first {
                *closed = Some(why.clone());
                self.is_over.store(true, Ordering::Release);
            }
            first
        });
        let why = self.closed().unwrap_or(why);
        for life in self.pending.close() {
            life.answered(Err(Failure::Closed(why.clone())));
        }
    }

    /// Why the connection ended, if it did.
    pub(crate) fn closed(&self) -> Option<Closed> {
        self.closed.borrow().clone()
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until the connection ends.
    pub(crate) async fn until_closed(&self) -> Closed {
        let mut watch = self.closed.subscribe();
        let ended = watch.wait_for(Option::is_some).await.ok().and_then(|c| c.clone());
        ended.unwrap_or_else(|| Closed { reason: "it was dropped".into(), protocol: false })
    }

    pub(crate) fn strays(&self) -> Strays {
        self.counters.read()
    }
}

fn write_answer(id: &Json, outcome: &Result<Json, RpcError>) -> Vec<u8> {
    match outcome {
        Ok(result) => wire::response_result(id, result),
        Err(error) => wire::response_error(id, error),
    }
}

// === impl Closed ===

impl Closed {
    /// Ended from our side, on purpose.
    pub(crate) fn by_us() -> Self {
        Self { reason: CLOSED.into(), protocol: false }
    }

    pub(crate) fn is_by_us(&self) -> bool {
        self.reason == CLOSED
    }
}
