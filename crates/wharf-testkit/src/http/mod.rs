//! A loopback HTTP server inside the test: what it answers is a function, what it was asked is kept.
//!
//! In: a handler from a request to a [`Reply`]. Out: a URL. Honest handlers for each dialect of MCP over HTTP are in
//! [`honest_modern`], [`honest_legacy`] and [`honest_sse`]; a hostile one wraps them or stands alone.

mod honest;
mod reply;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub use honest::{honest_legacy, honest_modern, honest_sse};
pub use reply::{Reply, SseStep};

use reply::Unfinished;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// A server that lives as long as this value. Its connections end with it.
#[derive(Debug)]
pub struct HttpPuppet {
    addr: SocketAddr,
    seen: Arc<Seen>,
    running: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Mutex<Vec<Recorded>>,
    accepts: AtomicUsize,
    hangups: Arc<AtomicUsize>,
}

// === impl Recorded ===

impl Recorded {
    /// A header's value, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The method of the JSON-RPC message in the body; empty if there is none.
    pub fn rpc_method(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }
}

// === impl HttpPuppet ===

impl HttpPuppet {
    /// Starts a server on a free port of 127.0.0.1. Must be called inside a Tokio runtime.
    pub fn start<F, R>(handler: F) -> Self
    where
        F: Fn(Recorded) -> R + Send + Sync + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        Self::start_at(0, handler)
    }

    /// Starts a server on this port of 127.0.0.1.
    pub fn start_at<F, R>(port: u16, handler: F) -> Self
    where
        F: Fn(Recorded) -> R + Send + Sync + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let listener = TcpListener::from_std(listener).expect("a listener in a runtime");
        let addr = listener.local_addr().expect("a listener has an address");
        let seen = Arc::new(Seen::default());
        let running = tokio::spawn(accept(listener, Arc::new(handler), Arc::clone(&seen)));
        Self { addr, seen, running }
    }

    /// Where it is, with the path `/mcp`.
    pub fn url(&self) -> String {
        self.url_of("/mcp")
    }

    /// Where it is, with another path.
    pub fn url_of(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it was asked so far, in order.
    pub fn requests(&self) -> Vec<Recorded> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Forgets them: where there are very many, their memory would be taken for somebody else's.
    pub fn forget(&self) {
        self.seen.requests.lock().unwrap().clear();
    }

    /// How many connections it accepted.
    pub fn accepts(&self) -> usize {
        self.seen.accepts.load(Ordering::SeqCst)
    }

    /// How many answers the client did not wait for: it closed the connection first.
    pub fn hangups(&self) -> usize {
        self.seen.hangups.load(Ordering::SeqCst)
    }
}

impl Drop for HttpPuppet {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn accept<F, R>(listener: TcpListener, handler: Arc<F>, seen: Arc<Seen>)
where
    F: Fn(Recorded) -> R + Send + Sync + 'static,
    R: Future<Output = Reply> + Send + 'static,
{
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        seen.accepts.fetch_add(1, Ordering::SeqCst);
        connections.spawn(serve(stream, Arc::clone(&handler), Arc::clone(&seen)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve<F, R>(stream: TcpStream, handler: Arc<F>, seen: Arc<Seen>)
where
    F: Fn(Recorded) -> R + Send + Sync + 'static,
    R: Future<Output = Reply> + Send + 'static,
{
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (handler, seen) = (Arc::clone(&handler), Arc::clone(&seen));
        async move {
            let recorded = record(request).await?;
            seen.requests.lock().unwrap().push(recorded.clone());
            let mut unfinished = Unfinished::new(&seen.hangups);
            let response = handler(recorded).await.into_response(&seen.hangups).await;
            unfinished.finish();
            // An error here ends the connection without an answer.
            response.ok_or_else(|| io::Error::other("the script says so"))
        }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn record(request: Request<Incoming>) -> io::Result<Recorded> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    Ok(Recorded { method: head.method.to_string(), path, headers: head.headers, body })
}
