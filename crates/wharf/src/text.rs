//! Text from outside, made safe to show.
//!
//! In: any string that a server, a file or a person produced. Out: the same text with everything that could
//! drive a terminal or hide from the eye written as an escape. Nothing is cut or judged here; the scan does that.

use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Text that a server sent. It can be read as it is by code, and shows itself escaped.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Foreign(Arc<str>);

/// Shows a text on one line, with control, bidirectional, zero-width and tag characters as `\u{…}`.
#[derive(Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

/// Like [`Escaped`], but line breaks and tabs stay, for text of several lines.
#[derive(Clone, Copy)]
pub struct EscapedLines<'a>(pub &'a str);

/// Whether a character is written as an escape: it moves the cursor, reorders the line, or cannot be seen.
///
/// Beside the control characters these are Unicode's default-ignorable characters and line separators. U+FE0F stays: it
/// only asks for the coloured form of the emoji before it.
pub fn is_unsafe_to_show(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

// === impl Foreign ===

impl Foreign {
    /// Wraps a text from outside.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text as it came, for code that compares or forwards it. Do not print it.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// The text with its line breaks, safe to print.
    pub fn lines(&self) -> EscapedLines<'_> {
        EscapedLines(&self.0)
    }
}

impl From<&str> for Foreign {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Foreign {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.0).fmt(f)
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Escaped(&self.0))
    }
}

// === impl Escaped ===

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(f, self.0, |_| false)
    }
}

impl fmt::Debug for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl fmt::Display for EscapedLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(f, self.0, |c| c == '\n' || c == '\t')
    }
}

impl fmt::Debug for EscapedLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(self.0).fmt(f)
    }
}

/// The beginning of a text, for a message that must not repeat all of it.
pub(crate) fn beginning(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str, keep: impl Fn(char) -> bool) -> fmt::Result {
    let mut plain_from = 0;
    for (at, c) in text.char_indices() {
        if is_unsafe_to_show(c) && !keep(c) {
            f.write_str(&text[plain_from..at])?;
            match c {
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_char(' ')?,
                _ => write!(f, "{}", c.escape_unicode())?,
            }
            plain_from = at + c.len_utf8();
        }
    }
    f.write_str(&text[plain_from..])
}
