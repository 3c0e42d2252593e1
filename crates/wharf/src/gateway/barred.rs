//! What is turned away at the door goes on record, and cannot fill it.
//!
//! In: refusals, by whom they met and why. Out: facts on the host's trail: the first of its kind from a source at once, and
//! those that follow within a minute as one, with their number. Only so many sources are told apart at a time, the rest are
//! counted together; so whoever knocks, however often and from wherever, the record grows by a bounded number of lines a
//! minute. Without a record this costs nothing.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::stay::Withdrawn;
use crate::event::{Fact, Kind, Trail, Verdict};
use crate::names::{CallerName, ServerName};

/// Who is turned away, kept on record. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Barred(Arc<Inner>);

/// Why somebody is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bar {
    /// The request was not meant for this gateway.
    Address(&'static str),
    /// It did not say who it is, or not so that it counts.
    Identity(&'static str),
    /// It asks for more than it may at a time.
    Limits,
    /// It asks more often than it may.
    Rate,
    /// It was let in, or given something, and is not any more: what it had under way was ended.
    Withdrawn(Withdrawn),
}

/// Where a refusal comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whence {
    /// An address; of the longer ones, the network that one household has.
    Address(IpAddr),
    /// A user of this machine.
    User(u32),
    /// A caller that is known, and what it wanted something of.
    Caller(CallerName, Option<ServerName>),
    /// Nobody knows.
    Unknown,
    /// All that are too many to be told apart.
    Others,
}

#[derive(Debug, Default)]
struct Inner {
    trail: Trail,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    sources: HashMap<(Whence, Bar), Count>,
    /// Somebody will look at the end of the minute.
    is_watched: bool,
}

/// What came after the first.
#[derive(Debug)]
struct Count {
    since: Instant,
    more: u64,
}

/// For how long refusals of one kind from one source are gathered.
const WINDOW: Duration = Duration::from_secs(60);
/// How many kinds and sources are told apart at a time.
const SOURCES: usize = 32;

// === impl Barred ===

impl Barred {
    pub(super) fn new(trail: Trail) -> Self {
        Self(Arc::new(Inner { trail, seen: Mutex::default() }))
    }

    /// Somebody was turned away.
    pub(super) fn note(&self, from: Whence, bar: Bar) {
        if !self.0.trail.is_kept() {
            return;
        }
        let mut seen = self.0.lock();
        seen.settle(&self.0.trail, |count| count.since.elapsed() >= WINDOW);
        let is_full = seen.sources.len() >= SOURCES;
        let mut key = (from, bar);
        if is_full && !seen.sources.contains_key(&key) {
            key.0 = Whence::Others;
        }
        match seen.sources.get_mut(&key) {
            Some(count) => {
                count.more += 1;
                self.watch(&mut seen);
            }
            None => {
                self.0.trail.record(|| fact(&key.0, key.1, 0));
                seen.sources.insert(key, Count { since: Instant::now(), more: 0 });
            }
        }
    }

    /// Puts what was only counted on record.
    pub(super) fn settle(&self) {
        self.0.lock().settle(&self.0.trail, |_| true);
    }

    /// Sees to it that what is counted is told when its minute is over.
    fn watch(&self, seen: &mut Seen) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if std::mem::replace(&mut seen.is_watched, true) {
            return;
        }
        // The record ends with the last who writes to it: this one waits for nobody's sake.
        let inner = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            tokio::time::sleep(WINDOW).await;
            if let Some(inner) = inner.upgrade() {
                let mut seen = inner.lock();
                seen.is_watched = false;
                seen.settle(&inner.trail, |_| true);
            }
        });
    }
}

// === impl Inner ===

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let seen = self.seen.get_mut().unwrap_or_else(PoisonError::into_inner);
        seen.settle(&self.trail, |_| true);
    }
}

// === impl Seen ===

impl Seen {
    /// Tells what came after the first of each, and forgets it.
    fn settle(&mut self, trail: &Trail, is_over: impl Fn(&Count) -> bool) {
        self.sources.retain(|(from, bar), count| {
            let over = is_over(count);
            if over && count.more > 0 {
                trail.record(|| fact(from, *bar, count.more));
            }
            !over
        });
    }
}

/// The first refusal, or so many more.
fn fact(from: &Whence, bar: Bar, more: u64) -> Fact {
    let (rule, why, outcome) = match bar {
        Bar::Address(why) => ("the gateway's address", why, "denied"),
        Bar::Identity(why) => ("authentication", why, "denied"),
        Bar::Withdrawn(what @ Withdrawn::Entry) => ("authentication", what.words(), "denied"),
        Bar::Withdrawn(what @ Withdrawn::Gift) => ("the caller's rules", what.words(), "denied"),
        Bar::Limits => ("the gateway's limits", "too much is under way already", "overloaded"),
        Bar::Rate => ("the gateway's limits", "a rate limit is used up", "overloaded"),
    };
    let reason = match more {
        0 => format!("{from}: {why}"),
        more => format!("{from}: {why}; {more} more within {} s", WINDOW.as_secs()),
    };
    let fact = Fact::new(Kind::Barred).because(&reason);
    let fact = match from {
        Whence::Caller(caller, Some(server)) => fact.by(caller, None).of(server),
        Whence::Caller(caller, None) => fact.by(caller, None),
        _ => fact,
    };
    Fact { verdict: Some(Verdict::Deny), rule: Some(rule.into()), outcome: Some(outcome), ..fact }
}

// === impl Whence ===

impl Whence {
    /// Where a connection comes from, told apart as far as makes sense.
    pub(super) fn address(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            None => Self::Unknown,
            Some(IpAddr::V6(long)) if !long.is_loopback() => {
                let [a, b, c, d, ..] = long.segments();
                Self::Address(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            Some(address) => Self::Address(address),
        }
    }
}

impl fmt::Display for Whence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address @ IpAddr::V6(long)) if !long.is_loopback() => write!(f, "{address}/64"),
            Self::Address(address) => write!(f, "{address}"),
            Self::User(user) => write!(f, "user {user}"),
            Self::Caller(caller, _) => write!(f, "caller `{caller}`"),
            Self::Unknown => f.write_str("from somewhere"),
            Self::Others => f.write_str("others"),
        }
    }
}
