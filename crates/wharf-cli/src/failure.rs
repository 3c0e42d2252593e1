//! Why a command did not do what was asked.
//!
//! In: errors of the library, and what goes wrong at a command line. Out: a kind, a message, a hint and an exit code,
//! which `output` prints for a person or a program.

use std::fmt;
use std::io;

use wharf::{Error, Side};

use crate::exit::Exit;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library says why. The second part is a line more, such as a tool's usage.
    Library(Box<Error>, Option<String>),
    /// Something of the command line itself.
    Own(Own),
    /// Ctrl-C.
    Interrupted,
    /// Whoever read the output has had enough.
    BrokenPipe,
    /// Everything was said already.
    Said(Exit),
}

/// A failure that the library knows nothing of.
#[derive(Debug)]
pub(crate) struct Own {
    exit: Exit,
    kind: &'static str,
    message: String,
    hint: Option<String>,
}

/// The result of everything in the command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

// === impl Failure ===

impl Failure {
    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::own(Exit::Usage, "usage", message)
    }

    /// Something else went wrong.
    pub(crate) fn general(message: impl Into<String>) -> Self {
        Self::own(Exit::General, "general", message)
    }

    /// A project's file is not trusted.
    pub(crate) fn pending(message: impl Into<String>) -> Self {
        Self::own(Exit::Denied, "pending", message)
    }

    /// Nobody is where somebody should be.
    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::own(Exit::Unreachable, "connection", message)
    }

    fn own(exit: Exit, kind: &'static str, message: impl Into<String>) -> Self {
        Self::Own(Own { exit, kind, message: message.into(), hint: None })
    }

    /// With the next step.
    pub(crate) fn hint(self, next: impl Into<String>) -> Self {
        match self {
            Self::Own(own) => Self::Own(Own { hint: Some(next.into()), ..own }),
            Self::Library(error, _) => Self::Library(error, Some(next.into())),
            other => other,
        }
    }

    /// What the shell is told.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Library(error, _) => exit_of(error),
            Self::Own(own) => own.exit,
            Self::Interrupted => Exit::Interrupted,
            Self::BrokenPipe => Exit::Ok,
            Self::Said(exit) => *exit,
        }
    }

    /// A short, stable word for programs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Library(error, _) => error.kind(),
            Self::Own(own) => own.kind,
            Self::Interrupted => "interrupted",
            Self::BrokenPipe | Self::Said(_) => "said",
        }
    }

    /// Whose fault it is, in a word.
    pub(crate) fn side(&self) -> &'static str {
        match self {
            Self::Library(error, _) => match error.side() {
                Side::Caller => "caller",
                Side::Us => "us",
                Side::Server => "server",
            },
            _ => "caller",
        }
    }

    /// Whether the same command may simply be tried again.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self, Self::Library(error, _) if error.is_retryable())
    }

    /// Whether a tool was sent the call and may have run.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self, Self::Library(error, _) if error.may_have_run())
    }

    /// The next step.
    pub(crate) fn next_step(&self) -> Option<String> {
        match self {
            Self::Library(error, _) => in_cli_words(error).or_else(|| error.hint()),
            Self::Own(own) => own.hint.clone(),
            _ => None,
        }
    }

    /// One more line for a person: a tool's usage.
    pub(crate) fn more(&self) -> Option<&str> {
        match self {
            Self::Library(_, more) => more.as_deref(),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(error, _) => error.fmt(f),
            Self::Own(own) => f.write_str(&own.message),
            Self::Interrupted => f.write_str("interrupted"),
            Self::BrokenPipe | Self::Said(_) => Ok(()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(Box::new(error), None)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::general(format!("cannot write the output: {error}")),
        }
    }
}

fn exit_of(error: &Error) -> Exit {
    match error.cause() {
        Error::Config { .. } => Exit::Config,
        Error::CommandNotAllowed { .. }
        | Error::Denied { .. }
        | Error::Withheld { .. }
        | Error::Sandbox { .. }
        | Error::Unapproved { .. } => Exit::Denied,
        Error::Auth { .. } | Error::Login { .. } => Exit::Auth,
        Error::Connection { .. }
        | Error::Timeout { .. }
        | Error::NotConnected { .. }
        | Error::Protocol { .. }
        | Error::Unavailable { .. }
        | Error::Busy { .. }
        | Error::Overloaded { .. }
        | Error::UnknownOutcome { .. } => Exit::Unreachable,
        Error::Tool { .. }
        | Error::ToolFailed { .. }
        | Error::Rpc { .. }
        | Error::Schema { .. }
        | Error::UnknownTool { .. }
        | Error::UnknownPrompt { .. }
        | Error::NotOffered { .. }
        | Error::UnknownServer { .. } => Exit::Tool,
        Error::Arguments { .. } | Error::PromptArguments { .. } => Exit::Usage,
        _ => Exit::General,
    }
}

/// Where the next step is a flag or a command of ours, it is better than the library's.
fn in_cli_words(error: &Error) -> Option<String> {
    match error {
        Error::Timeout { .. } => {
            Some(first(error, "wait longer with `--timeout 2m`, or set `timeout` for the server"))
        }
        Error::Connection { retryable: true, transport: "stdio", .. } => {
            Some("nothing was run, so it may be tried again; `-v` shows all that the server writes".into())
        }
        Error::UnknownServer { hint, .. } => Some(format!("{hint} (`wharf servers` lists them all)")),
        Error::Rpc { server, method, .. } if method == "resources/read" => Some(format!(
            "`wharf resources {server}` lists what there is, `--templates` what else can be named"
        )),
        Error::Tool { rpc, .. } if rpc.code == wharf::mcp::code::MISSING_CAPABILITY => {
            Some("it asks something back: call it at a terminal, where somebody can answer".into())
        }
        Error::Protocol { .. } => {
            Some(first(error, "see what it says with `-vv`, and report it to the server's maker"))
        }
        _ => None,
    }
}

/// A next step, after what must be known before anything is done.
fn first(error: &Error, then: &str) -> String {
    match error.may_have_run() {
        true => format!("the tool may have run: check its effect before you call it again; {then}"),
        false => format!("nothing was run; {then}"),
    }
}
