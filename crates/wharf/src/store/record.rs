//! A fact as it is written: one line of JSON, without secrets, and small.
//!
//! In: a [`Fact`], and its place. Out: the text that is hashed, stored and exported, the same bytes for all three.

use std::time::UNIX_EPOCH;

use serde::Serialize;

use super::chain::hex;
use crate::event::{Arguments, Fact, Named, Verdict};
use crate::wire::Json;

/// Something to be written that has no place in the chain yet.
#[derive(Debug)]
pub(super) enum Draft {
    /// What a room told, and the record of its beginning, if there is one.
    Fact(Box<Fact>, Option<u64>),
    /// What happened to the log itself.
    Own(Own, String),
}

/// What happens to the log itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// The log was found shorter than its head says, or its head was not found: what was there before is not known.
    Gap,
    /// There were more facts than could be written.
    Dropped,
    /// The oldest records went, because they were to be kept no longer.
    Pruned,
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    /// Microseconds since 1970.
    at: u64,
    kind: &'a str,
    /// Which process: the numbers of sessions are its own.
    run: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// The record of the beginning, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    began: Option<u64>,
}

#[derive(Serialize)]
struct Shown {
    sha256: String,
    size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    shown: Option<Json>,
}

/// How a process writes.
#[derive(Debug)]
pub(super) struct Pen {
    pub(super) run: String,
    /// Arguments by size and digest alone.
    pub(super) digest_only: bool,
}

impl Pen {
    /// The record at this place.
    pub(super) fn write(&self, seq: u64, draft: &Draft) -> Result<String, String> {
        let line = match draft {
            Draft::Fact(fact, began) => return self.fact(seq, fact, *began),
            Draft::Own(own, reason) => Line { reason: Some(reason), ..self.line(seq, now(), own.as_str()) },
        };
        serde_json::to_string(&line).map_err(|e| e.to_string())
    }

    fn fact(&self, seq: u64, fact: &Fact, began: Option<u64>) -> Result<String, String> {
        let reason = fact.reason.as_deref().map(|reason| clean(fact, reason));
        let line = Line {
            caller: fact.caller.as_ref().map(|caller| caller.as_str()),
            session: fact.session,
            server: fact.server.as_ref().map(|server| server.as_str()),
            tool: fact.tool.as_ref().map(Named::raw),
            decision: fact.verdict.map(Verdict::as_str),
            rule: fact.rule.as_deref(),
            outcome: fact.outcome,
            took_us: fact.took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
            arguments: fact.arguments.as_ref().map(|arguments| self.arguments(arguments)),
            reason: reason.as_deref(),
            began,
            ..self.line(seq, micros(fact.at), fact.kind.as_str())
        };
        serde_json::to_string(&line).map_err(|e| e.to_string())
    }

    fn line<'a>(&'a self, seq: u64, at: u64, kind: &'a str) -> Line<'a> {
        Line {
            seq,
            at,
            kind,
            run: &self.run,
            caller: None,
            session: None,
            server: None,
            tool: None,
            decision: None,
            rule: None,
            outcome: None,
            took_us: None,
            arguments: None,
            reason: None,
            began: None,
        }
    }

    fn arguments(&self, arguments: &Arguments) -> Shown {
        let shown = (!self.digest_only).then(|| arguments.to_shown()).flatten();
        Shown { sha256: hex(&arguments.digest()), size: arguments.size(), shown }
    }
}

/// What is said of a failure may repeat what was in the arguments.
fn clean(fact: &Fact, reason: &str) -> String {
    match fact.arguments.as_ref().and_then(Arguments::shown) {
        Some(shown) => shown.redact(reason),
        None => crate::secret::erase_credentials(reason).into_owned(),
    }
}

fn micros(at: std::time::SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

pub(super) fn now() -> u64 {
    micros(std::time::SystemTime::now())
}

// === impl Draft ===

impl Draft {
    /// The fact, when it was written.
    pub(super) fn into_fact(self) -> Option<Box<Fact>> {
        match self {
            Self::Fact(fact, _) => Some(fact),
            Self::Own(..) => None,
        }
    }
}

// === impl Own ===

impl Own {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Dropped => "dropped",
            Self::Pruned => "pruned",
        }
    }
}
