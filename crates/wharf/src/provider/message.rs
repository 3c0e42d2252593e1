//! A tool's result in a form that belongs to no provider.
//!
//! In: a call and its outcome. Out: a [`ToolMessage`] of checked parts, from which every provider's own form is made.
//! The text is a server's and goes into a prompt: what cannot be seen in it is written as an escape.

use std::fmt::Write as _;

use super::calls::ToolCall;
use super::media::{self, Format};
use crate::error::Error;
use crate::mcp::Content;
use crate::names::{ServerName, ToolName};
use crate::outcome::Outcome;
use crate::text::{EscapedLines, Foreign, is_unsafe_to_show};
use crate::wire::Json;

/// The result of one call, for the model that made it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolMessage {
    /// The id of the call, where the provider has ids.
    pub call_id: Option<String>,
    /// The name that the model called.
    pub name: String,
    /// Whose tool it was, if one was found.
    pub tool: Option<(ServerName, ToolName)>,
    /// The arguments that it was called with, if they could be read.
    pub arguments: Option<Json>,
    /// Whether it failed: the tool says so, or it never came to an answer.
    pub is_error: bool,
    /// What it came to. Never empty.
    pub parts: Vec<Part>,
}

/// A piece of a result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// Text, escaped where it could hide something.
    Text(String),
    /// A structured result that has no text beside it.
    Structured(Json),
    /// A picture or a document.
    Data {
        /// What its bytes are.
        format: Format,
        /// The bytes in base64, with padding and without line breaks.
        base64: String,
    },
}

// === impl ToolMessage ===

impl ToolMessage {
    /// Puts a call and its outcome together.
    pub fn new(call: &ToolCall, outcome: &Outcome) -> Self {
        let mut parts = match &outcome.error {
            Some(error) => vec![Part::Text(failure(error))],
            None => of_result(outcome),
        };
        parts.retain(|part| !matches!(part, Part::Text(text) if text.trim().is_empty()));
        if parts.is_empty() {
            let nothing = if outcome.success {
                "the tool succeeded and returned nothing"
            } else {
                "the tool failed and gave no reason"
            };
            parts.push(Part::Text(nothing.into()));
        }
        Self {
            call_id: call.id.clone(),
            name: call.name.raw().to_owned(),
            tool: call.route.as_ref().map(|route| (route.server.clone(), route.tool.name.clone())),
            arguments: call.arguments.clone(),
            is_error: !outcome.success,
            parts,
        }
    }

    /// The text of all parts; pictures and documents as a line in brackets.
    pub fn to_text(&self) -> String {
        self.parts.iter().map(Part::to_text).collect::<Vec<_>>().join("\n")
    }
}

// === impl Part ===

impl Part {
    /// The part as text, for providers and places that take nothing else.
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Structured(json) => visible_json(json.as_str()),
            Self::Data { format, base64 } => {
                format!("[{}, {} bytes of base64, not shown]", format.mime(), base64.len())
            }
        }
    }
}

/// What a server answered, block by block.
fn of_result(outcome: &Outcome) -> Vec<Part> {
    let content = outcome.content();
    let has_text = content.iter().any(|block| matches!(block, Content::Text { .. }));
    let mut parts: Vec<Part> = content.iter().map(of_block).collect();
    // Beside text it is the same again: servers write it twice for clients that know only text.
    parts.extend(outcome.structured().filter(|_| !has_text).map(Part::Structured));
    parts
}

fn of_block(block: &Content) -> Part {
    let text = match block {
        Content::Text { text, .. } => visible(text.raw()),
        Content::Image { data, mime_type, .. } => return data_or_words("image", mime_type, data),
        Content::Audio { data, mime_type, .. } => {
            words("audio", mime_type, data, "models cannot hear it here")
        }
        Content::Resource { uri, text: Some(text), .. } => {
            format!("[resource {uri}]\n{}", visible(text.raw()))
        }
        Content::Resource { uri, mime_type, blob: Some(blob), .. } => {
            let mime = mime_type.clone().unwrap_or_default();
            return data_or_words(&format!("resource {uri}"), &mime, blob);
        }
        Content::Resource { uri, .. } => format!("[resource {uri}, without its contents]"),
        Content::ResourceLink { uri, name, .. } if name.raw().is_empty() => format!("[link {uri}]"),
        Content::ResourceLink { uri, name, .. } => format!("[link {name}: {uri}]"),
        Content::Unknown { kind, raw } => {
            let kind = Foreign::from(crate::text::beginning(kind.raw(), 40));
            format!("[a block of the unknown kind `{kind}`, {} bytes]", raw.bytes().len())
        }
    };
    Part::Text(text)
}

/// A picture or a document if its bytes are one, else a line that says what it is.
fn data_or_words(what: &str, mime_type: &Foreign, base64: &Foreign) -> Part {
    match media::check(base64.raw()) {
        Ok((format, base64)) => Part::Data { format, base64 },
        Err(why) => Part::Text(words(what, mime_type, base64, why)),
    }
}

fn words(what: &str, mime_type: &Foreign, base64: &Foreign, why: &str) -> String {
    let mime = Foreign::from(crate::text::beginning(mime_type.raw(), 80));
    format!("[{what} {mime}, {} bytes of base64, left out: {why}]", base64.raw().len())
}

/// Text of several lines with what cannot be seen as an escape. Line ends stay as they are.
fn visible(text: &str) -> String {
    let lines: Vec<String> = text.split("\r\n").map(|line| EscapedLines(line).to_string()).collect();
    lines.join("\r\n")
}

/// The same for JSON, whose own escapes keep it valid.
pub(super) fn visible_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe_to_show(c) && !c.is_ascii_whitespace() {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a `String` cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// An error in words for a model: what happened, and whether it makes sense to call again.
fn failure(error: &Error) -> String {
    format!("{}\n{}", visible(&error.to_string()), visible(&advice(error)))
}

fn advice(error: &Error) -> String {
    let hint = error.hint();
    let own = || hint.clone().unwrap_or_default();
    match error {
        Error::Arguments { .. } | Error::UnknownTool { .. } | Error::UnknownOutcome { .. } => own(),
        Error::Connection { retryable: true, .. } | Error::Busy { .. } | Error::Overloaded { .. } => own(),
        Error::Timeout { sent: true, .. } | Error::Protocol { sent: true, .. } => {
            "the tool may have run: check its effect before you call it again".into()
        }
        Error::Conflict { .. } | Error::Withheld { .. } | Error::Begun(_) => own(),
        Error::Tool { .. } | Error::ToolFailed { .. } => {
            "the same call will most likely fail again; correct it or do without".into()
        }
        Error::Denied { .. }
        | Error::CommandNotAllowed { .. }
        | Error::Auth { .. }
        | Error::Login { .. }
        | Error::Config { .. }
        | Error::NotConnected { .. }
        | Error::UnknownServer { .. } => match hint {
            Some(hint) => format!("nothing was run, and the same call will fail again. What helps: {hint}"),
            None => "nothing was run, and the same call will fail again".into(),
        },
        Error::Cancelled { .. } => "do not call it again unless you are asked to".into(),
        error if error.may_have_run() => {
            "the tool may have run, and calling it again will not help now".into()
        }
        _ => "nothing was run, and calling it again will not help now".into(),
    }
}
