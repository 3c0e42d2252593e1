//! The test server over HTTP: who may ask, what was asked, and which of the three dialects it is in.
//! Streamable HTTP is at `/mcp`, modern and legacy; HTTP+SSE is at `/sse` and `/message`.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Collected, Either, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use wharf::mcp::{Revision, code};
use wharf::wire::{Json, Limits, Message, RpcError, parse_frame, response_error};

use super::http_legacy::Legacy;
use super::http_modern;

/// What goes back: a whole body, or events as they come.
pub(super) type Reply = Response<Either<Full<Bytes>, Events>>;

/// A body of server-sent events: one for each frame of a channel.
#[derive(Debug)]
pub(super) struct Events {
    first: Option<Bytes>,
    frames: mpsc::Receiver<Vec<u8>>,
}

/// Largest request that is read.
const MAX_BODY: usize = 4 * 1024 * 1024;
pub(super) const VERSION: &str = "mcp-protocol-version";
pub(super) const SESSION: &str = "mcp-session-id";

/// Serves until interrupted. `announce` is told the address once clients can connect.
pub(crate) async fn run_http(addr: SocketAddr, announce: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = TcpListener::bind(addr).await?;
    announce(listener.local_addr()?);
    let legacy = Arc::new(Legacy::default());
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(serve(stream, Arc::clone(&legacy)))),
                // A client that left before it was greeted, or no descriptor to spare: the next one may do better.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            },
            done = &mut interrupted => return done,
        }
    }
}

async fn serve(stream: TcpStream, legacy: Arc<Legacy>) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request| {
        let legacy = Arc::clone(&legacy);
        async move { Ok::<_, Infallible>(route(request, &legacy).await) }
    });
    // A client that breaks off is no news here.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn route(request: Request<Incoming>, legacy: &Legacy) -> Reply {
    if !is_local(request.headers()) {
        return plain(StatusCode::FORBIDDEN, "only local clients are served");
    }
    let headers = request.headers().clone();
    let query = request.uri().query().unwrap_or_default().to_owned();
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/mcp") => match read_body(request).await {
            Ok(body) => post(&headers, body, legacy).await,
            Err(refused) => *refused,
        },
        (&Method::DELETE, "/mcp") if !is_modern(&headers) => legacy.delete(&headers),
        (&Method::GET, "/mcp") if !is_modern(&headers) => legacy.listen(&headers),
        (_, "/mcp") => not_allowed("POST, GET, DELETE"),
        (&Method::GET, "/sse") => legacy.open_sse(),
        (_, "/sse") => not_allowed("GET"),
        (&Method::POST, "/message") => match read_body(request).await {
            Ok(body) => legacy.take_sse(&query, body).await,
            Err(refused) => *refused,
        },
        (_, "/message") => not_allowed("POST"),
        _ => plain(StatusCode::NOT_FOUND, "the server is at /mcp"),
    }
}

async fn post(headers: &HeaderMap, body: Bytes, legacy: &Legacy) -> Reply {
    if !accepts_both(headers) {
        return plain(StatusCode::NOT_ACCEPTABLE, "accept both application/json and text/event-stream");
    }
    let depth = Limits::default().depth;
    if let Err(e) = Json::parse(body.clone(), depth) {
        return refuse(StatusCode::BAD_REQUEST, &RpcError::new(code::PARSE, e.to_string()));
    }
    let is_batch = body.trim_ascii_start().first() == Some(&b'[');
    let messages: Result<Vec<Message>, _> = parse_frame(body, depth).into_iter().collect();
    let mut messages = match messages {
        Ok(messages) => messages,
        Err(bad) => {
            return refuse(StatusCode::BAD_REQUEST, &RpcError::new(code::INVALID_REQUEST, bad.reason));
        }
    };
    if is_batch {
        return legacy.batch(headers, messages).await;
    }
    let Some(message) = messages.pop() else {
        return refuse(StatusCode::BAD_REQUEST, &RpcError::new(code::INVALID_REQUEST, "no message"));
    };
    if is_modern(headers) || http_modern::speaks(&message) {
        http_modern::take(headers, message, Arc::clone(&legacy.shared)).await
    } else {
        legacy.take(headers, message).await
    }
}

async fn read_body(request: Request<Incoming>) -> Result<Bytes, Box<Reply>> {
    let kind = text(request.headers(), header::CONTENT_TYPE.as_str()).unwrap_or_default();
    if !kind.split(';').next().is_some_and(|k| k.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Box::new(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json")));
    }
    let too_large = || Box::new(plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
    // What is announced is refused before it is sent; what is not announced, when it has grown too large.
    if request.body().size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    body.map(Collected::to_bytes).map_err(|_| too_large())
}

/// A page in a browser may reach this address under another name, or from another origin: neither is served.
fn is_local(headers: &HeaderMap) -> bool {
    let host = text(headers, header::HOST.as_str()).is_some_and(is_loopback);
    let origin = match headers.get(header::ORIGIN) {
        None => true,
        Some(origin) => {
            let origin = origin.to_str().ok().and_then(|o| o.split_once("://"));
            origin.is_some_and(|(_, authority)| is_loopback(authority))
        }
    };
    host && origin
}

fn is_loopback(authority: &str) -> bool {
    let name = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether the header names a revision that is not of the legacy era. Old clients send none.
fn is_modern(headers: &HeaderMap) -> bool {
    let revision = text(headers, VERSION).and_then(Revision::parse);
    headers.contains_key(VERSION) && revision.is_none_or(|r| r > Revision::NEWEST_LEGACY)
}

fn accepts_both(headers: &HeaderMap) -> bool {
    let Some(accept) = text(headers, header::ACCEPT.as_str()) else {
        return true;
    };
    let accept = accept.to_ascii_lowercase();
    let has = |kind: &str| accept.split(',').any(|a| a.split(';').next().is_some_and(|a| a.trim() == kind));
    has("*/*")
        || ((has("application/json") || has("application/*")) && (has("text/event-stream") || has("text/*")))
}

/// A header's value, if it stands there once and is text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(value)
}

pub(super) fn json(status: StatusCode, body: Vec<u8>) -> Reply {
    with_type(status, "application/json", body)
}

/// An error that belongs to no request that could be read.
pub(super) fn refuse(status: StatusCode, error: &RpcError) -> Reply {
    json(status, response_error(&Json::of(&()), error))
}

pub(super) fn plain(status: StatusCode, why: &str) -> Reply {
    with_type(status, "text/plain; charset=utf-8", format!("{why}\n").into_bytes())
}

pub(super) fn accepted() -> Reply {
    let mut reply = Response::new(Either::Left(Full::default()));
    *reply.status_mut() = StatusCode::ACCEPTED;
    reply
}

pub(super) fn events(first: Option<Bytes>, frames: mpsc::Receiver<Vec<u8>>) -> Reply {
    let mut reply = Response::new(Either::Right(Events { first, frames }));
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", header::HeaderValue::from_static("no"));
    reply
}

fn not_allowed(allow: &'static str) -> Reply {
    let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    reply.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allow));
    reply
}

fn with_type(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Reply {
    let mut reply = Response::new(Either::Left(Full::from(body)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    reply
}

// === impl Events ===

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.frames.poll_recv(cx).map(|frame| {
            let mut event = b"event: message\ndata: ".to_vec();
            event.extend_from_slice(&frame?);
            event.extend_from_slice(b"\n\n");
            Some(Ok(Frame::data(event.into())))
        })
    }
}
