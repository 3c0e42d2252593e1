//! One message a line: cuts a stream of bytes at its line breaks, with a limit on how long a line may be.

use bytes::{Bytes, BytesMut};

use super::id_finder::IdFinder;

/// A buffer that takes bytes as they come and gives lines. A line of exactly the limit is given, one byte more is not.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// How much of the buffer was already searched for a line break.
    searched: usize,
    max: usize,
    /// How long the last long line was: the next is likely to be of its kind, and room is made for it at once.
    expected: usize,
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

#[derive(Debug, Default)]
struct Discarded {
    finder: IdFinder,
    length: u64,
    /// The last byte was `\r`, which is part of the line unless the line ends here.
    ends_in_cr: bool,
}

/// How much room is made for a read. A pipe of Linux holds 64 KiB.
const CHUNK: usize = 64 * 1024;

impl Lines {
    /// A buffer for lines of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(CHUNK), searched: 0, max, expected: 0, discarding: None }
    }

    /// The buffer to read into: it has room for a good part of a chunk.
    pub fn room(&mut self) -> &mut BytesMut {
        let (len, capacity) = (self.buffer.len(), self.buffer.capacity());
        // Between lines moving costs nothing: then there is room for another line like the last long one. In the middle
        // of a line room grows with it, so that a megabyte is not moved sixteen times.
        let before_long = len == 0 && capacity < self.expected;
        if before_long || capacity - len < CHUNK / 4 {
            let want = CHUNK.max(len).max(if before_long { self.expected } else { 0 });
            // Growing in place would move the lines that were already given away along with the one that is coming.
            if !self.buffer.try_reclaim(want) {
                let mut fresh = BytesMut::with_capacity(len + want);
                fresh.extend_from_slice(&self.buffer);
                self.buffer = fresh;
            }
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
            self.expected = if end > CHUNK { end + CHUNK } else { self.expected / 2 };
            let mut line = self.buffer.split_to(end + 1).freeze();
            line.truncate(end);
            let line = self.finish(line);
            if line.is_some() {
                return line;
            }
        }
    }

    /// The last line of a stream that ended without a line break.
    pub fn last_line(&mut self) -> Option<Line> {
        self.searched = 0;
        let rest = self.buffer.split().freeze();
        self.finish(rest)
    }

    /// What a line is, now that its end has come. `None` for a blank one.
    fn finish(&mut self, mut line: Bytes) -> Option<Line> {
        if let Some(mut discarded) = self.discarding.take() {
            discarded.more(&line);
            return Some(discarded.end());
        }
        let length = line.len() - usize::from(line.last() == Some(&b'\r'));
        if length > self.max {
            let mut discarded = Discarded::default();
            discarded.more(&line);
            return Some(discarded.end());
        }
        line.truncate(length);
        (!line.iter().all(u8::is_ascii_whitespace)).then_some(Line::Text(line))
    }

    /// Whether the line that has begun is longer than it may be already.
    pub fn is_discarding(&self) -> bool {
        self.discarding.is_some()
    }

    fn discard_if_too_long(&mut self) {
        // One more than the limit, for the `\r` that is not part of the line.
        if self.discarding.is_some() || self.buffer.len() > self.max + 1 {
            self.discarding.get_or_insert_default().more(&self.buffer);
            self.searched = 0;
            if self.buffer.capacity() > 2 * CHUNK {
                // The megabytes that the line had filled are given back.
                self.buffer = BytesMut::with_capacity(CHUNK);
            } else {
                self.buffer.clear();
            }
        }
    }
}

impl Discarded {
    fn more(&mut self, bytes: &[u8]) {
        self.finder.more(bytes);
        self.length += bytes.len() as u64;
        self.ends_in_cr = bytes.last().map_or(self.ends_in_cr, |b| *b == b'\r');
    }

    fn end(self) -> Line {
        Line::TooLong { length: self.length - u64::from(self.ends_in_cr), id: self.finder.end() }
    }
}
