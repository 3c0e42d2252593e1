//! In: an open stream. Out: one request at a time over it, and its response.
//!
//! Nobody drives a line but whoever uses it: no task stands between a request and its socket, and a use that is given
//! up takes the connection with it. Which line is used for what is in `pool.rs`.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use tokio::task::coop::unconstrained;

use super::gate::Gate;
use super::stream::Stream;

pub(super) type Wish = Request<Full<Bytes>>;

/// A connection that speaks HTTP/1.1.
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// `None` when it is over.
    driver: Option<Connection<Stream, Full<Bytes>>>,
    gate: Arc<Gate>,
    /// Of the gate: always the same, so nothing has to be registered twice.
    waker: Waker,
}

/// How often a line that stirs itself is driven before others get their turn.
const TURNS: usize = 4;

// === impl Line ===

impl Line {
    pub(super) async fn new(stream: Stream) -> hyper::Result<Box<Self>> {
        let gate = Arc::clone(stream.gate());
        let (sender, driver) = http1::handshake(stream).await?;
        Ok(Box::new(Self { sender, driver: Some(driver), waker: Waker::from(Arc::clone(&gate)), gate }))
    }

    /// Sends a request and waits for the head of its response. The request comes back with the error if nothing of it
    /// was written. Dropping the future closes the connection.
    pub(super) async fn exchange(
        mut self: Box<Self>,
        request: Wish,
    ) -> Result<(Box<Self>, Response<Incoming>), TrySendError<Wish>> {
        self.gate.enter();
        // What is polled without a waker must not wait for its turn.
        let mut answer = pin!(unconstrained(self.sender.try_send_request(request)));
        let response = poll_fn(|cx| self.run(cx, |cx| answer.as_mut().poll(cx))).await?;
        Ok((self, response))
    }

    /// The next part of the body of a response that came over this line.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.run(cx, |cx| Pin::new(&mut *body).poll_frame(cx))
    }

    /// Gets ready for another request, and tells `keeper` from now on when something stirs. False if there cannot be
    /// another: the other side closed, or does not want to keep it, or has not read the last one.
    pub(super) fn rest(&mut self, keeper: &Waker) -> bool {
        self.gate.belong_to(keeper);
        for _ in 0..TURNS {
            self.gate.enter();
            self.drive();
            if self.driver.is_none() || !self.sender.is_ready() {
                return false;
            }
            if self.gate.leave() {
                // The other side may close without our hearing of it: that is looked for before the next first byte.
                self.gate.look_closely();
                return true;
            }
        }
        false
    }

    /// Whether something came while it rested: most likely its end.
    pub(super) fn is_stirred(&self) -> bool {
        self.gate.is_stirred()
    }

    /// Drives the connection for what comes `out` of it. As only the driving brings anything there, nobody needs to be
    /// woken by what comes out.
    fn run<T>(&mut self, cx: &mut Context<'_>, mut out: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        self.gate.belong_to(cx.waker());
        let silent = &mut Context::from_waker(Waker::noop());
        for _ in 0..TURNS {
            self.gate.enter();
            if let Poll::Ready(it) = out(silent) {
                return Poll::Ready(it);
            }
            self.drive();
            if self.driver.is_none() {
                return out(cx);
            }
            if let Poll::Ready(it) = out(silent) {
                return Poll::Ready(it);
            }
            if self.gate.leave() {
                return Poll::Pending;
            }
        }
        // It goes on by itself; others may be waiting for this thread.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// What went wrong with it is told to whom it concerns, by what comes out.
    fn drive(&mut self) {
        let Some(driver) = &mut self.driver else { return };
        if Pin::new(driver).poll(&mut Context::from_waker(&self.waker)).is_ready() {
            // With it goes a request that was never taken, back to whoever sent it.
            self.driver = None;
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("open", &self.driver.is_some()).finish_non_exhaustive()
    }
}
