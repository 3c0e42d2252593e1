//! A file of keys that may change while the gateway runs.
//!
//! In: its path. Out: its keys as they are now, looked at again when it has changed, at most once a second.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::{Key, end_others, succeeded};
use crate::config::KeyStore;
use crate::error::{Error, Result};

/// The file, and what it held when it was looked at last.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    stamp: Option<Stamp>,
    keys: Arc<[Key]>,
    /// The same when the file was last in order: while it is not, nobody is let in, and nobody sent away.
    known: Arc<[Key]>,
    /// Whether keys have gone since somebody asked.
    has_lost: bool,
}

/// What differs when a file has been replaced or written to.
type Stamp = (Option<SystemTime>, u64, u64);

/// How long a look lasts.
const LOOK: Duration = Duration::from_secs(1);

// === impl KeyFile ===

impl KeyFile {
    /// Reads the file, which must be there: a wrong path would let nobody in without a word.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let Some(stamp) = stamp(&path) else {
            return Err(Error::Config {
                message: format!(
                    "there is no file of keys at {}",
                    crate::text::Escaped(&path.to_string_lossy())
                ),
                hint: Some("make a key first: wharf keys add NAME".into()),
            });
        };
        let keys = read(&path)?;
        let known = Arc::clone(&keys);
        let seen = Seen { at: Instant::now(), stamp: Some(stamp), keys, known, has_lost: false };
        Ok(Self { path, seen: Mutex::new(seen) })
    }

    /// The keys as they are now. A file that is gone or broken has none: whoever broke it must not open the door.
    pub(super) fn keys(&self) -> Arc<[Key]> {
        let mut seen = self.lock();
        if seen.at.elapsed() >= LOOK {
            // The stamp first: what is written between the two is seen at the next look.
            let stamp = stamp(&self.path);
            if stamp != seen.stamp {
                seen.become_these(read(&self.path).ok());
                seen.stamp = stamp;
            }
            seen.at = Instant::now();
        }
        Arc::clone(&seen.keys)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its keys when it was last in order.
    pub(super) fn known(&self) -> Arc<[Key]> {
        Arc::clone(&self.lock().known)
    }

    /// Whether keys have gone since this was last asked.
    pub(super) fn has_lost(&self) -> bool {
        std::mem::take(&mut self.lock().has_lost)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Seen ===

impl Seen {
    fn become_these(&mut self, read: Option<Arc<[Key]>>) {
        let Some(read) = read else {
            self.keys = Arc::default();
            return;
        };
        self.keys = succeeded(&self.known, &read);
        self.has_lost |= end_others(&self.known, &self.keys);
        self.known = Arc::clone(&self.keys);
    }
}

fn read(path: &std::path::Path) -> Result<Arc<[Key]>> {
    Ok(KeyStore::open(path)?.keys().iter().map(Key::from).collect())
}

fn stamp(path: &std::path::Path) -> Option<Stamp> {
    let facts = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&facts);
    #[cfg(not(unix))]
    let number = 0;
    Some((facts.modified().ok(), facts.len(), number))
}
