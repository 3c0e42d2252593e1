//! W3C trace context as MCP carries it: in `_meta`, by the names that HTTP headers have.
//!
//! In: text of a caller. Out: what is valid of it, by the book; what is not goes nowhere. Which spans there are is not
//! here.

use std::fmt;

/// The names, in `_meta` and of headers.
pub mod key {
    #![allow(missing_docs, reason = "each constant is its own documentation")]
    pub const PARENT: &str = "traceparent";
    pub const STATE: &str = "tracestate";
    pub const BAGGAGE: &str = "baggage";
}

/// A `traceparent`: which trace, and which span of it is the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: [u8; 16],
    /// The parent.
    pub span: [u8; 8],
    /// The flags as they came; the lowest bit says that the trace is recorded.
    pub flags: u8,
}

/// How long `version-trace-span-flags` is in the version that everybody knows.
const LENGTH: usize = 55;
/// The longest `tracestate` that must be passed on, and how many members it has at most.
const STATE_MAX: usize = 512;
const STATE_MEMBERS: usize = 32;
/// The same for `baggage`.
const BAGGAGE_MAX: usize = 8192;
const BAGGAGE_MEMBERS: usize = 180;

// === impl TraceParent ===

impl TraceParent {
    /// Reads one. A version to come is read as far as this one goes, as the recommendation wants it.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.is_ascii() || text.len() < LENGTH {
            return None;
        }
        let (known, more) = text.split_at(LENGTH);
        let mut parts = known.split('-');
        let [version] = hex(parts.next()?)?;
        let (trace, span, [flags]) = (hex(parts.next()?)?, hex(parts.next()?)?, hex(parts.next()?)?);
        let is_whole = if version == 0 { more.is_empty() } else { more.is_empty() || more.starts_with('-') };
        let is_valid = version != 0xff && trace != [0; 16] && span != [0; 8];
        (is_valid && is_whole && parts.next().is_none()).then_some(Self { trace, span, flags })
    }

    /// Whether whoever made it records the trace.
    pub fn is_sampled(self) -> bool {
        self.flags & 1 == 1
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", Hex(&self.trace), Hex(&self.span), self.flags)
    }
}

/// Bytes as lower-case digits.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Exactly so many bytes, in lower-case digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Whether a text is a `tracestate`.
pub fn is_state(text: &str) -> bool {
    let is_key = |key: &str| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-*/@".contains(c);
        key.len() <= 256 && key.starts_with(|c: char| c.is_ascii_alphanumeric()) && key.chars().all(known)
    };
    let is_value =
        |value: &str| !value.is_empty() && value.bytes().all(|b| (0x20..=0x7e).contains(&b) && b != b'=');
    is_list(text, STATE_MAX, STATE_MEMBERS, |key, value| is_key(key) && is_value(value))
}

/// Whether a text is a `baggage`.
pub fn is_baggage(text: &str) -> bool {
    let is_token = |key: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        !key.is_empty() && key.chars().all(known)
    };
    let is_value = |value: &str| value.bytes().all(|b| (0x20..=0x7e).contains(&b) && !b"\"\\".contains(&b));
    is_list(text, BAGGAGE_MAX, BAGGAGE_MEMBERS, |key, value| is_token(key.trim_end()) && is_value(value))
}

/// Members with commas between them; a few may be empty.
fn is_list(text: &str, longest: usize, most: usize, is_member: impl Fn(&str, &str) -> bool) -> bool {
    let members = text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|m| !m.is_empty());
    let is_good = |member: &str| member.split_once('=').is_some_and(|(key, value)| is_member(key, value));
    let mut count = 0;
    text.len() <= longest && members.inspect(|_| count += 1).all(is_good) && (1..=most).contains(&count)
}
