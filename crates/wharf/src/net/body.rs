//! In: a body from outside and a limit. Out: its bytes, never more than the limit.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::NetError;
use super::error::chain;
use super::line::Line;
use super::pool::Pool;

/// The body of a response as it comes. Read to its end, it leaves a connection for the next request; dropped before, it
/// closes its own, or gives its part of a shared one up.
pub struct ResponseBody {
    incoming: Incoming,
    /// What brings it and where that goes afterwards; `None` at the end, and where it is shared.
    line: Option<(Box<Line>, Arc<Pool>)>,
}

/// How many pieces of a body that nobody wants are taken.
const SKIPPED: usize = 4;
/// How much room is made for a body at its word.
const AHEAD: u64 = 1 << 20;

// === impl ResponseBody ===

impl ResponseBody {
    /// A body that nobody has to be waited upon for.
    pub(super) fn shared(incoming: Incoming) -> Self {
        Self { incoming, line: None }
    }

    /// Takes what is here already. If that is the rest of it, the connection can be used again.
    pub(crate) fn skip(mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..SKIPPED {
            if !matches!(Pin::new(&mut self).poll_frame(&mut cx), Poll::Ready(Some(Ok(_)))) {
                return;
            }
        }
    }

    pub(super) fn of_line(incoming: Incoming, line: Box<Line>, pool: Arc<Pool>) -> Self {
        Self { incoming, line: Some((line, pool)) }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some((line, _)) = &mut this.line else { return Pin::new(&mut this.incoming).poll_frame(cx) };
        let frame = ready!(line.poll_frame(&mut this.incoming, cx));
        let whole = match &frame {
            None => true,
            Some(Ok(_)) => this.incoming.is_end_stream(),
            Some(Err(_)) => {
                this.line = None;
                false
            }
        };
        if whole && let Some((line, pool)) = this.line.take() {
            pool.put(line);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
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
