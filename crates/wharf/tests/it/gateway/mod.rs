//! The gateway, spoken with as callers do: bytes in, bytes out.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly, in its scenery too")]

mod approvals;
mod barred;
mod doors;
mod edges;
mod endings;
mod exposition;
mod extensions;
mod faithful;
mod floods;
mod gauges;
mod goodbyes;
mod hostile;
mod jwt;
mod kept;
mod lapses;
mod limits;
mod matrix;
mod messages;
mod metrics;
mod offers;
mod older;
mod own_tools;
mod pages;
pub(crate) mod pipe;
mod questions;
mod quiet;
mod rules;
mod sharing;
mod slow;
mod stops;
mod storms;
mod streams;
mod subscriptions;
mod terms;
mod tools;
mod traces;
mod views;

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use wharf::Host;
use wharf::gateway::{Gateway, GatewayBuilder};

/// A gateway that listens, until it is dropped.
pub(crate) struct Door {
    pub(crate) at: SocketAddr,
    pub(crate) host: Host,
    pub(crate) gateway: Gateway,
    stop: Option<oneshot::Sender<()>>,
}

/// An answer over HTTP, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// An answer over HTTP that is read as it comes. Dropped, the connection closes.
pub(crate) struct Stream {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    is_events: bool,
    body: Incoming,
    buffer: String,
    _sender: SendRequest<Full<Bytes>>,
}

/// One event of a stream.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Happened {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}

/// Serves a host with the defaults.
pub(crate) async fn open(host: Host) -> Door {
    open_with(host, |builder| builder).await
}

/// Serves a host.
pub(crate) async fn open_with(host: Host, with: impl FnOnce(GatewayBuilder) -> GatewayBuilder) -> Door {
    let gateway = with(Gateway::builder(host.clone())).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = gateway.clone();
    tokio::spawn(async move {
        served.serve_http(listener, async move { drop(stopped.await) }).await.unwrap();
    });
    Door { at, host, gateway, stop: Some(stop) }
}

impl Door {
    /// What tells the gateway to stop.
    pub(crate) fn stopper(&mut self) -> impl FnOnce() + use<> {
        let stop = self.stop.take();
        move || drop(stop)
    }

    /// Sends a request with these headers instead of the usual ones, and reads the whole answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.try_send(method, path, headers, body).await.expect("an answer")
    }

    /// The same; `None` if the gateway hangs up before it has answered.
    pub(crate) async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<Answer> {
        let (_sender, head, body) = self.begin(method, path, headers, body).await?;
        let body = body.collect().await.ok()?.to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Some(Answer { status: head.status, headers: head.headers, body })
    }

    async fn begin(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<(SendRequest<Full<Bytes>>, http::response::Parts, Incoming)> {
        #[expect(clippy::disallowed_methods, reason = "a caller in a test")]
        let stream = TcpStream::connect(self.at).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let reply = sender.send_request(request.body(Full::new(body.into())).unwrap()).await.ok()?;
        let (head, body) = reply.into_parts();
        Some((sender, head, body))
    }

    /// Sends a request, and reads the answer as it comes.
    pub(crate) async fn stream(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Stream {
        let host = self.name();
        let mut all = vec![("host", host.as_str()), ("content-type", "application/json")];
        all.extend(headers);
        let (sender, head, body) = self.begin(method, path, &all, body).await.expect("an answer");
        let is_events = head.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let (status, headers) = (head.status, head.headers);
        Stream { status, headers, is_events, body, buffer: String::new(), _sender: sender }
    }

    /// The gateway stops.
    pub(crate) fn stop(&mut self) {
        self.stop.take();
    }

    /// The name that this gateway is called by.
    pub(crate) fn name(&self) -> String {
        self.at.to_string()
    }

    /// A request of the modern era.
    pub(crate) async fn modern(&self, method: &str, params: Value) -> Answer {
        self.modern_with(method, params, &[]).await
    }

    /// The same, with further headers.
    pub(crate) async fn modern_with(&self, method: &str, params: Value, more: &[(&str, &str)]) -> Answer {
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
        let body = modern_body(method, params).to_string();
        let host = self.name();
        let mut headers = vec![
            ("host", host.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
        ];
        if !name.is_empty() {
            headers.push(("mcp-name", &name));
        }
        headers.extend(more);
        self.send(Method::POST, "/mcp", &headers, body).await
    }

    /// A message of the legacy era.
    pub(crate) async fn legacy(&self, session: Option<&str>, message: Value) -> Answer {
        let host = self.name();
        let mut headers = vec![
            ("host", host.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        if let Some(session) = session {
            headers.extend([("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")]);
        }
        self.send(Method::POST, "/mcp", &headers, message.to_string()).await
    }

    /// Shakes hands in the legacy way; gives the session.
    pub(crate) async fn greet(&self) -> String {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = self.legacy(None, hello).await;
        assert_eq!(answer.json()["result"]["protocolVersion"], "2025-11-25", "{answer:?}");
        let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.legacy(Some(&session), done).await.status, StatusCode::ACCEPTED);
        session
    }
}

/// A request of the modern era, as its body says it.
pub(crate) fn modern_body(method: &str, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    let capabilities = &mut params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    if capabilities.is_null() {
        *capabilities = json!({});
    }
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

impl Answer {
    /// The message, if it is one.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The messages of its events.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Stream {
    /// The next event, or `None` at the end of the stream.
    pub(crate) async fn event(&mut self) -> Option<Happened> {
        loop {
            while let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                    lines.map(|value| value.trim_start().to_owned()).next()
                };
                let happened = Happened {
                    id: field("id:"),
                    name: field("event:"),
                    data: field("data:").unwrap_or_default(),
                };
                let is_comment = event.starts_with(':');
                self.buffer = rest.to_owned();
                if !is_comment {
                    return Some(happened);
                }
            }
            let frame = crate::support::soon("something on the stream", self.body.frame()).await?.unwrap();
            if let Ok(bytes) = frame.into_data() {
                self.buffer.push_str(std::str::from_utf8(&bytes).unwrap());
            }
        }
    }

    /// The next message, with the id of its event.
    pub(crate) async fn message(&mut self) -> (String, Value) {
        loop {
            let event = self.event().await.expect("the stream ended");
            if !event.data.is_empty() {
                return (event.id.unwrap_or_default(), serde_json::from_str(&event.data).unwrap());
            }
        }
    }

    /// The next message, or `None` at the end: of a stream, or of an answer that is one message.
    pub(crate) async fn next_message(&mut self) -> Option<Value> {
        if self.is_events {
            loop {
                let event = self.event().await?;
                if !event.data.is_empty() {
                    return Some(serde_json::from_str(&event.data).unwrap());
                }
            }
        }
        while let Some(Ok(frame)) = self.body.frame().await {
            if let Ok(bytes) = frame.into_data() {
                self.buffer.push_str(std::str::from_utf8(&bytes).unwrap());
            }
        }
        let whole = std::mem::take(&mut self.buffer);
        (!whole.is_empty()).then(|| serde_json::from_str(&whole).unwrap())
    }
}
