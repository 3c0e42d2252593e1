//! What a caller says over a pipe, cut at its line breaks.
//!
//! In: bytes as they come. Out: lines within a limit, without what stands around them. One that is longer is not kept: it is
//! read to its end, and all that is left of it is the id of the request that it was.

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

use crate::error::{Error, Result};
use crate::wire::{IdFinder, Json};

/// What is read between two line breaks.
#[derive(Debug)]
pub(super) enum Frame {
    Line(Bytes),
    /// Too long, and gone. Its id, if it is a request that says one.
    TooLong(Option<Json>),
}

/// Lines of at most so many bytes.
#[derive(Debug)]
pub(super) struct Incoming {
    limit: usize,
    /// What is there of a line. Kept if nobody waits for the rest any more.
    begun: Vec<u8>,
    /// What was found in a line that is too long, while the rest of it is read.
    skipped: Option<Box<IdFinder>>,
}

// === impl Incoming ===

impl Incoming {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, begun: Vec::new(), skipped: None }
    }

    /// The next line, or what stands there instead of one at the end.
    pub(super) async fn next(&mut self, input: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Frame>> {
        loop {
            let arrived = input.fill_buf().await;
            let arrived = arrived
                .map_err(|error| Error::Internal(format!("standard input cannot be read: {error}")))?;
            let end = memchr::memchr(b'\n', arrived);
            let part = &arrived[..end.unwrap_or(arrived.len())];
            let is_last = arrived.is_empty();
            let read = part.len() + usize::from(end.is_some());
            if end.is_some() && self.begun.is_empty() && self.skipped.is_none() && part.len() <= self.limit {
                // Most lines arrive as a whole, and are copied once.
                let whole = Bytes::copy_from_slice(part.trim_ascii());
                input.consume(read);
                return Ok(Some(Frame::Line(whole)));
            }
            self.more(part);
            input.consume(read);
            if end.is_some() || is_last {
                return Ok(self.finish(end.is_some()));
            }
        }
    }

    fn more(&mut self, part: &[u8]) {
        if let Some(finder) = &mut self.skipped {
            return finder.more(part);
        }
        // One more than the limit, for the `\r` that is not part of the line.
        if self.begun.len() + part.len() <= self.limit + 1 {
            return self.begun.extend_from_slice(part);
        }
        let mut finder = Box::<IdFinder>::default();
        finder.more(&std::mem::take(&mut self.begun));
        finder.more(part);
        self.skipped = Some(finder);
    }

    /// What it was, now that its end has come. `None`: there is nothing, and nothing will come.
    fn finish(&mut self, has_break: bool) -> Option<Frame> {
        if let Some(finder) = self.skipped.take() {
            return Some(Frame::TooLong(finder.asked()));
        }
        let mut line = std::mem::take(&mut self.begun);
        if line.is_empty() && !has_break {
            return None;
        }
        line.truncate(line.len() - usize::from(line.last() == Some(&b'\r')));
        if line.len() > self.limit {
            let mut finder = IdFinder::default();
            finder.more(&line);
            return Some(Frame::TooLong(finder.asked()));
        }
        let line = Bytes::from(line);
        Some(Frame::Line(line.slice_ref(line.trim_ascii())))
    }
}
