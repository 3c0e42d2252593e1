//! One message a line: cuts a stream of bytes at its line breaks, with a limit on how long a line may be.

use bytes::{Bytes, BytesMut};

use super::envelope::guess_id;

/// A buffer that takes bytes as they come and gives lines. A line of exactly the limit is given, one byte more is not.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// How much of the buffer was already searched for a line break.
    searched: usize,
    max: usize,
    /// Set while the rest of a line that was too long is thrown away.
    discarding: Option<Discarded>,
}

/// What the buffer has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its line break.
    Text(Bytes),
    /// A line that was too long. It is gone; the next line is intact.
    TooLong {
        /// The call it was meant to answer, where that could still be read.
        id: Option<u64>,
        /// How many bytes it had.
        length: u64,
    },
}

#[derive(Debug)]
struct Discarded {
    /// The beginning, to look for an id.
    head: Bytes,
    /// The last bytes seen, to look for an id at the end.
    tail: Vec<u8>,
    length: u64,
}

const HEAD: usize = 4096;
const TAIL: usize = 128;
/// How much room is made for a read. A pipe of Linux holds 64 KiB.
const CHUNK: usize = 64 * 1024;

impl Lines {
    /// A buffer for lines of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(CHUNK), searched: 0, max, discarding: None }
    }

    /// The buffer to read into: it has room for at least one chunk.
    pub fn room(&mut self) -> &mut BytesMut {
        // In the middle of a long line room grows with it, so that a megabyte is not moved sixteen times.
        let want = CHUNK.max(self.buffer.len());
        if self.buffer.capacity() - self.buffer.len() < CHUNK / 4 {
            self.buffer.reserve(want);
        }
        &mut self.buffer
    }

    /// The next line, if its end has come.
    pub fn next_line(&mut self) -> Option<Line> {
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.searched..]);
            let Some(end) = found.map(|at| self.searched + at) else {
                self.searched = self.buffer.len();
                self.discard_if_too_long();
                return None;
            };
            self.searched = 0;
            let mut line = self.buffer.split_to(end + 1).freeze();
            line.truncate(end);
            if let Some(discarded) = self.discarding.take() {
                return Some(discarded.end(&line));
            }
            if line.last() == Some(&b'\r') {
                line.truncate(end - 1);
            }
            if line.len() > self.max {
                let length = line.len() as u64;
                return Some(Line::TooLong { id: guess_id(&line[..HEAD.min(line.len())], &line), length });
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Line::Text(line));
            }
        }
    }

    /// The last line of a stream that ended without a line break.
    pub fn last_line(&mut self) -> Option<Line> {
        let rest = self.buffer.split().freeze();
        self.searched = 0;
        match self.discarding.take() {
            Some(discarded) => Some(discarded.end(&rest)),
            None if rest.iter().all(u8::is_ascii_whitespace) => None,
            None => Some(Line::Text(rest)),
        }
    }

    fn discard_if_too_long(&mut self) {
        // One more than the limit, for the `\r` that is not part of the line.
        if self.discarding.is_none() && self.buffer.len() > self.max + 1 {
            let mut head = self.buffer.split().freeze();
            let mut discarded = Discarded { head: Bytes::new(), tail: Vec::new(), length: 0 };
            discarded.more(&head);
            head.truncate(HEAD);
            // Copied, so that the ten megabytes behind it are freed.
            discarded.head = Bytes::copy_from_slice(&head);
            self.discarding = Some(discarded);
            self.searched = 0;
        } else if let Some(discarded) = &mut self.discarding {
            discarded.more(&self.buffer.split());
            self.searched = 0;
        }
    }
}

impl Discarded {
    fn more(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    fn end(mut self, rest: &[u8]) -> Line {
        self.more(rest);
        Line::TooLong { id: guess_id(&self.head, &self.tail), length: self.length }
    }
}
