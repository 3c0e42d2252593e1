//! What a caller sends: heads, bodies, and whether it is still there.
//!
//! In: one side of a connection. Out: a head at a time, its body if somebody wants it, both within limits. Nothing is
//! read ahead of its turn but what arrives together.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::HEAD;
use super::head::{BadHead, Framing, Head};
use crate::linger::{self, For};
use crate::wire::http1::{BadChunks, Chunks, Next};

/// The side of a connection that the caller writes to.
pub(in crate::gateway) struct Intake<'a> {
    reads: ReadHalf<'a>,
    arrived: BytesMut,
    /// How much of it was looked at for the end of a head.
    seen: usize,
    /// The body that comes next and was not asked for yet.
    owed: Framing,
    /// Whether its caller waits for a word before it sends it.
    waits: bool,
}

/// Why no head comes.
#[derive(Debug)]
pub(in crate::gateway) enum Over {
    /// The caller has left.
    Gone,
    /// It took too long.
    Late,
    /// What came is none.
    Bad(BadHead),
}

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum BadBody {
    TooLarge,
    Malformed,
    Late,
    /// The caller has left.
    Gone,
}

/// How much is read at once, as long as nothing large was announced.
const ROOM: usize = 4 * 1024;
/// A larger body has a buffer of its own, which goes with it.
const LARGE: usize = 32 * 1024;
/// How long whoever must hear a refusal is listened to, and how much of what it sends meanwhile is thrown away.
const LINGER: Duration = Duration::from_secs(1);
const THROWN_AWAY: usize = 16 * 1024 * 1024;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

// === impl Intake ===

impl<'a> Intake<'a> {
    pub(in crate::gateway) fn new(reads: ReadHalf<'a>) -> Self {
        Self { reads, arrived: BytesMut::new(), seen: 0, owed: Framing::Length(0), waits: false }
    }

    /// The next head. What was read is kept if nobody waits for it any more.
    pub(in crate::gateway) async fn head(&mut self) -> Result<Head, Over> {
        loop {
            // Without the end of another line there is no head that was not there before.
            let may_end =
                memchr::memchr(b'\n', &self.arrived[self.seen..]).is_some() || self.arrived.len() >= HEAD;
            if may_end && let Some(head) = Head::take(&mut self.arrived).map_err(Over::Bad)? {
                (self.seen, self.owed, self.waits) = (0, head.framing, head.waits);
                return Ok(head);
            }
            self.seen = self.arrived.len();
            if self.arrived.capacity() - self.arrived.len() < ROOM / 4 {
                self.arrived.reserve(ROOM);
            }
            if self.more_soon().await.is_err() {
                return Err(Over::Gone);
            }
        }
    }

    /// Whether a part of a head has come.
    pub(in crate::gateway) fn has_begun(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// The body of the last head, if it is no larger than that and comes in time.
    pub(in crate::gateway) async fn body(
        &mut self,
        largest: usize,
        time: Duration,
        writes: &mut WriteHalf<'_>,
    ) -> Result<Bytes, BadBody> {
        if let Framing::Length(length) = self.owed {
            // What is announced is refused before it is sent.
            let length = usize::try_from(length).ok().filter(|length| *length <= largest);
            let length = length.ok_or(BadBody::TooLarge)?;
            // Most have arrived with their heads, and need no clock.
            if self.arrived.len() >= length {
                self.owed = Framing::Length(0);
                return Ok(self.arrived.split_to(length).freeze());
            }
        }
        let arriving = async {
            if std::mem::take(&mut self.waits) {
                writes.write_all(CONTINUE).await.map_err(|_| BadBody::Gone)?;
            }
            match self.owed {
                Framing::Length(length) => self.announced(usize::try_from(length).unwrap_or(largest)).await,
                Framing::Chunked => self.chunks(largest).await,
            }
        };
        let body = tokio::time::timeout(time, arriving).await.map_err(|_| BadBody::Late)??;
        self.owed = Framing::Length(0);
        Ok(body)
    }

    /// Whether the next request begins where the last one ended: its body was read, or can be thrown away.
    pub(in crate::gateway) fn is_at_an_end(&mut self) -> bool {
        match self.owed {
            Framing::Length(0) => true,
            Framing::Length(length) if !self.waits && length <= self.arrived.len() as u64 => {
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(self.arrived.len());
                drop(self.arrived.split_to(length));
                self.owed = Framing::Length(0);
                true
            }
            _ => false,
        }
    }

    /// Waits until the caller has left. What it sends meanwhile is kept for later, a head's worth of it.
    pub(in crate::gateway) async fn gone(&mut self) {
        loop {
            if self.arrived.len() >= HEAD {
                return std::future::pending().await;
            }
            if self.arrived.capacity() == self.arrived.len() {
                self.arrived.reserve(ROOM);
            }
            if self.more().await.is_err() {
                return;
            }
        }
    }

    /// Hears a caller out that is told something it did not wait for: a connection that is closed while it still sends
    /// would take our last words with it.
    pub(in crate::gateway) async fn linger(&mut self) {
        let hearing = async {
            let mut heard = 0;
            while heard < THROWN_AWAY {
                self.arrived.clear();
                self.arrived.reserve(ROOM);
                match self.more().await {
                    Ok(more) => heard += more,
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, hearing).await;
    }

    /// What was read behind the last request.
    pub(in crate::gateway) fn into_rest(self) -> Bytes {
        self.arrived.freeze()
    }

    /// More, which a caller may send while this thread lingers.
    async fn more_soon(&mut self) -> io::Result<usize> {
        let Self { reads, arrived, .. } = self;
        let mut may_linger = true;
        let read = poll_fn(|cx| match pin!(reads.read_buf(arrived)).poll(cx) {
            Poll::Pending if std::mem::take(&mut may_linger) => {
                let stream: &TcpStream = (*reads).as_ref();
                linger::read(For::Caller, stream, arrived).map_or(Poll::Pending, |more| Poll::Ready(Ok(more)))
            }
            read => read,
        });
        match read.await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            more => Ok(more),
        }
    }

    async fn more(&mut self) -> io::Result<usize> {
        match self.reads.read_buf(&mut self.arrived).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            more => Ok(more),
        }
    }

    async fn announced(&mut self, length: usize) -> Result<Bytes, BadBody> {
        if length < LARGE {
            self.arrived.reserve(length - self.arrived.len().min(length));
            while self.arrived.len() < length {
                self.more().await.map_err(|_| BadBody::Gone)?;
            }
            return Ok(self.arrived.split_to(length).freeze());
        }
        let mut body = BytesMut::with_capacity(length);
        body.extend_from_slice(&self.arrived.split());
        while body.len() < length {
            let left = (length - body.len()) as u64;
            match (&mut self.reads).take(left).read_buf(&mut body).await {
                Ok(more) if more > 0 => {}
                _ => return Err(BadBody::Gone),
            }
        }
        Ok(body.freeze())
    }

    async fn chunks(&mut self, largest: usize) -> Result<Bytes, BadBody> {
        let (mut chunks, mut body) = (Chunks::default(), BytesMut::new());
        loop {
            match chunks.next(&mut self.arrived)? {
                Next::Over => return Ok(body.freeze()),
                // What is announced is refused before it is sent.
                Next::Chunk(left) if left > largest - body.len() => return Err(BadBody::TooLarge),
                Next::Chunk(_) if !self.arrived.is_empty() => {
                    body.extend_from_slice(&chunks.take(&mut self.arrived));
                }
                Next::Chunk(_) | Next::Line => {
                    self.arrived.reserve(ROOM);
                    self.more().await.map_err(|_| BadBody::Gone)?;
                }
            }
        }
    }
}

impl From<BadChunks> for BadBody {
    fn from(bad: BadChunks) -> Self {
        match bad {
            BadChunks::Malformed => Self::Malformed,
            BadChunks::TooMuch => Self::TooLarge,
        }
    }
}
