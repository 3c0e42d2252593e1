//! The lines of a head, one after the other.
//!
//! In: what has arrived. Out: the first line, then a field at a time, by their places. One look at each byte tells where
//! its line ends and whether it may stand there; what they mean is `head`'s to say. Why by hand: every request comes this
//! way (`docs/decisions/0020-requests-read-by-hand.md`).

use wide::i8x16;

/// A part of a head. Heads are small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(u16, u16);

/// The lines that were not read yet.
pub(super) struct Lines<'a> {
    text: &'a [u8],
    at: usize,
}

/// The first line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct First {
    pub(super) method: Span,
    pub(super) target: Span,
    /// Whether it is HTTP/1.1, and not older.
    pub(super) is_new: bool,
}

/// Why there is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// There is more to come.
    Partial,
    Malformed,
    TooMany,
}

/// How many bytes are looked at together.
const BLOCK: usize = 16;
/// What may stand in a name.
const TOKEN: [bool; 256] = tokens();

// === impl Lines ===

impl<'a> Lines<'a> {
    /// Of a head of at most 64 KiB.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The verb, the target and the version. Empty lines before it mean nothing.
    pub(super) fn first(&mut self) -> Result<First, Unread> {
        while let Some(next) = self.line_end(self.at)? {
            self.at = next;
        }
        let start = self.at;
        let end = self.plain_end(start);
        self.at = self.line_end(end)?.ok_or(Unread::Malformed)?;
        let line = &self.text[start..end];
        let method = token_end(line, 0);
        let is_visible = |byte: &u8| byte.is_ascii_graphic();
        let target = method + 1 + line[method..].iter().skip(1).take_while(|byte| is_visible(byte)).count();
        let is_new = match line.get(target..) {
            Some(b" HTTP/1.1") => true,
            Some(b" HTTP/1.0") => false,
            _ => return Err(Unread::Malformed),
        };
        if method == 0 || line[method] != b' ' || target == method + 1 {
            return Err(Unread::Malformed);
        }
        let (method, target) = ((start, start + method), (start + method + 1, start + target));
        Ok(First { method: Span::of(method)?, target: Span::of(target)?, is_new })
    }

    /// The next field: which one of the known it is, its name, and its value without the blanks around it. `None`: that
    /// was the last one.
    pub(super) fn field(
        &mut self,
        known: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Option<(Option<usize>, Span, Span)>, Unread> {
        let start = self.at;
        // What is known is a name; any other is looked at byte by byte.
        let near = self.colon(start);
        let found = near.and_then(|colon| Some((colon, Some(known(&self.text[start..colon])?))));
        let (colon, which) = found.unwrap_or_else(|| {
            let colon = token_end(self.text, start);
            (colon, known(&self.text[start..colon]))
        });
        if colon == start {
            // A line that begins with something else than a name is the empty one at the end, or none.
            self.at = self.line_end(start)?.ok_or(Unread::Malformed)?;
            return Ok(None);
        }
        match self.text.get(colon) {
            Some(b':') => {}
            Some(_) => return Err(Unread::Malformed),
            None => return Err(Unread::Partial),
        }
        let (mut from, mut to) = (colon + 1, self.plain_end(colon + 1));
        self.at = self.line_end(to)?.ok_or(Unread::Malformed)?;
        let is_blank = |at: usize| matches!(self.text[at], b' ' | b'\t');
        while from < to && is_blank(from) {
            from += 1;
        }
        while from < to && is_blank(to - 1) {
            to -= 1;
        }
        Ok(Some((which, Span::of((start, colon))?, Span::of((from, to))?)))
    }

    /// Where the next colon is, if it is near.
    fn colon(&self, start: usize) -> Option<usize> {
        let find = |from: usize| {
            let block = self.text.get(from..)?.first_chunk::<BLOCK>()?;
            let colons = i8x16::new(block.map(u8::cast_signed)).simd_eq(i8x16::splat(b':'.cast_signed()));
            let at = colons.to_bitmask().trailing_zeros() as usize;
            (at < BLOCK).then_some(from + at)
        };
        find(start).or_else(|| find(start + BLOCK))
    }

    /// Where the head ends, when its fields are read.
    pub(super) fn end(&self) -> usize {
        self.at
    }

    /// Where the next line begins, if one ends here. Half of its end is none: others may read it as something else.
    fn line_end(&self, at: usize) -> Result<Option<usize>, Unread> {
        match (self.text.get(at), self.text.get(at + 1)) {
            (Some(b'\r'), Some(b'\n')) => Ok(Some(at + 2)),
            (Some(b'\r'), None) | (None, _) => Err(Unread::Partial),
            _ => Ok(None),
        }
    }

    /// Where the first control character stands: the end of a line, if it is a good one.
    fn plain_end(&self, mut at: usize) -> usize {
        while let Some(block) = self.text.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
            let stops = controls(block);
            if stops != 0 {
                return at + stops.trailing_zeros() as usize;
            }
            at += BLOCK;
        }
        let rest = self.text.get(at..).unwrap_or_default();
        let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        self.text.len() - rest.len() + rest.iter().position(is_control).unwrap_or(rest.len())
    }
}

// === impl Span ===

impl Span {
    fn of((from, to): (usize, usize)) -> Result<Self, Unread> {
        match (u16::try_from(from), u16::try_from(to)) {
            (Ok(from), Ok(to)) => Ok(Self(from, to)),
            _ => Err(Unread::Malformed),
        }
    }

    /// What stands there.
    pub(super) fn within(self, text: &[u8]) -> &[u8] {
        text.get(usize::from(self.0)..usize::from(self.1)).unwrap_or_default()
    }

    /// Its rest from there on, which is within it.
    pub(super) fn from(self, start: usize) -> Self {
        Self((usize::from(self.0) + start).min(usize::from(self.1)) as u16, self.1)
    }

    /// Its beginning up to there, which is within it.
    pub(super) fn to(self, end: usize) -> Self {
        Self(self.0, (usize::from(self.0) + end).min(usize::from(self.1)) as u16)
    }
}

/// Where a name ends that begins here.
fn token_end(text: &[u8], from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    from + rest.iter().position(|byte| !TOKEN[usize::from(*byte)]).unwrap_or(rest.len())
}

/// Which bytes of a block are control characters, a bit for each. A tab is none here.
fn controls(block: &[u8; BLOCK]) -> u32 {
    let bytes = i8x16::new(block.map(u8::cast_signed));
    // Flipping the highest bit puts what is beyond ASCII above the rest, so that only these are low.
    let low = (bytes ^ i8x16::splat(i8::MIN)).simd_lt(i8x16::splat(0x20 ^ i8::MIN));
    let (tab, delete) = (bytes.simd_eq(i8x16::splat(0x09)), bytes.simd_eq(i8x16::splat(0x7f)));
    ((low & !tab) | delete).to_bitmask()
}

const fn tokens() -> [bool; 256] {
    let (mut all, marks) = ([false; 256], b"!#$%&'*+-.^_`|~");
    let mut byte = 0;
    while byte < 128 {
        all[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut mark = 0;
    while mark < marks.len() {
        all[marks[mark] as usize] = true;
        mark += 1;
    }
    all
}
