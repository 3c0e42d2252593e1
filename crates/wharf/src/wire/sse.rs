//! Server-sent events: cuts a stream of bytes into events, with a limit on how large one may be.

use bytes::{Bytes, BytesMut};

/// A parser that takes bytes as they come and gives events.
#[derive(Debug)]
pub struct SseParser {
    buffer: BytesMut,
    max: usize,
    event: SseEvent,
    /// The event has a line with data.
    has_data: bool,
    /// The last byte taken was `\r`: a `\n` that follows belongs to it.
    after_cr: bool,
    /// Nothing was taken yet: a byte order mark may stand here.
    at_start: bool,
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

impl SseParser {
    /// A parser for events whose lines together have at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            max,
            event: SseEvent::default(),
            has_data: false,
            after_cr: false,
            at_start: true,
        }
    }

    /// Takes bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        if self.at_start && self.buffer.len() >= 3 {
            self.at_start = false;
            if self.buffer.starts_with(b"\xef\xbb\xbf") {
                drop(self.buffer.split_to(3));
            }
        }
    }

    /// The next event, if its end has come. An event with neither data, id nor retry is not given.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, SseTooLong> {
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                let worth = std::mem::take(&mut self.has_data) || event.id.is_some() || event.retry.is_some();
                if worth {
                    return Ok(Some(event));
                }
                continue;
            }
            self.field(&line);
            if self.event.data.len() > self.max {
                return Err(SseTooLong(self.max));
            }
        }
        if self.buffer.len() + self.event.data.len() > self.max + FIELD_NAME {
            return Err(SseTooLong(self.max));
        }
        Ok(None)
    }

    fn next_line(&mut self) -> Option<Bytes> {
        if self.after_cr && self.buffer.first() == Some(&b'\n') {
            drop(self.buffer.split_to(1));
        }
        if !self.buffer.is_empty() {
            self.after_cr = false;
        }
        let end = memchr::memchr2(b'\n', b'\r', &self.buffer)?;
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
        match &line[..colon] {
            b"data" if self.has_data => {
                let joined = [&self.event.data[..], b"\n", &value[..]].concat();
                self.event.data = joined.into();
            }
            b"data" => {
                self.event.data = value;
                self.has_data = true;
            }
            b"event" => self.event.name = Some(String::from_utf8_lossy(&value).into_owned()),
            b"id" if !value.contains(&0) => {
                self.event.id = Some(String::from_utf8_lossy(&value).into_owned())
            }
            b"retry" => self.event.retry = std::str::from_utf8(&value).ok().and_then(|v| v.parse().ok()),
            // A comment (an empty name) or a field of a later day.
            _ => {}
        }
    }
}

/// Room for the name of a field beside the data that the limit is about.
const FIELD_NAME: usize = 64;
