//! A modern caller on a legacy server that asks in the middle of a call.
//!
//! The server waits for an answer, and the caller for a result. So the call is parked here; the caller gets the
//! question as its result, with a state that stands for the call; its next request brings the answer, and the call
//! goes on where it was. Its time runs on meanwhile: how it ends is kept for its caller. A call that nobody comes back for
//! is cancelled.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::consent;
use super::ending::Shift;
use super::line::Line;
use super::seal::{self, GOOD_FOR};
use super::visit;
use crate::ask::{Answered, Asker, Offers, Question, Relaying};
use crate::mcp::{code, method};
use crate::names::{CallerName, ServerName};
use crate::wire::{Json, Members, RpcError};

/// The asker of one request of a modern caller: what it is asked becomes the result of the request.
#[derive(Debug)]
pub(super) struct Inquirer {
    capabilities: Json,
    /// Nobody hears the questions of a server that asks while no request is under way.
    questions: Option<mpsc::Sender<Asked>>,
}

/// A question that a server waits for the answer of.
#[derive(Debug)]
struct Asked {
    method: String,
    params: Option<Json>,
    reply: oneshot::Sender<Result<Json, RpcError>>,
}

/// A request under way, and what its server asks meanwhile.
pub(super) struct Running {
    work: Pin<Box<dyn Future<Output = Result<Json, RpcError>> + Send>>,
    questions: mpsc::Receiver<Asked>,
    line: Line,
    /// That of the request by which its caller came last: it says whether the call may go on.
    last: Line,
    /// Asked and not answered yet, by the names under which the caller was asked.
    open: BTreeMap<String, Asked>,
    asked: usize,
}

/// How far a request came.
pub(super) enum Step {
    Done(Result<Json, RpcError>),
    /// Its server asks: the questions, as a member of the result.
    Asks(Json),
}

/// Calls that wait for their callers.
#[derive(Debug, Default)]
pub(super) struct Parking {
    next: AtomicU64,
    parked: Mutex<HashMap<u64, Parked>>,
}

struct Parked {
    /// Through which door its caller came.
    door: Arc<Shift>,
    caller: CallerName,
    /// That of the request by which its caller came last.
    last: Line,
    away: Arc<Away>,
    /// What goes on meanwhile. It ends when somebody goes on with the call.
    _meanwhile: JoinSet<()>,
}

/// A call whose caller is away, until somebody takes it. Locked while it takes a step: nobody waits for a lock meanwhile but
/// its caller.
type Away = Mutex<Option<Running>>;

/// How many calls may be parked, in all and by one caller.
const MOST: usize = 1024;
const MOST_OF_ONE: usize = 16;
/// How long further questions of the same moment may take to arrive.
const GATHER: Duration = Duration::from_millis(20);
/// How many questions one request may be asked at a time, and in all.
const AT_ONCE: usize = 16;
const IN_ALL: usize = 64;

// === impl Inquirer ===

impl Inquirer {
    /// For a request that is under way; the questions come out at the other end.
    fn new(capabilities: Json) -> (Arc<Self>, mpsc::Receiver<Asked>) {
        let (questions, asked) = mpsc::channel(AT_ONCE);
        (Arc::new(Self { capabilities, questions: Some(questions) }), asked)
    }

    /// For a caller who can be asked nothing.
    pub(super) fn nobody() -> Arc<Self> {
        static NOBODY: LazyLock<Arc<Inquirer>> =
            LazyLock::new(|| Arc::new(Inquirer::absent(Json::empty_object())));
        Arc::clone(&NOBODY)
    }

    /// For a caller of whom no request is under way: it offers the same, and cannot be asked.
    pub(super) fn absent(capabilities: Json) -> Self {
        Self { capabilities, questions: None }
    }
}

impl Asker for Inquirer {
    fn offers(&self) -> Offers {
        let page = Json::of(&serde_json::json!({ "mode": "url" }));
        Offers { urls: visit::offers(&self.capabilities, method::ELICIT, Some(&page)), ..Offers::default() }
    }

    fn ask(&self, server: &ServerName, question: Question) -> Answered {
        consent::ask(self, server, question)
    }

    fn capabilities(&self) -> Json {
        visit::for_modern(&self.capabilities)
    }

    fn legacy_capabilities(&self) -> Json {
        visit::without_tasks(visit::for_modern(&self.capabilities))
    }

    fn relay(&self, _: &ServerName, method: &str, params: Option<&Json>) -> Option<Relaying> {
        if !visit::offers(&self.capabilities, method, params) {
            let error = RpcError::new(code::METHOD_NOT_FOUND, format!("`{method}` was not offered"));
            return Some(Box::pin(std::future::ready(Err(error))));
        }
        let nobody = || RpcError::new(code::INTERNAL, "nobody is there who could be asked");
        let (method, params, questions) = (method.to_owned(), params.cloned(), self.questions.clone());
        Some(Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let questions = questions.ok_or_else(nobody)?;
            questions.send(Asked { method, params, reply }).await.map_err(|_| nobody())?;
            answer.await.map_err(|_| nobody())?
        }))
    }
}

// === impl Running ===

impl Running {
    /// Starts the work of a request. It is given whoever is asked on its behalf.
    pub(super) fn start<F>(capabilities: Json, line: Line, work: impl FnOnce(Arc<dyn Asker>) -> F) -> Self
    where
        F: Future<Output = Result<Json, RpcError>> + Send + 'static,
    {
        let (asker, questions) = Inquirer::new(capabilities);
        let work = Box::pin(work(asker));
        let last = line.clone();
        Self { work, questions, line, last, open: BTreeMap::new(), asked: 0 }
    }

    /// Goes on until it is done, or its server wants to know something.
    pub(super) async fn go(&mut self) -> Step {
        if !self.open.is_empty() {
            return self.asks();
        }
        let first = tokio::select! {
            biased;
            result = &mut self.work => return Step::Done(result),
            Some(first) = self.questions.recv() => first,
        };
        self.take(first);
        // A server that has several questions asks them one after the other.
        tokio::select! {
            biased;
            result = &mut self.work => return Step::Done(result),
            () = tokio::time::sleep(GATHER) => {}
        }
        while let Ok(more) = self.questions.try_recv() {
            self.take(more);
        }
        if self.asked > IN_ALL {
            let error =
                RpcError::new(code::INTERNAL, format!("the server asked more than {IN_ALL} questions"));
            return Step::Done(Err(error));
        }
        self.asks()
    }

    /// Gives the caller's answers to the server. What is not answered is asked again.
    fn answer(&mut self, responses: Option<&Json>) {
        let Some(responses) = responses else { return };
        for (name, asked) in std::mem::take(&mut self.open) {
            match responses.member(&name).filter(Json::is_object) {
                // The server may have given up in the meantime; the call will tell.
                Some(response) => drop(asked.reply.send(Ok(response))),
                None => drop(self.open.insert(name, asked)),
            }
        }
    }

    /// A kind of question that is open, and that somebody with these capabilities cannot be asked.
    pub(super) fn asks_beyond(&self, capabilities: &Json) -> Option<&str> {
        let is_beyond = |asked: &&Asked| !visit::offers(capabilities, &asked.method, asked.params.as_ref());
        self.open.values().find(is_beyond).and_then(|asked| asked.method.split('/').next())
    }

    /// Goes on while its caller is away: its time may be over, and its server may wait no longer. How it ended is what its
    /// caller finds, in place of what was asked.
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ended = ready!(self.work.as_mut().poll(cx));
        self.work = Box::pin(std::future::ready(ended));
        self.open.clear();
        Poll::Ready(())
    }

    fn take(&mut self, asked: Asked) {
        self.asked += 1;
        self.open.insert(format!("q{}", self.asked), asked);
    }

    fn asks(&self) -> Step {
        let mut all = Members::new();
        for (name, asked) in &self.open {
            let mut one = Members::new();
            one.text("method", &asked.method);
            // A modern caller knows nothing of the id by which a legacy server tells that a page was visited.
            let mut params = Members::new();
            if let Some(asked) = &asked.params {
                params.append_without(asked, &["elicitationId", "task"]);
            }
            if asked.params.is_some() {
                one.object("params", &params);
            }
            all.json_under(name, &one.to_json());
        }
        Step::Asks(all.to_json())
    }
}

// === impl Parking ===

impl Parking {
    /// Parks a call until its caller comes back, and gives the number under which it is found.
    pub(super) fn park(
        self: &Arc<Self>,
        door: &Arc<Shift>,
        caller: &CallerName,
        running: Running,
    ) -> Result<u64, RpcError> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let last = running.last.clone();
        let away = Arc::new(Mutex::new(Some(running)));
        let mut meanwhile = JoinSet::new();
        meanwhile.spawn(go_on(Arc::downgrade(&away)));
        meanwhile.spawn(forget(Arc::downgrade(self), ticket));
        let call =
            Parked { door: Arc::clone(door), caller: caller.clone(), last, away, _meanwhile: meanwhile };
        let forgotten;
        {
            let mut parked = self.lock();
            let own =
                || parked.iter().filter(|(_, parked)| parked.caller == *caller).map(|(ticket, _)| *ticket);
            // A caller that leaves so many unanswered has forgotten the oldest.
            let oldest = (own().count() >= MOST_OF_ONE).then(|| own().min()).flatten();
            forgotten = oldest.and_then(|oldest| parked.remove(&oldest));
            if parked.len() >= MOST {
                let error = "too many calls wait for an answer; answer some first";
                return Err(RpcError::new(code::INTERNAL, error));
            }
            parked.insert(ticket, call);
        }
        // Dropped outside of the lock: it tells the server that nobody waits any more.
        drop(forgotten);
        Ok(ticket)
    }

    /// A parked call goes on: with the answers that its caller brings, and on the line of its new request.
    pub(super) fn resume(
        &self,
        ticket: u64,
        responses: Option<&Json>,
        line: &Line,
    ) -> Result<Running, RpcError> {
        let parked = self.lock().remove(&ticket).ok_or_else(seal::refused)?;
        let mut running = lock(&parked.away).take().ok_or_else(seal::refused)?;
        running.line.lead_to(line);
        running.last = line.clone();
        running.answer(responses);
        Ok(running)
    }

    /// Ends the calls that may not go on.
    pub(super) fn withdraw(&self) {
        let is_over = |parked: &Parked| parked.door.is_over() || parked.last.withdrawn().is_some();
        let over: Vec<_> = self.lock().extract_if(|_, parked| is_over(parked)).collect();
        // Dropped outside of the lock: it tells the servers that nobody waits any more.
        drop(over);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Parked>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a call go on whose caller is away.
async fn go_on(away: Weak<Away>) {
    let step = |cx: &mut Context<'_>| {
        let Some(away) = away.upgrade() else { return Poll::Ready(()) };
        lock(&away).as_mut().map_or(Poll::Ready(()), |running| running.go_on(cx))
    };
    std::future::poll_fn(step).await;
}

/// Cancels a call that nobody came back for.
async fn forget(parking: Weak<Parking>, ticket: u64) {
    tokio::time::sleep(GOOD_FOR).await;
    // Dropped outside of the lock: it tells the server that nobody waits any more.
    let late = parking.upgrade().and_then(|parking| parking.lock().remove(&ticket));
    drop(late);
}

fn lock(away: &Away) -> MutexGuard<'_, Option<Running>> {
    away.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Parked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parked({})", self.caller)
    }
}
