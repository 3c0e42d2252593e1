//! Messages as bytes: where one ends, and what stands in it.
//!
//! In: HTTP/1.1 with a length or in chunks, JSON or events. Out: heads, bodies, members. No JSON library: what is
//! measured must not be what reads it.

use std::io::Read;

/// HTTP/1.1 messages as they arrive.
#[derive(Default)]
pub(crate) struct Http {
    held: Vec<u8>,
    from: usize,
    filled: usize,
    /// The body of the last message, if it came in chunks.
    joined: Vec<u8>,
}

/// What is known of the next message.
enum Extent {
    /// A head of so many bytes, and a body of so many.
    Length(usize, usize),
    /// A head of so many bytes, and chunks up to here.
    Chunks(usize, usize),
}

/// The least room for a read. It grows with the messages, so that large ones take few reads.
const ROOM: usize = 16 * 1024;

// === impl Http ===

impl Http {
    /// Reads once; false at the end.
    pub(crate) fn read(&mut self, from: &mut impl Read) -> bool {
        if self.from == self.filled {
            (self.from, self.filled) = (0, 0);
        }
        if self.held.len() - self.filled < ROOM {
            self.held.resize((self.held.len() * 2).max(4 * ROOM), 0);
        }
        let read = from.read(&mut self.held[self.filled..]).unwrap_or(0);
        self.filled += read;
        read > 0
    }

    /// The next message that is whole: its head and its body.
    pub(crate) fn next(&mut self) -> Option<(&[u8], &[u8])> {
        match self.extent()? {
            Extent::Length(head, body) => {
                let message = &self.held[self.from..self.from + head + body];
                self.from += head + body;
                Some(message.split_at(head))
            }
            Extent::Chunks(head, end) => {
                let message = &self.held[self.from..self.from + end];
                self.from += end;
                self.joined.clear();
                let mut rest = &message[head..];
                while let Some((chunk, after)) = chunk(rest).filter(|(chunk, _)| !chunk.is_empty()) {
                    self.joined.extend_from_slice(chunk);
                    rest = after;
                }
                Some((&message[..head], &self.joined))
            }
        }
    }

    /// Whether there is one.
    pub(crate) fn is_ready(&self) -> bool {
        self.extent().is_some()
    }

    fn extent(&self) -> Option<Extent> {
        let held = &self.held[self.from..self.filled];
        let head = find(held, b"\r\n\r\n")? + 4;
        // However it is written: of all headers only this one ends so.
        if let Some(length) = number_after(&held[..head], b"ength:") {
            let length = length as usize;
            return (held.len() >= head + length).then_some(Extent::Length(head, length));
        }
        if find(&held[..head], b"hunked").is_none() {
            return Some(Extent::Length(head, 0));
        }
        let mut rest = &held[head..];
        loop {
            let (chunk, after) = chunk(rest)?;
            rest = after;
            if chunk.is_empty() {
                return Some(Extent::Chunks(head, held.len() - rest.len()));
            }
        }
    }
}

/// The first chunk, and what comes behind it.
fn chunk(from: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = find(from, b"\r\n")?;
    let digits = from[..line].split(|byte| *byte == b';').next()?;
    let length = usize::from_str_radix(std::str::from_utf8(digits).ok()?.trim(), 16).ok()?;
    let start = line + 2;
    let whole = start + length + 2;
    (from.len() >= whole).then(|| (&from[start..start + length], &from[whole..]))
}

/// The JSON of an answer, which may be the data of an event.
pub(crate) fn payload(body: &[u8]) -> &[u8] {
    if body.first() == Some(&b'{') {
        return body;
    }
    let data = |line| Some(<[u8]>::trim_ascii(<[u8]>::strip_prefix(line, b"data:")?));
    let answers = |data: &&[u8]| find(data, b"\"result\"").or_else(|| find(data, b"\"error\"")).is_some();
    body.split(|byte| *byte == b'\n').filter_map(data).find(answers).unwrap_or(body)
}

/// The value of a header, whatever the case of its name.
pub(crate) fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(head).ok()?;
    text.lines().find_map(|line| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

pub(crate) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// What stands behind some words and the space behind them.
fn after<'a>(text: &'a [u8], words: &[u8]) -> Option<&'a [u8]> {
    Some(text[find(text, words)? + words.len()..].trim_ascii_start())
}

/// The number behind some words.
pub(crate) fn number_after(text: &[u8], words: &[u8]) -> Option<u64> {
    let digits = after(text, words)?.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |number, digit| Some(number.unwrap_or(0) * 10 + u64::from(digit - b'0')))
}

/// The text behind some words, between quotes, up to the first that could be its end.
pub(crate) fn text_after<'a>(text: &'a [u8], words: &[u8]) -> Option<&'a [u8]> {
    let rest = after(text, words)?.strip_prefix(b"\"")?;
    Some(&rest[..memchr::memchr(b'"', rest)?])
}

/// The members of an object, as they are written: name and value.
pub(crate) fn members(object: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = object.trim_ascii_start().strip_prefix(b"{").unwrap_or_default();
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start();
        let name = value_of(rest).filter(|name| name.len() > 1 && name[0] == b'"')?;
        rest = rest[name.len()..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let value = value_of(rest)?;
        rest = &rest[value.len()..];
        Some((&name[1..name.len() - 1], value))
    })
}

/// The value that a text begins with.
fn value_of(text: &[u8]) -> Option<&[u8]> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => at += string(&text[at..])?,
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' => (at, depth) = (at + 1, depth.checked_sub(1)?),
            _ if depth == 0 => {
                at += text[at..].iter().position(|byte| b",}] \n".contains(byte)).unwrap_or(text.len() - at);
            }
            _ => at += text[at..].iter().position(|byte| b"\"{}[]".contains(byte))?,
        }
        if depth == 0 {
            return Some(&text[..at]).filter(|value| !value.is_empty());
        }
    }
}

/// How long the string is that a text begins with, with its quotes.
fn string(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_come_with_a_length_or_in_chunks() {
        let mut http = Http::default();
        let sent = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\
            Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x\r\n0123456789\r\n0\r\n\r\nHTTP/1.1 202";
        assert!(http.read(&mut &sent[..]));
        assert_eq!(http.next().unwrap().1, b"{}");
        assert_eq!(http.next().unwrap().1, b"abc0123456789");
        assert!(!http.is_ready() && http.next().is_none());
        assert!(http.read(&mut &b" Accepted\r\n\r\n"[..]));
        assert_eq!(http.next().unwrap().1, b"");
    }

    #[test]
    fn chunks_that_are_not_whole_are_waited_for() {
        let whole = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for end in 1..whole.len() {
            let mut http = Http::default();
            http.read(&mut &whole[..end]);
            assert!(http.next().is_none(), "{end}");
            http.read(&mut &whole[end..]);
            assert_eq!(http.next().unwrap().1, b"abc");
        }
    }

    #[test]
    fn the_answer_is_found_among_events() {
        let body = b": hi\n\nevent: message\ndata: {\"method\":\"notifications/message\"}\n\nid: 4\ndata: {\"id\":1,\"result\":{}}\n\n";
        assert_eq!(payload(body), b"{\"id\":1,\"result\":{}}");
        assert_eq!(payload(b"{\"a\":1}"), b"{\"a\":1}");
    }

    #[test]
    fn members_are_found_in_any_order() {
        let text = br#"{ "params": {"a":["x\"}]",{}],"id":9}, "id" : "4" ,"n":-1.5,"t":true}"#;
        let all: Vec<_> = members(text).map(|(name, value)| (as_str(name), as_str(value))).collect();
        let params = r#"{"a":["x\"}]",{}],"id":9}"#;
        assert_eq!(all, [("params", params), ("id", "\"4\""), ("n", "-1.5"), ("t", "true")]);
        assert_eq!(members(b"{}").count() + members(b"").count() + members(b"{\"a\"").count(), 0);
    }

    fn as_str(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn values_behind_words() {
        assert_eq!(number_after(b"\"id\": 42,", b"\"id\":"), Some(42));
        assert_eq!(number_after(b"\"id\":\"a\"", b"\"id\":"), None);
        assert_eq!(text_after(b"\"text\": \"abc\"", b"\"text\":"), Some(&b"abc"[..]));
        assert_eq!(header(b"HTTP/1.1 200 OK\r\nMcp-Session-ID: AbC\r\n\r\n", "mcp-session-id"), Some("AbC"));
    }
}
