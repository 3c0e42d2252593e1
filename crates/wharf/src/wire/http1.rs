//! What both sides of HTTP/1.1 have in common: where things stand in a head, lengths, lists of words, chunks.
//!
//! In: bytes that arrived, from callers or from servers. Out: what they mean, or that they can be read in two ways. What
//! a request or an answer is, is not here: the gateway reads the one, `net` the other.

use bytes::{Buf as _, BytesMut};

/// A part of a head. Heads are small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(u16, u16);

/// Where in a body of chunks the reading is.
#[derive(Debug, Default)]
pub struct Chunks {
    state: State,
    /// How much stood there that nobody asked for: extensions, and what follows the last chunk.
    beside: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// A line with a size comes next.
    #[default]
    Size,
    /// So much of a chunk.
    Chunk(usize),
    /// The end of a chunk's line.
    Behind,
    /// Lines after the last chunk.
    Trailer,
    Over,
}

/// What stands at the front of what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A chunk, of which so much is to come.
    Chunk(usize),
    /// Half a line.
    Line,
    /// The body has ended.
    Over,
}

/// Why chunks are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadChunks {
    /// They can be read in two ways, or in none.
    Malformed,
    /// Too much stands beside them.
    TooMuch,
}

/// The longest line between chunks.
const LINE: usize = 1024;
/// How much may stand beside the chunks.
const BESIDE: usize = 32 * 1024;

// === impl Span ===

impl Span {
    /// Where a part of a head is within it.
    pub(crate) fn of(part: &[u8], within: &[u8]) -> Option<Self> {
        let start = (part.as_ptr() as usize).checked_sub(within.as_ptr() as usize)?;
        Some(Self(u16::try_from(start).ok()?, u16::try_from(start + part.len()).ok()?))
    }

    pub(crate) fn len(self) -> usize {
        usize::from(self.1 - self.0)
    }

    pub(crate) fn in_text(self, text: &[u8]) -> &[u8] {
        text.get(usize::from(self.0)..usize::from(self.1)).unwrap_or_default()
    }
}

// === impl Chunks ===

impl Chunks {
    /// Reads what stands between chunks, as far as it has arrived. What is wrong stays where it is.
    ///
    /// # Errors
    /// If it is no such thing.
    pub fn next(&mut self, arrived: &mut BytesMut) -> Result<Next, BadChunks> {
        loop {
            match self.state {
                State::Chunk(left) => return Ok(Next::Chunk(left)),
                State::Over => return Ok(Next::Over),
                State::Size | State::Behind | State::Trailer => {}
            }
            let Some(line) = line(arrived)? else { return Ok(Next::Line) };
            let (state, beside) = match self.state {
                State::Size => size(line)?,
                State::Behind if line.is_empty() => (State::Size, 0),
                State::Trailer if is_field(line) => (State::Trailer, line.len()),
                State::Trailer if line.is_empty() => (State::Over, 0),
                _ => return Err(BadChunks::Malformed),
            };
            if beside > BESIDE - self.beside {
                return Err(BadChunks::TooMuch);
            }
            let taken = line.len() + 2;
            arrived.advance(taken);
            self.state = state;
            self.beside += beside;
        }
    }

    /// Takes what has arrived of the chunk at the front.
    pub fn take(&mut self, arrived: &mut BytesMut) -> BytesMut {
        let State::Chunk(left) = self.state else { return BytesMut::new() };
        let part = arrived.split_to(left.min(arrived.len()));
        self.state = match left - part.len() {
            0 => State::Behind,
            left => State::Chunk(left),
        };
        part
    }
}

/// The line at the front, without its end.
fn line(arrived: &[u8]) -> Result<Option<&[u8]>, BadChunks> {
    match memchr::memchr(b'\n', &arrived[..arrived.len().min(LINE)]) {
        Some(end) => {
            let line = arrived[..end].strip_suffix(b"\r").filter(|line| !line.contains(&b'\r'));
            line.map(Some).ok_or(BadChunks::Malformed)
        }
        None if arrived.len() >= LINE => Err(BadChunks::Malformed),
        None => Ok(None),
    }
}

/// What a line says of the chunk behind it, and how much it says besides.
fn size(line: &[u8]) -> Result<(State, usize), BadChunks> {
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let beside = line.len() - size.len();
    // Blanks behind it are in the field; nothing else is.
    let end = size.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    let size = &size[..end];
    let digits = !size.is_empty() && size.len() <= 8 && size.iter().all(u8::is_ascii_hexdigit);
    let size = std::str::from_utf8(size).ok().filter(|_| digits);
    match size.and_then(|size| usize::from_str_radix(size, 16).ok()) {
        Some(0) => Ok((State::Trailer, beside)),
        Some(size) => Ok((State::Chunk(size), beside)),
        None => Err(BadChunks::Malformed),
    }
}

/// Whether a line is a name and a value, and not the beginning of something else.
fn is_field(line: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_graphic();
    line.split(|byte| *byte == b':')
        .next()
        .is_some_and(|name| !name.is_empty() && name.len() < line.len() && name.iter().all(is_plain))
}

/// A length: digits and nothing else.
pub(crate) fn length(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if digits { std::str::from_utf8(value).ok()?.parse().ok() } else { None }
}

/// Whether a list has this word.
pub(crate) fn has_word(list: &[u8], word: &str) -> bool {
    list.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

/// Writes a field. Neither part has the end of a line in it.
pub(crate) fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes how long the body is.
pub(crate) fn write_length(out: &mut Vec<u8>, mut length: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (length % 10) as u8;
        length /= 10;
        if length == 0 {
            break;
        }
    }
    write_field(out, "content-length", &digits[at..]);
}
