//! Three ways to write a JSON value that was checked: as short as it gets, for people, and so that the same is the same.
//!
//! In: [`Json`]. Out: text in which every string and number is still spelt as its sender spelt it. Only whitespace and,
//! for fingerprints, the order of members is ours.

use sha2::{Digest, Sha256};

use crate::wire::Json;

/// The SHA-256 of the canonical form, in hexadecimal. Whitespace and the order of members do not count; everything else
/// does, so a definition that could mean something else to anyone has another fingerprint.
pub fn fingerprint(json: &Json) -> String {
    let mut canonical = Vec::with_capacity(json.bytes().len());
    Walk { text: json.bytes(), at: 0 }.sorted(&mut canonical);
    hex(&Sha256::digest(&canonical))
}

/// The same value without whitespace.
pub(super) fn compact(json: &Json) -> Vec<u8> {
    let mut text = Vec::with_capacity(json.bytes().len());
    let mut walk = Walk { text: json.bytes(), at: 0 };
    while let Some(token) = walk.token() {
        text.extend_from_slice(token);
    }
    text
}

/// The same value with a line for each member, for people and for their diffs.
pub(super) fn pretty(json: &Json) -> String {
    let mut text: Vec<u8> = Vec::with_capacity(2 * json.bytes().len());
    let mut walk = Walk { text: json.bytes(), at: 0 };
    let mut depth = 0;
    let mut opened = false;
    while let Some(token) = walk.token() {
        let closes = matches!(token, b"}" | b"]");
        depth -= usize::from(closes);
        // An empty object or array stays on its line.
        if (opened && !closes) || (closes && !opened) {
            line(&mut text, depth);
        }
        text.extend_from_slice(token);
        opened = matches!(token, b"{" | b"[");
        depth += usize::from(opened);
        match token {
            b"," => line(&mut text, depth),
            b":" => text.push(b' '),
            _ => {}
        }
    }
    text.push(b'\n');
    String::from_utf8(text).unwrap_or_default()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn line(text: &mut Vec<u8>, depth: usize) {
    text.push(b'\n');
    text.extend(std::iter::repeat_n(b' ', 2 * depth));
}

/// A walk through a text that is known to be JSON.
struct Walk<'a> {
    text: &'a [u8],
    at: usize,
}

// === impl Walk ===

impl<'a> Walk<'a> {
    /// The next string, number, word or sign.
    fn token(&mut self) -> Option<&'a [u8]> {
        while self.text.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        let start = self.at;
        self.at += match self.text[start] {
            b'"' => self.string(),
            b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
            _ => {
                let ends = |b: &u8| b.is_ascii_whitespace() || b"{}[],:\"".contains(b);
                self.text[start..].iter().position(ends).unwrap_or(self.text.len() - start)
            }
        };
        Some(&self.text[start..self.at])
    }

    /// The length of the string that starts here, quotes included.
    fn string(&self) -> usize {
        let mut escaped = false;
        let ends = |b: &u8| {
            let ends = *b == b'"' && !escaped;
            escaped = *b == b'\\' && !escaped;
            ends
        };
        let rest = &self.text[self.at + 1..];
        rest.iter().position(ends).map_or(rest.len() + 1, |end| end + 2)
    }

    /// Writes the value that comes next with the members of every object sorted, as they are spelt. Twins stay, in their
    /// order.
    fn sorted(&mut self, out: &mut Vec<u8>) {
        match self.token() {
            Some(b"{") => {
                let mut members: Vec<(&[u8], Vec<u8>)> = Vec::new();
                while let Some(key) = self.token().filter(|token| *token != b"}") {
                    if key == b"," {
                        continue;
                    }
                    self.token();
                    let mut value = Vec::new();
                    self.sorted(&mut value);
                    members.push((key, value));
                }
                members.sort_by_key(|(key, _)| *key);
                out.push(b'{');
                for (place, (key, value)) in members.iter().enumerate() {
                    out.extend_from_slice(if place == 0 { b"" } else { b"," });
                    out.extend_from_slice(key);
                    out.push(b':');
                    out.extend_from_slice(value);
                }
                out.push(b'}');
            }
            Some(b"[") => {
                out.push(b'[');
                loop {
                    let before = self.at;
                    match self.token() {
                        None | Some(b"]") => break,
                        Some(b",") => out.push(b','),
                        Some(_) => {
                            self.at = before;
                            self.sorted(out);
                        }
                    }
                }
                out.push(b']');
            }
            Some(scalar) => out.extend_from_slice(scalar),
            None => {}
        }
    }
}
