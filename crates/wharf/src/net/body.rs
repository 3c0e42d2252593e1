//! In: a body from outside and a limit. Out: its bytes, never more than the limit.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::NetError;
use super::error::chain;
use super::head::{Framing, Head};
use super::line::Line;
use super::pool::Pool;
use crate::wire::http1::{Chunks, Next};

/// The answer to a request.
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: ResponseBody,
}

/// The body of a response as it comes. Read to its end, it leaves a connection for the next request; dropped before, it
/// closes its own, or gives its part of a shared one up.
pub struct ResponseBody(Source);

enum Source {
    /// What is left of it is here.
    Here(Bytes),
    /// It comes over a line, which goes back to its pool afterwards.
    Line(Box<Line>, Arc<Pool>, Left),
    /// It comes by itself.
    Shared(Incoming),
}

/// What is to come.
enum Left {
    Length(u64),
    Chunks(Chunks),
    Open,
}

/// How many pieces of a body that nobody wants are taken.
const SKIPPED: usize = 4;
/// How much room is made for a body at its word.
const AHEAD: u64 = 1 << 20;

// === impl ResponseBody ===

impl ResponseBody {
    /// A body that nobody has to be waited upon for.
    pub(super) fn shared(incoming: Incoming) -> Self {
        Self(Source::Shared(incoming))
    }

    /// The body behind a head. If it is here already, the line is not needed any more.
    pub(super) fn of_line(mut line: Box<Line>, framing: Framing, pool: &Arc<Pool>) -> Self {
        let left = match framing {
            Framing::Length(length) if length <= line.arrived().len() as u64 => {
                let here = line.arrived().split_to(length as usize).freeze();
                pool.put(line);
                return Self(Source::Here(here));
            }
            Framing::Length(length) => Left::Length(length),
            Framing::Chunked => Left::Chunks(Chunks::default()),
            Framing::Open => Left::Open,
        };
        Self(Source::Line(line, Arc::clone(pool), left))
    }

    /// Takes what is here already. If that is the rest of it, the connection can be used again.
    pub(crate) fn skip(mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..SKIPPED {
            if !matches!(self.poll_piece(&mut cx), Poll::Ready(Some(Ok(_)))) {
                return;
            }
        }
    }

    /// The next piece, if there is one.
    pub(crate) async fn piece(&mut self) -> Option<io::Result<Bytes>> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// The same as [`read_body`], without a copy where the length is known.
    pub(crate) async fn read(mut self, max: usize) -> Result<Bytes, NetError> {
        let length = match &self.0 {
            Source::Line(_, _, Left::Length(length)) => *length,
            _ => return read_body(self, max).await,
        };
        if length > max as u64 {
            return Err(NetError::TooLarge { max });
        }
        let mut whole = BytesMut::with_capacity(length.min(AHEAD) as usize);
        let filled = poll_fn(|cx| self.poll_whole(&mut whole, length, cx)).await;
        filled.map_err(|error| NetError::Broken { reason: chain(&error) })?;
        Ok(whole.freeze())
    }

    /// Reads a body of known length into one place.
    fn poll_whole(
        &mut self,
        whole: &mut BytesMut,
        length: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Source::Line(line, ..) = &mut self.0 else { return Poll::Ready(Ok(())) };
        // There is less than the length of it, or it would not be waited for.
        whole.extend_from_slice(&line.arrived().split());
        while (whole.len() as u64) < length {
            let left = length - whole.len() as u64;
            if whole.len() == whole.capacity() {
                whole.reserve(left.min(whole.len() as u64) as usize);
            }
            if ready!(line.poll_into(whole, left, cx))? == 0 {
                return Poll::Ready(Err(cut_short()));
            }
        }
        self.finish();
        Poll::Ready(Ok(()))
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let polled = match &mut self.0 {
            Source::Here(left) if left.is_empty() => return Poll::Ready(None),
            Source::Here(left) => return Poll::Ready(Some(Ok(std::mem::take(left)))),
            Source::Shared(incoming) => return poll_shared(incoming, cx),
            Source::Line(line, _, left) => ready!(left.poll_piece(line, cx)),
        };
        match polled {
            Ok((piece, whole)) => {
                if whole {
                    self.finish();
                }
                Poll::Ready(piece.map(Ok))
            }
            Err(error) => {
                self.0 = Source::Here(Bytes::new());
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    /// It was read to its end.
    fn finish(&mut self) {
        if let Source::Line(line, pool, _) = std::mem::replace(&mut self.0, Source::Here(Bytes::new())) {
            pool.put(line);
        }
    }
}

/// What HTTP/2 brings. It has more than pieces, which nobody asked for.
fn poll_shared(incoming: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
    loop {
        return Poll::Ready(match ready!(Pin::new(&mut *incoming).poll_frame(cx)) {
            None => None,
            Some(Err(error)) => Some(Err(io::Error::other(error))),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => Some(Ok(piece)),
                Err(_) => continue,
            },
        });
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.get_mut().poll_piece(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Here(left) => left.is_empty(),
            Source::Shared(incoming) => incoming.is_end_stream(),
            Source::Line(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Here(left) => SizeHint::with_exact(left.len() as u64),
            Source::Shared(incoming) => incoming.size_hint(),
            Source::Line(_, _, Left::Length(length)) => SizeHint::with_exact(*length),
            Source::Line(..) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

// === impl Left ===

impl Left {
    /// The next piece, if there is one, and whether it is the last.
    fn poll_piece(
        &mut self,
        line: &mut Line,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Option<Bytes>, bool)>> {
        loop {
            let here = match self {
                Self::Chunks(chunks) => match chunks.next(line.arrived()).map_err(|_| malformed())? {
                    Next::Over => return Poll::Ready(Ok((None, true))),
                    Next::Chunk(_) => !line.arrived().is_empty(),
                    Next::Line => false,
                },
                Self::Length(_) | Self::Open => !line.arrived().is_empty(),
            };
            if here {
                return Poll::Ready(Ok(self.take(line)));
            }
            if ready!(line.poll_more(cx))? == 0 {
                let is_end = matches!(self, Self::Open);
                return Poll::Ready(if is_end { Ok((None, true)) } else { Err(cut_short()) });
            }
        }
    }

    /// Takes what has arrived of it.
    fn take(&mut self, line: &mut Line) -> (Option<Bytes>, bool) {
        let arrived = line.arrived();
        let (piece, whole) = match self {
            Self::Length(left) => {
                let piece = arrived.split_to((*left).min(arrived.len() as u64) as usize);
                *left -= piece.len() as u64;
                (piece, *left == 0)
            }
            Self::Chunks(chunks) => {
                let piece = chunks.take(arrived);
                // What is wrong behind it is said when that is asked for.
                (piece, chunks.next(arrived) == Ok(Next::Over))
            }
            Self::Open => (arrived.split(), false),
        };
        (Some(piece.freeze()), whole)
    }
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it before its answer was whole")
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server's answer is cut into pieces that cannot be read")
}

/// Reads a whole body of at most `max` bytes. A longer one is refused as soon as that is known.
pub async fn read_body<B>(body: B, max: usize) -> Result<Bytes, NetError>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    let told = body.size_hint().lower();
    if told > max as u64 {
        return Err(NetError::TooLarge { max });
    }
    let mut body = std::pin::pin!(body);
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| NetError::Broken { reason: chain(&error) })?;
        let Ok(data) = frame.into_data() else { continue };
        let so_far = whole.len() + first.as_ref().map_or(0, Bytes::len);
        if data.len() > max - so_far {
            return Err(NetError::TooLarge { max });
        }
        match first.take() {
            // Most bodies come in one piece, which need not be copied.
            None if whole.is_empty() => first = Some(data),
            None => whole.extend_from_slice(&data),
            Some(before) => {
                whole.reserve(told.min(AHEAD) as usize);
                whole.extend_from_slice(&before);
                whole.extend_from_slice(&data);
            }
        }
        if body.is_end_stream() {
            break;
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}
