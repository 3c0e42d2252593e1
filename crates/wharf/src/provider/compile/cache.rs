//! What was compiled, found again.
//!
//! A tool is the same value in every snapshot until its server lists it anew, so its place in memory finds the entry; a
//! weak reference keeps the place from coming to hold another. There are two generations: when the young one is full it
//! becomes the old one, and what was not asked for since is forgotten.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::entry::Entry;
use super::{Provider, Strict};
use crate::mcp::Tool;
use crate::registry::Route;

/// The most entries of a generation: a thousand tools for every provider.
const ENTRIES_MAX: usize = 8_192;
/// The most bytes of a generation.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// A tool for a provider, or why it cannot be.
type Verdict = Result<Entry, String>;
type Key = (usize, Provider, Strict);

#[derive(Default)]
pub(super) struct Cache {
    known: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Key, Known>,
    old: HashMap<Key, Known>,
    young_bytes: usize,
}

#[derive(Clone)]
struct Known {
    /// Keeps the place taken.
    _tool: Weak<Tool>,
    verdict: Arc<Verdict>,
}

// === impl Cache ===

impl Cache {
    /// What is known of a tool, or what is now found out. Two who ask at once may both do the work.
    pub(super) fn get_or_insert(
        &self,
        route: &Route,
        (provider, strict): (Provider, Strict),
        work: impl FnOnce() -> Verdict,
    ) -> Arc<Verdict> {
        let key = (Arc::as_ptr(&route.tool).addr(), provider, strict);
        if let Some(verdict) = self.lock().get(&key) {
            return verdict;
        }
        let verdict = Arc::new(work());
        let known = Known { _tool: Arc::downgrade(&route.tool), verdict: Arc::clone(&verdict) };
        self.lock().put(key, known);
        verdict
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Generations ===

impl Generations {
    fn get(&mut self, key: &Key) -> Option<Arc<Verdict>> {
        if let Some(known) = self.young.get(key) {
            return Some(Arc::clone(&known.verdict));
        }
        let known = self.old.remove(key)?;
        let verdict = Arc::clone(&known.verdict);
        self.put(*key, known);
        Some(verdict)
    }

    fn put(&mut self, key: Key, known: Known) {
        let weight = known.verdict.as_ref().as_ref().map_or_else(String::len, Entry::weight);
        if self.young.len() >= ENTRIES_MAX || self.young_bytes + weight > BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(key, known).is_none() {
            self.young_bytes += weight;
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}
