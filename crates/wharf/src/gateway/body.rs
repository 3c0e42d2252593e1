//! What goes back over HTTP: one message, or events as they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::limits;
use super::notes::NotesRead;
use crate::wire::{Json, Pieces, RpcError, response_error};

/// An answer over HTTP.
pub(super) type Reply = Response<ReplyBody>;

/// The work of a request; its end is the last message of the answer.
pub(super) type Work = Pin<Box<dyn Future<Output = Vec<u8>> + Send>>;

/// A body.
pub(super) enum ReplyBody {
    /// Everything at once.
    Whole(Option<Bytes>),
    /// The same in pieces, and how much is left.
    Pieces(std::vec::IntoIter<Bytes>, u64),
    /// Events.
    Events(Box<Events>),
    /// Events of a stream that lives elsewhere.
    Stream(Box<Stream>),
}

/// Events as they come, already written, until nobody sends any more.
pub(super) struct Stream {
    events: mpsc::Receiver<Bytes>,
    quiet: Pin<Box<Sleep>>,
}

/// Messages as events: those on the way, then the last one.
///
/// The work lives in here. When the caller closes the stream, the work is dropped with it.
pub(super) struct Events {
    first: Option<Bytes>,
    notes: NotesRead,
    work: Option<Work>,
    quiet: Pin<Box<Sleep>>,
}

/// How often a silent stream shows that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

// === impl ReplyBody ===

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces(pieces, left) => {
                let next = pieces.next();
                *left -= next.as_ref().map_or(0, |piece| piece.len() as u64);
                Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
            }
            Self::Events(events) => events.poll(cx).map(|event| event.map(|event| Ok(Frame::data(event)))),
            Self::Stream(stream) => stream.poll(cx).map(|event| event.map(|event| Ok(Frame::data(event)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None) | Self::Pieces(_, 0))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Pieces(_, left) => SizeHint::with_exact(*left),
            Self::Events(_) | Self::Stream(_) => SizeHint::default(),
        }
    }
}

// === impl Events ===

impl Events {
    /// Notes first: they were said before the answer.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        let ended = match &mut self.work {
            Some(work) => work.as_mut().poll(cx),
            None => Poll::Pending,
        };
        match self.notes.poll(cx) {
            Poll::Ready(Some(note)) => {
                if let Poll::Ready(last) = ended {
                    self.work = Some(Box::pin(std::future::ready(last)));
                }
                self.quiet.as_mut().reset(Instant::now() + KEEP_ALIVE);
                return Poll::Ready(Some(event(&note)));
            }
            // Nobody can say anything any more, and there is no last word: the stream is over.
            Poll::Ready(None) if self.work.is_none() => return Poll::Ready(None),
            _ => {}
        }
        if let Poll::Ready(last) = ended {
            self.work = None;
            self.notes.close();
            return Poll::Ready(Some(event(&last)));
        }
        still_here(&mut self.quiet, cx)
    }
}

// === impl Stream ===

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self.events.poll_recv(cx) {
            Poll::Ready(event) => {
                self.quiet.as_mut().reset(Instant::now() + KEEP_ALIVE);
                Poll::Ready(event)
            }
            Poll::Pending => still_here(&mut self.quiet, cx),
        }
    }
}

/// A sign of life, when it is time for one.
fn still_here(quiet: &mut Pin<Box<Sleep>>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
    if quiet.as_mut().poll(cx).is_pending() {
        return Poll::Pending;
    }
    quiet.as_mut().reset(Instant::now() + KEEP_ALIVE);
    Poll::Ready(Some(Bytes::from_static(b": still here\n\n")))
}

fn event(message: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(message.len() + 24);
    event.extend_from_slice(b"event: message\ndata: ");
    event.extend_from_slice(message);
    event.extend_from_slice(b"\n\n");
    event.into()
}

/// Answers with one message.
pub(super) fn message(status: StatusCode, message: Vec<u8>) -> Reply {
    with_type(status, "application/json", ReplyBody::Whole(Some(message.into())))
}

/// Answers with one message that may be large.
pub(super) fn pieces(message: Pieces) -> Reply {
    let length = message.len() as u64;
    with_type(
        StatusCode::OK,
        "application/json",
        ReplyBody::Pieces(message.into_chunks().into_iter(), length),
    )
}

/// Answers with events: a first one, then notes, then the end of the work.
pub(super) fn events(first: Option<Bytes>, notes: NotesRead, work: Option<Work>) -> Reply {
    let quiet = Box::pin(tokio::time::sleep(KEEP_ALIVE));
    streaming(ReplyBody::Events(Box::new(Events { first, notes, work, quiet })))
}

/// Answers with the events of a stream that lives elsewhere.
pub(super) fn stream(events: mpsc::Receiver<Bytes>) -> Reply {
    let quiet = Box::pin(tokio::time::sleep(KEEP_ALIVE));
    streaming(ReplyBody::Stream(Box::new(Stream { events, quiet })))
}

fn streaming(body: ReplyBody) -> Reply {
    let mut reply = Response::new(body);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    reply
}

/// The first event, made of a message.
pub(super) fn first_event(message: &[u8]) -> Bytes {
    event(message)
}

/// An error that belongs to no request that could be read.
pub(super) fn refuse(status: StatusCode, error: &RpcError) -> Reply {
    message(status, response_error(&Json::null(), error))
}

/// There is too much to do: what the protocol says of it, and what HTTP does.
pub(super) fn overloaded(id: &Json, error: &RpcError) -> Reply {
    let (status, wait) =
        limits::retry_after(error).unwrap_or((StatusCode::TOO_MANY_REQUESTS, Duration::ZERO));
    let mut reply = message(status, response_error(id, error));
    let seconds = wait.as_millis().div_ceil(1000).max(1).to_string();
    if let Ok(seconds) = HeaderValue::from_str(&seconds) {
        reply.headers_mut().insert(RETRY_AFTER, seconds);
    }
    reply
}

/// A refusal in words.
pub(super) fn plain(status: StatusCode, why: &str) -> Reply {
    let text = ReplyBody::Whole(Some(format!("{why}\n").into()));
    with_type(status, "text/plain; charset=utf-8", text)
}

/// A text of some kind.
pub(super) fn typed(status: StatusCode, kind: &'static str, text: String) -> Reply {
    with_type(status, kind, ReplyBody::Whole(Some(text.into())))
}

/// Taken, and there is nothing to say.
pub(super) fn accepted() -> Reply {
    let mut reply = Response::new(ReplyBody::Whole(None));
    *reply.status_mut() = StatusCode::ACCEPTED;
    reply
}

/// It is done, and there is nothing to say.
pub(super) fn done() -> Reply {
    let mut reply = Response::new(ReplyBody::Whole(None));
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}

/// The path is there, the verb is not.
pub(super) fn not_allowed(allow: &'static str) -> Reply {
    let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    reply
}

fn with_type(status: StatusCode, kind: &'static str, body: ReplyBody) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}
