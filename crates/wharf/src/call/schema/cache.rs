//! Verdicts about schemas, found again without reading the schema.
//!
//! A tool's schema is the same shared bytes at every call, so its place in memory finds the verdict; the bytes are kept
//! alive beside it, so the place cannot come to hold anything else. A schema at a new place is found by its hash.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use sha2::{Digest, Sha256};

use super::build::Compiled;
use crate::wire::Json;

/// The most places that are remembered.
pub(super) const PLACES_MAX: usize = 4096;
/// The most bytes of schemas that are kept alive.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// What came of building a schema: a validator, or why there is none.
pub(super) type Verdict = Result<Arc<Compiled>, Arc<str>>;

#[derive(Default)]
pub(super) struct Cache {
    known: RwLock<Known>,
    clock: AtomicU64,
}

#[derive(Default)]
struct Known {
    places: HashMap<(usize, usize), Entry, BuildHasherDefault<PlaceHasher>>,
    digests: HashMap<[u8; 32], WeakVerdict>,
    bytes: usize,
}

struct Entry {
    /// Keeps the place taken.
    schema: Json,
    verdict: Verdict,
    used: AtomicU64,
}

/// Places are ours, not a server's to choose: a multiplication spreads them well enough, at every call.
#[derive(Default)]
struct PlaceHasher(u64);

type WeakVerdict = Result<Weak<Compiled>, Weak<str>>;

// === impl Cache ===

impl Cache {
    /// A look at the verdict about a schema that was at this place before.
    pub(super) fn look<R>(&self, schema: &Json, look: impl FnOnce(&Verdict) -> R) -> Option<R> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let entry = known.places.get(&place(schema))?;
        // The order of uses need not be exact: it only decides what is forgotten first.
        entry.used.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(look(&entry.verdict))
    }

    pub(super) fn get(&self, schema: &Json) -> Option<Verdict> {
        if let Some(verdict) = self.look(schema, Verdict::clone) {
            return Some(verdict);
        }
        if schema.bytes().len() > super::measure::BYTES_MAX {
            return None;
        }
        let digest = digest(schema);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let verdict = match known.digests.get(&digest)? {
            Ok(compiled) => Ok(compiled.upgrade()?),
            Err(reason) => Err(reason.upgrade()?),
        };
        drop(known);
        self.put(schema, &verdict);
        Some(verdict)
    }

    pub(super) fn put(&self, schema: &Json, verdict: &Verdict) {
        // What is too large is refused at a glance each time; keeping it alive would cost more.
        if schema.bytes().len() > super::measure::BYTES_MAX {
            return;
        }
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed) + 1);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let weak = match verdict {
            Ok(compiled) => Ok(Arc::downgrade(compiled)),
            Err(reason) => Err(Arc::downgrade(reason)),
        };
        known.digests.insert(digest(schema), weak);
        let entry = Entry { schema: schema.clone(), verdict: verdict.clone(), used };
        if known.places.insert(place(schema), entry).is_none() {
            known.bytes += schema.bytes().len();
        }
        if known.places.len() > PLACES_MAX || known.bytes > BYTES_MAX {
            known.forget_older_half();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.read().unwrap_or_else(PoisonError::into_inner).places.len()
    }
}

impl Known {
    fn forget_older_half(&mut self) {
        let mut uses: Vec<u64> = self.places.values().map(|e| e.used.load(Ordering::Relaxed)).collect();
        uses.sort_unstable();
        let middle = uses.get(uses.len() / 2).copied().unwrap_or_default();
        self.places.retain(|_, entry| entry.used.load(Ordering::Relaxed) > middle);
        self.bytes = self.places.values().map(|e| e.schema.bytes().len()).sum();
        self.digests.retain(|_, verdict| match verdict {
            Ok(compiled) => compiled.strong_count() > 0,
            Err(reason) => reason.strong_count() > 0,
        });
    }
}

impl Hasher for PlaceHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}

fn place(schema: &Json) -> (usize, usize) {
    (schema.bytes().as_ptr().addr(), schema.bytes().len())
}

fn digest(schema: &Json) -> [u8; 32] {
    Sha256::digest(schema.bytes()).into()
}
