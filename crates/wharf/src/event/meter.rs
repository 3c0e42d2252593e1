//! How many calls there were, how they ended, how long they took.
//!
//! In: the beginning and the end of every call. Out: readings of it all at any moment. A call finds its counters with
//! its route, and only adds to them: no lock and no lookup on its way. What is made of the readings is `gateway`'s.

mod times;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::Instant;

use crate::error::Error;
use crate::names::{ServerName, ToolName};
pub use times::Durations;
use times::Times;

/// The counters of all tools.
#[derive(Debug)]
pub struct Meter {
    since: Instant,
    servers: Mutex<IndexMap<ServerName, IndexMap<ToolName, Arc<Tally>>>>,
    /// Tools for which there is no place of their own, by server; `None`: servers for which there is none.
    rest: Mutex<IndexMap<Option<ServerName>, Arc<Tally>>>,
    /// Calls of what is not there. Their names are the callers', so they are nobody's label.
    unknown: Tally,
    denials: [AtomicU64; DENIALS.len()],
}

/// The counters of one tool.
#[derive(Debug, Default)]
pub struct Tally {
    started: AtomicU64,
    outcomes: [AtomicU64; OUTCOMES.len()],
    times: Times,
    /// Bytes of arguments, and of results.
    bytes: [AtomicU64; 2],
}

/// Where a route's calls are counted: found at its first call, and kept with it.
#[derive(Clone, Debug, Default)]
pub struct TallyPlace(OnceLock<Arc<Tally>>);

/// A call that is counted as begun, and will be counted as ended once: as given up, if nobody says how.
#[derive(Debug)]
pub struct Counted<'a> {
    meter: &'a Meter,
    tally: &'a Tally,
    started: Instant,
    ended: bool,
}

/// What one tool's counters said at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reading {
    /// Whose tool.
    pub of: Label,
    /// How many calls were begun.
    pub started: u64,
    /// How many ended, by how: see [`OUTCOMES`].
    pub outcomes: [u64; OUTCOMES.len()],
    /// How many of those that were sent took at most so long: see [`BOUNDS`]; the last are those that took longer.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// The same, told apart more finely.
    pub durations: Durations,
    /// How long all of them took together.
    pub took: Duration,
    /// How many bytes their arguments and their results had, of those that have ended with a result.
    pub bytes: [u64; 2],
}

/// What a reading is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Label {
    /// One tool.
    Tool(ServerName, ToolName),
    /// Tools of a server that have no counters of their own, all together.
    OthersOf(ServerName),
    /// Tools of servers that have none, all together.
    Others,
    /// What was called and is not there.
    Unknown,
}

/// How a call may end: as a tool's answer, or as an error of that kind.
pub const OUTCOMES: [&str; 32] = [
    "ok",
    "tool_failed",
    "cancelled",
    "timeout",
    "unknown_outcome",
    "protocol",
    "tool",
    "rpc",
    "busy",
    "auth",
    "conflict",
    "denied",
    "unapproved",
    "unavailable",
    "overloaded",
    "connection",
    "arguments",
    "unknown_tool",
    "unknown_server",
    "schema",
    "login",
    "not_connected",
    "command_not_allowed",
    "sandbox",
    "audit",
    "config",
    "not_offered",
    "unknown_prompt",
    "prompt_arguments",
    "provider",
    "internal",
    "other",
];
const OK: usize = 0;
const TOOL_FAILED: usize = 1;
const CANCELLED: usize = 2;

/// The upper ends of the times that calls are sorted by for whoever collects them, in nanoseconds.
pub const BOUNDS: [u64; 20] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    300_000_000_000,
];

/// The kinds of rules that refuse a call, and what the rules of each kind begin with.
const DENIALS: [(&str, &[&str]); 12] = [
    ("lock", &["`lock."]),
    ("scan", &["`scan."]),
    ("flow", &["`flow."]),
    ("consent", &["consent"]),
    ("approval", &["approval"]),
    ("caller_rules", &["the rules of caller"]),
    ("permission", &["the permission of"]),
    ("visibility", &["the tool's own `visibility`"]),
    ("server_settings", &["`enabled", "`disabled_tools`"]),
    ("address", &["the address rules", "the rule that credentials"]),
    ("launch", &[]),
    ("other", &[]),
];
const LAUNCH: usize = DENIALS.len() - 2;
const OTHER_RULE: usize = DENIALS.len() - 1;

/// How many servers are counted by name, how many tools of each, and how many in all.
const SERVERS: usize = 512;
const TOOLS: usize = 256;
const ALL_TOOLS: usize = 4096;

// === impl Meter ===

impl Default for Meter {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            servers: Mutex::default(),
            rest: Mutex::default(),
            unknown: Tally::default(),
            denials: Default::default(),
        }
    }
}

impl Meter {
    /// A call begins.
    pub(crate) fn begin<'a>(
        &'a self,
        place: &'a TallyPlace,
        (server, tool): (&ServerName, &ToolName),
        started: Instant,
    ) -> Counted<'a> {
        let tally = place.0.get_or_init(|| self.of(server, tool));
        tally.started.fetch_add(1, Relaxed);
        Counted { meter: self, tally, started, ended: false }
    }

    /// A call of what is not there was refused.
    pub(crate) fn refuse_unknown(&self, error: &Error) {
        self.unknown.started.fetch_add(1, Relaxed);
        self.unknown.end(place_of(error), None);
        self.deny(error);
    }

    /// How long it has counted.
    pub fn since(&self) -> Duration {
        self.since.elapsed()
    }

    /// Every tool that was called, and last what was called and is not there.
    pub fn read(&self) -> Vec<Reading> {
        let mut all = Vec::new();
        for (server, tools) in self.servers().iter() {
            let label = |tool: &ToolName| Label::Tool(server.clone(), tool.clone());
            all.extend(tools.iter().map(|(tool, tally)| tally.read(label(tool))));
        }
        for (server, tally) in self.rest().iter() {
            all.push(tally.read(server.clone().map_or(Label::Others, Label::OthersOf)));
        }
        all.push(self.unknown.read(Label::Unknown));
        all
    }

    /// How many calls were refused, by the kind of rule.
    pub fn denials(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DENIALS.iter().zip(&self.denials).map(|((kind, _), count)| (*kind, count.load(Relaxed)))
    }

    /// The counters of a tool. Where there are too many, those that they share.
    fn of(&self, server: &ServerName, tool: &ToolName) -> Arc<Tally> {
        let mut servers = self.servers();
        if servers.len() >= SERVERS && !servers.contains_key(server) {
            return Arc::clone(self.rest().entry(None).or_default());
        }
        let is_full = servers.values().map(IndexMap::len).sum::<usize>() >= ALL_TOOLS;
        let tools = servers.entry(server.clone()).or_default();
        if (is_full || tools.len() >= TOOLS) && !tools.contains_key(tool) {
            return Arc::clone(self.rest().entry(Some(server.clone())).or_default());
        }
        Arc::clone(tools.entry(tool.clone()).or_default())
    }

    fn deny(&self, error: &Error) {
        let kind = match error.cause() {
            Error::Denied { rule, .. } | Error::Withheld { rule, .. } => {
                let begins = |beginnings: &[&str]| beginnings.iter().any(|b| rule.starts_with(b));
                DENIALS.iter().position(|(_, known)| begins(known)).unwrap_or(OTHER_RULE)
            }
            Error::CommandNotAllowed { .. } | Error::Sandbox { .. } => LAUNCH,
            _ => return,
        };
        self.denials[kind].fetch_add(1, Relaxed);
    }

    fn servers(&self) -> MutexGuard<'_, IndexMap<ServerName, IndexMap<ToolName, Arc<Tally>>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rest(&self) -> MutexGuard<'_, IndexMap<Option<ServerName>, Arc<Tally>>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Counted ===

impl Counted<'_> {
    /// The call carried so many bytes there and back.
    pub(crate) fn carried(&self, arguments: usize, result: usize) {
        self.tally.bytes[0].fetch_add(arguments as u64, Relaxed);
        self.tally.bytes[1].fetch_add(result as u64, Relaxed);
    }

    /// The call has ended, and so.
    pub(crate) fn end(mut self, success: bool, error: Option<&Error>, took: Duration) {
        self.ended = true;
        match error {
            None => self.tally.end(if success { OK } else { TOOL_FAILED }, Some(took)),
            Some(error) => {
                // A refusal takes no time, and would make an outage look quick.
                self.tally.end(place_of(error), error.was_sent().then_some(took));
                self.meter.deny(error);
            }
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.tally.end(CANCELLED, Some(self.started.elapsed()));
        }
    }
}

// === impl Tally ===

impl Tally {
    /// `took`: how long a call took that was sent.
    fn end(&self, outcome: usize, took: Option<Duration>) {
        self.outcomes[outcome].fetch_add(1, Relaxed);
        if let Some(took) = took {
            self.times.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Ends are read before beginnings: nothing has ended that was not begun.
    fn read(&self, of: Label) -> Reading {
        let outcomes = std::array::from_fn(|n| self.outcomes[n].load(Relaxed));
        let (buckets, durations) = self.times.read();
        let took = self.times.total();
        let bytes = std::array::from_fn(|n| self.bytes[n].load(Relaxed));
        Reading { of, started: self.started.load(Relaxed), outcomes, buckets, durations, took, bytes }
    }
}

// === impl Reading ===

impl Reading {
    /// How many have ended.
    pub fn ended(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// How many are under way.
    pub fn under_way(&self) -> u64 {
        self.started.saturating_sub(self.ended())
    }

    /// How many did not succeed.
    pub fn failed(&self) -> u64 {
        self.ended() - self.outcomes[OK]
    }
}

/// The place of an error's kind.
fn place_of(error: &Error) -> usize {
    let kind = error.kind();
    OUTCOMES.iter().position(|known| *known == kind).unwrap_or(OUTCOMES.len() - 1)
}

#[cfg(test)]
mod tests;
