//! Three ways to write a JSON value that was checked: as short as it gets, for people, and so that the same is the same.
//!
//! In: [`Json`]. Out: text in which every number is still spelt as its sender spelt it. Whitespace is ours; for people
//! characters that cannot be seen are written as escapes, and for fingerprints the order of members and the spelling of
//! strings is ours too.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::Json;
use crate::text::is_unsafe_to_show;

/// The SHA-256 of the canonical form, in hexadecimal. Whitespace, the order of members and the way in which a character
/// of a string is written do not count; everything else does, so a definition that could mean something else to anyone
/// has another fingerprint.
pub fn fingerprint(json: &Json) -> String {
    let mut canonical = Vec::with_capacity(json.bytes().len());
    Walk { text: json.bytes(), at: 0 }.sorted(&mut canonical);
    hex(&Sha256::digest(&canonical))
}

/// The same value without whitespace.
pub(crate) fn compact(json: &Json) -> Vec<u8> {
    let mut text = Vec::with_capacity(json.bytes().len());
    let mut walk = Walk { text: json.bytes(), at: 0 };
    while let Some(token) = walk.token() {
        text.extend_from_slice(token);
    }
    text
}

/// The same value with a line for each member, for people and for their diffs. Nothing in it hides: what cannot be seen is
/// written as an escape, which means the same.
pub(crate) fn pretty(json: &Json) -> String {
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
        text.extend_from_slice(&visible(token));
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

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(DIGITS[usize::from(half)])).collect()
}

/// A token without characters that cannot be seen.
fn visible(token: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(token) {
        Ok(text) if text.chars().any(is_unsafe_to_show) => Cow::Owned(escaped(text).into_bytes()),
        _ => Cow::Borrowed(token),
    }
}

/// The same string, with escapes for what cannot be seen.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe_to_show(c) {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// A string or another scalar in the one spelling that fingerprints are made of. What no string of ours can hold, a lone
/// half of a pair, stays as it is spelt.
fn respelt(token: &[u8]) -> Cow<'_, [u8]> {
    if token.first() != Some(&b'"') || memchr::memchr(b'\\', token).is_none() {
        return Cow::Borrowed(token);
    }
    let plain = serde_json::from_slice::<String>(token).ok().and_then(|text| serde_json::to_vec(&text).ok());
    plain.map_or(Cow::Borrowed(token), Cow::Owned)
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
        let rest = &self.text[self.at + 1..];
        let mut from = 0;
        while let Some(at) = rest.get(from..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
            if rest[from + at] == b'"' {
                return from + at + 2;
            }
            // Whatever a backslash stands before does not end the string.
            from += at + 2;
        }
        rest.len() + 1
    }

    /// Writes the value that comes next with the members of every object sorted by key. Twins stay, in their order.
    fn sorted(&mut self, out: &mut Vec<u8>) {
        match self.token() {
            Some(b"{") => {
                let (mut members, mut values) = (Vec::new(), Vec::new());
                while let Some(key) = self.token().filter(|token| *token != b"}") {
                    if key == b"," {
                        continue;
                    }
                    self.token();
                    let start = values.len();
                    self.sorted(&mut values);
                    members.push((respelt(key), start..values.len()));
                }
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
                out.push(b'{');
                for (place, (key, value)) in members.into_iter().enumerate() {
                    out.extend_from_slice(if place == 0 { b"" } else { b"," });
                    out.extend_from_slice(&key);
                    out.push(b':');
                    out.extend_from_slice(&values[value]);
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
            Some(scalar) => out.extend_from_slice(&respelt(scalar)),
            None => {}
        }
    }
}
