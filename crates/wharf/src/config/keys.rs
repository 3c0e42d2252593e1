//! The file of callers' keys, by hash.
//!
//! In: a path in the user's own folder. Out: who has a key, since when and until when. The keys themselves are never
//! here: they are shown once, when they are made, and only their hashes are kept. Who is let in is `gateway`'s to say.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::names::CallerName;

use super::edit::write_atomically;
use super::problem::Problem;
use super::read::{self, Writable};

/// The keys of callers, as they are kept.
#[derive(Clone, Debug)]
pub struct KeyStore {
    path: PathBuf,
    keys: Vec<StoredKey>,
}

/// What is kept of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// Whose it is.
    pub caller: CallerName,
    /// The SHA-256 of the key.
    pub hash: [u8; 32],
    /// When it was made.
    pub created: SystemTime,
    /// When it ends; `None`: never.
    pub expires: Option<SystemTime>,
}

/// The store on disk. Times are seconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    version: u32,
    keys: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    caller: String,
    sha256: String,
    created: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

const VERSION: u32 = 1;
/// How many keys one caller may have.
const MOST_OF_ONE: usize = 16;
/// How much of a hash tells keys apart: bytes.
const ID: usize = 6;

// === impl KeyStore ===

impl KeyStore {
    /// Opens the store. A missing file is an empty store; a file that others can write is refused.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let Some(contents) = read::read(&path)? else { return Ok(Self { path, keys: Vec::new() }) };
        read::refuse_writable(&path, contents.writable, Writable::OwnerOnly)?;
        let broken = |reason: String| {
            let hint = "put it back as it was, or remove the file and make the keys anew";
            Error::from(Problem::of_file(&path, format!("the file of keys is broken: {reason}")).hint(hint))
        };
        let stored: OnDisk = serde_json::from_slice(&contents.bytes).map_err(|e| broken(e.to_string()))?;
        if stored.version != VERSION {
            return Err(broken(format!("version {} is not known", stored.version)));
        }
        let keys = stored.keys.into_iter().map(StoredKey::read).collect::<Result<Vec<_>, String>>();
        let keys = keys.map_err(broken)?;
        Ok(Self { path, keys })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every key, in the order they were made.
    pub fn keys(&self) -> &[StoredKey] {
        &self.keys
    }

    /// Adds a key and keeps it. A caller may have several, so that one can follow another.
    pub fn add(&mut self, key: StoredKey) -> Result<()> {
        fit_for_a_key(&key.caller)?;
        self.refresh()?;
        let own = self.keys.iter().filter(|known| known.caller == key.caller).count();
        if own >= MOST_OF_ONE {
            return Err(Error::Config {
                message: format!("`{}` has {own} keys already", key.caller),
                hint: Some("take one away first: wharf keys list, wharf keys remove ID".into()),
            });
        }
        self.keys.push(key);
        self.keep()
    }

    /// Takes away every key of the caller of that name, or the one of that id. Gives what was taken away.
    pub fn remove(&mut self, whose: &str) -> Result<Vec<StoredKey>> {
        self.refresh()?;
        let has_name = |key: &StoredKey| key.caller.as_str() == whose;
        let by_name = self.keys.iter().any(has_name);
        let is_meant = |key: &mut StoredKey| if by_name { has_name(key) } else { key.id() == whose };
        let removed: Vec<StoredKey> = self.keys.extract_if(.., is_meant).collect();
        if !removed.is_empty() {
            self.keep()?;
        }
        Ok(removed)
    }

    /// Takes in what another process has stored meanwhile.
    fn refresh(&mut self) -> Result<()> {
        self.keys = Self::open(self.path.clone())?.keys;
        Ok(())
    }

    fn keep(&self) -> Result<()> {
        let stored = OnDisk { version: VERSION, keys: self.keys.iter().map(StoredKey::written).collect() };
        let mut text = serde_json::to_string_pretty(&stored).map_err(|e| Error::Internal(e.to_string()))?;
        text.push('\n');
        write_atomically(&self.path, &text)
    }
}

// === impl StoredKey ===

impl StoredKey {
    /// What it is called by: the beginning of its hash, which says nothing of the key.
    pub fn id(&self) -> String {
        hex(&self.hash[..ID])
    }

    /// Whether its time is over.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    fn read(line: Line) -> Result<Self, String> {
        let caller = CallerName::parse(&line.caller).map_err(|e| e.to_string())?;
        let hash = read_hex(&line.sha256).ok_or_else(|| format!("the hash of `{caller}` is none"))?;
        let time = |seconds: u64| UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let created = time(line.created).ok_or("a date is out of range")?;
        let expires = line.expires.map(|end| time(end).ok_or("a date is out of range")).transpose()?;
        Ok(Self { caller, hash, created, expires })
    }

    fn written(&self) -> Line {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Line {
            caller: self.caller.as_str().to_owned(),
            sha256: hex(&self.hash),
            created: seconds(self.created),
            expires: self.expires.map(seconds),
        }
    }
}

/// Names with a meaning of their own are nobody's.
fn fit_for_a_key(caller: &CallerName) -> Result<()> {
    let why = match caller.as_str() {
        "*" => "`*` stands for every caller without rules of its own",
        name if name == CallerName::local().as_str() => "it is who calls without a key, on this machine",
        _ => return Ok(()),
    };
    Err(Error::Config {
        message: format!("no key for `{caller}`: {why}"),
        hint: Some("choose another name".into()),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_hex(text: &str) -> Option<[u8; 32]> {
    let text = text.as_bytes();
    let mut hash = [0; 32];
    if text.len() != 2 * hash.len() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(hash)
}
