//! A fact as it is written: one line of JSON, without secrets, and small.
//!
//! In: a [`Fact`], and its place. Out: the text that is hashed, stored and exported, the same bytes for all three.

use std::time::UNIX_EPOCH;

use serde::Serialize;

use super::chain::hex_digits;
use crate::event::{Arguments, Fact, Kind, Named, Verdict};

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

/// How a process writes.
#[derive(Debug)]
pub(super) struct Pen {
    pub(super) run: String,
    /// Arguments by size and digest alone.
    pub(super) digest_only: bool,
}

/// A line of JSON that grows member by member.
struct Line<'a>(&'a mut Vec<u8>);

type Written<T = ()> = Result<T, String>;

impl Pen {
    /// The record at this place, alone in `line`.
    pub(super) fn write(&self, line: &mut Vec<u8>, seq: u64, draft: &Draft) -> Written {
        match draft {
            Draft::Fact(fact, began) => {
                let mut line = self.fact(line, seq, fact.kind, fact)?;
                line.member(r#","began":"#, *began)?;
                line.end()
            }
            Draft::Own(own, reason) => {
                let mut line = self.line(line, seq, now(), own.as_str())?;
                line.member(r#","reason":"#, Some(reason))?;
                line.end()
            }
        }
    }

    /// The record of a call that is under way, alone in `line`.
    pub(super) fn begin(&self, line: &mut Vec<u8>, seq: u64, call: &Fact) -> Written {
        self.fact(line, seq, Kind::Begin, call)?.end()
    }

    fn fact<'a>(&self, line: &'a mut Vec<u8>, seq: u64, kind: Kind, fact: &Fact) -> Written<Line<'a>> {
        let mut line = self.line(line, seq, micros(fact.at), kind.as_str())?;
        line.member(r#","caller":"#, fact.caller.as_ref().map(|caller| caller.as_str()))?;
        line.member(r#","session":"#, fact.session)?;
        line.member(r#","server":"#, fact.server.as_ref().map(|server| server.as_str()))?;
        line.member(r#","tool":"#, fact.tool.as_ref().map(Named::raw))?;
        line.member(r#","decision":"#, fact.verdict.map(Verdict::as_str))?;
        line.member(r#","rule":"#, fact.rule.as_deref())?;
        line.member(r#","outcome":"#, fact.outcome)?;
        let took = fact.took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        line.member(r#","took_us":"#, took)?;
        if let Some(arguments) = &fact.arguments {
            line.raw(br#","arguments":{"sha256":""#);
            line.raw(&hex_digits(&arguments.digest()));
            line.member(r#"","size":"#, Some(arguments.size()))?;
            if let Some(shown) = (!self.digest_only).then(|| arguments.to_shown()).flatten() {
                line.raw(br#","shown":"#);
                line.raw(shown.as_bytes());
            }
            line.raw(b"}");
        }
        let reason = fact.reason.as_deref().map(|reason| clean(fact, reason));
        line.member(r#","reason":"#, reason)?;
        Ok(line)
    }

    fn line<'a>(&self, line: &'a mut Vec<u8>, seq: u64, at: u64, kind: &str) -> Written<Line<'a>> {
        line.clear();
        let mut line = Line(line);
        line.member(r#"{"seq":"#, Some(seq))?;
        // Microseconds since 1970.
        line.member(r#","at":"#, Some(at))?;
        line.member(r#","kind":"#, Some(kind))?;
        // Which process: the numbers of sessions are its own.
        line.member(r#","run":"#, Some(&self.run))?;
        Ok(line)
    }
}

// === impl Line ===

impl Line<'_> {
    /// What is JSON already.
    fn raw(&mut self, json: &[u8]) {
        self.0.extend_from_slice(json);
    }

    /// A member, if there is one. The key comes with everything around it.
    fn member(&mut self, key: &str, value: Option<impl Serialize>) -> Written {
        let Some(value) = value else { return Ok(()) };
        self.raw(key.as_bytes());
        serde_json::to_writer(&mut *self.0, &value).map_err(|e| e.to_string())
    }

    fn end(mut self) -> Written {
        self.raw(b"}");
        Ok(())
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
