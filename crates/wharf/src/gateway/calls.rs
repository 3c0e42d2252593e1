//! Requests under way that only their caller's word cancels, by their ids. Over a pipe there are only so many, each with an
//! id of its own.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable};
use tokio::sync::mpsc;

use super::bench::{Job, UnderWay};
use super::ending::Shift;
use super::limits::Overloaded;
use super::line::Line;
use crate::mcp::{code, method};
use crate::wire::{Json, Pieces, RpcError};

/// What is under way, by the ids as they were written. Dropping it ends nothing.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<Under>);

/// A request that is worked on where it came in. Dropped there before its end, it goes on by itself: a legacy caller that
/// hangs up cancels nothing.
pub(super) struct Errand {
    /// Until it has ended.
    work: Option<Abortable<UnderWay>>,
    calls: Arc<Calls>,
    id: Bytes,
    desk: Arc<Shift>,
    line: Line,
}

/// One of them.
#[derive(Debug)]
struct Call {
    stop: Stop,
    /// The way back to its caller, where it can be asked something.
    line: Option<Line>,
    /// Whether it ends only when nobody wants to hear more.
    is_stream: bool,
}

/// What is begun.
pub(super) struct Begun<'a> {
    pub(super) id: &'a Json,
    pub(super) line: Option<Line>,
    pub(super) is_stream: bool,
}

/// How it is cancelled.
#[derive(Debug)]
enum Stop {
    /// Where it is worked on.
    Work(AbortHandle),
    /// With its task.
    Task(tokio::task::AbortHandle),
}

/// How many requests one caller may have under way on a pipe.
const MOST: usize = 1024;

/// Of one caller, so by a quick hash.
type Under = HashMap<Bytes, Call, foldhash::fast::RandomState>;

// === impl Calls ===

impl Calls {
    /// Begins the work of a request where it came in.
    pub(super) fn begin(self: &Arc<Self>, job: Job) -> Errand {
        let (id, desk, line) = (job.asked.id.bytes().clone(), Arc::clone(&job.desk), job.line.clone());
        let (stop, registration) = AbortHandle::new_pair();
        let work = Some(Abortable::new(job.start(), registration));
        self.lock()
            .insert(id.clone(), Call { stop: Stop::Work(stop), line: Some(line.clone()), is_stream: false });
        Errand { work, calls: Arc::clone(self), id, desk, line }
    }

    /// Starts it where answers go out on one line each. One that is cancelled has none. The error is the answer to one
    /// that is not begun.
    pub(super) fn start_into(
        self: &Arc<Self>,
        Begun { id, line, is_stream }: Begun<'_>,
        work: impl Future<Output = Pieces> + Send + 'static,
        out: mpsc::Sender<Vec<u8>>,
    ) -> Result<(), RpcError> {
        let (calls, key) = (Arc::clone(self), id.bytes().clone());
        {
            let under_way = self.lock();
            if under_way.contains_key(id.bytes()) {
                return Err(RpcError::new(
                    code::INVALID_REQUEST,
                    "a request with this id is under way already",
                ));
            }
            if under_way.len() >= MOST {
                return Err(Overloaded::MUCH.into());
            }
        }
        let work = async move {
            let message = work.await;
            // It is under way until it can be told. Forgotten before it is: its caller may use the id again at once.
            let place = out.reserve().await;
            // What was given up meanwhile was told so.
            if calls.forget(&key)
                && let Ok(place) = place
            {
                place.send(message.into_line());
            }
        };
        // Held until the call is entered, so that its end finds it there.
        let mut under_way = self.lock();
        let stop = Stop::Task(tokio::spawn(work).abort_handle());
        under_way.insert(id.bytes().clone(), Call { stop, line, is_stream });
        Ok(())
    }

    /// Hears what the caller tells: whether it wants something no more.
    pub(super) fn hear(&self, method: &str, params: Option<&Json>) {
        if method == method::CANCELLED
            && let Some(id) = params.and_then(|params| params.member("requestId"))
            && let Some(call) = self.lock().remove(id.bytes())
        {
            call.stop.now();
        }
    }

    /// The ways back to the caller that are open, as long as its requests are under way.
    pub(super) fn lines(&self) -> Vec<Line> {
        self.lock().values().filter_map(|call| call.line.clone()).collect()
    }

    /// Ends everything, and says what that was.
    pub(super) fn cancel_all(&self) -> Vec<Bytes> {
        let gone: Vec<_> = self.lock().drain().collect();
        let mut ids = Vec::with_capacity(gone.len());
        for (id, call) in gone {
            call.stop.now();
            ids.push(id);
        }
        ids
    }

    /// Ends what would not end by itself.
    pub(super) fn cancel_streams(&self) {
        let gone: Vec<_> = self.lock().extract_if(|_, call| call.is_stream).collect();
        gone.into_iter().for_each(|(_, call)| call.stop.now());
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Whether it was still there.
    fn forget(&self, id: &Bytes) -> bool {
        // What goes with it goes where nothing is locked.
        let gone = self.lock().remove(id);
        gone.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Under> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Stop ===

impl Stop {
    fn now(self) {
        match self {
            Self::Work(work) => work.abort(),
            Self::Task(task) => task.abort(),
        }
    }
}

// === impl Errand ===

impl Errand {
    /// Does the rest, wherever that is, unless its end comes first. `None`: it was cancelled.
    pub(super) async fn rest(mut self) -> Option<Result<Pieces, RpcError>> {
        let work = self.work.take()?;
        to_the_end((&self.desk, &self.line), work, (&self.calls, &self.id)).await
    }

    /// Ends it. Its server hears that nobody waits.
    pub(super) fn give_up(&mut self) {
        self.work = None;
        self.calls.forget(&self.id);
    }
}

/// `None`: it was cancelled.
impl Future for Errand {
    type Output = Option<Result<Pieces, RpcError>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        let ended = ready!(Pin::new(work).poll(cx)).ok();
        self.work = None;
        if ended.is_some() {
            self.calls.forget(&self.id);
        }
        Poll::Ready(ended)
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Without a runtime everything ends.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (calls, id) = (Arc::clone(&self.calls), self.id.clone());
        let (desk, line) = (Arc::clone(&self.desk), self.line.clone());
        runtime.spawn(async move {
            to_the_end((&desk, &line), work, (&calls, &id)).await;
        });
    }
}

async fn to_the_end(
    (desk, line): (&Shift, &Line),
    work: Abortable<UnderWay>,
    (calls, id): (&Calls, &Bytes),
) -> Option<Result<Pieces, RpcError>> {
    let work = async { work.await.map_or(Ok(None), |ended| ended.map(Some)) };
    let ended = desk.or_over(line, work).await.transpose();
    // What was cancelled is forgotten already, and its id may be another's.
    if ended.is_some() {
        calls.forget(id);
    }
    ended
}
