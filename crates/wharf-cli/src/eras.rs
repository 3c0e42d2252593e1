//! What is known of servers' eras, kept in a small file of the cache, so that a server is not probed at every call.
//!
//! It is only ever a shortcut: a file that is missing, broken or cannot be written is as good as an empty one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use wharf::config::edit::write_atomically;
use wharf::connect::{EraStore, Verdict};
use wharf::mcp::Era;

/// Verdicts in a file.
#[derive(Debug)]
pub(crate) struct EraFile {
    path: Option<PathBuf>,
    known: Mutex<BTreeMap<String, Known>>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Known {
    modern: bool,
    /// Seconds since 1970.
    at: u64,
}

/// More than that many servers are not remembered; the oldest verdicts go first.
const MOST: usize = 500;

impl EraFile {
    pub(crate) fn open(path: Option<PathBuf>) -> Self {
        let known = path.as_ref().and_then(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok());
        Self { path, known: Mutex::new(known.unwrap_or_default()) }
    }
}

impl EraStore for EraFile {
    fn get(&self, key: &str) -> Option<Verdict> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner).get(key)?;
        let era = if known.modern { Era::Modern } else { Era::Legacy };
        Some(Verdict { era, at: UNIX_EPOCH.checked_add(Duration::from_secs(known.at))? })
    }

    fn put(&self, key: &str, verdict: Verdict) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = verdict.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        known.insert(key.to_owned(), Known { modern: verdict.era == Era::Modern, at });
        while known.len() > MOST {
            let oldest = known.iter().min_by_key(|(_, k)| k.at).map(|(key, _)| key.clone());
            oldest.map(|key| known.remove(&key));
        }
        if let (Some(path), Ok(text)) = (&self.path, serde_json::to_string(&*known)) {
            let _ = write_atomically(path, &text);
        }
    }
}
