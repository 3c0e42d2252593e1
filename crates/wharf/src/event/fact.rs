//! What must be on record: facts, as compact as the way of a call can afford.
//!
//! In: whatever a room decides or does. Out: a [`Fact`] that costs a few references to make. It is written out, hashed
//! and redacted by whoever keeps the record, not here.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::Redacted;
use crate::error::Error;
use crate::names::{CallerName, ServerName, ToolName};
use crate::secret::may_hold_credential;
use crate::text::Foreign;

/// Something that must be on record.
#[derive(Clone, Debug)]
pub struct Fact {
    /// When.
    pub at: SystemTime,
    /// What kind of thing.
    pub kind: Kind,
    /// Who wanted it.
    pub caller: Option<CallerName>,
    /// The number of the session it was wanted in; none for the program itself.
    pub session: Option<u64>,
    /// The server, or the set of local tools.
    pub server: Option<ServerName>,
    /// The tool, or the method of what is no tool.
    pub tool: Option<Named>,
    /// What was decided.
    pub verdict: Option<Verdict>,
    /// By which rule.
    pub rule: Option<String>,
    /// How it ended: `ok`, or the kind of an error.
    pub outcome: Option<&'static str>,
    /// How long it took.
    pub took: Option<Duration>,
    /// With which arguments.
    pub arguments: Option<Arguments>,
    /// Why, in words, escaped.
    pub reason: Option<String>,
}

/// What kind of thing is on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A call that has ended, or was refused: exactly one for each call.
    Call,
    /// A call that was under way when the record was last written. Its end follows, unless the program died.
    Begin,
    /// Somebody was asked, and answered, or has yet to.
    Ask,
    /// An operator answered a call that waits, and not by being asked.
    Answer,
    /// Something of a server other than a tool was used.
    Use,
    /// A program was started, or was not allowed to be.
    Launch,
    /// A program ended.
    Stop,
    /// A connection was made, or could not be, or was not allowed to be.
    Connect,
    /// A connection was lost, and is made again.
    Lost,
    /// A tool that a server offers cannot be used.
    Reject,
    /// Somebody was not let in at the gateway, or wanted too much at a time: the first from its source, or how many more.
    Barred,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// It may not.
    Deny,
}

/// A name that was checked, or one that was not.
#[derive(Clone, PartialEq, Eq)]
pub enum Named {
    /// A tool by its original name.
    Tool(ToolName),
    /// Whatever it was called.
    Raw(Foreign),
}

/// Arguments as they go on record: small ones whole, to be redacted; of others the digest.
#[derive(Clone)]
pub struct Arguments {
    size: usize,
    body: Body,
}

#[derive(Clone)]
enum Body {
    Whole(Redacted),
    Digest([u8; 32]),
}

/// The largest arguments that are kept on record; of larger ones there are digest and size. Facts wait for the disk:
/// what they hold stays in memory until then.
pub const LARGEST_SHOWN: usize = 4 * 1024;
/// The longest reason that is kept, in characters.
const LONGEST_REASON: usize = 500;

// === impl Fact ===

impl Fact {
    /// A fact of now, of which nothing more is known.
    pub fn new(kind: Kind) -> Self {
        Self {
            at: SystemTime::now(),
            kind,
            caller: None,
            session: None,
            server: None,
            tool: None,
            verdict: None,
            rule: None,
            outcome: None,
            took: None,
            arguments: None,
            reason: None,
        }
    }

    /// A connection was made, or not. A program that may not be started is a start that was refused.
    pub(crate) fn of_opening(server: &ServerName, starts: bool, failed: Option<&Error>) -> Self {
        match failed {
            None => Self { outcome: Some("ok"), ..Self::new(Kind::Connect).of(server).allowed() },
            Some(error @ (Error::CommandNotAllowed { .. } | Error::Denied { .. })) if starts => {
                Self::new(Kind::Launch).of(server).failed(error)
            }
            Some(error) => Self::new(Kind::Connect).of(server).failed(error),
        }
    }

    /// The same, about a server.
    #[must_use]
    #[inline]
    pub fn of(mut self, server: &ServerName) -> Self {
        self.server = Some(server.clone());
        self
    }

    /// The same, about a tool.
    #[must_use]
    #[inline]
    pub fn tool(mut self, tool: &ToolName) -> Self {
        self.tool = Some(Named::Tool(tool.clone()));
        self
    }

    /// The same, for a caller and its session.
    #[must_use]
    #[inline]
    pub fn by(mut self, caller: &CallerName, session: Option<u64>) -> Self {
        self.caller = Some(caller.clone());
        self.session = session;
        self
    }

    /// The same, allowed.
    #[must_use]
    #[inline]
    pub fn allowed(mut self) -> Self {
        self.verdict = Some(Verdict::Allow);
        self
    }

    /// The same, ended by an error. One that is a rule's no is a decision.
    #[must_use]
    pub fn failed(mut self, error: &Error) -> Self {
        self.outcome = Some(error.kind());
        match error.cause() {
            Error::Denied { rule, .. } | Error::Withheld { rule, .. } => {
                self.verdict = Some(Verdict::Deny);
                self.rule = Some(rule.clone());
            }
            Error::CommandNotAllowed { .. } => self.verdict = Some(Verdict::Deny),
            _ => {}
        }
        self.because(&error.to_string())
    }

    /// The same, with a reason in words.
    #[must_use]
    pub fn because(mut self, reason: &str) -> Self {
        self.reason = Some(reason.chars().take(LONGEST_REASON).collect());
        self
    }
}

// === impl Kind ===

impl Kind {
    /// The kind in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Begin => "begin",
            Self::Ask => "ask",
            Self::Answer => "answer",
            Self::Use => "use",
            Self::Launch => "launch",
            Self::Stop => "stop",
            Self::Connect => "connect",
            Self::Lost => "lost",
            Self::Reject => "reject",
            Self::Barred => "barred",
        }
    }
}

// === impl Verdict ===

impl Verdict {
    /// The verdict in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

// === impl Named ===

impl Named {
    /// The name as it was given.
    pub fn raw(&self) -> &str {
        match self {
            Self::Tool(tool) => tool.as_str(),
            Self::Raw(name) => name.raw(),
        }
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::text::Escaped(self.raw()).fmt(f)
    }
}

// === impl Arguments ===

impl Arguments {
    /// Takes arguments. Large ones are hashed here and let go.
    pub fn new(arguments: Redacted) -> Self {
        let size = arguments.json.bytes().len();
        let body = match size <= LARGEST_SHOWN {
            true => Body::Whole(arguments),
            false => Body::Digest(digest(arguments.json.bytes())),
        };
        Self { size, body }
    }

    /// How many bytes they are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Their SHA-256.
    pub fn digest(&self) -> [u8; 32] {
        match &self.body {
            Body::Whole(arguments) => digest(arguments.json.bytes()),
            Body::Digest(digest) => *digest,
        }
    }

    /// What may be seen of them, as JSON on one line; `None` if they are large. What holds no secret is as it was.
    pub fn to_shown(&self) -> Option<Cow<'_, str>> {
        let shown = self.shown()?;
        let text = shown.json.as_str();
        let as_it_was = memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none()
            && !may_hold_credential(text)
            && matches!(shown.redactor.redact(text), Cow::Borrowed(_));
        Some(if as_it_was { Cow::Borrowed(text) } else { Cow::Owned(shown.to_value().to_string()) })
    }

    /// What may be seen of them; `None` if they are large.
    pub fn shown(&self) -> Option<&Redacted> {
        match &self.body {
            Body::Whole(arguments) => Some(arguments),
            Body::Digest(_) => None,
        }
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown() {
            Some(shown) => fmt::Debug::fmt(shown, f),
            None => write!(f, "{} bytes", self.size),
        }
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
