//! The gateway over HTTP: who is let in, what was asked, and in which era.
//!
//! Limits come first: how many connections, how long a request may take to arrive, how large it may be.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::poll;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode};
use http_body_util::{BodyExt, Collected, Limited};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::accept;
use super::barred::{Bar, Whence};
use super::body::{self, Reply};
use super::guard::{self, single};
use super::legacy::Sessions;
use super::metrics;
use super::modern::Asked;
use super::resource::Resource;
use super::sse::Streams;
use super::stay::Guest;
use super::websocket::{self, Upgrade};
use super::{Gateway, Settings};
use crate::mcp::{Revision, code};
use crate::names::CallerName;
use crate::wire::{Json, Message, RpcError, is_batch, parse_message};

pub(super) static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// How long the head of a request, and its body, may take to arrive.
pub(super) const ARRIVE: Duration = Duration::from_secs(15);
/// The largest head of a request.
pub(super) const HEAD: usize = 32 * 1024;

/// Serves until told to stop, then lets what is under way end.
pub(super) async fn serve(gateway: &Gateway, listener: TcpListener, stop: impl Future<Output = ()>) {
    let resource = Resource::new(&gateway.settings, listener.local_addr().ok());
    let (sessions, streams) = (Arc::default(), Arc::default());
    let door = Arc::new(Door { gateway: gateway.clone(), sessions, streams, resource });
    let converse = |stream, closed| converse(stream, Arc::clone(&door), closed);
    let stopping = async {
        gateway.desk.ending.until_stopping().await;
        // Streams that nothing is under way on would never end by themselves.
        door.sessions.stop();
        door.while_stopping(&listener).await;
    };
    tokio::select! {
        () = accept::receive(&listener, gateway, stop, converse) => door.sessions.stop(),
        () = stopping => {}
        () = gateway.desk.ending.at_every_withdrawal(|| door.sessions.withdraw()) => {}
    }
}

/// What every connection needs.
pub(super) struct Door {
    pub(super) gateway: Gateway,
    sessions: Arc<Sessions>,
    /// Those of the oldest callers.
    streams: Arc<Streams>,
    pub(super) resource: Resource,
}

async fn converse(stream: TcpStream, door: Arc<Door>, mut closed: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let from = stream.peer_addr().ok().map(|peer| peer.ip());
    // What the connection becomes, if it is not HTTP any more.
    let upgrade = Arc::new(OnceLock::new());
    let service = hyper::service::service_fn(|request| {
        let (door, upgrade) = (Arc::clone(&door), Arc::clone(&upgrade));
        async move { Ok::<_, Infallible>(door.answer(request, &upgrade, from).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(door.gateway.desk.clock.clone())
        .header_read_timeout(ARRIVE)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    // A caller that breaks off is no news here.
    let stopping = tokio::select! {
        _ = connection.as_mut() => false,
        _ = closed.wait_for(|closed| *closed) => true,
    };
    if stopping {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
    if let Some(upgrade) = upgrade.get().cloned() {
        websocket::converse(&door.gateway, upgrade, closed).await;
    }
}

// === impl Door ===

impl Door {
    async fn answer(
        &self,
        mut request: Request<Incoming>,
        upgrade: &OnceLock<Upgrade>,
        from: Option<IpAddr>,
    ) -> Reply {
        let settings = &self.gateway.settings;
        let turn_away = |bar| self.gateway.desk.gate.turn_away(Whence::address(from), bar);
        if let Err((status, why)) = guard::check(&request, settings) {
            metrics::count(&self.gateway.desk.rejections.guard);
            turn_away(Bar::Address(why));
            return body::plain(status, why);
        }
        let admission = settings.admission.load();
        match (request.method(), request.uri().path()) {
            (method, path) if admission.tokens.is_some() && self.resource.describes_itself_at(path) => {
                return match *method {
                    Method::GET | Method::HEAD => self.resource.described(&admission),
                    _ => body::not_allowed("GET, HEAD"),
                };
            }
            (_, "/mcp" | "/sse" | "/messages") => {}
            _ => return Box::pin(self.probe(&request)).await,
        }
        let caller = match admission.admit(request.headers(), self.resource.url()).await {
            Ok(caller) => caller,
            Err(refused) => {
                metrics::count(&self.gateway.desk.rejections.auth);
                turn_away(Bar::Identity(refused.words()));
                return self.resource.refuse(refused, &admission);
            }
        };
        drop(admission);
        if let Err(overloaded) = self.gateway.desk.gate.arrive(&caller) {
            return body::overloaded(&Json::null(), &overloaded.into());
        }
        let is_legacy = !is_modern(request.headers());
        match (request.uri().path(), request.method().clone()) {
            ("/sse", Method::GET) => self.streams.open(&self.gateway, caller),
            ("/sse", _) => body::not_allowed("GET"),
            ("/messages", Method::POST) => Box::pin(self.post_to_stream(request, &caller)).await,
            ("/messages", _) => body::not_allowed("POST"),
            (_, Method::POST) => self.post(request, caller, !is_legacy).await,
            (_, Method::GET) if websocket::is_asked(request.headers()) => {
                websocket::agree(&mut request, caller, upgrade)
            }
            (_, Method::GET) if is_legacy && !accepts_events(request.headers()) => {
                body::plain(StatusCode::NOT_ACCEPTABLE, "accept text/event-stream")
            }
            (_, Method::GET) if is_legacy => self.sessions.stream(request.headers(), &caller),
            (_, Method::DELETE) if is_legacy => self.sessions.end(request.headers(), &caller),
            (_, _) if is_legacy => body::not_allowed("GET, POST, DELETE"),
            _ => body::not_allowed("POST"),
        }
    }

    /// A message for a stream, which is also where the answer goes.
    async fn post_to_stream(&self, request: Request<Incoming>, caller: &CallerName) -> Reply {
        if !is_json(request.headers()) {
            return body::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json");
        }
        let query = request.uri().query().map(str::to_owned);
        match collect(request.into_body(), &self.gateway.settings).await {
            Ok(frame) => self.streams.take(query.as_deref(), caller, frame).await,
            Err(refused) => *refused,
        }
    }

    async fn post(&self, request: Request<Incoming>, caller: Guest, modern: bool) -> Reply {
        let settings = &self.gateway.settings;
        let (parts, body) = request.into_parts();
        let headers = parts.headers;
        let message = match read(&headers, body, settings).await {
            Ok(message) => message,
            Err(refused) => {
                let rejections = &self.gateway.desk.rejections;
                let is_size = refused.status() == StatusCode::PAYLOAD_TOO_LARGE;
                metrics::count(if is_size { &rejections.size } else { &rejections.malformed });
                return *refused;
            }
        };
        let desk = Arc::clone(&self.gateway.desk);
        match message {
            Message::Request { id, method, params } => {
                let asked = Asked::new(id, method, params);
                if modern || asked.is_modern() {
                    return asked.with_headers(&headers).over_http(desk, caller, &headers).await;
                }
                let Asked { id, method, params, .. } = asked;
                let request = Message::Request { id, method, params };
                Box::pin(self.sessions.take(desk, caller, &headers, request)).await
            }
            Message::Notification { .. } if modern => body::accepted(),
            Message::Response { .. } if modern => {
                let error =
                    RpcError::new(code::INVALID_REQUEST, "a caller of this revision sends no responses");
                body::refuse(StatusCode::BAD_REQUEST, &error)
            }
            message => Box::pin(self.sessions.take(desk, caller, &headers, message)).await,
        }
    }
}

/// Reads the body and takes it apart.
async fn read(headers: &HeaderMap, body: Incoming, settings: &Settings) -> Result<Message, Box<Reply>> {
    if !is_json(headers) {
        return Err(Box::new(body::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json")));
    }
    // What is packed may be anything when it is unpacked: nobody here does.
    if headers.contains_key(CONTENT_ENCODING) {
        let why = "send it as it is, without a content-encoding";
        return Err(Box::new(body::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)));
    }
    if !accepts_both(headers) {
        let why = "accept both application/json and text/event-stream";
        return Err(Box::new(body::plain(StatusCode::NOT_ACCEPTABLE, why)));
    }
    let frame = collect(body, settings).await?;
    let refuse =
        |code, why: String| Box::new(body::refuse(StatusCode::BAD_REQUEST, &RpcError::new(code, why)));
    if is_batch(&frame) {
        return Err(refuse(code::INVALID_REQUEST, "batches are not taken here: send one message".into()));
    }
    parse_message(frame, settings.limits.depth).map_err(|bad| refuse(code::PARSE, bad.reason))
}

async fn collect(body: Incoming, settings: &Settings) -> Result<Bytes, Box<Reply>> {
    let too_large = || Box::new(body::plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large"));
    // What is announced is refused before it is sent; what is not announced, when it has grown too large.
    if body.size_hint().lower() > settings.body as u64 {
        return Err(too_large());
    }
    let mut arriving = pin!(Limited::new(body, settings.body).collect());
    // Most have arrived with their heads, and need no clock.
    let arrived = match poll!(&mut arriving) {
        Poll::Ready(collected) => Ok(collected),
        Poll::Pending => tokio::time::timeout(ARRIVE, arriving).await,
    };
    match arrived {
        Ok(collected) => collected.map(Collected::to_bytes).map_err(|_| too_large()),
        Err(_) => {
            Err(Box::new(body::plain(StatusCode::REQUEST_TIMEOUT, "the request took too long to arrive")))
        }
    }
}

/// Whether the header names a revision that is not of the legacy era. Old callers send none.
fn is_modern(headers: &HeaderMap) -> bool {
    match single(headers, &VERSION) {
        Some(version) => Revision::parse(version).is_none_or(|revision| revision > Revision::NEWEST_LEGACY),
        None => headers.contains_key(&VERSION),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = single(headers, CONTENT_TYPE).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn accepts_both(headers: &HeaderMap) -> bool {
    // What nearly every caller sends.
    const USUAL: &str = "application/json, text/event-stream";
    single(headers, ACCEPT) == Some(USUAL)
        || accepts(headers, &["application/json", "application/*"]) && accepts_events(headers)
}

fn accepts_events(headers: &HeaderMap) -> bool {
    accepts(headers, &["text/event-stream", "text/*"])
}

/// Whether one of these kinds is accepted. Who says nothing accepts anything.
fn accepts(headers: &HeaderMap, kinds: &[&str]) -> bool {
    let Some(accept) = single(headers, ACCEPT) else { return !headers.contains_key(ACCEPT) };
    let accept = accept.to_ascii_lowercase();
    let mut accepted = accept.split(',').filter_map(|kind| kind.split(';').next()).map(str::trim);
    accepted.any(|kind| kind == "*/*" || kinds.contains(&kind))
}
