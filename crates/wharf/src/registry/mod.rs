//! All tools under one roof.
//!
//! In: what each server offers, with its configuration. Out: a [`Snapshot`] of public names and routes, immutable and
//! replaced whole, so that a call takes no lock. How tools are discovered is `catalog`, who may call them is `policy`.

mod names;
mod snapshot;

pub use names::{NAME_MAX, NAME_MAX_WIDE, NameRules, Naming, RESERVED_PREFIX};
pub use snapshot::{Route, Skipped, Snapshot, Source};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use indexmap::IndexMap;

use crate::config::ServerConfig;
use crate::mcp::Tool;
use crate::names::ServerName;

/// The most tools that are taken from one server.
pub const TOOLS_MAX: usize = 10_000;

/// What one server offers.
#[derive(Clone, Debug)]
pub struct ServerTools {
    /// The server as it was configured: its name is the identity, whatever the server calls itself.
    pub config: Arc<ServerConfig>,
    /// Its tools, in its own order.
    pub tools: Arc<[Arc<Tool>]>,
    /// What the tools were when they were listed; the same fingerprint means the same tools.
    pub fingerprint: [u8; 32],
}

/// The tools of every server. Readers take the snapshot; writers replace one server's share of it.
#[derive(Debug)]
pub struct Registry {
    rules: NameRules,
    /// In the order of the configuration. `None` is a server that offers nothing now but keeps its place.
    servers: Mutex<IndexMap<ServerName, Option<ServerTools>>>,
    snapshot: ArcSwap<Snapshot>,
}

// === impl Registry ===

impl Registry {
    /// An empty registry. `order` is the order of the configuration, in which tools are listed; a server that is not in
    /// it comes after them.
    pub fn new(rules: NameRules, order: impl IntoIterator<Item = ServerName>) -> Self {
        let servers = order.into_iter().map(|name| (name, None)).collect();
        Self { rules, servers: Mutex::new(servers), snapshot: ArcSwap::from_pointee(Snapshot::default()) }
    }

    /// Puts what a server offers in the place of what it offered before. With the same configuration and fingerprint
    /// nothing changes.
    pub fn replace(&self, offered: ServerTools) -> Arc<Snapshot> {
        let mut servers = self.lock();
        let known = servers.get(&offered.config.name).and_then(Option::as_ref);
        if known
            .is_some_and(|k| Arc::ptr_eq(&k.config, &offered.config) && k.fingerprint == offered.fingerprint)
        {
            return self.snapshot();
        }
        servers.insert(offered.config.name.clone(), Some(offered));
        self.rebuild(&servers)
    }

    /// Takes a server's tools away. A server that is only down keeps its tools: do not remove it, or a neighbour whose
    /// name clashed with one of them gets the plain name back.
    pub fn remove(&self, server: &ServerName) -> Arc<Snapshot> {
        let mut servers = self.lock();
        if let Some(slot) = servers.get_mut(server) {
            *slot = None;
        }
        self.rebuild(&servers)
    }

    /// What can be called now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    fn rebuild(&self, servers: &IndexMap<ServerName, Option<ServerTools>>) -> Arc<Snapshot> {
        let snapshot = Arc::new(Snapshot::build(servers.values().flatten(), &self.rules));
        self.snapshot.store(Arc::clone(&snapshot));
        snapshot
    }

    fn lock(&self) -> MutexGuard<'_, IndexMap<ServerName, Option<ServerTools>>> {
        // A map of values that are replaced whole cannot be left half written by a panic.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
