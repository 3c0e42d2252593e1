//! What can go wrong, in words for the person or model who must act on it.
//!
//! Every error says what happened, whose side it is on, whether a retry helps, and the next step.
//! It stands in the vocabulary because every room below returns it (`docs/decisions/0002-one-error-type.md`).

mod advice;

use std::fmt;
use std::time::Duration;

use crate::names::{BadName, ServerName, ToolName};
use crate::text::Foreign;
use crate::wire::RpcError;

/// The result of everything that can fail in Wharf.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The same on the way of a call, where every result is handed on many times and few of them are errors: those are put
/// aside, so that the others are small.
pub(crate) type Light<T> = std::result::Result<T, Box<Error>>;

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Whoever asked: wrong arguments, a wrong name, a configuration that does not say what was meant.
    Caller,
    /// Wharf itself, or the machine it runs on.
    Us,
    /// The MCP server.
    Server,
}

/// Why something was not done, or not finished.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration file, or a value in it, is not usable.
    #[error("{message}")]
    Config {
        /// What is wrong and where.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The command of a server may not be started.
    #[error("server `{server}`: command `{command}` is not allowed: {reason}")]
    CommandNotAllowed {
        /// The server whose command it is.
        server: ServerName,
        /// The command as it was written.
        command: String,
        /// Which rule refused it, and what is allowed instead.
        reason: String,
        /// How a person allows it.
        hint: String,
    },
    /// A rule forbids it.
    #[error("{what}: denied by {rule}")]
    Denied {
        /// What was asked for.
        what: String,
        /// The rule that said no.
        rule: String,
        /// How a person allows it.
        hint: String,
    },
    /// A rule keeps the result of a call from whoever made it. The tool has run.
    #[error("{what}: denied by {rule}")]
    Withheld {
        /// What is kept back.
        what: String,
        /// The rule that said no.
        rule: String,
        /// How a person allows it.
        hint: String,
    },
    /// A server that has to run confined cannot be: nothing was started.
    #[error("server `{server}` cannot be confined: {reason}")]
    Sandbox {
        /// The server.
        server: ServerName,
        /// What is missing, or what its profile wrongly asks for.
        reason: String,
        /// How it is put right, or turned off.
        hint: String,
    },
    /// Somebody must allow the call, and nobody has said anything yet. Nothing was sent.
    #[error("tool `{tool}` of `{server}` waits for somebody's approval, number {id}")]
    Unapproved {
        /// The server.
        server: ServerName,
        /// The tool, by its original name.
        tool: ToolName,
        /// By which it is answered.
        id: u64,
    },
    /// A connection could not be made, or broke while nothing of the caller's was under way.
    #[error("server `{server}` ({transport}): {reason}{stderr}")]
    Connection {
        /// The server.
        server: ServerName,
        /// `stdio`, `http` or `sse`.
        transport: &'static str,
        /// What happened.
        reason: String,
        /// The last lines the server wrote to its standard error.
        stderr: StderrTail,
        /// Whether trying again may help.
        retryable: bool,
    },
    /// The server wants to know who is calling, and was not told.
    #[error("server `{server}` asks for authorization: {reason}")]
    Auth {
        /// The server.
        server: ServerName,
        /// What the server said.
        reason: String,
    },
    /// Nobody could be logged in at a server.
    #[error("server `{server}`: the login failed: {reason}")]
    Login {
        /// The server.
        server: ServerName,
        /// What went wrong on the way.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The call took longer than it may.
    #[error("server `{server}` did not answer within {}{stderr}", in_ms(*after))]
    Timeout {
        /// The server.
        server: ServerName,
        /// How long was waited.
        after: Duration,
        /// Whether it ended the call of a tool that was sent, which may have run.
        sent: bool,
        /// The last lines the server wrote to its standard error.
        stderr: StderrTail,
    },
    /// The server answered with a JSON-RPC error.
    #[error("server `{server}`, tool `{tool}`: {rpc}")]
    Tool {
        /// The server.
        server: ServerName,
        /// The tool, by its original name.
        tool: ToolName,
        /// The error as the server gave it.
        rpc: RpcError,
    },
    /// The tool ran, and says itself that it failed. Only for callers that want a typed error.
    #[error("server `{server}`, tool `{tool}` failed: {message}")]
    ToolFailed {
        /// The server.
        server: ServerName,
        /// The tool, by its original name.
        tool: ToolName,
        /// What the tool said, escaped.
        message: String,
    },
    /// The server answered a request other than a tool call with a JSON-RPC error.
    #[error("server `{server}`, `{method}`: {rpc}")]
    Rpc {
        /// The server.
        server: ServerName,
        /// The method that was asked for.
        method: String,
        /// The error as the server gave it.
        rpc: RpcError,
    },
    /// A tool's schema cannot be used, so the tool cannot be called safely.
    #[error("server `{server}`, tool `{tool}`: its schema cannot be used: {reason}")]
    Schema {
        /// The server.
        server: ServerName,
        /// The tool, by its original name.
        tool: ToolName,
        /// What is wrong with it.
        reason: String,
    },
    /// The arguments do not fit the tool's schema. Nothing was sent.
    #[error("server `{server}`, tool `{tool}`: {}", problems.join("; "))]
    Arguments {
        /// The server.
        server: ServerName,
        /// The tool, by its original name.
        tool: ToolName,
        /// One sentence for each wrong field.
        problems: Vec<String>,
    },
    /// No tool of that name can be called.
    #[error("unknown tool `{name}`")]
    UnknownTool {
        /// The name that was asked for.
        name: String,
        /// What it may have meant, and how to list the names.
        hint: String,
    },
    /// No server of that name is configured.
    #[error("unknown server `{name}`")]
    UnknownServer {
        /// The name that was asked for.
        name: String,
        /// What it may have meant, and how to list the names.
        hint: String,
    },
    /// The server does not have what was asked for. It was not asked to do anything.
    #[error("server `{server}` offers {what}")]
    NotOffered {
        /// The server.
        server: ServerName,
        /// What it has none of: `no resources`.
        what: String,
        /// What to do instead.
        hint: String,
    },
    /// The server has no prompt of that name, or none that can be used.
    #[error("unknown prompt `{}` of server `{server}`", crate::text::Escaped(name))]
    UnknownPrompt {
        /// The server.
        server: ServerName,
        /// The name that was asked for.
        name: String,
        /// What it may have meant.
        hint: String,
    },
    /// The arguments do not fill the gaps of a prompt. Nothing was sent.
    #[error("server `{server}`, prompt `{prompt}`: {}", problems.join("; "))]
    PromptArguments {
        /// The server.
        server: ServerName,
        /// The prompt, by the name that was asked for.
        prompt: Foreign,
        /// One sentence for each thing that is wrong.
        problems: Vec<String>,
        /// What to do instead.
        hint: String,
    },
    /// The connection is set to manual and nobody connected it.
    #[error("server `{server}` is not connected")]
    NotConnected {
        /// The server.
        server: ServerName,
    },
    /// The server broke the protocol.
    #[error("server `{server}` broke the protocol{}: {reason}{stderr}", if *sent { " after the call was sent" } else { "" })]
    Protocol {
        /// The server.
        server: ServerName,
        /// Which rule, and how.
        reason: String,
        /// Whether it ended the call of a tool that was sent, which may have run.
        sent: bool,
        /// The last lines the server wrote to its standard error.
        stderr: StderrTail,
    },
    /// The call was sent, the server went away, and nobody knows whether the tool ran.
    #[error("server `{server}`: `{method}` was sent, but its outcome is unknown: {reason}{stderr}")]
    UnknownOutcome {
        /// The server.
        server: ServerName,
        /// The method that was sent.
        method: String,
        /// How the answer was lost.
        reason: String,
        /// The last lines the server wrote to its standard error.
        stderr: StderrTail,
    },
    /// The server failed again and again, and is left alone for a while. Nothing was sent.
    #[error("server `{server}` is not asked at the moment: {reason}")]
    Unavailable {
        /// The server.
        server: ServerName,
        /// How often it failed, and how the last time.
        reason: String,
        /// When it is asked again.
        retry_after: Duration,
    },
    /// The server was sent the call, and says that it has too much to do for it now (HTTP 429).
    #[error("server `{server}` is too busy for it: {reason}")]
    Busy {
        /// The server.
        server: ServerName,
        /// What it said.
        reason: String,
        /// How long it wants to be left alone, if it says so.
        retry_after: Option<Duration>,
    },
    /// Too much is under way already for one more. Nothing was sent.
    #[error("nothing can be asked of server `{server}` at the moment: {reason}")]
    Overloaded {
        /// The server.
        server: ServerName,
        /// What there is too much of.
        reason: String,
        /// When it may be worth asking again.
        retry_after: Duration,
    },
    /// A model provider's answer is no answer.
    #[error("the answer, read as `{provider}`, cannot be used: {reason}")]
    Provider {
        /// The form that it should have.
        provider: &'static str,
        /// What is wrong with it, escaped.
        reason: String,
    },
    /// The caller gave up, or the host is closing.
    #[error("the call was cancelled: {reason}")]
    Cancelled {
        /// Who cancelled it, and why.
        reason: String,
        /// Whether it ended the call of a tool that was sent, which may have run.
        sent: bool,
    },
    /// Two calls changed the same thing at the same time, and this one came second.
    #[error("{reason}")]
    Conflict {
        /// What was changed.
        reason: String,
    },
    /// The audit log cannot be written, so nothing is done.
    #[error("nothing runs while the audit log cannot be written: {reason}")]
    Audit {
        /// Why it cannot.
        reason: String,
    },
    /// The machine or Wharf itself failed.
    #[error("{0}")]
    Internal(String),
    /// So it ended, and an earlier attempt or round of the same call was sent. Everything but whether the tool may have run is
    /// as the error inside says.
    #[error("{0}, after an earlier part of the call was sent")]
    Begun(Box<Self>),
}

/// The last lines of a server's standard error, redacted and escaped, for the end of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StderrTail {
    /// The lines, oldest first.
    pub lines: Vec<Foreign>,
    /// What they tell a person to do, where the server ran in a sandbox.
    pub advice: Option<String>,
}

// === impl Error ===

impl Error {
    /// A configuration error with no hint.
    pub fn config(message: impl Into<String>) -> Self {
        Self::Config { message: message.into(), hint: None }
    }

    /// A short, stable word for the kind of error, for programs that read `--json`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Config { .. } => "config",
            Self::CommandNotAllowed { .. } => "command_not_allowed",
            Self::Denied { .. } | Self::Withheld { .. } => "denied",
            Self::Sandbox { .. } => "sandbox",
            Self::Unapproved { .. } => "unapproved",
            Self::Connection { .. } => "connection",
            Self::Auth { .. } => "auth",
            Self::Login { .. } => "login",
            Self::Timeout { .. } => "timeout",
            Self::Tool { .. } => "tool",
            Self::ToolFailed { .. } => "tool_failed",
            Self::Rpc { .. } => "rpc",
            Self::Schema { .. } => "schema",
            Self::Arguments { .. } => "arguments",
            Self::UnknownTool { .. } => "unknown_tool",
            Self::UnknownServer { .. } => "unknown_server",
            Self::NotOffered { .. } => "not_offered",
            Self::UnknownPrompt { .. } => "unknown_prompt",
            Self::PromptArguments { .. } => "prompt_arguments",
            Self::NotConnected { .. } => "not_connected",
            Self::Protocol { .. } => "protocol",
            Self::UnknownOutcome { .. } => "unknown_outcome",
            Self::Unavailable { .. } => "unavailable",
            Self::Busy { .. } => "busy",
            Self::Overloaded { .. } => "overloaded",
            Self::Provider { .. } => "provider",
            Self::Cancelled { .. } => "cancelled",
            Self::Conflict { .. } => "conflict",
            Self::Audit { .. } => "audit",
            Self::Internal(_) => "internal",
            Self::Begun(error) => error.kind(),
        }
    }

    /// What went wrong, whatever was sent before.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Begun(error) => error,
            error => error,
        }
    }

    /// Whose fault it is.
    pub fn side(&self) -> Side {
        match self {
            Self::Config { .. }
            | Self::CommandNotAllowed { .. }
            | Self::Denied { .. }
            | Self::Withheld { .. }
            | Self::Unapproved { .. }
            | Self::Arguments { .. }
            | Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::NotOffered { .. }
            | Self::UnknownPrompt { .. }
            | Self::PromptArguments { .. }
            | Self::NotConnected { .. }
            | Self::Sandbox { .. }
            | Self::Auth { .. }
            | Self::Cancelled { .. }
            | Self::Conflict { .. }
            | Self::Provider { .. } => Side::Caller,
            Self::Connection { .. }
            | Self::Login { .. }
            | Self::Timeout { .. }
            | Self::Tool { .. }
            | Self::ToolFailed { .. }
            | Self::Rpc { .. }
            | Self::Schema { .. }
            | Self::Protocol { .. }
            | Self::Unavailable { .. }
            | Self::Busy { .. }
            | Self::UnknownOutcome { .. } => Side::Server,
            Self::Overloaded { .. } | Self::Audit { .. } | Self::Internal(_) => Side::Us,
            Self::Begun(error) => error.side(),
        }
    }
}

/// A name that a program made up is part of its configuration.
impl From<BadName> for Error {
    fn from(bad: BadName) -> Self {
        Self::config(bad.to_string())
    }
}

/// No finer than a person reads it.
fn in_ms(time: Duration) -> String {
    format!("{:?}", Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

// === impl StderrTail ===

impl fmt::Display for StderrTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return Ok(());
        }
        write!(f, "\n  its last words on stderr:")?;
        self.lines.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}
