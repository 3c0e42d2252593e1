//! Where requests are worked on.
//!
//! In: what a caller asked, as a [`Job`]. Out: its answer. The work of a request needs some ten kilobytes while it is under
//! way. A bench has them, and goes to the next request when its work is done, so that none pays for making that room.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::desk::Desk;
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
    pub(super) desk: Arc<Desk>,
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
    desk: Arc<Desk>,
    bench: Option<Bench>,
}

type Answer = Result<Pieces, RpcError>;

struct Bench {
    top: Arc<Top>,
    /// Never ends: after one job comes another.
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// What lies on a bench: what is to be done, and what was.
#[derive(Default)]
struct Top(Mutex<(Option<Job>, Option<Answer>)>);

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
        let desk = Arc::clone(&self.desk);
        let bench = desk.benches.take().unwrap_or_else(Bench::new);
        bench.top.lock().0 = Some(self);
        UnderWay { desk, bench: Some(bench) }
    }

    async fn done(self) -> Answer {
        let Self { desk, asked, line, edge } = self;
        match edge {
            Edge::Modern(mirrored) => asked.answered(&desk, &line, mirrored.as_ref()).await,
            Edge::Legacy(talk) => talk.answered(&desk, &asked, line).await,
        }
    }
}

// === impl Bench ===

impl Bench {
    fn new() -> Self {
        let top = Arc::<Top>::default();
        let work = Box::pin(work(Arc::clone(&top)));
        Self { top, work }
    }
}

/// One job after the other.
async fn work(top: Arc<Top>) {
    loop {
        let job = poll_fn(|_| top.lock().0.take().map_or(Poll::Pending, Poll::Ready)).await;
        let answer = job.done().await;
        top.lock().1 = Some(answer);
    }
}

// === impl Top ===

impl Top {
    fn lock(&self) -> MutexGuard<'_, (Option<Job>, Option<Answer>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl UnderWay ===

impl Future for UnderWay {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let Some(bench) = &mut self.bench else { return Poll::Pending };
        // It waits for the next job where it would end.
        let _ = bench.work.as_mut().poll(cx);
        let answer = bench.top.lock().1.take();
        let Some(answer) = answer else { return Poll::Pending };
        if let Some(bench) = self.bench.take() {
            self.desk.benches.put(bench);
        }
        Poll::Ready(answer)
    }
}
