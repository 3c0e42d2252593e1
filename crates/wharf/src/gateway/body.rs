//! What goes back over HTTP: one message, or events as they come.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::limits;
use super::line::NotesRead;
use super::stay::Guest;
use crate::wire::{Json, Pieces, RpcError, response_error};

/// An answer over HTTP.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// What the body is.
    pub(super) kind: Option<&'static str>,
    /// What is said beside it.
    pub(super) fields: Vec<(&'static str, Cow<'static, str>)>,
    pub(super) body: ReplyBody,
    /// Who speaks a WebSocket from here on.
    pub(super) becomes: Option<Guest>,
}

/// The work of a request; its end is the last message of the answer.
pub(super) type Work = Pin<Box<dyn Future<Output = Vec<u8>> + Send>>;

/// A body.
pub(super) enum ReplyBody {
    /// Everything at once.
    Whole(Pieces),
    /// What comes as it comes.
    Flow(Flow),
}

/// A body whose end is not known yet.
pub(super) enum Flow {
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

// === impl Reply ===

impl Reply {
    fn new(status: StatusCode, kind: Option<&'static str>, body: ReplyBody) -> Self {
        Self { status, kind, fields: Vec::new(), body, becomes: None }
    }

    /// The same with a field more. A value that would break out of its line is left out.
    #[must_use]
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        let value = value.into();
        if value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)) {
            self.fields.push((name, value));
        }
        self
    }
}

// === impl Flow ===

impl Flow {
    /// The next part of it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Events(events) => events.poll(cx),
            Self::Stream(stream) => stream.poll(cx),
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
    Reply::new(status, Some("application/json"), ReplyBody::Whole(message.into()))
}

/// Answers with one message that may be large.
pub(super) fn pieces(message: Pieces) -> Reply {
    Reply::new(StatusCode::OK, Some("application/json"), ReplyBody::Whole(message))
}

/// Answers with events: a first one, then notes, then the end of the work.
pub(super) fn events(first: Option<Bytes>, notes: NotesRead, work: Option<Work>) -> Reply {
    let quiet = Box::pin(tokio::time::sleep(KEEP_ALIVE));
    streaming(Flow::Events(Box::new(Events { first, notes, work, quiet })))
}

/// Answers with the events of a stream that lives elsewhere.
pub(super) fn stream(events: mpsc::Receiver<Bytes>) -> Reply {
    let quiet = Box::pin(tokio::time::sleep(KEEP_ALIVE));
    streaming(Flow::Stream(Box::new(Stream { events, quiet })))
}

fn streaming(flow: Flow) -> Reply {
    Reply::new(StatusCode::OK, Some("text/event-stream"), ReplyBody::Flow(flow))
        .with("cache-control", "no-cache")
        .with("x-accel-buffering", "no")
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
    let seconds = wait.as_millis().div_ceil(1000).max(1).to_string();
    message(status, response_error(id, error)).with("retry-after", seconds)
}

/// A refusal in words.
pub(super) fn plain(status: StatusCode, why: &str) -> Reply {
    typed(status, "text/plain; charset=utf-8", format!("{why}\n"))
}

/// A text of some kind.
pub(super) fn typed(status: StatusCode, kind: &'static str, text: String) -> Reply {
    Reply::new(status, Some(kind), ReplyBody::Whole(text.into_bytes().into()))
}

/// Taken, and there is nothing to say.
pub(super) fn accepted() -> Reply {
    empty(StatusCode::ACCEPTED)
}

/// It is done, and there is nothing to say.
pub(super) fn done() -> Reply {
    empty(StatusCode::NO_CONTENT)
}

/// Nothing but fields.
pub(super) fn empty(status: StatusCode) -> Reply {
    Reply::new(status, None, ReplyBody::Whole(Pieces::default()))
}

/// The path is there, the verb is not.
pub(super) fn not_allowed(allow: &'static str) -> Reply {
    plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed").with("allow", allow)
}
