//! What callers ask, answered by the host. It knows methods, and nothing of eras or transports.
//!
//! In: a caller, a method and its parameters. Out: a result as the server wrote it, or an error in the protocol's own
//! codes. Codes that speak of our own hop to a server stay there.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use tokio::sync::mpsc;

use super::limits::Gate;
use super::lists::Lists;
use crate::config::CallerTable;
use crate::connect::Progress;
use crate::error::{Error, Result};
use crate::host::{CallOptions, Host, Session};
use crate::mcp::{code, meta, method};
use crate::names::CallerName;
use crate::outcome::Outcome;
use crate::policy::Permission;
use crate::wire::{Json, Members, RpcError, notification};

/// The one place where requests are answered.
#[derive(Debug)]
pub(super) struct Desk {
    host: Host,
    /// Name and version.
    pub(super) info: Json,
    pub(super) instructions: Option<String>,
    lists: Lists,
    /// How much callers may ask for.
    pub(super) gate: Gate,
    /// What callers are given; `None`: everything.
    pub(super) callers: Option<CallerTable>,
    scopes: Mutex<HashMap<CallerName, Session>>,
}

/// The way back to a caller while its request is under way.
#[derive(Clone, Debug)]
pub(super) struct Line {
    notes: mpsc::Sender<Vec<u8>>,
}

/// How many messages may wait for a slow caller.
const NOTES_WAITING: usize = 1024;

// === impl Desk ===

impl Desk {
    pub(super) fn new(host: Host, (name, version): (String, String), instructions: Option<String>) -> Self {
        let info = Json::of(&json!({ "name": name, "version": version }));
        Self {
            host,
            info,
            instructions,
            lists: Lists::default(),
            gate: Gate::default(),
            callers: None,
            scopes: Mutex::default(),
        }
    }

    /// A caller's own view of the host. It lives as long as the gateway.
    pub(super) fn scope(&self, caller: &CallerName) -> Result<Session> {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scope) = scopes.get(caller) {
            return Ok(scope.clone());
        }
        let mut scope = self.host.session(caller.as_str()).permission(Permission::Yolo);
        if let Some(callers) = &self.callers {
            scope = scope.rules(callers.rules_of(caller));
        }
        let scope = scope.start()?;
        scopes.insert(caller.clone(), scope.clone());
        Ok(scope)
    }

    /// What the whole can do, as a server says it.
    pub(super) fn capabilities(&self) -> Json {
        Json::of(&json!({ "tools": {} }))
    }

    /// Answers one request.
    pub(super) async fn answer(
        &self,
        scope: &Session,
        method: &str,
        params: Option<&Json>,
        line: &Line,
    ) -> Result<Json, RpcError> {
        match method {
            method::TOOLS_LIST => self.lists.tools(&scope.tools().await.snapshot, params),
            method::TOOLS_CALL => call(&self.gate, scope, params, line).await,
            _ => Err(RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method `{method}`"))),
        }
    }
}

async fn call(gate: &Gate, scope: &Session, params: Option<&Json>, line: &Line) -> Result<Json, RpcError> {
    let invalid = |what: &str| RpcError::new(code::INVALID_PARAMS, what);
    let params = params.ok_or_else(|| invalid("`tools/call` needs parameters"))?;
    let [name, arguments, told] = params.pick(["name", "arguments", "_meta"]);
    let name: String = name.and_then(|n| n.to().ok()).ok_or_else(|| invalid("`name` must be a string"))?;
    let server = scope.snapshot().route(&name).map(|route| route.server.clone());
    let _pass = gate.enter(scope.agent(), server.as_ref()).await?;
    let arguments = arguments.unwrap_or_else(Json::empty_object);
    let token = told.and_then(|told| told.member(meta::PROGRESS_TOKEN));
    let mut report = token.map(|token| line.progress(token));
    let on_progress = report.as_mut().map(|report| report as &mut (dyn FnMut(Progress) + Send));
    let options = CallOptions { on_progress, ..CallOptions::default() };
    said(scope.call_with(&name, arguments, options).await)
}

/// What a caller is told of an outcome: the tool's own answer as it is, and of what went wrong on the way what the
/// caller can do something about.
fn said(outcome: Outcome) -> Result<Json, RpcError> {
    let Some(error) = outcome.error else { return Ok(outcome.raw) };
    match error {
        // A model can mend its arguments: so it is told as the tool's answer, as the protocol wants it.
        Error::Arguments { problems, .. } => {
            let text = format!("invalid arguments: {}", problems.join("; "));
            Ok(Json::of(&json!({ "content": [{ "type": "text", "text": text }], "isError": true })))
        }
        // A tool that may not be seen is a tool that is not there.
        Error::UnknownTool { .. } | Error::UnknownServer { .. } | Error::Denied { .. } => {
            Err(RpcError::new(code::INVALID_PARAMS, "unknown tool"))
        }
        Error::Tool { rpc, .. } | Error::Rpc { rpc, .. } if !code::is_modern(rpc.code) => Err(rpc),
        error => {
            let data =
                json!({ "kind": error.kind(), "retryable": error.is_retryable(), "hint": error.hint() });
            let error = RpcError::new(code::INTERNAL, error.to_string());
            Err(RpcError { data: Some(Json::of(&data)), ..error })
        }
    }
}

// === impl Line ===

impl Line {
    /// A line, and its other end.
    pub(super) fn new() -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (notes, receiver) = mpsc::channel(NOTES_WAITING);
        (Self { notes }, receiver)
    }

    /// Over a channel that others use too.
    pub(super) fn over(notes: mpsc::Sender<Vec<u8>>) -> Self {
        Self { notes }
    }

    /// Passes progress on under the token that the caller gave.
    fn progress(&self, token: Json) -> impl FnMut(Progress) + Send + use<> {
        let notes = self.notes.clone();
        move |progress| {
            let mut params = Members::new();
            params.json("progressToken", &token).json("progress", &Json::of(&progress.progress));
            if let Some(total) = progress.total {
                params.json("total", &Json::of(&total));
            }
            if let Some(message) = &progress.message {
                params.text("message", message.raw());
            }
            // A caller that does not read misses some; the answer is never held up.
            let _ = notes.try_send(notification(method::PROGRESS, &params));
        }
    }
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        Self::new(code::INTERNAL, error.to_string())
    }
}
