//! What a caller is told: replies as they are written on the connection.
//!
//! In: a reply. Out: its bytes, small ones in one write with their head, large ones without a copy, streams as they come.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write as _};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::poll;
use http::{Method, StatusCode};
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::WriteHalf;

use super::head::Head;
use super::intake::Intake;
use crate::gateway::body::{Flow, Reply, ReplyBody};
use crate::wire::http1::{write_field, write_length};

/// The side of a connection that the caller reads.
#[derive(Debug)]
pub(in crate::gateway) struct Outlet<'a> {
    pub(in crate::gateway) writes: WriteHalf<'a>,
    /// What is written next.
    out: Vec<u8>,
}

/// So much is copied, to be written at once.
const AT_ONCE: usize = 16 * 1024;
/// How long a caller may take nothing of what it is told.
pub(in crate::gateway) const STALLED: Duration = Duration::from_secs(60);
/// A buffer that has grown larger than this is not kept.
const KEPT: usize = 64 * 1024;

// === impl Outlet ===

impl<'a> Outlet<'a> {
    pub(in crate::gateway) fn new(writes: WriteHalf<'a>) -> Self {
        Self { writes, out: Vec::new() }
    }

    /// Writes a reply, the `last` one of its connection or not. `None`: the request could not be read. An error: nobody
    /// listens any more, or not to the end.
    pub(in crate::gateway) async fn send(
        &mut self,
        reply: Reply,
        head: Option<&Head>,
        last: bool,
        intake: &mut Intake<'_>,
    ) -> io::Result<()> {
        let no_body = head.is_some_and(|head| head.method() == Method::HEAD);
        let chunked = head.is_some_and(|head| head.knows_chunks);
        if self.out.capacity() > KEPT {
            self.out = Vec::new();
        }
        self.out.clear();
        self.head(&reply, chunked, last)?;
        match reply.body {
            ReplyBody::Whole(_) if no_body => self.flush().await,
            ReplyBody::Whole(pieces) if pieces.len() <= AT_ONCE => {
                pieces.append_to(&mut self.out);
                self.flush().await
            }
            ReplyBody::Whole(pieces) => self.large(pieces.into_chunks()).await,
            ReplyBody::Flow(_) if no_body => self.flush().await,
            ReplyBody::Flow(flow) => self.flow(flow, chunked, intake).await,
        }
    }

    /// Writes the last reply of a connection, and closes it so that it is heard.
    pub(in crate::gateway) async fn end(
        mut self,
        reply: Reply,
        head: Option<&Head>,
        intake: &mut Intake<'_>,
    ) {
        if self.send(reply, head, true, intake).await.is_ok() && self.writes.shutdown().await.is_ok() {
            intake.linger().await;
        }
    }

    fn head(&mut self, reply: &Reply, chunked: bool, last: bool) -> io::Result<()> {
        let out = &mut self.out;
        match reply.status {
            StatusCode::OK => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
            status => {
                let reason = status.canonical_reason().unwrap_or_default();
                write!(out, "HTTP/1.1 {} {reason}\r\n", status.as_u16())?;
            }
        }
        if let Some(kind) = reply.kind {
            write_field(out, "content-type", kind.as_bytes());
        }
        for (name, value) in &reply.fields {
            write_field(out, name, value.as_bytes());
        }
        match &reply.body {
            _ if matches!(reply.status, StatusCode::NO_CONTENT | StatusCode::SWITCHING_PROTOCOLS) => {}
            ReplyBody::Whole(pieces) => write_length(out, pieces.len()),
            ReplyBody::Flow(_) if chunked => write_field(out, "transfer-encoding", b"chunked"),
            ReplyBody::Flow(_) => {}
        }
        if last && reply.status != StatusCode::SWITCHING_PROTOCOLS {
            write_field(out, "connection", b"close");
        }
        date(out);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        let mut left = &self.out[..];
        while !left.is_empty() {
            let written = in_time(self.writes.write(left)).await?;
            left = &left[written..];
        }
        Ok(())
    }

    /// Pieces are written as they are, the head before them.
    async fn large(&mut self, pieces: Vec<Bytes>) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = std::iter::once(&self.out[..])
            .chain(pieces.iter().map(|piece| &piece[..]))
            .map(IoSlice::new)
            .collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let written = in_time(self.writes.write_vectored(left)).await?;
            IoSlice::advance_slices(&mut left, written);
        }
        Ok(())
    }

    /// Writes what comes as it comes, until it ends or the caller leaves.
    async fn flow(&mut self, mut flow: Flow, chunked: bool, intake: &mut Intake<'_>) -> io::Result<()> {
        loop {
            let ended = tokio::select! {
                biased;
                ended = poll_fn(|cx| gather(&mut flow, &mut self.out, chunked, cx)) => ended,
                () = intake.gone() => return Err(io::ErrorKind::ConnectionReset.into()),
            };
            if ended && chunked {
                self.out.extend_from_slice(b"0\r\n\r\n");
            }
            self.flush().await?;
            self.out.clear();
            if ended {
                return Ok(());
            }
        }
    }
}

/// Waits until something was written, but not for a caller that does not read. Most has room at once, and needs no clock.
async fn in_time(writing: impl Future<Output = io::Result<usize>>) -> io::Result<usize> {
    let mut writing = pin!(writing);
    let written = match poll!(&mut writing) {
        Poll::Ready(written) => written?,
        Poll::Pending => tokio::time::timeout(STALLED, writing).await??,
    };
    if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) }
}

/// Collects what has come together, to go out together. The answer is whether it was the end.
fn gather(flow: &mut Flow, out: &mut Vec<u8>, chunked: bool, cx: &mut Context<'_>) -> Poll<bool> {
    while out.len() < AT_ONCE {
        match flow.poll(cx) {
            Poll::Ready(Some(part)) => chunk(out, &part, chunked),
            Poll::Ready(None) => return Poll::Ready(true),
            Poll::Pending if out.is_empty() => return Poll::Pending,
            Poll::Pending => break,
        }
    }
    Poll::Ready(false)
}

/// One part of a stream. One without a size would be its end.
fn chunk(out: &mut Vec<u8>, part: &[u8], chunked: bool) {
    if part.is_empty() {
        return;
    }
    if chunked {
        // Writing to memory cannot fail.
        let _ = write!(out, "{:x}\r\n", part.len());
    }
    out.extend_from_slice(part);
    if chunked {
        out.extend_from_slice(b"\r\n");
    }
}

/// Written anew once a second at most.
fn date(out: &mut Vec<u8>) {
    thread_local! {
        static WRITTEN: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    WRITTEN.with_borrow_mut(|(at, text)| {
        if *at != second || text.is_empty() {
            (*at, *text) = (second, httpdate::fmt_http_date(now));
        }
        write_field(out, "date", text.as_bytes());
    });
}
