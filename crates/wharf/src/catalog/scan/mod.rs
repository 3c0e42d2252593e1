//! What in a server's words is meant for somebody else than the reader.
//!
//! In: definitions and results as servers gave them, and the names that other servers use. Out: findings, each with its
//! rule, how grave it is, its exact place and an excerpt in which nothing hides. Rules look at every string, wherever it
//! stands. What is done about a finding is for `policy` to say; nothing a server claims makes a finding smaller.

mod hidden;
mod names;
mod secrets;
mod sieve;
mod strings;
mod strip;
mod words;

pub use names::{Neighbours, look_alikes};
pub use strip::{strip, stripped};

use std::ops::Range;

use super::pinned::{Definition, Pinned};
use crate::mcp::ListKind;
use crate::names::ServerName;
use crate::text::Escaped;
use crate::wire::Json;

/// Something that a rule does not like.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The rule: `hidden.tags`.
    pub rule: &'static str,
    /// How grave it is.
    pub severity: Severity,
    /// The server whose words they are.
    pub server: ServerName,
    /// What it is in.
    pub subject: Subject,
    /// Where in it, as a JSON pointer; empty for the whole.
    pub pointer: String,
    /// Which bytes of the string that stands there.
    pub range: Range<usize>,
    /// The bytes and what is around them, escaped.
    pub excerpt: String,
}

/// What a finding is in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// A definition, by its list and its name.
    Definition(ListKind, String),
    /// What the server wants a model to know.
    Instructions,
    /// What a tool answered.
    Result(String),
}

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth a look.
    Low,
    /// Doubtful: honest servers do it, too.
    Medium,
    /// No honest server does it.
    High,
}

/// What one rule says of one string.
struct Hit {
    rule: &'static str,
    severity: Severity,
    range: Range<usize>,
}

/// Whose string it is, which decides which rules look at it.
struct Reading<'a> {
    server: &'a ServerName,
    subject: Subject,
    neighbours: Option<&'a Neighbours>,
}

/// How much is shown before and after a finding, in characters.
const AROUND: usize = 24;
/// How much of a finding is shown, in characters.
const SHOWN: usize = 80;
/// More findings than these in one definition or result say nothing new.
const MOST: usize = 50;

/// Looks at a definition: its name, and every string in it, schemas and annotations included.
pub fn definition(
    server: &ServerName,
    (kind, name): (ListKind, &str),
    raw: &Json,
    neighbours: &Neighbours,
) -> Vec<Finding> {
    let subject = Subject::Definition(kind, name.to_owned());
    let reading = Reading { server, subject, neighbours: Some(neighbours) };
    let mut findings = reading.json(raw);
    if kind == ListKind::Tools {
        findings
            .extend(names::contradiction(name, raw).map(|hit| reading.finding("/annotations", name, hit)));
    }
    findings.extend(names::mixed(name).map(|hit| reading.finding("/name", name, hit)));
    findings
}

/// Looks at everything that servers are known to offer, side by side: only then is it seen that one speaks of another's
/// tools, or calls its own like them. The gravest first.
pub fn servers<'a>(all: impl IntoIterator<Item = (&'a ServerName, &'a Pinned)>) -> Vec<Finding> {
    let all: Vec<(&ServerName, &Pinned)> = all.into_iter().collect();
    let tools = || {
        let of_one = |(server, pinned): &(&'a ServerName, &'a Pinned)| {
            let (server, pinned) = (*server, *pinned);
            let list = pinned.lists.get(&ListKind::Tools);
            list.into_iter().flat_map(move |list| list.iter().map(move |one| (server, one.name.as_str())))
        };
        all.iter().flat_map(of_one).collect::<Vec<_>>()
    };
    let mut neighbours = Neighbours::new();
    tools().into_iter().for_each(|(server, tool)| neighbours.add(server, tool));
    let mut findings = look_alikes(tools().into_iter());
    for (server, pinned) in &all {
        if let Some(text) = &pinned.instructions {
            findings.extend(instructions(server, text, &neighbours));
        }
        for (kind, list) in &pinned.lists {
            let look = |one: &Definition| definition(server, (*kind, &one.name), &one.raw, &neighbours);
            findings.extend(list.iter().flat_map(look));
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// Looks at what a server wants a model to know.
pub fn instructions(server: &ServerName, text: &str, neighbours: &Neighbours) -> Vec<Finding> {
    let reading = Reading { server, subject: Subject::Instructions, neighbours: Some(neighbours) };
    reading.text("", text).collect()
}

/// Looks at what a tool answered.
pub fn result(server: &ServerName, tool: &str, raw: &Json) -> Vec<Finding> {
    Reading { server, subject: Subject::Result(tool.to_owned()), neighbours: None }.json(raw)
}

// === impl Reading ===

impl Reading<'_> {
    fn json(&self, raw: &Json) -> Vec<Finding> {
        let mut findings = Vec::new();
        let read = strings::each(raw, |pointer, text| {
            if findings.len() < MOST {
                findings.extend(self.text(pointer, text));
            }
        });
        if read.is_err() {
            findings = self.text("", raw.as_str()).collect();
        }
        findings.truncate(MOST);
        findings
    }

    fn text(&self, pointer: &str, text: &str) -> impl Iterator<Item = Finding> {
        let mut hits = hidden::hits(text);
        hits.extend(words::hits(text, matches!(self.subject, Subject::Result(_))));
        hits.extend(secrets::hits(text));
        hits.extend(self.neighbours.into_iter().flat_map(|neighbours| neighbours.hits(self.server, text)));
        hits.into_iter().map(|hit| self.finding(pointer, text, hit)).collect::<Vec<_>>().into_iter()
    }

    fn finding(&self, pointer: &str, text: &str, hit: Hit) -> Finding {
        Finding {
            rule: hit.rule,
            severity: hit.severity,
            server: self.server.clone(),
            subject: self.subject.clone(),
            pointer: pointer.to_owned(),
            excerpt: if hit.rule == secrets::RULE { secrets::shown() } else { excerpt(text, &hit.range) },
            range: hit.range,
        }
    }
}

/// A part of a text and what is around it, on one line.
fn excerpt(text: &str, range: &Range<usize>) -> String {
    let before: Vec<char> = text[..range.start].chars().rev().take(AROUND).collect();
    let before: String = before.into_iter().rev().collect();
    let shown: String =
        text[range.start..].chars().take(SHOWN.min(text[range.clone()].chars().count() + AROUND)).collect();
    Escaped(&format!("{before}{shown}")).to_string()
}

// === impl Severity ===

impl Severity {
    /// `low`, `medium` or `high`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

// === impl Finding ===

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rule, severity, server, subject, pointer, range, excerpt } = self;
        write!(f, "{server} {subject}")?;
        if !pointer.is_empty() {
            write!(f, " {}", Escaped(pointer))?;
        }
        write!(f, ": {rule} ({}) at byte {}: {excerpt}", severity.as_str(), range.start)
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Definition(kind, name) => write!(f, "{} `{}`", kind.word(), Escaped(name)),
            Self::Instructions => f.write_str("instructions"),
            Self::Result(tool) => write!(f, "result of `{}`", Escaped(tool)),
        }
    }
}
