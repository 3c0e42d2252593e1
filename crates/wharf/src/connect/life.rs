//! What is known of a call that waits: when the server last gave a sign of it, and who hears how far it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Companion;
use crate::names::ToolName;
use crate::text::Foreign;
use crate::wire::Json;

/// Signs of life of a call, and where its progress goes.
pub(crate) struct Life {
    started: Instant,
    last_ms: AtomicU64,
    /// It takes longer than most: from now on its deadline is watched.
    late: AtomicBool,
    waiting: AtomicWaker,
    sink: Option<mpsc::Sender<Progress>>,
    /// The tool, if it is a call of one.
    pub(crate) tool: Option<ToolName>,
    /// It stays open to hear news: it is no call that somebody waits for. What the server agreed to goes here.
    pub(crate) standing: Option<mpsc::Sender<Json>>,
    /// Who goes with it, if it is made for somebody else.
    pub(crate) companion: Option<Arc<dyn Companion>>,
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
        sink: Option<mpsc::Sender<Progress>>,
        tool: Option<ToolName>,
        standing: Option<mpsc::Sender<Json>>,
        companion: Option<Arc<dyn Companion>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            last_ms: AtomicU64::new(0),
            late: AtomicBool::new(false),
            waiting: AtomicWaker::new(),
            sink,
            tool,
            standing,
            companion,
        })
    }

    /// Says that the call takes longer than most.
    pub(crate) fn is_late(&self) {
        self.late.store(true, Ordering::Release);
        self.waiting.wake();
    }

    /// Waits until the call takes longer than most.
    pub(crate) async fn until_late(&self) {
        std::future::poll_fn(|cx| {
            self.waiting.register(cx.waker());
            if self.late.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
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
