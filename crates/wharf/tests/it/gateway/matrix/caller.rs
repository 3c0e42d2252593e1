//! Callers of every kind, spoken as one: a message goes in, whatever the gateway says comes out in its order.
//!
//! What a caller is asked in the middle of a request it answers, as a request of the gateway's or as another round.

use std::collections::HashMap;
use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::super::pipe;
use super::super::{Door, Stream, modern_body};

/// How a caller reaches the gateway, and in which era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    LegacyHttp,
    LegacyStdio,
    LegacySse,
    ModernHttp,
    ModernStdio,
}

pub(super) struct Caller {
    pub(super) kind: Kind,
    wire: Wire,
    next: u64,
    /// What it was told and nobody looked at yet.
    pub(super) heard: Vec<Value>,
    /// What it was asked, as (method, params).
    pub(super) asked: Vec<(String, Value)>,
    /// What it says to whom wants to know something.
    pub(super) elicited: Value,
}

enum Wire {
    Pipe(pipe::Caller),
    Http(Http),
}

/// Everything over HTTP: what is posted, and where what comes back is gathered.
struct Http {
    door: Arc<Door>,
    /// The session of a legacy caller.
    session: Option<String>,
    /// Where the oldest callers post to.
    place: Option<String>,
    posts: HashMap<u64, AbortHandle>,
    said: mpsc::UnboundedSender<Value>,
    heard: mpsc::UnboundedReceiver<Value>,
}

/// What a request came to.
#[derive(Debug)]
pub(super) struct Answer {
    /// The response, of the last round.
    pub(super) message: Value,
    /// The notifications that came before it.
    pub(super) told: Vec<Value>,
}

const EVENTS: (&str, &str) = ("accept", "text/event-stream");
const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");

// === impl Kind ===

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::LegacyHttp, Self::LegacyStdio, Self::LegacySse, Self::ModernHttp, Self::ModernStdio];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LegacyHttp => "legacy HTTP",
            Self::LegacyStdio => "legacy stdio",
            Self::LegacySse => "legacy SSE",
            Self::ModernHttp => "modern HTTP",
            Self::ModernStdio => "modern stdio",
        }
    }

    pub(super) fn is_modern(self) -> bool {
        matches!(self, Self::ModernHttp | Self::ModernStdio)
    }
}

fn capabilities() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": true}})
}

// === impl Caller ===

impl Caller {
    /// Comes in by a door, and shakes hands where that is the custom.
    pub(super) async fn of(kind: Kind, door: &Arc<Door>) -> Self {
        let (said, heard) = mpsc::unbounded_channel();
        let http = |place| {
            Wire::Http(Http {
                door: Arc::clone(door),
                session: None,
                place,
                posts: HashMap::new(),
                said: said.clone(),
                heard,
            })
        };
        let wire = match kind {
            Kind::LegacyStdio | Kind::ModernStdio => Wire::Pipe(pipe::Caller::of(&door.host)),
            Kind::LegacyHttp | Kind::ModernHttp => http(None),
            Kind::LegacySse => {
                let mut stream = door.stream(Method::GET, "/sse", &[EVENTS], "").await;
                let endpoint = stream.event().await.unwrap();
                tokio::spawn(gather(stream, said.clone()));
                http(Some(endpoint.data))
            }
        };
        let elicited =
            json!({"action": "accept", "content": {"username": "ada", "email": "ada@example.org"}});
        let mut caller = Self { kind, wire, next: 1, heard: Vec::new(), asked: Vec::new(), elicited };
        if !kind.is_modern() {
            caller.greet().await;
        }
        caller
    }

    async fn greet(&mut self) {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities(), "clientInfo": {"name": "t", "version": "1"}});
        let hello = self.ask("initialize", params).await;
        assert_eq!(hello.message["result"]["protocolVersion"], "2025-11-25", "{hello:?}");
        self.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        if let (Kind::LegacyHttp, Wire::Http(http)) = (self.kind, &self.wire) {
            let session = http.session.as_deref().unwrap();
            let headers = [EVENTS, ("mcp-session-id", session)];
            let stream = http.door.stream(Method::GET, "/mcp", &headers, "").await;
            assert_eq!(stream.status, StatusCode::OK);
            tokio::spawn(gather(stream, http.said.clone()));
        }
    }

    /// Asks, and answers what it is asked on the way, until there is an end.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Answer {
        let mut told = Vec::new();
        let mut round = params.clone();
        loop {
            let id = self.begin(method, round).await;
            let message = self.answer_to(id, &mut told).await;
            let result = &message["result"];
            if result["resultType"] != "input_required" {
                return Answer { message, told };
            }
            let mut answers = Map::new();
            for (key, question) in result["inputRequests"].as_object().into_iter().flatten() {
                let asked = question["method"].as_str().unwrap();
                answers.insert(key.clone(), self.answer(asked, &question["params"]));
            }
            round = params.clone();
            round["inputResponses"] = Value::Object(answers);
            if !result["requestState"].is_null() {
                round["requestState"] = result["requestState"].clone();
            }
        }
    }

    /// Sends a request and waits for nothing.
    pub(super) async fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        if self.kind.is_modern() {
            let meta = &mut message["params"]["_meta"];
            meta["io.modelcontextprotocol/clientCapabilities"] = capabilities();
            message["params"] = modern_body(method, message["params"].take())["params"].take();
        }
        self.say(message).await;
        id
    }

    /// Waits for a response. Notifications that come before are told.
    pub(super) async fn answer_to(&mut self, id: u64, told: &mut Vec<Value>) -> Value {
        loop {
            let message = self.next().await;
            if message["method"].is_null() {
                if message["id"] == id {
                    return message;
                }
                // A response to what was given up.
                continue;
            }
            match message.get("id") {
                None => {
                    told.push(message.clone());
                    self.heard.push(message);
                }
                Some(asked) => {
                    let answer = self.answer(message["method"].as_str().unwrap(), &message["params"]);
                    self.say(json!({"jsonrpc": "2.0", "id": asked, "result": answer})).await;
                }
            }
        }
    }

    /// Waits until a notification with that method has come, and takes it.
    pub(super) async fn hear(&mut self, method: &str) -> Value {
        loop {
            if let Some(at) = self.heard.iter().position(|message| message["method"] == method) {
                return self.heard.remove(at);
            }
            let message = self.next().await;
            self.heard.push(message);
        }
    }

    /// Gives a request up, in the way of its era and transport.
    pub(super) async fn cancel(&mut self, id: u64) {
        match &mut self.wire {
            // To hang up is to cancel.
            Wire::Http(http) if self.kind == Kind::ModernHttp => http.posts.remove(&id).unwrap().abort(),
            _ => {
                let params = json!({"requestId": id, "reason": "no longer wanted"});
                let message =
                    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
                self.say(message).await;
            }
        }
    }

    async fn say(&mut self, message: Value) {
        match &mut self.wire {
            Wire::Pipe(pipe) => pipe.say(message).await,
            Wire::Http(http) if self.kind.is_modern() => http.post_modern(&message).await,
            Wire::Http(http) => http.post(&message).await,
        }
    }

    async fn next(&mut self) -> Value {
        match &mut self.wire {
            Wire::Pipe(pipe) => pipe.next().await,
            Wire::Http(http) => http.heard.recv().await.expect("somebody may say something"),
        }
    }

    fn answer(&mut self, method: &str, params: &Value) -> Value {
        self.asked.push((method.to_owned(), params.clone()));
        match method {
            "elicitation/create" if params["mode"] == "url" => json!({"action": "accept"}),
            "elicitation/create" => self.elicited.clone(),
            "sampling/createMessage" => {
                let content = json!({"type": "text", "text": "high tide"});
                json!({"role": "assistant", "model": "m", "content": content, "stopReason": "endTurn"})
            }
            "roots/list" => json!({"roots": [{"uri": "file:///quay", "name": "quay"}]}),
            other => panic!("asked for {other}"),
        }
    }
}

// === impl Http ===

impl Http {
    /// Posts a message of the legacy era. A request's answer is gathered while others go on.
    async fn post(&mut self, message: &Value) {
        let mut headers = vec![BOTH];
        if let Some(session) = &self.session {
            headers.extend([("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")]);
        }
        let path = self.place.as_deref().unwrap_or("/mcp");
        if message["method"] == "initialize" && self.place.is_none() {
            let answer = self.door.legacy(None, message.clone()).await;
            self.session = Some(answer.headers["mcp-session-id"].to_str().unwrap().to_owned());
            return self.said.send(answer.json()).unwrap();
        }
        let request = message["method"].is_string() && message.get("id").is_some() && self.place.is_none();
        if !request {
            let posted = self.door.stream(Method::POST, path, &headers, message.to_string()).await;
            return assert_eq!(posted.status, StatusCode::ACCEPTED, "{message}");
        }
        let headers = headers.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        self.spawn(message, headers);
    }

    /// Posts a request of the modern era.
    async fn post_modern(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap().to_owned();
        let params = &message["params"];
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
        let mut headers = vec![
            (BOTH.0, BOTH.1.to_owned()),
            ("mcp-protocol-version", "2026-07-28".to_owned()),
            ("mcp-method", method),
        ];
        if !name.is_empty() {
            headers.push(("mcp-name", name));
        }
        self.spawn(message, headers);
    }

    fn spawn(&mut self, message: &Value, headers: Vec<(&'static str, String)>) {
        let (door, said, body) = (Arc::clone(&self.door), self.said.clone(), message.to_string());
        let posting = tokio::spawn(async move {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let stream = door.stream(Method::POST, "/mcp", &headers, body).await;
            gather(stream, said).await;
        });
        self.posts.insert(message["id"].as_u64().unwrap(), posting.abort_handle());
    }
}

/// Passes on what comes on a stream, until it ends or nobody wants it.
async fn gather(mut stream: Stream, said: mpsc::UnboundedSender<Value>) {
    while let Some(message) = stream.next_message().await {
        if said.send(message).is_err() {
            return;
        }
    }
}
