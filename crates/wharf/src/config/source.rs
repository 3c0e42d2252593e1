//! The text of one file, and the maker of its problems.
//!
//! In: a path, a text, the tree it was read into. Out: problems whose line is safe to show. What may be a secret is
//! masked character by character, so that the caret still stands under the right column: every value of `env` and
//! `headers`, what looks like a credential, and, while the file is not even readable, every value at all.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::secret::{is_credential_name, is_credential_value};
use crate::text::is_unsafe_to_show;

use super::edit::Format;
use super::node::{Node, Span, Value};
use super::problem::{Place, Problem};
use super::{args, format_json, format_toml};

/// The text of one file.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    text: String,
    /// Parts that are masked when their line is shown.
    hidden: Vec<Span>,
}

/// The tables whose values are secrets, whatever they look like.
const SECRET_TABLES: [&str; 9] = [
    "env",
    "environment",
    "envs",
    "headers",
    "http_headers",
    "oauth",
    "auth",
    "authentication",
    "requestOptions",
];
/// How much of a long line is shown on each side of the caret.
const WINDOW: usize = 60;

impl Source {
    /// Reads a text into its tree. The error is about the file as a whole.
    pub(super) fn parse(path: &Path, format: Format, text: String) -> Result<(Self, Node), Box<Problem>> {
        let parsed = match format {
            Format::Toml => format_toml::parse(&text),
            Format::Json => format_json::parse(&text),
        };
        let mut source = Self { path: path.to_owned(), format, text, hidden: Vec::new() };
        match parsed {
            Ok(tree) => {
                source.hide(&tree, false);
                Ok((source, tree))
            }
            Err((span, message)) => {
                source.hide_values_of_line(span.start);
                Err(Box::new(source.problem(&span, message)))
            }
        }
    }

    /// A problem at a place.
    pub(super) fn problem(&self, span: &Span, message: impl Into<String>) -> Problem {
        let place = Some(self.place(span));
        Problem { message: message.into(), file: self.path.clone(), place, server: None, hint: None }
    }

    /// The line of a byte, counted from 1.
    pub(super) fn line_of(&self, at: usize) -> usize {
        self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|b| **b == b'\n').count() + 1
    }

    /// The part of a value's place where a needle stands, or the whole place if the value spells it otherwise.
    pub(super) fn narrow(&self, span: &Span, needle: &str) -> Span {
        match self.text.get(span.clone()).and_then(|raw| raw.find(needle)) {
            Some(at) => span.start + at..span.start + at + needle.len(),
            None => span.clone(),
        }
    }

    fn line_span(&self, at: usize) -> Span {
        let at = at.min(self.text.len());
        let bytes = self.text.as_bytes();
        let start = bytes[..at].iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        let end = bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n);
        start..end
    }

    fn place(&self, span: &Span) -> Place {
        let line = self.line_span(span.start);
        let mut chars: Vec<char> = Vec::new();
        let mut caret: Range<usize> = 0..0;
        for (offset, c) in self.text[line.clone()].char_indices() {
            let at = line.start + offset;
            if at < span.start {
                caret.start += 1;
            }
            if at < span.end {
                caret.end += 1;
            }
            let masked = self.hidden.iter().any(|hidden| hidden.contains(&at));
            chars.push(match c {
                '\t' | '\r' => ' ',
                _ if masked => '*',
                c if is_unsafe_to_show(c) => '\u{fffd}',
                c => c,
            });
        }
        let column = caret.start + 1;
        let from = caret.start.saturating_sub(WINDOW);
        let to = (caret.start + WINDOW).min(chars.len()).max(from);
        let mut source: String = chars[from..to].iter().collect();
        let mut shift = from;
        if from > 0 {
            source.insert(0, '…');
            shift -= 1;
        }
        if to < chars.len() {
            source.push('…');
        }
        let start = caret.start - shift;
        let end = (caret.end.min(to).max(caret.start) - shift).max(start + 1);
        Place {
            line: self.line_of(span.start),
            column,
            source: source.trim_end().to_owned(),
            caret: start..end,
        }
    }

    /// Remembers what must be masked in a tree.
    fn hide(&mut self, node: &Node, secret: bool) {
        match &node.value {
            Value::Text(text) if secret || is_credential_value(text) || args::carries_credential(text) => {
                self.hide_text(&node.span);
            }
            Value::Number(..) if secret => self.hidden.push(node.span.clone()),
            Value::List(items) => {
                let words: Vec<&str> = items.iter().map(|item| item.as_text().unwrap_or_default()).collect();
                for (at, item) in items.iter().enumerate() {
                    let after_flag = at > 0 && args::is_credential_flag(words[at - 1]);
                    self.hide(item, secret || after_flag);
                }
            }
            Value::Table(entries) => {
                for entry in entries {
                    let named = SECRET_TABLES.contains(&entry.key.as_str());
                    let named = named || (entry.node.as_text().is_some() && is_credential_name(&entry.key));
                    self.hide(&entry.node, secret || named);
                }
            }
            _ => {}
        }
    }

    /// Masks a string but its quotes and the names of the variables in it.
    fn hide_text(&mut self, span: &Span) {
        let Some(raw) = self.text.get(span.clone()) else {
            return;
        };
        let is_reference = raw.trim_matches(['"', '\'']).starts_with("env:");
        if is_reference {
            return;
        }
        let mut from = raw.find(|c| c != '"' && c != '\'').unwrap_or(raw.len());
        let end = raw.trim_end_matches(['"', '\'']).len();
        while let Some(open) = raw.get(from..end).and_then(|rest| rest.find("${")).map(|at| from + at) {
            self.hidden.push(span.start + from..span.start + open);
            let name = raw[open + 2..end].find([':', '}']).map_or(end, |at| open + 2 + at);
            let name = if raw[open..].starts_with("${env:") {
                raw[open + 6..end].find([':', '}']).map_or(end, |at| open + 6 + at)
            } else {
                name
            };
            from = name;
        }
        if from < end {
            self.hidden.push(span.start + from..span.start + end);
        }
    }

    /// Masks everything on a line of an unreadable file that is not a key, a number or punctuation.
    fn hide_values_of_line(&mut self, at: usize) {
        let line = self.line_span(at);
        let text = &self.text[line.clone()];
        if self.format == Format::Toml
            && text.trim_start().starts_with('[')
            && !text.contains(['=', '"', '\''])
        {
            return;
        }
        let bytes = text.as_bytes();
        let mut hidden = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let start = at;
            let quote = bytes[at];
            let inner = if quote == b'"' || quote == b'\'' {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at = at.min(bytes.len());
                let inner = start + 1..at;
                at = (at + 1).min(bytes.len());
                inner
            } else if is_word(quote) {
                while at < bytes.len() && is_word(bytes[at]) {
                    at += 1;
                }
                start..at
            } else {
                at += 1;
                continue;
            };
            // A bare secret may itself hold `=`: only what stands before the line's first one is a key.
            let rest = text[at..].trim_start();
            let is_key = match self.format {
                Format::Toml => rest.starts_with('=') && !text[..start].contains('='),
                Format::Json => rest.starts_with(':') && quote == b'"',
            };
            let is_plain = matches!(&text[inner.clone()], "true" | "false" | "null");
            if !is_key && !is_plain {
                hidden.push(line.start + inner.start..line.start + inner.end);
            }
        }
        self.hidden.extend(hidden);
    }
}

/// Whether a byte continues a bare word. Bytes beyond ASCII do, so that a word never ends inside a character.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'+' | b'/') || byte >= 0x80
}
