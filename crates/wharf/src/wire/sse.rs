//! Server-sent events: cuts a stream of bytes into events, with a limit on how large one may be.

use bytes::{Buf as _, Bytes, BytesMut};

/// A parser that takes bytes as they come and gives events.
#[derive(Debug)]
pub struct SseParser {
    buffer: BytesMut,
    /// How much of the buffer was already searched for a line break.
    searched: usize,
    max: usize,
    /// The event so far; its data is in `data`.
    event: SseEvent,
    data: Data,
    /// How many bytes of this event were not data.
    beside: usize,
    /// The last byte taken was `\r`: a `\n` that follows belongs to it.
    after_cr: bool,
    /// Nothing was taken yet: a byte order mark may stand here.
    at_start: bool,
    failed: bool,
}

/// The data of an event: one line stays where it came, several are joined in a place of their own.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    One(Bytes),
    Joined(BytesMut),
}

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The name; `None` means `message`.
    pub name: Option<String>,
    /// The data, lines joined by `\n`.
    pub data: Bytes,
    /// The id to resume after.
    pub id: Option<String>,
    /// How many milliseconds to wait before connecting again.
    pub retry: Option<u64>,
}

/// An event was larger than allowed; the stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {0} bytes")]
pub struct SseTooLong(pub usize);

/// What an event may have beside its data: its name, its id, comments, fields of a later day. Small, and the same for
/// every limit, so that an event whose data just fits is not refused for its name.
const BESIDE: usize = 64 * 1024;

impl SseParser {
    /// A parser for events whose data has at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            max,
            event: SseEvent::default(),
            data: Data::None,
            beside: 0,
            after_cr: false,
            at_start: true,
            failed: false,
        }
    }

    /// Takes bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.failed {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next event, if its end has come. An event with neither data, id nor retry is not given.
    /// After an error there is nothing but that error.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, SseTooLong> {
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                self.beside = 0;
                let data = std::mem::take(&mut self.data);
                let has_data = data.is_some();
                let event = SseEvent { data: data.into_bytes(), ..std::mem::take(&mut self.event) };
                if has_data || event.id.is_some() || event.retry.is_some() {
                    return Ok(Some(event));
                }
            } else {
                self.field(&line);
                self.check(0)?;
            }
        }
        self.check(self.buffer.len())?;
        Ok(None)
    }

    /// Fails if the event is too large, counting the beginning of a line whose end has not come.
    fn check(&mut self, begun: usize) -> Result<(), SseTooLong> {
        // As long as a line may become data or something else, it is too short to matter.
        let begun = if b"data".starts_with(&self.buffer) { 0 } else { begun };
        let is_data = begun > 0 && self.buffer.starts_with(b"data:");
        let (data, beside) = if is_data {
            (self.data.after(begun.saturating_sub("data: ".len())), self.beside)
        } else {
            (self.data.len(), self.beside + begun)
        };
        self.failed |= data > self.max || beside > BESIDE;
        if self.failed {
            self.buffer = BytesMut::new();
            self.data = Data::None;
            self.event = SseEvent::default();
            return Err(SseTooLong(self.max));
        }
        Ok(())
    }

    fn next_line(&mut self) -> Option<Bytes> {
        const BOM: &[u8] = b"\xef\xbb\xbf";
        if self.at_start {
            if self.buffer.len() < BOM.len() && BOM.starts_with(&self.buffer) {
                return None;
            }
            self.at_start = false;
            if self.buffer.starts_with(BOM) {
                self.buffer.advance(BOM.len());
            }
        }
        if self.after_cr && !self.buffer.is_empty() {
            self.after_cr = false;
            if self.buffer[0] == b'\n' {
                self.buffer.advance(1);
            }
        }
        let Some(found) = memchr::memchr2(b'\n', b'\r', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + found;
        self.searched = 0;
        self.after_cr = self.buffer[end] == b'\r';
        let mut line = self.buffer.split_to(end + 1).freeze();
        line.truncate(end);
        Some(line)
    }

    fn field(&mut self, line: &Bytes) {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let mut from = (colon + 1).min(line.len());
        if line.get(from) == Some(&b' ') {
            from += 1;
        }
        let value = line.slice(from..);
        let name = &line[..colon];
        if name == b"data" {
            self.data.push(value);
            return;
        }
        // Comments between events are signs of life, and nothing of them is kept.
        let between = self.beside == 0 && !self.data.is_some();
        if !(name.is_empty() && between && line.len() <= BESIDE) {
            self.beside += line.len();
        }
        match name {
            b"event" => self.event.name = Some(String::from_utf8_lossy(&value).into_owned()),
            b"id" if !value.contains(&0) => {
                self.event.id = Some(String::from_utf8_lossy(&value).into_owned())
            }
            b"retry" => self.event.retry = milliseconds(&value).or(self.event.retry),
            // A comment (an empty name) or a field of a later day.
            _ => {}
        }
    }
}

/// Digits only; anything else is ignored, as the standard has it.
fn milliseconds(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

// === impl Data ===

impl Data {
    fn push(&mut self, line: Bytes) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(line),
            Self::One(first) => {
                let mut joined = BytesMut::with_capacity(2 * (first.len() + 1 + line.len()));
                joined.extend_from_slice(&first);
                Self::joined(joined, &line)
            }
            Self::Joined(joined) => Self::joined(joined, &line),
        };
    }

    fn joined(mut lines: BytesMut, line: &[u8]) -> Self {
        lines.extend_from_slice(b"\n");
        lines.extend_from_slice(line);
        Self::Joined(lines)
    }

    fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }

    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(line) => line.len(),
            Self::Joined(lines) => lines.len(),
        }
    }

    /// How long it would be with a line of that length added.
    fn after(&self, line: usize) -> usize {
        self.len() + usize::from(self.is_some()) + line
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(line) => line,
            Self::Joined(lines) => lines.freeze(),
        }
    }
}
