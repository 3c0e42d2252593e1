//! What an HTTP puppet answers, and how that becomes bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame};
use serde_json::Value;
use tokio::sync::mpsc;

/// An answer.
#[derive(Debug)]
pub enum Reply {
    /// A JSON body with this status and these headers.
    Json(u16, Vec<(String, String)>, Value),
    /// An event stream.
    Sse(Vec<SseStep>),
    /// An event stream that the test feeds; it ends when the sender is gone.
    Live(mpsc::Receiver<SseStep>),
    /// A status, a content type and a body.
    Raw(u16, String, Vec<u8>),
    /// A status and a place to go.
    Redirect(u16, String),
    /// Another answer with one more header.
    With(Box<Self>, String, String),
    /// No answer, ever; the connection stays open.
    Hang,
    /// No answer; the connection is closed.
    Drop,
}

/// A step of an event stream.
#[derive(Clone, Debug)]
pub enum SseStep {
    /// An event; `data` may have several lines.
    Event {
        /// Its id.
        id: Option<String>,
        /// Its type.
        event: Option<String>,
        /// Its data.
        data: String,
        /// When to come back, in milliseconds.
        retry: Option<u64>,
    },
    /// A comment line.
    Comment(String),
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// Waits that many milliseconds.
    Delay(u64),
    /// Breaks the connection off.
    Drop,
    /// Ends the stream well. So does the end of the steps.
    End,
    /// Stays open and silent.
    Hang,
}

/// A body that arrives piece by piece.
#[derive(Debug)]
pub(super) struct Pieces {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    unfinished: Unfinished,
}

/// Counts itself as a hang-up unless it is told that all is done.
#[derive(Debug)]
pub(super) struct Unfinished {
    hangups: Arc<AtomicUsize>,
    done: bool,
}

// === impl Reply ===

impl Reply {
    /// 200 with a JSON body.
    pub fn ok(body: Value) -> Self {
        Self::Json(200, Vec::new(), body)
    }

    /// A status and nothing else.
    pub fn status(status: u16) -> Self {
        Self::Raw(status, String::new(), Vec::new())
    }

    /// An event stream of these messages.
    pub fn messages(messages: impl IntoIterator<Item = Value>) -> Self {
        Self::Sse(messages.into_iter().map(|m| SseStep::message(&m)).collect())
    }

    /// The same answer with one more header.
    #[must_use]
    pub fn with(self, name: &str, value: &str) -> Self {
        Self::With(Box::new(self), name.to_owned(), value.to_owned())
    }

    /// The response; `None` if there is none and the connection ends.
    pub(super) async fn into_response(
        self,
        hangups: &Arc<AtomicUsize>,
    ) -> Option<Response<Either<Full<Bytes>, Pieces>>> {
        let response = match self {
            Self::Json(status, headers, body) => {
                let mut response = whole(status, "application/json", body.to_string().into_bytes());
                for (name, value) in headers {
                    insert(&mut response, &name, &value);
                }
                response
            }
            Self::Sse(steps) => {
                let (sender, receiver) = mpsc::channel(steps.len().max(1));
                for step in steps {
                    let _ = sender.try_send(step);
                }
                stream(receiver, hangups)
            }
            Self::Live(steps) => stream(steps, hangups),
            Self::Raw(status, kind, body) => whole(status, &kind, body),
            Self::Redirect(status, location) => {
                let mut response = whole(status, "", Vec::new());
                insert(&mut response, "location", &location);
                response
            }
            Self::With(reply, name, value) => {
                let mut response = Box::pin(reply.into_response(hangups)).await?;
                insert(&mut response, &name, &value);
                response
            }
            Self::Hang => std::future::pending().await,
            Self::Drop => return None,
        };
        Some(response)
    }
}

fn whole(status: u16, kind: &str, body: Vec<u8>) -> Response<Either<Full<Bytes>, Pieces>> {
    let mut response = Response::new(Either::Left(Full::from(body)));
    *response.status_mut() = status.try_into().expect("a status");
    if !kind.is_empty() {
        insert(&mut response, "content-type", kind);
    }
    response
}

fn stream(
    steps: mpsc::Receiver<SseStep>,
    hangups: &Arc<AtomicUsize>,
) -> Response<Either<Full<Bytes>, Pieces>> {
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(play(steps, sender));
    let body = Pieces { pieces, unfinished: Unfinished::new(hangups) };
    let mut response = Response::new(Either::Right(body));
    insert(&mut response, "content-type", "text/event-stream");
    response
}

fn insert<B>(response: &mut Response<B>, name: &str, value: &str) {
    let name: HeaderName = name.parse().expect("a header name");
    response.headers_mut().insert(name, HeaderValue::from_str(value).expect("a header value"));
}

async fn play(mut steps: mpsc::Receiver<SseStep>, pieces: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let step = tokio::select! {
            step = steps.recv() => step,
            () = pieces.closed() => return,
        };
        let piece = match step {
            None | Some(SseStep::End) => return,
            Some(SseStep::Delay(ms)) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                continue;
            }
            Some(SseStep::Hang) => return pieces.closed().await,
            Some(SseStep::Drop) => Err(io::Error::other("the script says so")),
            Some(step) => Ok(step.bytes()),
        };
        if pieces.send(piece).await.is_err() {
            return;
        }
    }
}

// === impl SseStep ===

impl SseStep {
    /// An event with a JSON-RPC message.
    pub fn message(message: &Value) -> Self {
        Self::data(&message.to_string())
    }

    /// An event with data only.
    pub fn data(data: &str) -> Self {
        Self::Event { id: None, event: None, data: data.to_owned(), retry: None }
    }

    fn bytes(&self) -> Bytes {
        match self {
            Self::Event { id, event, data, retry } => {
                let mut text = String::new();
                let mut line = |name: &str, value: &str| text.push_str(&format!("{name}: {value}\n"));
                if let Some(id) = id {
                    line("id", id);
                }
                if let Some(event) = event {
                    line("event", event);
                }
                if let Some(retry) = retry {
                    line("retry", &retry.to_string());
                }
                for part in data.split('\n') {
                    line("data", part);
                }
                text.push('\n');
                text.into()
            }
            Self::Comment(text) => format!(": {text}\n\n").into(),
            Self::Raw(bytes) => bytes.clone().into(),
            Self::Delay(_) | Self::Drop | Self::End | Self::Hang => Bytes::new(),
        }
    }
}

// === impl Pieces ===

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = self.pieces.poll_recv(cx);
        if matches!(piece, Poll::Ready(None | Some(Err(_)))) {
            self.unfinished.finish();
        }
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

// === impl Unfinished ===

impl Unfinished {
    pub(super) fn new(hangups: &Arc<AtomicUsize>) -> Self {
        Self { hangups: Arc::clone(hangups), done: false }
    }

    pub(super) fn finish(&mut self) {
        self.done = true;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.done {
            self.hangups.fetch_add(1, Ordering::SeqCst);
        }
    }
}
