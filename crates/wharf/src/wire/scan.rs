//! A validating walk over JSON text that builds nothing.
//!
//! It answers two questions at memory speed: is this one well-formed value no deeper than allowed, and where do the
//! members of its outermost object lie? Strings are looked through sixteen bytes at a time, once for everything that
//! may not be in them, so a megabyte of text costs microseconds.

use std::cell::Cell;
use std::ops::Range;

use wide::i8x16;

/// Why a text is not acceptable JSON, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) what: &'static str,
    pub(crate) at: usize,
}

/// A walk over one text.
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    max_depth: usize,
    /// The text is known to be UTF-8.
    checked: bool,
    /// Something beyond ASCII was seen in a string. Outside of strings it is an error by itself.
    foreign: Cell<bool>,
    /// An escape was seen in a string.
    escaped: Cell<bool>,
    /// What ended the walk before its end. Kept here, so that each step gives no more than a place: what fits a register
    /// costs less than what does not.
    fault: Cell<Option<Bad>>,
}

/// The deepest nesting that fits the scanner's stack of one bit a level.
const STACK_BITS: usize = 128;
/// How many bytes of a string are looked at together: as many as every processor has a register for.
const BLOCK: usize = 16;
/// What is wrong with a text that is not UTF-8.
pub(super) const TOO_DEEP: &str = "nested too deeply";
pub(super) const NOT_UTF8: &str = "not UTF-8";

impl<'a> Scanner<'a> {
    /// Takes a text that may be anything; that it is UTF-8 is checked at the end of the walk, and only if need be.
    pub(crate) fn of_bytes(text: &'a [u8], max_depth: usize) -> Self {
        let max_depth = max_depth.min(STACK_BITS - 1);
        let (foreign, escaped) = (Cell::new(false), Cell::new(false));
        Self { text, max_depth, checked: false, foreign, escaped, fault: Cell::new(None) }
    }

    /// Takes bytes that were looked through before.
    pub(super) fn of_checked(text: &'a [u8], max_depth: usize) -> Self {
        Self { checked: true, ..Self::of_bytes(text, max_depth) }
    }

    /// Whether no string had an escape as far as the walk has come.
    pub(super) fn is_plain(&self) -> bool {
        !self.escaped.get()
    }

    /// Checks that the text is one value with nothing but white space around it; returns the value's place.
    pub(crate) fn whole(&self) -> Result<Range<usize>, Bad> {
        let start = self.space(0);
        let walked = self.value(start, 0).and_then(|end| self.end(end).map(|()| start..end));
        self.utf8(walked)
    }

    /// Walks an object and hands out each member: the key as it is written, quotes included, and the value's place.
    pub(crate) fn members(
        &self,
        visit: impl FnMut(Range<usize>, Range<usize>) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        self.members_within(|_| false, visit, |_, _| Ok(()))
    }

    /// The same, and where the value of a member with an `inner` key (quotes included) is an object, its members are
    /// handed out too: one walk shows both levels.
    pub(crate) fn members_within(
        &self,
        inner: impl Fn(&[u8]) -> bool,
        mut visit: impl FnMut(Range<usize>, Range<usize>) -> Result<(), Bad>,
        mut visit_inner: impl FnMut(Range<usize>, Range<usize>) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        let walked = self.object(self.space(0), |key, at| {
            let opens = inner(&self.text[key.clone()]) && self.byte(at) == Some(b'{') && self.max_depth > 1;
            let end = if opens {
                self.object(at, |key, at| {
                    let end = self.value(at, 2)?;
                    self.heed(visit_inner(key, at..end))?;
                    Some(end)
                })?
            } else {
                self.value(at, 1)?
            };
            self.heed(visit(key, at..end))?;
            Some(end)
        });
        self.utf8(walked.and_then(|end| self.end(end)))
    }

    /// Walks the object at `at`. `member` gets each key and where its value starts, and says where the value ends.
    fn object(
        &self,
        mut at: usize,
        mut member: impl FnMut(Range<usize>, usize) -> Option<usize>,
    ) -> Option<usize> {
        if self.byte(at) != Some(b'{') {
            return self.bad("an object was expected", at);
        }
        at = self.space(at + 1);
        if self.byte(at) == Some(b'}') {
            return Some(at + 1);
        }
        loop {
            let key = at..self.key(at)?;
            let value = self.colon(key.end)?;
            at = self.space(member(key, value)?);
            match self.byte(at) {
                Some(b',') => at = self.space(at + 1),
                Some(b'}') => return Some(at + 1),
                _ => return self.bad("`,` or `}` was expected", at),
            }
        }
    }

    /// Walks an array and hands out the place of each item.
    pub(crate) fn items(&self, visit: impl FnMut(Range<usize>) -> Result<(), Bad>) -> Result<(), Bad> {
        self.utf8(self.array(visit))
    }

    fn array(&self, mut visit: impl FnMut(Range<usize>) -> Result<(), Bad>) -> Option<()> {
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
            self.heed(visit(at..end))?;
            at = self.space(end);
            match self.byte(at) {
                Some(b',') => at = self.space(at + 1),
                Some(b']') => return self.end(at + 1),
                _ => return self.bad("`,` or `]` was expected", at),
            }
        }
    }

    /// The end of a walk: what is not UTF-8 is not JSON, and that is said before anything else.
    fn utf8<T>(&self, walked: Option<T>) -> Result<T, Bad> {
        if !self.checked && (self.foreign.get() || walked.is_none()) {
            std::str::from_utf8(self.text).map_err(|e| Bad { what: NOT_UTF8, at: e.valid_up_to() })?;
        }
        walked.ok_or_else(|| self.fault.get().unwrap_or(Bad { what: "not JSON", at: 0 }))
    }

    /// Ends the walk if whoever it is shown to says so.
    fn heed(&self, said: Result<(), Bad>) -> Option<()> {
        said.map_err(|bad| self.fault.set(Some(bad))).ok()
    }

    fn end(&self, at: usize) -> Option<()> {
        let rest = self.space(at);
        if rest == self.text.len() { Some(()) } else { self.bad("more text after the value", rest) }
    }

    /// Skips one value that starts at `at`, `depth` levels down; returns where it ends.
    fn value(&self, mut at: usize, base_depth: usize) -> Option<usize> {
        let mut depth = base_depth;
        // One bit a level: set for an object, clear for an array.
        let mut objects: u128 = 0;
        'value: loop {
            at = match self.byte(at) {
                Some(open @ (b'{' | b'[')) => {
                    if depth >= self.max_depth {
                        return self.bad(TOO_DEEP, at);
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
                    return Some(at);
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

    #[inline(always)]
    fn key(&self, at: usize) -> Option<usize> {
        if self.byte(at) == Some(b'"') { self.string(at + 1) } else { self.bad("a key was expected", at) }
    }

    #[inline(always)]
    fn colon(&self, at: usize) -> Option<usize> {
        let at = self.space(at);
        if self.byte(at) == Some(b':') { Some(self.space(at + 1)) } else { self.bad("`:` was expected", at) }
    }

    /// Skips the inside of a string that starts at `at`; returns the place after the closing quote.
    #[inline(always)]
    fn string(&self, at: usize) -> Option<usize> {
        // Most strings are keys: short, and their end is the first thing in them to stop at.
        let mut from = at;
        while let Some(block) = self.text.get(from..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
            let stops = stops::<false>(block);
            if stops == 0 {
                from += BLOCK;
                continue;
            }
            let stop = from + stops.trailing_zeros() as usize;
            if self.byte(stop) == Some(b'"') {
                return Some(stop + 1);
            }
            break;
        }
        self.odd_string(from)
    }

    /// Goes on where there is something else in a string than plain text, or hardly any text left.
    #[inline(never)]
    fn odd_string(&self, at: usize) -> Option<usize> {
        if self.foreign.get() { self.string_on::<true>(at) } else { self.string_on::<false>(at) }
    }

    /// The same, before and after something beyond ASCII was seen.
    ///
    /// The blocks lie side by side whatever is in them, so the processor need not wait for one to begin with the next.
    fn string_on<const FOREIGN: bool>(&self, start: usize) -> Option<usize> {
        let (blocks, _) = self.text.get(start..).unwrap_or_default().as_chunks::<BLOCK>();
        let mut at = start;
        // Behind the last escape, which may reach into the next block. It is never as long as one.
        let mut from = start;
        for block in blocks {
            let mut stops = stops::<FOREIGN>(block);
            if stops != 0 {
                stops &= u32::MAX << from.saturating_sub(at);
            }
            while stops != 0 {
                let stop = at + stops.trailing_zeros() as usize;
                from = match self.text[stop] {
                    b'"' => return Some(stop + 1),
                    // Most escapes are these.
                    b'\\' if matches!(self.byte(stop + 1), Some(b'n' | b'"')) => {
                        self.escaped.set(true);
                        stop + 2
                    }
                    b'\\' => self.escape(stop)?,
                    0x80.. => {
                        self.foreign.set(true);
                        return self.string_on::<true>(stop + 1);
                    }
                    _ => return self.bad("a control character in a string", stop),
                };
                stops &= u32::MAX << (from - at);
            }
            at += BLOCK;
        }
        self.string_end(at.max(from))
    }

    /// Skips what is left of a string near the end of the text.
    fn string_end(&self, mut at: usize) -> Option<usize> {
        // The last block of the text reaches back to what was seen already. Mostly all that is left to find is the quote.
        if let Some(block) = self.text.last_chunk::<BLOCK>() {
            let start = self.text.len() - BLOCK;
            let stops = stops::<false>(block) & u32::MAX.checked_shl((at - start) as u32).unwrap_or(0);
            let stop = start + stops.trailing_zeros() as usize;
            if stops != 0 && self.text[stop] == b'"' {
                return Some(stop + 1);
            }
        }
        loop {
            at = match self.byte(at) {
                Some(b'"') => return Some(at + 1),
                Some(b'\\') => self.escape(at)?,
                Some(0..0x20) => return self.bad("a control character in a string", at),
                Some(b) => {
                    self.foreign.set(self.foreign.get() || !b.is_ascii());
                    at + 1
                }
                None => return self.bad("a string does not end", self.text.len()),
            }
        }
    }

    /// Skips an escape whose backslash is at `at`. A surrogate without its other half is refused.
    fn escape(&self, at: usize) -> Option<usize> {
        self.escaped.set(true);
        match self.byte(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Some(at + 2),
            Some(b'u') => match self.hex4(at + 2)? {
                0xD800..=0xDBFF => {
                    let pair = self.byte(at + 6) == Some(b'\\') && self.byte(at + 7) == Some(b'u');
                    if pair && matches!(self.hex4(at + 8)?, 0xDC00..=0xDFFF) {
                        Some(at + 12)
                    } else {
                        self.bad("half a surrogate pair", at)
                    }
                }
                0xDC00..=0xDFFF => self.bad("half a surrogate pair", at),
                _ => Some(at + 6),
            },
            _ => self.bad("an unknown escape", at),
        }
    }

    fn hex4(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        let all_hex = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match all_hex.and_then(|d| u32::from_str_radix(d, 16).ok()) {
            Some(value) => Some(value),
            None => self.bad("an unknown escape", at),
        }
    }

    fn number(&self, at: usize) -> Option<usize> {
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
        Some(i)
    }

    fn digits(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), Some(b'0'..=b'9')) {
            at += 1;
        }
        at
    }

    fn literal(&self, at: usize, word: &[u8]) -> Option<usize> {
        if self.text[at..].starts_with(word) {
            Some(at + word.len())
        } else {
            self.bad("a value was expected", at)
        }
    }

    #[inline(always)]
    fn space(&self, at: usize) -> usize {
        // Most texts have none.
        if self.byte(at).is_some_and(|byte| byte > b' ') { at } else { self.spaces(at) }
    }

    #[inline(never)]
    fn spaces(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            at += 1;
        }
        at
    }

    #[inline(always)]
    fn byte(&self, at: usize) -> Option<u8> {
        self.text.get(at).copied()
    }

    #[cold]
    fn bad<T>(&self, what: &'static str, at: usize) -> Option<T> {
        self.fault.set(Some(Bad { what, at }));
        None
    }
}

/// Which bytes of a block need a closer look, a bit for each: quotes, backslashes and control characters, and unless
/// `FOREIGN`, bytes beyond ASCII.
#[inline]
fn stops<const FOREIGN: bool>(block: &[u8; BLOCK]) -> u32 {
    let bytes = i8x16::new(block.map(u8::cast_signed));
    // Flipping the second bit moves the quote down to the blank, next to the control characters, and the blank up. Bytes
    // beyond ASCII are negative, so below them all; flipping the highest bit puts them above.
    let flip = if FOREIGN { i8::MIN } else { 0 };
    let low = (bytes ^ i8x16::splat(2 ^ flip)).simd_lt(i8x16::splat(0x21 ^ flip));
    (low | bytes.simd_eq(i8x16::splat(0x5c))).to_bitmask()
}
