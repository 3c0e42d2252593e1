//! In: an open stream. Out: one request at a time over it, the head of its answer, and the bytes of its body.
//!
//! Nobody drives a line but whoever uses it: no task stands between a request and its socket, and a use that is given
//! up takes the connection with it. Which line is used for what is in `pool.rs`, where a body ends in `body.rs`; by hand,
//! and why: `docs/decisions/0022-answers-read-by-hand.md`.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};

use super::NetError;
use super::error::chain;
use super::head::{Framing, Head, LARGEST, Taken};
use super::stream::Stream;

/// A connection that speaks HTTP/1.1.
pub(super) struct Line {
    stream: Stream,
    /// What has come and was not taken.
    arrived: BytesMut,
    /// How much of it was looked at for the end of a head.
    seen: usize,
    /// How much is read at once.
    room: usize,
    writing: Writing,
    /// Whether another request may follow the last one.
    keeps: bool,
    /// Whether it rested since it was used.
    rested: bool,
}

/// A request on its way out.
#[derive(Default)]
struct Writing {
    /// The head, and a body that is small.
    text: Vec<u8>,
    /// A body that is large.
    body: Bytes,
    /// How much of both was written.
    written: usize,
    /// Whether a byte of it may have left.
    begun: bool,
    state: State,
}

#[derive(Default)]
enum State {
    Going,
    #[default]
    Done,
    /// The other side takes nothing any more. It may still answer.
    Failed(io::Error),
}

/// How much is read at once, as long as little comes.
const ROOM: usize = 4 * 1024;
/// And when much does.
const MOST_ROOM: usize = 256 * 1024;
/// So much is copied, to be written at once.
const AT_ONCE: usize = 16 * 1024;
/// What a line that rests may keep of what it wrote with.
const KEPT: usize = 4 * 1024;
/// How many words a server may say before its answer.
const ASIDES: usize = 8;

// === impl Line ===

impl Line {
    pub(super) fn new(stream: Stream) -> Box<Self> {
        Box::new(Self {
            stream,
            arrived: BytesMut::new(),
            seen: 0,
            room: ROOM,
            writing: Writing::default(),
            keeps: false,
            rested: false,
        })
    }

    /// Sends a request, whose head is written by `head`, and waits for the head of its answer, which has no body if it
    /// is `bodyless`. [`NetError::NotSent`] means that nothing was written. Dropping the future closes the connection.
    pub(super) async fn exchange(
        mut self: Box<Self>,
        head: impl FnOnce(&mut Vec<u8>),
        body: &Bytes,
        bodyless: bool,
    ) -> Result<(Box<Self>, Head, Framing), NetError> {
        self.writing.start(head, body);
        let mut asides = 0;
        loop {
            let taken = poll_fn(|cx| self.poll_head(bodyless, cx)).await?;
            let status = taken.head.status();
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS && asides < ASIDES {
                asides += 1;
                continue;
            }
            self.keeps = taken.keeps && !status.is_informational();
            return Ok((self, taken.head, taken.framing));
        }
    }

    fn poll_head(&mut self, bodyless: bool, cx: &mut Context<'_>) -> Poll<Result<Taken, NetError>> {
        loop {
            if let Some(taken) = self.take_head(bodyless)? {
                return Poll::Ready(Ok(taken));
            }
            // Asked for before anything is written: what comes afterwards wakes whoever waits here.
            match self.poll_fill(cx) {
                Poll::Ready(Ok(more)) if more > 0 && self.writing.begun => continue,
                Poll::Ready(end) => return Poll::Ready(Err(self.failure(end.err()))),
                Poll::Pending => {}
            }
            if std::mem::take(&mut self.rested) && self.stream.is_stirred() {
                return Poll::Ready(Err(NetError::NotSent));
            }
            ready!(self.writing.poll(&mut self.stream, cx));
            match &self.writing.state {
                State::Failed(_) if !self.writing.begun => return Poll::Ready(Err(NetError::NotSent)),
                _ => return Poll::Pending,
            }
        }
    }

    /// Why there will be no answer.
    fn failure(&mut self, error: Option<io::Error>) -> NetError {
        if !self.writing.begun {
            return NetError::NotSent;
        }
        let reason = match (error, &self.writing.state) {
            (_, State::Failed(error)) => chain(error),
            (Some(error), _) => chain(&error),
            (None, _) => "the server closed it before it answered".into(),
        };
        NetError::Broken { reason }
    }

    fn take_head(&mut self, bodyless: bool) -> Result<Option<Taken>, NetError> {
        // Without the end of another line there is no head that was not there before.
        let may_end = memchr::memchr(b'\n', &self.arrived[self.seen..]).is_some();
        let mut taken = None;
        if may_end || self.arrived.len() >= LARGEST {
            let unreadable = |reason| NetError::Unreadable { reason };
            taken = Head::take(&mut self.arrived, bodyless).map_err(unreadable)?;
        }
        self.seen = if taken.is_some() { 0 } else { self.arrived.len() };
        Ok(taken)
    }

    /// What has come behind the head and was not taken.
    pub(super) fn arrived(&mut self) -> &mut BytesMut {
        &mut self.arrived
    }

    /// Reads more behind that, while the rest of the request is written. 0 is the end of the connection.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.write_on(cx);
        self.poll_fill(cx)
    }

    /// The same, at most so much and into a place of its own.
    pub(super) fn poll_into(
        &mut self,
        place: &mut BytesMut,
        most: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.write_on(cx);
        pin!((&mut self.stream).take(most).read_buf(place)).poll(cx)
    }

    fn write_on(&mut self, cx: &mut Context<'_>) {
        if matches!(self.writing.state, State::Going) {
            // How it goes decides only whether there can be another request.
            let _ = self.writing.poll(&mut self.stream, cx);
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.arrived.capacity() - self.arrived.len() < self.room / 4 {
            self.arrived.reserve(self.room);
        }
        let more = ready!(pin!(self.stream.read_buf(&mut self.arrived)).poll(cx))?;
        if self.arrived.len() == self.arrived.capacity() {
            self.room = MOST_ROOM.min(self.room * 4);
        }
        Poll::Ready(Ok(more))
    }

    /// Gets ready for another request, and tells `keeper` from now on when something stirs. False if there cannot be
    /// another: the other side closed, or does not want to keep it, or has not read the last one, or says something
    /// that nobody asked for.
    pub(super) fn rest(&mut self, keeper: &Waker) -> bool {
        if !self.keeps || !self.arrived.is_empty() || !matches!(self.writing.state, State::Done) {
            return false;
        }
        if self.room > ROOM {
            (self.arrived, self.room) = (BytesMut::new(), ROOM);
        }
        self.writing.body = Bytes::new();
        if self.writing.text.capacity() > KEPT {
            self.writing.text = Vec::new();
        }
        self.rested = true;
        let stray = &mut [0];
        pin!(self.stream.read(stray)).poll(&mut Context::from_waker(keeper)).is_pending()
    }

    /// The connection itself, and what has come.
    pub(super) fn into_parts(self) -> (Stream, BytesMut) {
        (self.stream, self.arrived)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is written are secrets.
        f.debug_struct("Line").field("rested", &self.rested).finish_non_exhaustive()
    }
}

// === impl Writing ===

impl Writing {
    fn start(&mut self, head: impl FnOnce(&mut Vec<u8>), body: &Bytes) {
        self.text.clear();
        head(&mut self.text);
        self.body = Bytes::new();
        if body.len() <= AT_ONCE {
            self.text.extend_from_slice(body);
        } else {
            self.body = body.clone();
        }
        (self.written, self.begun, self.state) = (0, false, State::Going);
    }

    /// Ready when there is nothing more to do, whatever became of it.
    fn poll(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<()> {
        if !matches!(self.state, State::Going) {
            return Poll::Ready(());
        }
        self.state = match ready!(self.poll_write(stream, cx)) {
            Ok(()) => State::Done,
            Err(error) => {
                // In TLS a part of it may have left before the rest could not.
                self.begun |= !stream.is_clear();
                State::Failed(error)
            }
        };
        Poll::Ready(())
    }

    fn poll_write(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        while self.written < self.text.len() + self.body.len() {
            let text = self.text.get(self.written..).unwrap_or_default();
            let body = &self.body[self.written.saturating_sub(self.text.len())..];
            let more = if text.is_empty() || body.is_empty() {
                let rest = if text.is_empty() { body } else { text };
                ready!(stream.as_mut().poll_write(cx, rest))?
            } else {
                ready!(stream.as_mut().poll_write_vectored(cx, &[IoSlice::new(text), IoSlice::new(body)]))?
            };
            if more == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.begun = true;
            self.written += more;
        }
        stream.poll_flush(cx)
    }
}
