//! What arrived that nobody was waiting for, counted.
//!
//! In: one more of a kind. Out: how many came over one connection, and how many over all that a server ever had. What too
//! many of them mean is `inbox`'s.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::names::ServerName;

/// What arrived that nobody was waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// Answers to nobody: an unknown id, a second answer, an answer that came too late.
    pub answers: u64,
    /// Frames that are not messages.
    pub malformed: u64,
    /// Notifications that nobody wants.
    pub notifications: u64,
}

/// The same of every server, over all its connections, those that have ended too. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct StraysByServer(Arc<Mutex<HashMap<ServerName, Arc<Counts>>>>);

/// Those of one connection, counted for its server too.
pub(super) struct Counters {
    here: Counts,
    ever: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    answers: AtomicU64,
    malformed: AtomicU64,
    notifications: AtomicU64,
}

/// How many servers are told apart. Sessions may dock servers by any name; what is beyond is counted for its connection only.
const SERVERS: usize = 512;

// === impl StraysByServer ===

impl StraysByServer {
    /// What came of a server, over all its connections.
    pub fn of(&self, server: &ServerName) -> Strays {
        self.lock().get(server).map(|counts| counts.read()).unwrap_or_default()
    }

    /// The counters of a new connection.
    pub(super) fn counters(&self, server: &ServerName) -> Counters {
        let mut known = self.lock();
        let ever = match known.get(server) {
            Some(ever) => Arc::clone(ever),
            None if known.len() >= SERVERS => Arc::default(),
            None => Arc::clone(known.entry(server.clone()).or_default()),
        };
        Counters { here: Counts::default(), ever }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServerName, Arc<Counts>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Counters ===

impl Counters {
    pub(super) fn answer(&self) {
        self.add(|counts| &counts.answers);
    }

    pub(super) fn malformed(&self) {
        self.add(|counts| &counts.malformed);
    }

    pub(super) fn notification(&self) {
        self.add(|counts| &counts.notifications);
    }

    pub(super) fn read(&self) -> Strays {
        self.here.read()
    }

    fn add(&self, kind: impl Fn(&Counts) -> &AtomicU64) {
        kind(&self.here).fetch_add(1, Relaxed);
        kind(&self.ever).fetch_add(1, Relaxed);
    }
}

// === impl Counts ===

impl Counts {
    fn read(&self) -> Strays {
        Strays {
            answers: self.answers.load(Relaxed),
            malformed: self.malformed.load(Relaxed),
            notifications: self.notifications.load(Relaxed),
        }
    }
}
