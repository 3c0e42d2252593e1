//! Tasks of modern servers: calls that go on after their answer, and are asked for later by their ids, or listened to.
//!
//! An id means something to one server and may be all that is needed to see a task. So callers get ids of ours, which
//! say which server is meant and are good for their own caller only. Between us and the server its own id is used.

use serde_json::json;

use super::desk::{Desk, invalid, told};
use super::errands::{forward, passed};
use super::visit::Visit;
use crate::catalog::Part;
use crate::host::{Session, TaskWatch};
use crate::mcp::{code, extension, method};
use crate::names::{CallerName, ServerName};
use crate::wire::{Json, Members, RpcError};

/// A task that a caller listens to.
pub(super) struct Watched {
    public: String,
    server: ServerName,
    watch: TaskWatch,
    /// For whom.
    scope: Session,
}

// === impl Desk ===

impl Desk {
    /// Answers what is asked about a task.
    pub(super) async fn task(
        &self,
        scope: &Session,
        method: &str,
        params: Option<&Json>,
        visit: &Visit<'_>,
    ) -> Result<Json, RpcError> {
        let method = match method {
            method::TASKS_UPDATE => method::TASKS_UPDATE,
            method::TASKS_CANCEL => method::TASKS_CANCEL,
            _ => method::TASKS_GET,
        };
        let capabilities = visit.relayed.told.capabilities.as_ref();
        if !capabilities.is_some_and(|c| extension::is_in(c, extension::TASKS)) {
            return Err(not_declared());
        }
        let unknown = || invalid("unknown task");
        let params = params.ok_or_else(unknown)?;
        let public: String = params.member("taskId").and_then(|id| id.to().ok()).ok_or_else(unknown)?;
        let (server, own) = self.seal.open_task(scope.agent(), &public).ok_or_else(unknown)?;
        let mut sent = Members::new();
        sent.append_without(&passed(params).to_json(), &["taskId"]).text("taskId", &own);
        let about = (Part::Tasks, method, Some(own.as_str()));
        let answer = forward(self, scope, &server, about, (&sent, visit)).await?.map_err(told)?;
        Ok(renamed(&self.task_led_back(scope, &server, answer).await, &public))
    }

    /// Watches a task for its caller; another's is not found. When this returns, its server has agreed.
    pub(super) async fn watch_task(&self, scope: &Session, public: &str) -> Option<Watched> {
        let (server, own) = self.seal.open_task(scope.agent(), public)?;
        let watch = scope.watch_task(server.as_str(), &own).await.ok()?;
        Some(Watched { public: public.to_owned(), server, watch, scope: scope.clone() })
    }

    /// A task that a call became, under an id that its caller can ask for it by.
    pub(super) fn begun(&self, caller: &CallerName, server: &ServerName, result: &Json) -> Json {
        match result.member("taskId").and_then(|id| id.to::<String>().ok()) {
            Some(own) => renamed(result, &self.seal.task(caller, server, &own)),
            None => result.clone(),
        }
    }
}

// === impl Watched ===

impl Watched {
    /// Tells of each state, under the id that the caller knows, as long as there are any to come. It says what it says to
    /// whoever asks.
    pub(super) async fn tell(mut self, desk: &Desk, say: impl Fn(&Json)) {
        while let Some(state) = self.watch.next().await {
            // It was given when it was asked for.
            if !self.scope.may_use(&self.server, None) {
                return;
            }
            let state = desk.task_led_back(&self.scope, &self.server, state).await;
            say(&renamed(&state, &self.public));
        }
    }

    /// The id that the caller knows.
    pub(super) fn id(&self) -> &str {
        &self.public
    }
}

/// Whether a result says that the call has become a task.
pub(super) fn is_task(result: &Json) -> bool {
    let [kind] = result.peek(["resultType"]);
    kind == Some(b"\"task\"")
}

fn renamed(result: &Json, public: &str) -> Json {
    if result.member("taskId").is_none() {
        return result.clone();
    }
    let mut all = Members::default();
    all.append_without(result, &["taskId"]).text("taskId", public);
    all.to_json()
}

/// The caller did not say that it knows of tasks.
fn not_declared() -> RpcError {
    let data = json!({ "requiredCapabilities": { "extensions": { (extension::TASKS): {} } } });
    let error = RpcError::new(code::MISSING_CAPABILITY, "tasks are for callers that declare the extension");
    RpcError { data: Some(Json::of(&data)), ..error }
}
