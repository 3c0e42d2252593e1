//! In: requests for one origin. Out: their responses, over connections that are kept for the next request.
//!
//! A request that comes back from a kept connection unsent goes over a new one; what may have left goes nowhere a second
//! time. How one connection is used is in `line.rs`, and who may be dialled in `dial.rs`
//! (`docs/decisions/0018-a-pool-of-our-own.md`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::uri::{Parts, PathAndQuery};
use http::{Response, Uri};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{TrySendError, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::NetError;
use super::body::ResponseBody;
use super::dial::Connector;
use super::error::chain;
use super::line::{Line, Wish};

/// The connections of one endpoint.
pub(super) struct Pool {
    connector: Connector,
    /// Where all of them lead.
    origin: Uri,
    /// The same as a header says it.
    host: HeaderValue,
    limits: Limits,
    kept: Mutex<Kept>,
    /// Heard by whoever looks after those that rest.
    bell: Arc<Bell>,
    ring: Waker,
}

/// How many connections are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) idle: usize,
    pub(super) age: Duration,
}

/// Where a request goes within the origin, as each version of HTTP says it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    whole: Uri,
    path: Uri,
}

#[derive(Default)]
struct Kept {
    /// The one that rested last is used next: the others may grow old.
    resting: Vec<Resting>,
    /// A connection of HTTP/2 is everybody's.
    shared: Option<http2::SendRequest<Full<Bytes>>>,
    keeper: Option<AbortHandle>,
    /// Nothing is kept any more.
    closed: bool,
}

struct Resting {
    line: Box<Line>,
    since: Instant,
}

/// A connection to send one request over.
enum Way {
    Line(Box<Line>),
    Shared(http2::SendRequest<Full<Bytes>>),
}

#[derive(Default)]
struct Bell(Notify);

// === impl Pool ===

impl Pool {
    pub(super) fn new(connector: Connector, origin: Uri, limits: Limits) -> Arc<Self> {
        let bell = Arc::new(Bell::default());
        let ring = Waker::from(Arc::clone(&bell));
        Arc::new(Self { connector, host: host(&origin), origin, limits, kept: Mutex::default(), bell, ring })
    }

    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn send(
        self: &Arc<Self>,
        to: &Address,
        mut request: Wish,
    ) -> Result<Response<ResponseBody>, NetError> {
        if let Some(way) = self.take() {
            match self.exchange(way, to, request).await {
                Ok(response) => return Ok(response),
                // Only what was not begun comes back. It has one more try, over a connection that nobody can have
                // closed for its age.
                Err(mut error) => match error.take_message() {
                    Some(back) => request = back,
                    None => return Err(NetError::of_exchange(error)),
                },
            }
        }
        let way = Box::pin(self.dial()).await?;
        self.exchange(way, to, request).await.map_err(NetError::of_exchange)
    }

    async fn exchange(
        self: &Arc<Self>,
        way: Way,
        to: &Address,
        mut request: Wish,
    ) -> Result<Response<ResponseBody>, TrySendError<Wish>> {
        match way {
            Way::Shared(mut sender) => {
                *request.uri_mut() = to.whole.clone();
                // It is in the address, and only what the user wants instead is said twice.
                if request.headers().get(HOST) == Some(&self.host) {
                    request.headers_mut().remove(HOST);
                }
                let response = sender.try_send_request(request).await?;
                Ok(response.map(ResponseBody::shared))
            }
            Way::Line(line) => {
                *request.uri_mut() = to.path.clone();
                request.headers_mut().entry(HOST).or_insert_with(|| self.host.clone());
                let (line, response) = line.exchange(request).await?;
                Ok(response.map(|body: Incoming| match body.is_end_stream() {
                    true => {
                        self.put(line);
                        ResponseBody::shared(body)
                    }
                    false => ResponseBody::of_line(body, line, Arc::clone(self)),
                }))
            }
        }
    }

    async fn dial(&self) -> Result<Way, NetError> {
        let broken = |error: hyper::Error| NetError::Broken { reason: chain(&error) };
        let stream = self.connector.connect(&self.origin).await?;
        if !stream.is_http2() {
            return Ok(Way::Line(Line::new(stream).await.map_err(broken)?));
        }
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2.timer(TokioTimer::new());
        let (sender, connection) = http2.handshake(stream).await.map_err(broken)?;
        // It ends when the last sender is gone, and what was sent is answered.
        tokio::spawn(connection);
        let mut kept = self.kept();
        if !kept.closed {
            kept.shared = Some(sender.clone());
        }
        drop(kept);
        Ok(Way::Shared(sender))
    }

    fn take(&self) -> Option<Way> {
        let mut kept = self.kept();
        if let Some(shared) = &kept.shared {
            if !shared.is_closed() {
                return Some(Way::Shared(shared.clone()));
            }
            kept.shared = None;
        }
        let last = kept.resting.pop()?;
        if last.since.elapsed() < self.limits.age {
            return Some(Way::Line(last.line));
        }
        // The others rest even longer.
        kept.resting.clear();
        None
    }

    /// Keeps a line whose response was read to its end, if it can be used again and there is room.
    pub(super) fn put(self: &Arc<Self>, mut line: Box<Line>) {
        if !line.rest(&self.ring) {
            return;
        }
        let mut kept = self.kept();
        if kept.closed || kept.resting.len() >= self.limits.idle {
            return;
        }
        kept.resting.push(Resting { line, since: Instant::now() });
        if kept.keeper.as_ref().is_none_or(AbortHandle::is_finished)
            && let Ok(runtime) = Handle::try_current()
        {
            let keeper = runtime.spawn(keep(Arc::downgrade(self), Arc::clone(&self.bell)));
            kept.keeper = Some(keeper.abort_handle());
        }
    }

    /// Closes what is too old, and what the other side closed. The instant when that is to be done again, or `None` if
    /// nothing is left to be looked after.
    fn tidy(&self) -> Option<Instant> {
        let mut kept = self.kept();
        let now = Instant::now();
        kept.resting.retain_mut(|resting| {
            now < resting.since + self.limits.age
                && (!resting.line.is_stirred() || resting.line.rest(&self.ring))
        });
        let oldest = kept.resting.first().map(|resting| resting.since + self.limits.age);
        if oldest.is_none() {
            kept.keeper = None;
        }
        oldest
    }

    /// Closes all that rest, and keeps none from now on. What is under way goes on to its end.
    pub(super) fn close(&self) {
        let mut kept = self.kept();
        kept.closed = true;
        kept.resting.clear();
        kept.shared = None;
    }

    /// How many rest.
    #[cfg(test)]
    pub(super) fn resting(&self) -> usize {
        self.kept().resting.len()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(keeper) = self.kept().keeper.take() {
            keeper.abort();
        }
    }
}

/// Looks after the connections that rest, for as long as any does.
async fn keep(pool: Weak<Pool>, bell: Arc<Bell>) {
    while let Some(next) = pool.upgrade().and_then(|pool| pool.tidy()) {
        let _ = tokio::time::timeout_at(next, bell.0.notified()).await;
    }
}

/// Who an origin is, as it is asked for: without the port that goes without saying.
fn host(origin: &Uri) -> HeaderValue {
    let name = origin.host().unwrap_or_default();
    let text = match (origin.port_u16(), origin.scheme_str()) {
        (None, _) | (Some(80), Some("http")) | (Some(443), Some("https")) => name.to_owned(),
        (Some(port), _) => format!("{name}:{port}"),
    };
    // A host of an address is always a header's value.
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

// === impl Address ===

impl Address {
    pub(super) fn new(whole: Uri) -> Self {
        let mut path = Parts::default();
        let root = || PathAndQuery::from_static("/");
        path.path_and_query = Some(whole.path_and_query().cloned().unwrap_or_else(root));
        Self { path: Uri::from_parts(path).unwrap_or_default(), whole }
    }

    pub(super) fn whole(&self) -> &Uri {
        &self.whole
    }
}

// === impl Bell ===

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}
