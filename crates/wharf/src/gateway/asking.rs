//! A legacy caller is asked by requests: on the stream of its own request while that is open, or on any other way that
//! leads to it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;

use super::consent;
use super::legacy::Talk;
use super::line::Line;
use super::visit;
use crate::ask::{Answered, Asker, Offers, Question, Relaying};
use crate::mcp::{code, method};
use crate::names::ServerName;
use crate::wire::{Json, Members, ReplyId, RpcError, notification, request};

/// Questions that wait for the answers of one caller.
#[derive(Debug, Default)]
pub(super) struct Asks {
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Result<Json, RpcError>>>>,
    /// Pages that the caller was sent to and that nobody said were visited, the newest first.
    pages: Mutex<VecDeque<(ServerName, String)>>,
}

/// The asker of a legacy caller: of one request, or of the whole conversation.
#[derive(Debug)]
pub(super) struct Messenger {
    pub(super) talk: Weak<Talk>,
    pub(super) capabilities: Json,
    /// The way back of the request, if it is for one.
    pub(super) line: Option<Line>,
}

/// How many questions may wait for one caller.
const MOST: usize = 256;

// === impl Asks ===

impl Asks {
    /// The caller answers.
    pub(super) fn answered(&self, id: &ReplyId, outcome: Result<Json, RpcError>) {
        let ReplyId::Number(id) = id else { return };
        if let Some(waiting) = self.lock().remove(id) {
            // Whoever asked may have given up in this very moment.
            let _ = waiting.send(outcome);
        }
    }

    /// The caller is sent to a page that a server will say is visited.
    fn sent_to(&self, server: &ServerName, id: String) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.truncate(MOST - 1);
        pages.push_front((server.clone(), id));
    }

    /// Whether the caller was sent to this page; it is told once.
    pub(super) fn is_visited(&self, server: &ServerName, id: &str) -> bool {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pages.iter().position(|(of, page)| of == server && page == id);
        at.is_some_and(|at| pages.remove(at).is_some())
    }

    fn register(&self) -> Result<(u64, oneshot::Receiver<Result<Json, RpcError>>), RpcError> {
        let (reply, answer) = oneshot::channel();
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut waiting = self.lock();
        if waiting.len() >= MOST {
            return Err(RpcError::new(code::INTERNAL, "too many questions wait for the caller"));
        }
        waiting.insert(id, reply);
        Ok((id, answer))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<Json, RpcError>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Messenger ===

impl Asker for Messenger {
    /// What a legacy server wants done before a call it says in an error, which a legacy caller understands itself.
    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn ask(&self, server: &ServerName, question: Question) -> Answered {
        consent::ask(self, server, question)
    }

    fn capabilities(&self) -> Json {
        visit::without_tasks(visit::for_modern(&self.capabilities))
    }

    fn legacy_capabilities(&self) -> Json {
        visit::without_tasks(visit::for_legacy(&self.capabilities))
    }

    fn log(&self, _: &ServerName, params: &Json) {
        if let Some(talk) = self.talk.upgrade() {
            talk.log(params);
        }
    }

    fn relay(&self, server: &ServerName, method: &str, params: Option<&Json>) -> Option<Relaying> {
        if !visit::offers(&self.capabilities, method, params) {
            let error = RpcError::new(code::METHOD_NOT_FOUND, format!("`{method}` was not offered"));
            return Some(Box::pin(std::future::ready(Err(error))));
        }
        let (talk, line) = (self.talk.clone(), self.line.clone());
        let page = params.and_then(|params| params.member("elicitationId")?.to::<String>().ok());
        let page = page.map(|id| (server.clone(), id));
        let (method, params) = (method.to_owned(), written(method, params));
        Some(Box::pin(async move {
            let gone = || RpcError::new(code::INTERNAL, "the caller cannot be reached");
            let talk = talk.upgrade().ok_or_else(gone)?;
            let (id, answer) = talk.asks.register()?;
            if let Some((server, page)) = page {
                talk.asks.sent_to(&server, page);
            }
            let mut pending = Pending { talk: Arc::clone(&talk), id, said: None };
            let question = request(id, &method, params);
            let said = line.into_iter().chain(talk.lines()).find(|line| line.ask(&question));
            pending.said = Some(said.ok_or_else(gone)?);
            answer.await.map_err(|_| gone())?
        }))
    }
}

/// The parameters as this era has them: a page to visit has an id.
fn written(method: &str, params: Option<&Json>) -> Members {
    let mut all = params.map_or_else(Members::default, Members::of);
    let picked = params.map(|params| params.pick(["mode", "elicitationId"])).unwrap_or_default();
    if let (method::ELICIT, [Some(mode), None]) = (method, picked)
        && mode.as_str() == "\"url\""
    {
        all.text("elicitationId", &format!("wharf-{:016x}", fastrand::u64(..)));
    }
    all
}

/// A question on its way. If it is given up, the caller is told.
struct Pending {
    talk: Arc<Talk>,
    id: u64,
    said: Option<Line>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let waited = self.talk.asks.lock().remove(&self.id).is_some();
        if let (true, Some(line)) = (waited, &self.said) {
            let mut params = Members::new();
            params.number("requestId", self.id).text("reason", "the server does not wait any more");
            line.say(notification(method::CANCELLED, &params));
        }
    }
}
