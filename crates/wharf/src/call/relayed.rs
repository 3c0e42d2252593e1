//! A request that is made for somebody else: a caller of the gateway.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::ask::{self, Asker};
use crate::connect::{Answering, Companion, Told};
use crate::mcp::extension;
use crate::names::ServerName;
use crate::wire::{Json, Members};

/// What goes with a request of a caller, from its edge of the gateway to the server.
pub struct Relayed {
    /// What the server is told of the caller.
    pub told: Told,
    /// Who answers, if the server asks on behalf of this request.
    pub asker: Arc<dyn Asker>,
    /// Hears what the server logs for this request.
    pub on_log: Option<OnLog>,
    /// What the caller says to questions that the server asked before, and the state that the server gave with them.
    pub responses: Option<Json>,
    /// See above.
    pub state: Option<Json>,
    /// Members of the parameters that nobody here knows.
    pub more: Members,
    /// What came in headers `Mcp-Param-*`, by the rest of their names.
    pub headers: Vec<(String, String)>,
    /// A modern server's question is the result: the caller answers it with a request of its own.
    pub returns_questions: bool,
    /// Whoever is asked must know which request a question belongs to. A legacy server that cannot say is given one
    /// request at a time.
    pub alone: bool,
    /// How many questions of its server wait for an answer now. Made when somebody asks: most servers do not.
    pub(crate) asking: OnceLock<Arc<AtomicUsize>>,
}

/// Hears the parameters of `notifications/message`. Must not wait.
pub type OnLog = Arc<dyn Fn(&Json) + Send + Sync>;

/// Results of modern servers that are no end of the matter, and that a caller may be able to make something of.
pub(super) const UNFINISHED: [&[u8]; 2] = [INPUT_REQUIRED, TASK];
pub(super) const INPUT_REQUIRED: &[u8] = b"\"input_required\"";
const TASK: &[u8] = b"\"task\"";

impl Relayed {
    /// Whether its caller goes on with what an earlier request of its own has begun.
    pub(crate) fn goes_on(&self) -> bool {
        self.responses.is_some() || self.state.is_some()
    }

    /// Whether a result is the caller's to go on with, and not ours.
    pub(crate) fn returns(&self, result: &Json) -> bool {
        self.returns_questions && self.returns_kind(result.peek(["resultType"])[0])
    }

    /// The same by the result's kind. A task is nothing to a caller that did not say that it knows of tasks.
    pub(super) fn returns_kind(&self, kind: Option<&[u8]>) -> bool {
        let knows_tasks = || {
            let offers = self.told.capabilities.as_ref();
            offers.is_some_and(|offers| extension::is_in(offers, extension::TASKS))
        };
        self.returns_questions
            && match kind {
                Some(INPUT_REQUIRED) => true,
                Some(TASK) => knows_tasks(),
                _ => false,
            }
    }

    /// How many questions of its server wait for an answer now.
    pub(crate) fn asking(&self) -> &Arc<AtomicUsize> {
        self.asking.get_or_init(Arc::default)
    }

    /// Whether the caller cannot be asked anything and wants to hear nothing: then one caller is like another.
    pub(crate) fn asks_nothing(&self) -> bool {
        let offers = self.told.capabilities.as_ref();
        let nothing = |offers: &Json| offers.bytes() == "{}" || Members::of(offers).is_empty();
        self.told.log_level.is_none() && offers.is_none_or(nothing)
    }
}

impl Companion for Relayed {
    fn log(&self, params: &Json) {
        if let Some(on_log) = &self.on_log {
            on_log(params);
        }
    }

    fn request(&self, server: &ServerName, method: &str, params: Option<Json>) -> Answering {
        let asked = Asking::new(self.asking());
        let answer = ask::answer(Arc::clone(&self.asker), server.clone(), method.to_owned(), params);
        Box::pin(async move {
            let answer = answer.await;
            drop(asked);
            answer
        })
    }
}

/// A question that waits for its answer, as long as this lives.
struct Asking(Arc<AtomicUsize>);

impl Asking {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Relayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relayed").field("returns_questions", &self.returns_questions).finish_non_exhaustive()
    }
}
