//! The text of one file, and the maker of its problems.
//!
//! In: a path, a text, the tree it was read into. Out: problems whose line is safe to show. What may be a secret is
//! masked character by character, so that the caret still stands under the right column: every value of `env` and
//! `headers`, what looks like a credential, and, while the file is not even readable, every value at all.

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
    /// Where each line starts.
    lines: Vec<usize>,
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
        let lines =
            std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
        let mut source = Self { path: path.to_owned(), format, text, lines, hidden: Vec::new() };
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
        self.lines.partition_point(|start| *start <= at)
    }

    /// The part of a value's place where a needle stands, or the whole place if the value spells it otherwise.
    pub(super) fn narrow(&self, span: &Span, needle: &str) -> Span {
        match self.text.get(span.clone()).and_then(|raw| raw.find(needle)) {
            Some(at) => span.start + at..span.start + at + needle.len(),
            None => span.clone(),
        }
    }

    fn line_span(&self, at: usize) -> Span {
        let line = self.line_of(at);
        let end = self.lines.get(line).map_or(self.text.len(), |next| next - 1);
        self.lines[line - 1]..end
    }

    fn place(&self, span: &Span) -> Place {
        let line = self.line_span(span.start);
        let from = span.start.clamp(line.start, line.end);
        // Only what is near the caret is looked at: a line may be the whole file.
        let (before, after) = (&self.text[line.start..from], &self.text[from..line.end]);
        let window_from =
            before.char_indices().rev().nth(WINDOW - 1).map_or(line.start, |(at, _)| line.start + at);
        let window_to = after.char_indices().nth(WINDOW).map_or(line.end, |(at, _)| from + at);
        let near = |hidden: &&Span| hidden.start < window_to && window_from < hidden.end;
        let hidden: Vec<&Span> = self.hidden.iter().filter(near).collect();
        let mut source = String::new();
        let mut caret = 0..0;
        if window_from > line.start {
            source.push('…');
            caret = 1..1;
        }
        for (offset, c) in self.text[window_from..window_to].char_indices() {
            let at = window_from + offset;
            caret.start += usize::from(at < span.start);
            caret.end += usize::from(at < span.end);
            source.push(match c {
                '\t' | '\r' => ' ',
                _ if hidden.iter().any(|hidden| hidden.contains(&at)) => '*',
                c if is_unsafe_to_show(c) => '\u{fffd}',
                c => c,
            });
        }
        if window_to < line.end {
            source.push('…');
        }
        let column = before.chars().count() + 1;
        let caret = caret.start..caret.end.max(caret.start + 1);
        Place { line: self.line_of(span.start), column, source: source.trim_end().to_owned(), caret }
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
            from = name + usize::from(raw[name..end].starts_with('}'));
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
