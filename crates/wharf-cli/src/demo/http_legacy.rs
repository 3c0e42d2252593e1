//! HTTP up to 2025-11-25: Streamable HTTP with sessions, and HTTP+SSE of 2024-11-05.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use tokio::sync::mpsc;
use wharf::mcp::{Revision, code, method};
use wharf::wire::{Limits, Message, RpcError, response_error, response_result};

use super::answer::{Around, Asked, Frames};
use super::conversation::{Conversation, Running, answer};
use super::http::{Reply, SESSION, accepted, events, json, plain, refuse, text};
use super::state::{Client, Shared, lock};

/// The sessions of legacy clients.
#[derive(Debug, Default)]
pub(super) struct Legacy {
    /// What every client of the server shares, modern ones too.
    pub(super) shared: Arc<Shared>,
    sessions: Mutex<HashMap<String, Session>>,
    streams: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Conversation>>>>,
}

#[derive(Debug)]
struct Session {
    revision: Option<Revision>,
    client: Arc<Client>,
    running: Running,
    /// When it began, as a count: the oldest makes room.
    number: u64,
}

/// More sessions than a person trying clients will ever open.
const MAX_SESSIONS: usize = 1000;

// === impl Legacy ===

impl Legacy {
    /// Takes one message of Streamable HTTP.
    pub(super) async fn take(&self, headers: &HeaderMap, message: Message) -> Reply {
        let message = match message {
            Message::Request { id, method, params } if method == method::INITIALIZE => {
                return self.initialize(&Asked::new(id, method, params.as_ref())).await;
            }
            other => other,
        };
        let session = match self.session(headers) {
            Ok(session) => session,
            Err(refused) => return *refused,
        };
        match message {
            Message::Request { id, method, params } => {
                let asked = Asked::new(id, method, params.as_ref());
                if asked.has_words_before() {
                    return self.stream(&session, asked);
                }
                json(StatusCode::OK, answer_now(&asked, &self.around(&session, None)).await)
            }
            Message::Notification { method, params } => {
                if method == method::CANCELLED {
                    self.with(&session, |s| s.running.cancel(params.as_ref()));
                }
                accepted()
            }
            Message::Response { id, outcome } => {
                self.with(&session, |s| s.client.answered(id.number(), outcome));
                accepted()
            }
        }
    }

    /// Takes several messages at once, which only 2025-03-26 has.
    pub(super) async fn batch(&self, headers: &HeaderMap, messages: Vec<Message>) -> Reply {
        let session = match self.session(headers) {
            Ok(session) => session,
            Err(refused) => return *refused,
        };
        let allowed = self.with(&session, |s| s.revision.is_some_and(Revision::has_batches));
        if allowed != Some(true) || messages.is_empty() {
            let error = RpcError::new(code::INVALID_REQUEST, "this revision has no batches");
            return refuse(StatusCode::BAD_REQUEST, &error);
        }
        let mut answers = Vec::new();
        for message in messages {
            match message {
                Message::Request { id, method, params } => {
                    let asked = Asked::new(id, method, params.as_ref());
                    answers.push(answer_now(&asked, &self.around(&session, None)).await);
                }
                Message::Notification { method, params } if method == method::CANCELLED => {
                    self.with(&session, |s| s.running.cancel(params.as_ref()));
                }
                Message::Notification { .. } | Message::Response { .. } => {}
            }
        }
        if answers.is_empty() {
            return accepted();
        }
        json(StatusCode::OK, [&b"["[..], &answers.join(&b','), b"]"].concat())
    }

    /// Opens the stream on which a session hears news.
    pub(super) fn listen(&self, headers: &HeaderMap) -> Reply {
        let session = match self.session(headers) {
            Ok(session) => session,
            Err(refused) => return *refused,
        };
        let (frames, receiver) = mpsc::channel(64);
        self.with(&session, |s| s.client.hear(frames));
        // Said at once, so that the client sees that it is open.
        events(Some(Bytes::from_static(b": listening\n\n")), receiver)
    }

    /// Ends a session.
    pub(super) fn delete(&self, headers: &HeaderMap) -> Reply {
        match self.session(headers) {
            Ok(session) => {
                lock(&self.sessions).remove(&session);
                let mut reply = Response::new(Either::Left(Full::default()));
                *reply.status_mut() = StatusCode::NO_CONTENT;
                reply
            }
            Err(refused) => *refused,
        }
    }

    /// Opens a stream of HTTP+SSE. Its first event says where to send messages.
    pub(super) fn open_sse(&self) -> Reply {
        let Ok(id) = random_id() else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers to be had");
        };
        let (frames, receiver) = mpsc::channel(64);
        let conversation =
            Arc::new(tokio::sync::Mutex::new(Conversation::new(frames, Arc::clone(&self.shared))));
        let mut streams = lock(&self.streams);
        streams.retain(|_, c| c.try_lock().map_or(true, |c| !c.is_over()));
        if streams.len() >= MAX_SESSIONS {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many streams are open");
        }
        streams.insert(id.clone(), conversation);
        let first = format!("event: endpoint\ndata: /message?sessionId={id}\n\n");
        events(Some(first.into()), receiver)
    }

    /// Takes a message for a stream of HTTP+SSE; the answer goes there.
    pub(super) async fn take_sse(&self, query: &str, body: Bytes) -> Reply {
        let id = query.split('&').find_map(|p| p.strip_prefix("sessionId="));
        let Some(id) = id else {
            return plain(StatusCode::BAD_REQUEST, "`sessionId` is missing");
        };
        let conversation = lock(&self.streams).get(id).cloned();
        let Some(conversation) = conversation else {
            return plain(StatusCode::NOT_FOUND, "there is no such stream");
        };
        let mut conversation = conversation.lock().await;
        if conversation.is_over() {
            drop(conversation);
            lock(&self.streams).remove(id);
            return plain(StatusCode::NOT_FOUND, "the stream has ended");
        }
        conversation.take_frame(body, Limits::default().depth).await;
        accepted()
    }

    async fn initialize(&self, asked: &Asked) -> Reply {
        let client = Arc::<Client>::default();
        let around =
            Around { shared: Arc::clone(&self.shared), client: Some(Arc::clone(&client)), frames: None };
        let result = match asked.answer(&around).await {
            Ok(result) => result,
            Err(error) => return json(StatusCode::OK, response_error(&asked.id, &error)),
        };
        let revision = result.member("protocolVersion").and_then(|v| v.to::<String>().ok());
        let id = random_id().ok().and_then(|id| Some((HeaderValue::from_str(&id).ok()?, id)));
        let Some((header, id)) = id else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers to be had");
        };
        self.open(id, revision.as_deref().and_then(Revision::parse), client);
        let mut reply = json(StatusCode::OK, response_result(&asked.id, &result));
        reply.headers_mut().insert(SESSION, header);
        reply
    }

    fn open(&self, id: String, revision: Option<Revision>, client: Arc<Client>) {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= MAX_SESSIONS {
            let oldest = sessions.iter().min_by_key(|(_, s)| s.number).map(|(id, _)| id.clone());
            oldest.and_then(|id| sessions.remove(&id));
        }
        let number = sessions.values().map(|s| s.number + 1).max().unwrap_or_default();
        sessions.insert(id, Session { revision, client, running: Running::default(), number });
    }

    /// The session that a request names, if it is open.
    fn session(&self, headers: &HeaderMap) -> Result<String, Box<Reply>> {
        let Some(id) = text(headers, SESSION) else {
            let error = RpcError::new(code::INVALID_REQUEST, "the session id is missing: initialize first");
            return Err(Box::new(refuse(StatusCode::BAD_REQUEST, &error)));
        };
        if !lock(&self.sessions).contains_key(id) {
            let error = RpcError::new(code::INVALID_REQUEST, "there is no such session: initialize again");
            return Err(Box::new(refuse(StatusCode::NOT_FOUND, &error)));
        }
        Ok(id.to_owned())
    }

    /// Answers with events. A client that closes the stream does not cancel the call; one that says so does.
    fn stream(&self, session: &str, asked: Asked) -> Reply {
        let (frames, receiver) = mpsc::channel(16);
        let around = self.around(session, Some(frames.clone()));
        self.with(session, |s| {
            s.running.start(asked.id.clone(), async move { answer(&asked, &around, &frames).await });
        });
        events(None, receiver)
    }

    fn around(&self, session: &str, frames: Option<Frames>) -> Around {
        let client = self.with(session, |s| Arc::clone(&s.client));
        Around { shared: Arc::clone(&self.shared), client, frames }
    }

    fn with<T>(&self, session: &str, act: impl FnOnce(&mut Session) -> T) -> Option<T> {
        lock(&self.sessions).get_mut(session).map(act)
    }
}

async fn answer_now(asked: &Asked, around: &Around) -> Vec<u8> {
    match asked.answer(around).await {
        Ok(result) => response_result(&asked.id, &result),
        Err(error) => response_error(&asked.id, &error),
    }
}

/// 128 bits that cannot be guessed: who knows the id of a session is let into it.
fn random_id() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut id, b| {
        let _ = write!(id, "{b:02x}");
        id
    }))
}
