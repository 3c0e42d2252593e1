//! Messages as bytes: where one ends, and what stands in it.

use std::io::Read;

/// HTTP/1.1 messages as they arrive, each with a length.
#[derive(Default)]
pub(crate) struct Http {
    held: Vec<u8>,
    from: usize,
    filled: usize,
}

/// The least room for a read. It grows with the messages, so that large ones take few reads.
const ROOM: usize = 16 * 1024;

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
        let (head, whole) = self.measure()?;
        let message = &self.held[self.from..self.from + whole];
        self.from += whole;
        Some(message.split_at(head))
    }

    /// Whether there is one.
    pub(crate) fn is_ready(&self) -> bool {
        self.measure().is_some()
    }

    /// How long the head of the next message is, and the whole of it.
    fn measure(&self) -> Option<(usize, usize)> {
        let held = &self.held[self.from..self.filled];
        let head = find(held, b"\r\n\r\n")? + 4;
        let length = number_after(&held[..head], b"ontent-length: ").unwrap_or(0) as usize;
        (held.len() >= head + length).then_some((head, head + length))
    }
}

pub(crate) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// The number behind some words.
pub(crate) fn number_after(text: &[u8], words: &[u8]) -> Option<u64> {
    let rest = &text[find(text, words)? + words.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    let mut any = false;
    let number = digits.fold(0, |number: u64, digit| {
        any = true;
        number * 10 + u64::from(digit - b'0')
    });
    any.then_some(number)
}

/// The text behind some words, up to the next quote.
pub(crate) fn text_after<'a>(text: &'a [u8], words: &[u8]) -> Option<&'a [u8]> {
    let rest = &text[find(text, words)? + words.len()..];
    Some(&rest[..memchr::memchr(b'"', rest)?])
}
