//! Which project files the user trusts, by content.
//!
//! In: the store's file in the user's state folder. Out: whether these bytes at this path were trusted. One byte
//! more or less, or another path, is another question. A store that others could write, or that cannot be read,
//! trusts nothing and says so.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

use super::edit::write_atomically;
use super::problem::Problem;
use super::read::{self, Writable};

/// The project files that a person has looked at and trusts.
#[derive(Clone, Debug, Default)]
pub struct TrustStore {
    /// `None`: kept in memory only.
    path: Option<PathBuf>,
    /// Canonical path to the hash of its content.
    files: BTreeMap<String, String>,
}

/// A project file that is not trusted, so that nothing in it has any effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingFile {
    /// The file.
    pub path: PathBuf,
    /// The SHA-256 of the content that was looked at, in hexadecimal.
    pub hash: String,
    /// What it would add.
    pub servers: Vec<PendingServer>,
    /// Whether an earlier content of this file was trusted.
    pub changed_since_trusted: bool,
    /// Why it cannot be trusted as it is: others can write it, or it cannot be read.
    pub obstacle: Option<Problem>,
}

/// A server that a pending file would add, replace or turn off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingServer {
    /// Its name as written, safe to show.
    pub name: String,
    /// What it would do, in a few words, safe to show and without secrets: "runs `npx -y pkg`".
    pub does: String,
    /// The environment variables it would be given the values of.
    pub reads: Vec<String>,
    /// The variables and headers that the file itself sets for it, by name.
    pub sets: Vec<String>,
}

/// The store on disk.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    version: u32,
    files: BTreeMap<String, String>,
}

const VERSION: u32 = 1;

// === impl TrustStore ===

impl TrustStore {
    /// Opens the store. A missing file is an empty store; a file that others can write is refused.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let Some(contents) = read::read(&path)? else {
            return Ok(Self { path: Some(path), files: BTreeMap::new() });
        };
        read::refuse_writable(&path, contents.writable, Writable::OwnerOnly)?;
        let broken = |reason: String| {
            let hint = "remove the file and trust your projects again";
            Error::from(
                Problem::of_file(&path, format!("the store of trusted files is broken: {reason}")).hint(hint),
            )
        };
        let stored: OnDisk =
            serde_json::from_slice(&contents.bytes).map_err(|error| broken(error.to_string()))?;
        if stored.version != VERSION {
            return Err(broken(format!("version {} is not known", stored.version)));
        }
        Ok(Self { path: Some(path), files: stored.files })
    }

    /// Whether exactly these bytes were trusted at this path.
    pub fn is_trusted(&self, path: &Path, bytes: &[u8]) -> bool {
        canonical(path).is_ok_and(|path| self.files.get(&path).is_some_and(|known| *known == hash(bytes)))
    }

    /// Whether any content of this path was trusted.
    pub fn knows(&self, path: &Path) -> bool {
        canonical(path).is_ok_and(|path| self.files.contains_key(&path))
    }

    /// Trusts these bytes at this path, in place of whatever was trusted there, and keeps it.
    pub fn trust(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.remember(path, hash(bytes))
    }

    /// Trusts exactly what a person was shown, even if the file has changed since: then it is pending again.
    pub fn trust_pending(&mut self, pending: &PendingFile) -> Result<()> {
        match &pending.obstacle {
            Some(obstacle) => Err(obstacle.to_error()),
            None => self.remember(&pending.path, pending.hash.clone()),
        }
    }

    /// Forgets a path. Says whether it was known.
    pub fn distrust(&mut self, path: &Path) -> Result<bool> {
        // A file that is gone has no canonical path any more, but may be known by the one it had.
        let path = canonical(path).unwrap_or_else(|_| path.to_string_lossy().into_owned());
        self.refresh()?;
        let known = self.files.remove(&path).is_some();
        if known {
            self.keep()?;
        }
        Ok(known)
    }

    fn remember(&mut self, path: &Path, hash: String) -> Result<()> {
        let path = canonical(path)?;
        self.refresh()?;
        self.files.insert(path, hash);
        self.keep()
    }

    /// Takes in what another process has stored meanwhile.
    fn refresh(&mut self) -> Result<()> {
        if let Some(path) = &self.path {
            self.files = Self::open(path.clone())?.files;
        }
        Ok(())
    }

    fn keep(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let stored = OnDisk { version: VERSION, files: self.files.clone() };
        let mut text =
            serde_json::to_string_pretty(&stored).map_err(|error| Error::Internal(error.to_string()))?;
        text.push('\n');
        write_atomically(path, &text)
    }
}

/// The SHA-256 of a content, in hexadecimal.
pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut out, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn canonical(path: &Path) -> Result<String> {
    let real = std::fs::canonicalize(path)
        .map_err(|error| Problem::of_file(path, format!("cannot find the file: {error}")))?;
    let text = real.into_os_string().into_string();
    text.map_err(|_| Problem::of_file(path, "the path is not UTF-8, so the file cannot be trusted").into())
}
