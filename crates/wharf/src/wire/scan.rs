//! A validating walk over JSON text that builds nothing.
//!
//! It answers two questions at memory speed: is this one well-formed value no deeper than allowed, and where do the
//! members of its outermost object lie? Strings are skipped with `memchr`, so a megabyte of text costs microseconds.

use std::ops::Range;

/// Why a text is not acceptable JSON, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) what: &'static str,
    pub(crate) at: usize,
}

/// A walk over one text.
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    max_depth: usize,
    /// No byte below 0x20 in the whole text: strings need not be searched for control characters.
    clean: bool,
}

/// The deepest nesting that fits the scanner's stack of one bit a level.
const STACK_BITS: usize = 128;

impl<'a> Scanner<'a> {
    /// Takes a text that may be anything. An error is the place of the first byte that is not UTF-8.
    pub(crate) fn of_bytes(text: &'a [u8], max_depth: usize) -> Result<Self, usize> {
        let (control, foreign) = classify(text);
        if foreign {
            std::str::from_utf8(text).map_err(|e| e.valid_up_to())?;
        }
        Ok(Self { text, max_depth: max_depth.min(STACK_BITS - 1), clean: !control })
    }

    /// Takes a text that is known to be ASCII without control characters.
    pub(crate) fn of_plain(text: &'a [u8], max_depth: usize) -> Self {
        Self { text, max_depth: max_depth.min(STACK_BITS - 1), clean: true }
    }

    /// Takes a text that is known to be UTF-8.
    pub(crate) fn new(text: &'a str, max_depth: usize) -> Self {
        let text = text.as_bytes();
        Self { text, max_depth: max_depth.min(STACK_BITS - 1), clean: !classify(text).0 }
    }

    /// Checks that the text is one value with nothing but white space around it; returns the value's place.
    pub(crate) fn whole(&self) -> Result<Range<usize>, Bad> {
        let start = self.space(0);
        let end = self.value(start, 0)?;
        let rest = self.space(end);
        if rest != self.text.len() {
            return self.bad("more text after the value", rest);
        }
        Ok(start..end)
    }

    /// Walks an object and hands out each member: the key as it is written, quotes included, and the value's place.
    pub(crate) fn members(
        &self,
        visit: impl FnMut(Range<usize>, Range<usize>) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        self.members_within(b"", visit, |_, _| Ok(()))
    }

    /// The same, and where the value of the member `inner` (quotes included) is an object, its members are handed out
    /// too: one walk shows both levels.
    pub(crate) fn members_within(
        &self,
        inner: &[u8],
        mut visit: impl FnMut(Range<usize>, Range<usize>) -> Result<(), Bad>,
        mut visit_inner: impl FnMut(Range<usize>, Range<usize>) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        let end = self.object(self.space(0), |key, at| {
            let opens = self.text[key.clone()] == *inner && self.byte(at) == Some(b'{') && self.max_depth > 1;
            let end = if opens {
                self.object(at, |key, at| {
                    let end = self.value(at, 2)?;
                    visit_inner(key, at..end)?;
                    Ok(end)
                })?
            } else {
                self.value(at, 1)?
            };
            visit(key, at..end)?;
            Ok(end)
        })?;
        self.end(end)
    }

    /// Walks the object at `at`. `member` gets each key and where its value starts, and says where the value ends.
    fn object(
        &self,
        mut at: usize,
        mut member: impl FnMut(Range<usize>, usize) -> Result<usize, Bad>,
    ) -> Result<usize, Bad> {
        if self.byte(at) != Some(b'{') {
            return self.bad("an object was expected", at);
        }
        at = self.space(at + 1);
        if self.byte(at) == Some(b'}') {
            return Ok(at + 1);
        }
        loop {
            let key = at..self.key(at)?;
            let value = self.colon(key.end)?;
            at = self.space(member(key, value)?);
            match self.byte(at) {
                Some(b',') => at = self.space(at + 1),
                Some(b'}') => return Ok(at + 1),
                _ => return self.bad("`,` or `}` was expected", at),
            }
        }
    }

    /// Walks an array and hands out the place of each item.
    pub(crate) fn items(&self, mut visit: impl FnMut(Range<usize>) -> Result<(), Bad>) -> Result<(), Bad> {
        let mut at = self.space(0);
        if self.byte(at) != Some(b'[') {
            return self.bad("an array was expected", at);
        }
        at = self.space(at + 1);
        if self.byte(at) == Some(b']') {
            return self.end(at + 1);
        }
        loop {
            let end = self.value(at, 1)?;
            visit(at..end)?;
            at = self.space(end);
            match self.byte(at) {
                Some(b',') => at = self.space(at + 1),
                Some(b']') => return self.end(at + 1),
                _ => return self.bad("`,` or `]` was expected", at),
            }
        }
    }

    fn end(&self, at: usize) -> Result<(), Bad> {
        let rest = self.space(at);
        if rest == self.text.len() { Ok(()) } else { self.bad("more text after the value", rest) }
    }

    /// Skips one value that starts at `at`, `depth` levels down; returns where it ends.
    fn value(&self, mut at: usize, base_depth: usize) -> Result<usize, Bad> {
        let mut depth = base_depth;
        // One bit a level: set for an object, clear for an array.
        let mut objects: u128 = 0;
        'value: loop {
            at = match self.byte(at) {
                Some(open @ (b'{' | b'[')) => {
                    if depth >= self.max_depth {
                        return self.bad("nested too deeply", at);
                    }
                    depth += 1;
                    objects = (objects << 1) | u128::from(open == b'{');
                    let inner = self.space(at + 1);
                    let close = if open == b'{' { b'}' } else { b']' };
                    if self.byte(inner) == Some(close) {
                        depth -= 1;
                        objects >>= 1;
                        inner + 1
                    } else if open == b'{' {
                        at = self.colon(self.key(inner)?)?;
                        continue 'value;
                    } else {
                        at = inner;
                        continue 'value;
                    }
                }
                Some(b'"') => self.string(at + 1)?,
                Some(b'-' | b'0'..=b'9') => self.number(at)?,
                Some(b't') => self.literal(at, b"true")?,
                Some(b'f') => self.literal(at, b"false")?,
                Some(b'n') => self.literal(at, b"null")?,
                _ => return self.bad("a value was expected", at),
            };
            // A value has ended: go on with its neighbour, or close what holds it.
            loop {
                if depth == base_depth {
                    return Ok(at);
                }
                at = self.space(at);
                let in_object = objects & 1 == 1;
                match (self.byte(at), in_object) {
                    (Some(b','), true) => {
                        at = self.colon(self.key(self.space(at + 1))?)?;
                        continue 'value;
                    }
                    (Some(b','), false) => {
                        at = self.space(at + 1);
                        continue 'value;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        depth -= 1;
                        objects >>= 1;
                        at += 1;
                    }
                    _ => return self.bad("`,` or a closing bracket was expected", at),
                }
            }
        }
    }

    fn key(&self, at: usize) -> Result<usize, Bad> {
        if self.byte(at) == Some(b'"') { self.string(at + 1) } else { self.bad("a key was expected", at) }
    }

    fn colon(&self, at: usize) -> Result<usize, Bad> {
        let at = self.space(at);
        if self.byte(at) == Some(b':') { Ok(self.space(at + 1)) } else { self.bad("`:` was expected", at) }
    }

    /// Skips the inside of a string that starts at `at`; returns the place after the closing quote.
    fn string(&self, at: usize) -> Result<usize, Bad> {
        let mut stop = self.near_stop(at)?;
        loop {
            match self.byte(stop) {
                Some(b'"') => return Ok(stop + 1),
                // A string with an escape is likely a long one, and the escape a line break or a quote.
                Some(b'\\') => {
                    let simple = self.byte(stop + 1).is_some_and(|b| matches!(b, b'n' | b'"' | b'\\' | b't'));
                    stop = self.far_stop(if simple { stop + 2 } else { self.escape(stop)? })?;
                }
                Some(_) => stop = self.far_stop(stop)?,
                None => return self.bad("a string does not end", self.text.len()),
            }
        }
    }

    /// The next quote or backslash, if it is near: short strings are most, and the call into `memchr` costs more than
    /// they do. Otherwise where the search goes on.
    fn near_stop(&self, at: usize) -> Result<usize, Bad> {
        let end = (at + NEAR).min(self.text.len());
        for (i, &b) in self.text[at.min(end)..end].iter().enumerate() {
            if b == b'"' || b == b'\\' {
                return Ok(at + i);
            }
            if b < 0x20 {
                return self.bad("a control character in a string", at + i);
            }
        }
        Ok(end)
    }

    /// The next quote or backslash, or the end of the text.
    #[inline]
    fn far_stop(&self, at: usize) -> Result<usize, Bad> {
        let rest = &self.text[at.min(self.text.len())..];
        let found = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        if !self.clean && classify(&rest[..found]).0 {
            return self.bad("a control character in a string", at);
        }
        Ok(at + found)
    }

    /// Skips an escape whose backslash is at `at`. A surrogate without its other half is refused.
    fn escape(&self, at: usize) -> Result<usize, Bad> {
        match self.byte(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => match self.hex4(at + 2)? {
                0xD800..=0xDBFF => {
                    let pair = self.byte(at + 6) == Some(b'\\') && self.byte(at + 7) == Some(b'u');
                    if pair && matches!(self.hex4(at + 8)?, 0xDC00..=0xDFFF) {
                        Ok(at + 12)
                    } else {
                        self.bad("half a surrogate pair", at)
                    }
                }
                0xDC00..=0xDFFF => self.bad("half a surrogate pair", at),
                _ => Ok(at + 6),
            },
            _ => self.bad("an unknown escape", at),
        }
    }

    fn hex4(&self, at: usize) -> Result<u32, Bad> {
        let digits = self.text.get(at..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        let all_hex = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match all_hex.and_then(|d| u32::from_str_radix(d, 16).ok()) {
            Some(value) => Ok(value),
            None => self.bad("an unknown escape", at),
        }
    }

    fn number(&self, at: usize) -> Result<usize, Bad> {
        let mut i = at;
        if self.byte(i) == Some(b'-') {
            i += 1;
        }
        i = match self.byte(i) {
            Some(b'0') => i + 1,
            Some(b'1'..=b'9') => self.digits(i),
            _ => return self.bad("a digit was expected", i),
        };
        if self.byte(i) == Some(b'.') {
            let end = self.digits(i + 1);
            if end == i + 1 {
                return self.bad("a digit was expected", end);
            }
            i = end;
        }
        if matches!(self.byte(i), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.byte(i + 1), Some(b'+' | b'-')));
            let end = self.digits(i + 1 + sign);
            if end == i + 1 + sign {
                return self.bad("a digit was expected", end);
            }
            i = end;
        }
        Ok(i)
    }

    fn digits(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), Some(b'0'..=b'9')) {
            at += 1;
        }
        at
    }

    fn literal(&self, at: usize, word: &[u8]) -> Result<usize, Bad> {
        if self.text[at..].starts_with(word) {
            Ok(at + word.len())
        } else {
            self.bad("a value was expected", at)
        }
    }

    fn space(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            at += 1;
        }
        at
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.get(at).copied()
    }

    fn bad<T>(&self, what: &'static str, at: usize) -> Result<T, Bad> {
        Err(Bad { what, at })
    }
}

/// How far a string is walked by hand.
const NEAR: usize = 16;

/// Whether any byte is a control character, and whether any is beyond ASCII. Written without an early exit inside a
/// block, so that the compiler uses wide registers.
pub(super) fn classify(bytes: &[u8]) -> (bool, bool) {
    let (mut control, mut foreign) = (false, false);
    for block in bytes.chunks(4096) {
        let (below, above) =
            block.iter().fold((0_u8, 0_u8), |(below, above), &b| (below | u8::from(b < 0x20), above | b));
        control |= below != 0;
        foreign |= above >= 0x80;
    }
    (control, foreign)
}
