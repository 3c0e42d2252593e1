//! Where requests are worked on.
//!
//! In: what a caller asked, as a [`Job`]. Out: its answer. The work of a request needs some ten kilobytes while it is under
//! way. A bench has them, and goes to the next request when its work is done, so that none pays for making that room.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::ending::Shift;
use super::legacy::Talk;
use super::line::Line;
use super::mirrored::Mirrored;
use super::modern::Asked;
use crate::wire::{Pieces, RpcError};

/// The benches that nobody works at.
#[derive(Default)]
pub(super) struct Benches(Mutex<Free>);

#[derive(Default)]
struct Free {
    benches: Vec<Bench>,
    /// How many requests were begun, and how many ended, together.
    moves: u64,
}

/// A request to be answered.
pub(super) struct Job {
    pub(super) desk: Arc<Shift>,
    pub(super) asked: Box<Asked>,
    pub(super) line: Line,
    pub(super) edge: Edge,
}

/// In whose words.
pub(super) enum Edge {
    /// With the headers that repeat its arguments, where there are headers.
    Modern(Option<Mirrored>),
    Legacy(Arc<Talk>),
}

/// A request that is worked on. Dropped before its end, it is cancelled.
pub(super) struct UnderWay {
    /// What is to be done, until that is begun.
    job: Option<Job>,
    bench: Option<Bench>,
}

type Answer = Result<Pieces, RpcError>;

/// Never ends: after one job comes another.
type Bench = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// What goes to a bench and what comes from it while it is polled, which is on one thread: no lock is needed.
    static JOB: Cell<Option<Job>> = const { Cell::new(None) };
    static DONE: Cell<Option<(Answer, Arc<Shift>)>> = const { Cell::new(None) };
}

/// So many benches are kept. Where more is under way at a time, the others are made for it.
const KEPT: usize = 256;

// === impl Benches ===

impl Benches {
    /// Keeps none of them.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut self.lock().benches);
        drop(all);
    }

    /// A number that is another one when a request was begun or has ended since.
    pub(super) fn moves(&self) -> u64 {
        self.lock().moves
    }

    fn take(&self) -> Option<Bench> {
        let mut free = self.lock();
        free.moves += 1;
        free.benches.pop()
    }

    fn put(&self, bench: Bench) {
        let mut free = self.lock();
        free.moves += 1;
        if free.benches.len() < KEPT {
            free.benches.push(bench);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Benches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Benches").field(&self.lock().benches.len()).finish()
    }
}

// === impl Job ===

impl Job {
    /// Puts it on a bench. Nothing is done before somebody waits for it.
    pub(super) fn start(self) -> UnderWay {
        let bench = self.desk.benches.take().unwrap_or_else(|| Box::pin(work()));
        UnderWay { job: Some(self), bench: Some(bench) }
    }

    async fn done(self) -> (Answer, Arc<Shift>) {
        let Self { desk, asked, line, edge } = self;
        let answer = match edge {
            Edge::Modern(mirrored) => asked.answered(&desk, &line, mirrored.as_ref()).await,
            Edge::Legacy(talk) => talk.answered(&desk, &asked, line).await,
        };
        (answer, desk)
    }
}

/// One job after the other.
async fn work() {
    loop {
        let job = poll_fn(|_| JOB.take().map_or(Poll::Pending, Poll::Ready)).await;
        let done = job.done().await;
        DONE.set(Some(done));
    }
}

// === impl UnderWay ===

impl Future for UnderWay {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        let Some(bench) = &mut this.bench else { return Poll::Pending };
        if let Some(job) = this.job.take() {
            JOB.set(Some(job));
        }
        // It waits for the next job where it would end.
        let _ = bench.as_mut().poll(cx);
        let Some((answer, desk)) = DONE.take() else { return Poll::Pending };
        if let Some(bench) = this.bench.take() {
            desk.benches.put(bench);
        }
        Poll::Ready(answer)
    }
}
