//! What to do about an error: whether the tool may have run, whether to call again, and the next step in words.
//!
//! What was sent and what was not are told apart here and nowhere else (P2 of `docs/reliability.md`).

use super::{Error, StderrTail, in_ms};

/// Said of every call that was sent and whose end does not say what became of it.
const MAY_HAVE_RUN: &str = "the tool may have run: check its effect before you call it again";
/// So begins the hint of an error that comes before anything is sent.
const NOTHING_SENT: &str = "nothing was sent; ";

impl Error {
    /// Whether the same call may be made again and has a chance. A call that may have run is not retryable.
    pub fn is_retryable(&self) -> bool {
        self.is_unsent() || matches!(self, Self::Busy { .. } | Self::Overloaded { .. })
    }

    /// Whether a server had the call, as far as is known: how long it took says something of its server.
    pub(crate) fn was_sent(&self) -> bool {
        match self {
            Self::Rpc { .. } | Self::Busy { .. } | Self::Auth { .. } => true,
            Self::Internal(_) => false,
            error => error.may_have_run(),
        }
    }

    /// Whether the tool may have run: the call was sent, and its server has not refused it. Where it may not, nothing was
    /// sent, or the server says by the status of HTTP that it was not run.
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Timeout { sent, .. } | Self::Protocol { sent, .. } | Self::Cancelled { sent, .. } => *sent,
            Self::UnknownOutcome { .. }
            | Self::Tool { .. }
            | Self::ToolFailed { .. }
            | Self::Withheld { .. }
            | Self::Conflict { .. }
            | Self::Begun(_) => true,
            // What went wrong in Wharf itself went wrong at any point.
            Self::Internal(_) => true,
            Self::Config { .. }
            | Self::CommandNotAllowed { .. }
            | Self::Denied { .. }
            | Self::Sandbox { .. }
            | Self::Unapproved { .. }
            | Self::Connection { .. }
            | Self::Auth { .. }
            | Self::Login { .. }
            | Self::Rpc { .. }
            | Self::Schema { .. }
            | Self::Arguments { .. }
            | Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::NotOffered { .. }
            | Self::UnknownPrompt { .. }
            | Self::PromptArguments { .. }
            | Self::NotConnected { .. }
            | Self::Unavailable { .. }
            | Self::Busy { .. }
            | Self::Overloaded { .. }
            | Self::Provider { .. }
            | Self::Audit { .. } => false,
        }
    }

    /// Whether nothing of it was sent, and it may go another way at once. A server that refused what it was sent gives
    /// its word that it was not run, and that is for the caller to weigh.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self, Self::Connection { retryable: true, .. } | Self::Unavailable { .. })
    }

    /// Whether it is not the server's answer: another instance of it may have one.
    pub(crate) fn is_no_answer(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Protocol { .. } | Self::Busy { .. }) || self.is_unsent()
    }

    /// The same of a call that an earlier request has begun: that this one was not sent does not mean that nothing was.
    pub(crate) fn once_begun(self, method: &str) -> Self {
        let method = method.to_owned();
        match self {
            // The way to the server is gone, and with it what became of the call.
            Self::Connection { server, reason, stderr, .. } => {
                Self::UnknownOutcome { server, method, reason, stderr }
            }
            Self::Unavailable { server, reason, .. }
            | Self::Busy { server, reason, .. }
            | Self::Overloaded { server, reason, .. } => {
                Self::UnknownOutcome { server, method, reason, stderr: StderrTail::default() }
            }
            Self::Timeout { server, after, stderr, .. } => {
                Self::Timeout { server, after, sent: true, stderr }
            }
            Self::Protocol { server, reason, stderr, .. } => {
                Self::Protocol { server, reason, sent: true, stderr }
            }
            Self::Cancelled { reason, .. } => Self::Cancelled { reason, sent: true },
            known @ (Self::UnknownOutcome { .. }
            | Self::Tool { .. }
            | Self::ToolFailed { .. }
            | Self::Withheld { .. }
            | Self::Conflict { .. }
            | Self::Internal(_)
            | Self::Begun(_)) => known,
            // What helps is still what they say.
            error @ (Self::Config { .. }
            | Self::CommandNotAllowed { .. }
            | Self::Denied { .. }
            | Self::Sandbox { .. }
            | Self::Unapproved { .. }
            | Self::Auth { .. }
            | Self::Login { .. }
            | Self::Rpc { .. }
            | Self::Schema { .. }
            | Self::Arguments { .. }
            | Self::UnknownTool { .. }
            | Self::UnknownServer { .. }
            | Self::NotOffered { .. }
            | Self::UnknownPrompt { .. }
            | Self::PromptArguments { .. }
            | Self::NotConnected { .. }
            | Self::Provider { .. }
            | Self::Audit { .. }) => Self::Begun(Box::new(error)),
        }
    }

    /// The same of what a tool has answered: a rule that says no to that has not kept it from running.
    pub(crate) fn of_a_result(self) -> Self {
        match self {
            Self::Denied { what, rule, hint } => Self::Withheld { what, rule, hint },
            other => other,
        }
    }

    /// The next step for whoever reads the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Begun(error) => Some(match error.hint() {
                Some(hint) => self.first(hint.strip_prefix(NOTHING_SENT).unwrap_or(&hint)),
                None => MAY_HAVE_RUN.into(),
            }),
            Self::Connection { stderr: StderrTail { advice: Some(advice), .. }, .. } => Some(advice.clone()),
            Self::Timeout { stderr: StderrTail { advice: Some(advice), .. }, .. }
            | Self::Protocol { stderr: StderrTail { advice: Some(advice), .. }, .. } => {
                Some(self.first(advice))
            }
            Self::Config { hint, .. } | Self::Login { hint, .. } => hint.clone(),
            Self::CommandNotAllowed { hint, .. }
            | Self::Sandbox { hint, .. }
            | Self::Denied { hint, .. }
            | Self::UnknownTool { hint, .. }
            | Self::NotOffered { hint, .. }
            | Self::UnknownPrompt { hint, .. }
            | Self::PromptArguments { hint, .. }
            | Self::UnknownServer { hint, .. } => Some(hint.clone()),
            Self::Withheld { hint, .. } => {
                Some(format!("the tool has run, and its result is kept back; {hint}"))
            }
            Self::Unapproved { id, .. } => Some(format!(
                "{NOTHING_SENT}once somebody has allowed it with `wharf approve {id}`, make the same call again"
            )),
            Self::Auth { server, .. } => Some(format!(
                "log in: wharf login {server}; or give it a credential in its `headers`, for example `Authorization = \"env:TOKEN\"`"
            )),
            Self::Timeout { server, .. } => {
                Some(self.first(&format!("set a longer `timeout` for `{server}`, or pass one with the call")))
            }
            Self::NotConnected { server } => {
                Some(format!("connect `{server}` first, or leave its connection lazy"))
            }
            Self::Arguments { .. } => Some(format!("{NOTHING_SENT}correct the arguments and call again")),
            Self::UnknownOutcome { .. } | Self::Cancelled { sent: true, .. } => Some(MAY_HAVE_RUN.into()),
            Self::Conflict { .. } => Some(
                "the tool ran; look at the state as it is now, then decide whether to call it again".into(),
            ),
            Self::Connection { retryable: true, .. } => {
                Some("nothing was run; the call may be made again".into())
            }
            Self::Unavailable { server, retry_after, .. } => Some(format!(
                "{NOTHING_SENT}`{server}` is tried again after {}: call again then, and see why it fails",
                in_ms(*retry_after)
            )),
            Self::Busy { server, retry_after, .. } => Some(match retry_after {
                Some(wait) => {
                    format!("`{server}` refused to run it for now; call again after {}", in_ms(*wait))
                }
                None => format!("`{server}` refused to run it for now; call again later"),
            }),
            Self::Overloaded { retry_after, .. } => {
                Some(format!("{NOTHING_SENT}call again after {}", in_ms(*retry_after)))
            }
            Self::Audit { .. } => Some(format!(
                "{NOTHING_SENT}make room for the log or mend it (`wharf audit verify` says where it is), then call again"
            )),
            Self::Protocol { server, .. } => {
                Some(self.first(&format!(
                    "report it to the maker of `{server}`; `debug = true` shows its traffic"
                )))
            }
            _ => None,
        }
    }

    /// A next step, after what must be known before anything is done.
    fn first(&self, then: &str) -> String {
        let fact = if self.may_have_run() { MAY_HAVE_RUN } else { "nothing was run" };
        format!("{fact}; {then}")
    }
}
