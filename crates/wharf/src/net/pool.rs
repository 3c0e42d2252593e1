//! In: requests for one origin. Out: their responses, over connections that are kept for the next request.
//!
//! A request of which a kept connection took nothing goes over a new one; what may have left goes nowhere a second
//! time. How one connection is used is in `line.rs`, and who may be dialled in `dial.rs`
//! (`docs/decisions/0018-a-pool-of-our-own.md`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::NetError;
use super::ask::{Address, Ask};
use super::body::{Answer, ResponseBody};
use super::dial::Connector;
use super::error::chain;
use super::head::Head;
use super::line::Line;

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

const SWITCHES: &str = "it switches to another protocol";
const RAMBLES: &str = "it says too much before it answers";

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

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(self: &Arc<Self>, to: &Address, ask: &Ask<'_>) -> Result<Answer, NetError> {
        if let Some(way) = self.take() {
            match self.exchange(way, to, ask).await {
                // Nothing of it was written. It has one more try, over a connection that nobody can have closed for
                // its age.
                Err(NetError::NotSent) => {}
                other => return other,
            }
        }
        let way = Box::pin(self.dial()).await?;
        self.exchange(way, to, ask).await
    }

    async fn exchange(self: &Arc<Self>, way: Way, to: &Address, ask: &Ask<'_>) -> Result<Answer, NetError> {
        let line = match way {
            Way::Line(line) => line,
            Way::Shared(sender) => return Box::pin(self.share(sender, to, ask)).await,
        };
        let write = |out: &mut Vec<u8>| ask.write_head(out, to, &self.host);
        let (line, head, framing) = line.exchange(write, ask.body, *ask.method == Method::HEAD).await?;
        match head.status() {
            StatusCode::SWITCHING_PROTOCOLS => Err(NetError::Unreadable { reason: SWITCHES }),
            status if status.is_informational() => Err(NetError::Unreadable { reason: RAMBLES }),
            _ => Ok(Answer { head, body: ResponseBody::of_line(line, framing, self) }),
        }
    }

    async fn share(
        &self,
        mut sender: http2::SendRequest<Full<Bytes>>,
        to: &Address,
        ask: &Ask<'_>,
    ) -> Result<Answer, NetError> {
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = to.whole().clone();
        let mut headers = ask.headers();
        // It is in the address, and only what the user wants instead is said twice.
        if headers.get(HOST) == Some(&self.host) {
            headers.remove(HOST);
        }
        *request.headers_mut() = headers;
        let response = sender.try_send_request(request).await.map_err(NetError::of_exchange)?;
        let (parts, body) = response.into_parts();
        let head = Head::of_map(parts.status, parts.headers);
        Ok(Answer { head, body: ResponseBody::shared(body) })
    }

    async fn dial(&self) -> Result<Way, NetError> {
        let broken = |error: hyper::Error| NetError::Broken { reason: chain(&error) };
        let stream = self.connector.connect(&self.origin).await?;
        if !stream.is_http2() {
            return Ok(Way::Line(Line::new(stream)));
        }
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2.timer(TokioTimer::new());
        let (sender, connection) = http2.handshake(TokioIo::new(stream)).await.map_err(broken)?;
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
        kept.resting
            .retain_mut(|resting| now < resting.since + self.limits.age && resting.line.rest(&self.ring));
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

// === impl Bell ===

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}
