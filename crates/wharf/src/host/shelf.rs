//! A list of a server, kept as long as it is true.
//!
//! In: a connection, and a way to ask. Out: the list, asked for once however many want it, and again only over another
//! connection, when the server said that it changed, or when it is not believed any more. What was seen last stays when the
//! server is gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::peer::HostPeer;
use crate::catalog::ListKind;
use crate::connect::Connection;
use crate::error::Result;
use crate::names::ServerName;

/// A place for one list.
pub(super) struct Shelf<V> {
    kind: ListKind,
    seen: ArcSwapOption<Seen<V>>,
    /// The number of the connection over which it was seen, or 0.
    over: AtomicU64,
    /// Held while the server is asked.
    asking: Mutex<()>,
    /// When the server was last asked in vain.
    failed: std::sync::Mutex<Option<Instant>>,
}

/// A list that may say for how long it can be kept.
pub(super) trait Dated {
    fn ttl(&self) -> Option<Duration>;
}

/// How long a list is believed while the connection is there that it came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belief {
    /// Until the server says otherwise, as it promised.
    UntilTold,
    /// For as long as the list itself says; if it does not, for so long.
    For(Duration),
    /// Not at all.
    Never,
}

/// What was seen, and over which connection; over none if it was only told by the store.
struct Seen<V> {
    connection: Option<u64>,
    at: Instant,
    list: V,
}

/// Word of a change that is being looked into. If that comes to nothing, the word still stands.
struct Change<'a> {
    peer: &'a HostPeer,
    server: &'a ServerName,
    kind: ListKind,
    open: bool,
}

/// Lists that may not be kept at all are, for so long: a server is not asked once for everybody who wants to see its list.
/// Nor is one that failed asked again sooner.
const PAUSE: Duration = Duration::from_secs(5);

// === impl Belief ===

impl Belief {
    fn term(self, list: &impl Dated) -> Duration {
        match self {
            Self::UntilTold => Duration::MAX,
            Self::For(unsaid) => list.ttl().map_or(unsaid, |ttl| ttl.max(PAUSE)),
            Self::Never => Duration::ZERO,
        }
    }
}

// === impl Shelf ===

impl<V: Clone + Dated> Shelf<V> {
    pub(super) fn new(kind: ListKind) -> Self {
        let (asking, failed) = (Mutex::default(), std::sync::Mutex::default());
        Self { kind, seen: ArcSwapOption::empty(), over: AtomicU64::new(0), asking, failed }
    }

    /// What was seen last, if anything was.
    pub(super) fn last(&self) -> Option<V> {
        self.seen.load().as_ref().map(|seen| seen.list.clone())
    }

    /// Whether what was seen last came over the connection of this number.
    pub(super) fn is_of(&self, connection: u64) -> bool {
        connection != 0 && self.over.load(Ordering::Acquire) == connection
    }

    /// Whether what was seen last was seen longer ago than that.
    pub(super) fn is_older_than(&self, time: Duration) -> bool {
        self.seen.load().as_ref().is_none_or(|seen| seen.at.elapsed() > time)
    }

    /// Whether the other list was seen after this one.
    pub(super) fn is_older_than_that_of(&self, other: &Self) -> bool {
        let seen = |shelf: &Self| shelf.seen.load().as_ref().map(|seen| seen.at);
        seen(self) < seen(other)
    }

    /// Whether the time is over for which what was seen over this connection is believed. A list that is not believed for
    /// any time has none.
    pub(super) fn has_run_out(&self, connection: &Connection, belief: Belief) -> bool {
        let seen = self.seen.load();
        let Some(seen) = seen.as_ref().filter(|seen| seen.connection == Some(connection.number())) else {
            return false;
        };
        !belief.term(&seen.list).is_zero() && !self.is_believed(seen, belief)
    }

    fn is_believed(&self, seen: &Seen<V>, belief: Belief) -> bool {
        let term = belief.term(&seen.list);
        let failed = *self.failed();
        seen.at.elapsed() < term || failed.is_some_and(|failed| failed.elapsed() < term.min(PAUSE))
    }

    /// Whether what was seen last was only told by the store: nobody has asked the server in this run.
    pub(super) fn is_recalled(&self) -> bool {
        self.seen.load().as_ref().is_some_and(|seen| seen.connection.is_none())
    }

    /// Puts there what the store says, unless something was seen meanwhile. Gives what is there then.
    pub(super) fn recall(&self, list: V) -> V {
        let recalled = Arc::new(Seen { connection: None, at: Instant::now(), list });
        self.seen.compare_and_swap(&None::<Arc<Seen<V>>>, Some(Arc::clone(&recalled)));
        self.last().unwrap_or_else(|| recalled.list.clone())
    }

    /// Takes over what another saw, as `change` makes it.
    pub(super) fn adopt(&self, other: &Self, change: impl FnOnce(V) -> V) {
        if let Some(seen) = &*other.seen.load() {
            let list = change(seen.list.clone());
            self.put(Seen { connection: seen.connection, at: seen.at, list });
        }
    }

    /// The list as it is now. `ask` is told whether the server said that it is another.
    pub(super) async fn look<F: Future<Output = Result<V>>>(
        &self,
        connection: &Connection,
        peer: Option<&HostPeer>,
        belief: Belief,
        ask: impl FnOnce(bool) -> F,
    ) -> Result<V> {
        let _asked_once = self.asking.lock().await;
        let server = connection.server();
        let changed = peer.is_some_and(|peer| peer.take_changed(server, self.kind));
        if !changed
            && let Some(seen) = &*self.seen.load()
            && seen.connection == Some(connection.number())
            && self.is_believed(seen, belief)
        {
            return Ok(seen.list.clone());
        }
        let mut change = peer.map(|peer| Change { peer, server, kind: self.kind, open: changed });
        let list = ask(changed).await.inspect_err(|_| *self.failed() = Some(Instant::now()))?;
        if let Some(change) = &mut change {
            change.open = false;
        }
        self.put(Seen { connection: Some(connection.number()), at: Instant::now(), list: list.clone() });
        Ok(list)
    }

    fn failed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, seen: Seen<V>) {
        let over = seen.connection.unwrap_or(0);
        self.seen.store(Some(Arc::new(seen)));
        self.over.store(over, Ordering::Release);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.open {
            self.peer.mark_changed(self.server, self.kind);
        }
    }
}
