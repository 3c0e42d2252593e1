//! What a call came to.
//!
//! In: the raw result of a server, or the error that ended the call. Out: an [`Outcome`] that says whether it went well
//! and why not, with everything the server sent still in it. The content is read when it is asked for: the way of a
//! call only looks whether the result is a result. Size caps and stored results come with the store.

mod text;

use std::time::Duration;

use serde::Deserialize;

use crate::error::{Error, Result, StderrTail};
use crate::mcp::Content;
use crate::names::{ServerName, ToolName};
use crate::wire::Json;

/// What a call came to: a value in every case, or a typed error by [`Outcome::into_result`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The server; `None` where none was found.
    pub server: Option<ServerName>,
    /// The tool, by its original name; `None` where none was found.
    pub tool: Option<ToolName>,
    /// How long it took.
    pub took: Duration,
    /// Whether the tool ran and says it succeeded.
    pub success: bool,
    /// Why not, in words, escaped. `None` when it succeeded.
    pub reason: Option<String>,
    /// What ended the call, where it was not the tool's own answer.
    pub error: Option<Box<Error>>,
    /// The result as the server wrote it; `null` where there is none.
    pub raw: Json,
}

/// The longest reason that is made of a result's text.
const REASON_MAX: usize = 2000;

// === impl Outcome ===

impl Outcome {
    /// Takes a server's answer to `tools/call`. An answer that is no result becomes an outcome with a protocol error.
    pub fn from_result(server: ServerName, tool: ToolName, raw: Json) -> Self {
        match check(&raw) {
            Err(reason) => {
                let stderr = StderrTail::default();
                let error = Error::Protocol { server: server.clone(), reason, sent: true, stderr };
                Self { raw, ..Self::from_error(server, tool, error) }
            }
            Ok(is_error) => {
                let mut outcome = Self {
                    server: Some(server),
                    tool: Some(tool),
                    took: Duration::ZERO,
                    success: !is_error,
                    reason: None,
                    error: None,
                    raw,
                };
                if is_error {
                    outcome.reason = Some(outcome.failure());
                }
                outcome
            }
        }
    }

    /// Takes an answer that is no end of the matter: a question or a task, passed on to a caller who can go on with it.
    pub(crate) fn unfinished(server: ServerName, tool: ToolName, raw: Json) -> Self {
        let (server, tool) = (Some(server), Some(tool));
        Self { server, tool, took: Duration::ZERO, success: true, reason: None, error: None, raw }
    }

    /// Takes the error that ended a call, or kept it from being sent.
    pub fn from_error(server: ServerName, tool: ToolName, error: Error) -> Self {
        Self { server: Some(server), tool: Some(tool), ..Self::not_found(error) }
    }

    /// Takes the error of a call for which no tool was found.
    pub fn not_found(error: Error) -> Self {
        let (reason, raw) = (Some(error.to_string()), Json::null());
        let (took, error) = (Duration::ZERO, Some(Box::new(error)));
        Self { server: None, tool: None, took, success: false, reason, error, raw }
    }

    /// The same, with how long it took.
    #[must_use]
    pub fn after(self, took: Duration) -> Self {
        Self { took, ..self }
    }

    /// Whether the tool ran and says that it failed (`isError`).
    pub fn is_error(&self) -> bool {
        !self.success && self.error.is_none()
    }

    /// The blocks of the result, every kind, in order. What has no known kind is kept whole. Reads them anew each time.
    pub fn content(&self) -> Vec<Content> {
        #[derive(Deserialize)]
        struct Blocks(Vec<Json>);
        let blocks = self.raw.member("content").and_then(|content| content.to::<Blocks>().ok());
        blocks.map_or_else(Vec::new, |Blocks(blocks)| blocks.into_iter().map(Content::read).collect())
    }

    /// The structured result, if there is one.
    pub fn structured(&self) -> Option<Json> {
        self.raw.member("structuredContent").filter(|s| !s.is_null())
    }

    /// The result as a text: text blocks as they are, a line in brackets for anything else. The structured result stands
    /// in where there is no text. For a call that failed on the way, the reason.
    ///
    /// The text is the server's. To show it to a person, print it through [`crate::text::EscapedLines`].
    pub fn to_text(&self) -> String {
        match &self.error {
            Some(_) => self.reason.clone().unwrap_or_default(),
            None => text::of(&self.content(), self.structured()),
        }
    }

    /// For callers that want a typed error: what failed on the way as it was, a tool's own failure as
    /// [`Error::ToolFailed`].
    pub fn into_result(self) -> Result<Self> {
        match (self.error, self.server, self.tool) {
            (Some(error), _, _) => Err(*error),
            (None, Some(server), Some(tool)) if !self.success => {
                Err(Error::ToolFailed { server, tool, message: self.reason.unwrap_or_default() })
            }
            (error, server, tool) => Ok(Self { error, server, tool, ..self }),
        }
    }

    /// The words of a result with `isError`, escaped and cut.
    fn failure(&self) -> String {
        let said = self.to_text();
        let said = said.trim();
        if said.is_empty() {
            return "the tool reported an error and gave no reason".into();
        }
        let cut: String = said.chars().take(REASON_MAX).collect();
        let more = if cut.len() < said.len() { "…" } else { "" };
        format!("{}{more}", crate::text::EscapedLines(&cut))
    }
}

/// Whether the raw answer is a result, and what its `isError` says. Looks at the outermost members only.
fn check(raw: &Json) -> Result<bool, String> {
    if !raw.is_object() {
        return Err("the result of `tools/call` is not an object".into());
    }
    let [kind, content, is_error] = raw.peek(["resultType", "content", "isError"]);
    if let Some(kind) = kind.filter(|k| k != b"\"complete\"") {
        let kind: String = String::from_utf8_lossy(kind).chars().take(80).collect();
        let shown = crate::text::Escaped(&kind);
        return Err(format!("the result of `tools/call` has the unknown `resultType` {shown}"));
    }
    // A result without `content` is against the protocol, but the tool ran: it is taken as an empty one.
    if content.is_some_and(|c| c.first() != Some(&b'[')) {
        return Err("the `content` of the result is not a list".into());
    }
    match is_error {
        None | Some(b"false" | b"null") => Ok(false),
        Some(b"true") => Ok(true),
        Some(_) => Err("the `isError` of the result is neither true nor false".into()),
    }
}
