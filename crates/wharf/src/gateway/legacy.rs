//! The legacy edge: a handshake, then requests that belong to a session.
//!
//! A request goes on when its caller hangs up: only `notifications/cancelled` ends it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::HeaderValue;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::body::{self, Reply, Work};
use super::calls::Calls;
use super::desk::{Desk, Line};
use super::guard::single;
use super::http::{SESSION, VERSION};
use super::modern::Asked;
use crate::host::Session as Scope;
use crate::mcp::{Revision, code, method};
use crate::names::CallerName;
use crate::wire::{Json, Members, Message, RpcError, response_error, response_result};

/// The sessions of callers over HTTP.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Arc<Talk>>>);

/// One conversation with a caller.
#[derive(Debug)]
pub(super) struct Talk {
    caller: CallerName,
    revision: Revision,
    pub(super) calls: Arc<Calls>,
    used: Mutex<Instant>,
}

/// How long the answer may take before it begins as a stream.
const PATIENCE: Duration = Duration::from_secs(5);
/// Sessions that were not used for so long are forgotten.
const IDLE: Duration = Duration::from_secs(60 * 60);
/// How many sessions are kept, and of one caller, so that it leaves room for others.
const MOST: usize = 10_000;
const MOST_OF_ONE: usize = 5_000;

// === impl Sessions ===

impl Sessions {
    /// Takes one message over HTTP.
    pub(super) async fn take(
        self: &Arc<Self>,
        desk: Arc<Desk>,
        scope: Scope,
        headers: &HeaderMap,
        message: Message,
    ) -> Reply {
        if let Message::Request { id, method, params } = &message
            && method == method::INITIALIZE
        {
            return self.open(&desk, scope.agent(), id, params.as_ref());
        }
        let talk = match self.find(headers, scope.agent()) {
            Ok(talk) => talk,
            Err(refused) => return *refused,
        };
        match message {
            Message::Request { id, method, params } => {
                talk.answer(desk, scope, Asked { id, method, params }).await
            }
            Message::Notification { method, params } => {
                talk.calls.hear(&method, params.as_ref());
                body::accepted()
            }
            Message::Response { .. } => body::accepted(),
        }
    }

    /// Ends a session.
    pub(super) fn end(&self, headers: &HeaderMap, caller: &CallerName) -> Reply {
        match self.find(headers, caller) {
            Ok(talk) => {
                talk.calls.cancel_all();
                if let Some(id) = single(headers, SESSION) {
                    self.lock().remove(id);
                }
                body::accepted()
            }
            Err(refused) => *refused,
        }
    }

    fn open(&self, desk: &Desk, caller: &CallerName, id: &Json, params: Option<&Json>) -> Reply {
        let talk = Arc::new(Talk::greet(caller.clone(), params));
        let Some(name) = random_name() else {
            let error = RpcError::new(code::INTERNAL, "no random numbers to be had");
            return body::message(StatusCode::INTERNAL_SERVER_ERROR, response_error(id, &error));
        };
        let Ok(value) = HeaderValue::from_str(&name) else { return body::accepted() };
        let mut sessions = self.lock();
        sessions.retain(|_, talk| talk.is_fresh());
        let own = sessions.values().filter(|talk| talk.caller == *caller).count();
        if sessions.len() >= MOST || own >= MOST_OF_ONE {
            return body::plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions; try again later");
        }
        sessions.insert(name, Arc::clone(&talk));
        drop(sessions);
        let mut reply = body::message(StatusCode::OK, response_result(id, &talk.greeting(desk)));
        reply.headers_mut().insert(SESSION, value);
        reply
    }

    /// The session of a request. Another caller's is not found, and neither is one that never was.
    fn find(&self, headers: &HeaderMap, caller: &CallerName) -> Result<Arc<Talk>, Box<Reply>> {
        let Some(name) = single(headers, SESSION) else {
            let why = "the header `Mcp-Session-Id` is missing: send `initialize` first";
            return Err(Box::new(body::refuse(
                StatusCode::BAD_REQUEST,
                &RpcError::new(code::INVALID_REQUEST, why),
            )));
        };
        let talk = self.lock().get(name).filter(|talk| talk.caller == *caller && talk.is_fresh()).cloned();
        let talk = talk.ok_or_else(|| {
            let error = RpcError::new(code::INVALID_REQUEST, "there is no such session: send `initialize`");
            Box::new(body::refuse(StatusCode::NOT_FOUND, &error))
        })?;
        if let Some(version) = single(headers, VERSION)
            && version != talk.revision.as_str()
        {
            let error = RpcError::new(code::INVALID_REQUEST, "the session was opened with another revision");
            return Err(Box::new(body::refuse(StatusCode::BAD_REQUEST, &error)));
        }
        *talk.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(talk)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Talk>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Talk ===

impl Talk {
    /// Agrees on a revision: the caller's, if Wharf speaks it, or else the newest of this era.
    pub(super) fn greet(caller: CallerName, params: Option<&Json>) -> Self {
        let asked = params.and_then(|p| p.member("protocolVersion")).and_then(|v| v.to::<String>().ok());
        let known = asked.and_then(|text| Revision::parse(&text)).filter(|r| *r <= Revision::NEWEST_LEGACY);
        let revision = known.unwrap_or(Revision::NEWEST_LEGACY);
        Self { caller, revision, calls: Arc::default(), used: Mutex::new(Instant::now()) }
    }

    /// The answer to `initialize`.
    pub(super) fn greeting(&self, desk: &Desk) -> Json {
        let mut result = Members::new();
        result.text("protocolVersion", self.revision.as_str());
        result.json("capabilities", &desk.capabilities()).json("serverInfo", &desk.info);
        if let Some(instructions) = &desk.instructions {
            result.text("instructions", instructions);
        }
        result.to_json()
    }

    /// Answers over HTTP: at once if it is quick, as events if there is something to say before.
    async fn answer(self: Arc<Self>, desk: Arc<Desk>, scope: Scope, asked: Asked) -> Reply {
        let (line, mut notes) = Line::new();
        let mut done = self.start(desk, scope, asked, line);
        let first = tokio::select! {
            biased;
            ended = &mut done => return match ended {
                Ok(message) => body::message(StatusCode::OK, message),
                // Cancelled: the caller wants no answer, but HTTP must have one.
                Err(_) => body::accepted(),
            },
            note = notes.recv() => note.map(|note| body::first_event(&note)),
            () = tokio::time::sleep(PATIENCE) => None,
        };
        let work: Work = Box::pin(async move {
            match done.await {
                Ok(message) => message,
                Err(_) => std::future::pending().await,
            }
        });
        body::events(first, notes, Some(work))
    }

    /// Starts a call that goes on by itself; the receiver fails if it is cancelled.
    pub(super) fn start(
        self: &Arc<Self>,
        desk: Arc<Desk>,
        scope: Scope,
        asked: Asked,
        line: Line,
    ) -> oneshot::Receiver<Vec<u8>> {
        let id = asked.id.clone();
        self.calls.start(&id, async move {
            match result(&desk, &scope, &asked, &line).await {
                Ok(result) => response_result(&asked.id, &result),
                Err(error) => response_error(&asked.id, &error),
            }
        })
    }

    fn is_fresh(&self) -> bool {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.elapsed() < IDLE || !self.calls.is_empty()
    }
}

async fn result(desk: &Desk, scope: &Scope, asked: &Asked, line: &Line) -> Result<Json, RpcError> {
    match asked.method.as_str() {
        method::PING => Ok(Json::empty_object()),
        name => desk.answer(scope, name, asked.params.as_ref(), line).await.map(|r| undressed(&r)),
    }
}

/// A result without the words of the modern era.
fn undressed(result: &Json) -> Json {
    const MODERN: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];
    if result.pick(MODERN).iter().all(Option::is_none) {
        return result.clone();
    }
    let Ok(members) = result.to::<indexmap::IndexMap<String, Json>>() else { return result.clone() };
    let mut plain = Members::new();
    for (key, value) in members.iter().filter(|(key, _)| !MODERN.contains(&key.as_str())) {
        plain.json(key, value);
    }
    plain.to_json()
}

/// A name that cannot be guessed.
fn random_name() -> Option<String> {
    let mut bytes = [0_u8; 16];
    rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// For the pipe, which has no headers: what is wrong with a first message that is neither era's.
pub(super) fn not_greeted(id: &Json) -> Vec<u8> {
    let data = json!({ "supported": [Revision::NEWEST_MODERN.as_str()] });
    let error =
        RpcError::new(code::INVALID_REQUEST, "send `initialize` first, or say `_meta` with every request");
    response_error(id, &RpcError { data: Some(Json::of(&data)), ..error })
}
