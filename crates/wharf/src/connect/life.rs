//! What is known of a call that waits: when the server last gave a sign of it, and who hears how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Companion;
use super::inbox::Failure;
use crate::names::ToolName;
use crate::text::Foreign;
use crate::wire::Json;

/// Signs of life of a call, and where its progress goes.
pub(crate) struct Life {
    started: Instant,
    last_ms: AtomicU64,
    end: Mutex<End>,
    /// Whether the answer came, without a lock.
    is_answered: AtomicBool,
    /// Whoever waits looks by itself before it waits again, so it need not be woken.
    is_awake: AtomicBool,
    sink: Option<mpsc::Sender<Progress>>,
    /// The tool, if it is a call of one.
    pub(crate) tool: Option<ToolName>,
    /// It stays open to hear news: it is no call that somebody waits for. What the server agreed to goes here.
    pub(crate) standing: Option<mpsc::Sender<Json>>,
    /// Who goes with it, if it is made for somebody else.
    pub(crate) companion: Option<Arc<dyn Companion>>,
}

/// What the server says to a call in the end.
pub(crate) type Answer = Result<Json, Failure>;

/// What a call waits for.
#[derive(Debug, Default)]
struct End {
    answer: Option<Answer>,
    /// It takes longer than most: from now on its deadline is watched.
    late: bool,
    waiting: Option<Waker>,
}

/// What a call waited for.
pub(crate) enum Sign {
    Answer(Answer),
    Late,
}

/// How far a call is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// How far; only grows.
    pub progress: f64,
    /// Of how much, if the server knows.
    pub total: Option<f64>,
    /// What the server is doing.
    pub message: Option<Foreign>,
    /// The parameters as the server wrote them; `None` for the program's own tools.
    pub raw: Option<Json>,
}

// === impl Life ===

impl Life {
    pub(crate) fn new(
        started: Instant,
        sink: Option<mpsc::Sender<Progress>>,
        tool: Option<ToolName>,
        standing: Option<mpsc::Sender<Json>>,
        companion: Option<Arc<dyn Companion>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            started,
            last_ms: AtomicU64::new(0),
            end: Mutex::default(),
            is_answered: AtomicBool::new(false),
            is_awake: AtomicBool::new(false),
            sink,
            tool,
            standing,
            companion,
        })
    }

    /// Says that the call takes longer than most.
    pub(crate) fn is_late(&self) {
        self.change(|end| end.late = true);
    }

    /// The answer came. The first one stands.
    pub(crate) fn answered(&self, answer: Answer) {
        self.is_answered.store(true, Ordering::Relaxed);
        self.change(|end| end.answer = end.answer.take().or(Some(answer)));
    }

    fn change(&self, change: impl FnOnce(&mut End)) {
        let mut end = self.lock();
        change(&mut end);
        let waiting = if self.is_awake.load(Ordering::Relaxed) { None } else { end.waiting.take() };
        drop(end);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Waits for the answer, or until the call takes longer than most.
    pub(crate) fn poll_sign(&self, cx: &Context<'_>) -> Poll<Sign> {
        let mut end = self.lock();
        match end.answer.take() {
            Some(answer) => Poll::Ready(Sign::Answer(answer)),
            None if end.late => Poll::Ready(Sign::Late),
            None => self.wait(&mut end, cx.waker()),
        }
    }

    /// Waits for the answer.
    pub(crate) fn poll_answer(&self, cx: &Context<'_>) -> Poll<Answer> {
        let mut end = self.lock();
        match end.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => self.wait(&mut end, cx.waker()),
        }
    }

    fn wait<T>(&self, end: &mut End, waker: &Waker) -> Poll<T> {
        match &mut end.waiting {
            Some(waiting) => waiting.clone_from(waker),
            None => end.waiting = Some(waker.clone()),
        }
        self.is_awake.store(false, Ordering::Relaxed);
        Poll::Pending
    }

    /// The answer, if it is there.
    pub(crate) fn take_answer(&self) -> Option<Answer> {
        self.lock().answer.take()
    }

    /// Whether the answer came. For a call that reads it itself: others may learn of it late.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Relaxed)
    }

    /// Whoever waits is awake, and looks by itself before it waits again. Needs no lock: what is looked for and this word are
    /// both taken back under it.
    pub(crate) fn hush(&self) {
        self.is_awake.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// When the server last gave a sign; the start counts as one.
    pub(crate) fn last_sign(&self) -> Instant {
        self.started + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn sign(&self, progress: Progress) {
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(elapsed, Ordering::Relaxed);
        if let Some(sink) = &self.sink {
            // A caller that does not keep up misses steps of progress, nothing else.
            let _ = sink.try_send(progress);
        }
    }
}
