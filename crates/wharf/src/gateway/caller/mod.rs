//! Who calls.
//!
//! In: the head of a request. Out: a name that policy knows, or a refusal that says how to knock. Keys are compared
//! here, the file that holds them is `file`'s; tokens of another issuer are `tokens`'.

mod file;
mod issuer;
mod tokens;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::h1::{Head, Usual};
use super::stay::{Guest, Stay};
use crate::config::StoredKey;
use crate::error::Result as Checked;
use crate::names::CallerName;
use crate::secret::Secret;
use file::KeyFile;
pub(super) use tokens::Tokens;

/// Who may call. By default whoever reaches the gateway, which must then be on this machine only.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    /// Those the program has given. An empty list lets nobody in.
    keys: Option<Arc<[Key]>>,
    file: Option<Arc<KeyFile>>,
}

/// A key, kept as its hash. What the caller holds cannot be had from it.
#[derive(Clone)]
pub struct Key {
    caller: CallerName,
    hash: [u8; 32],
    expires: Option<SystemTime>,
    /// Whoever came by this key stays as long as it counts.
    stay: Stay,
}

/// Why a caller is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It did not say who it is.
    Unnamed,
    /// What it said does not count, and why.
    Unknown(&'static str),
    /// Its token is good, and not for this.
    Scope,
    /// Whoever could say so does not answer.
    Unreachable,
}

/// What every key begins with, so that one that is lost can be found.
const BEGINNING: &str = "whf_";

// === impl Refused ===

impl Refused {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Unnamed => "say who you are: `Authorization: Bearer KEY`",
            Self::Unknown(why) => why,
            Self::Scope => "the token lacks a scope that is needed",
            Self::Unreachable => "whoever makes the tokens does not answer; try again later",
        }
    }
}

// === impl Callers ===

impl Callers {
    /// Lets in whoever has one of these keys.
    #[must_use]
    pub fn keys(mut self, keys: impl IntoIterator<Item = Key>) -> Self {
        self.keys = Some(keys.into_iter().collect());
        self
    }

    /// Lets in whoever has a key of this file, as [`crate::config::KeyStore`] writes it. Changes of the file count
    /// within a second; while it cannot be read, none of its keys does.
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Checked<Self> {
        self.file = Some(Arc::new(KeyFile::open(path.into())?));
        Ok(self)
    }

    /// Whether nobody is asked.
    pub(super) fn is_anyone(&self) -> bool {
        self.keys.is_none() && self.file.is_none()
    }

    /// Those who come after these: whose key counts here and there stays, by the same key.
    pub(super) fn succeeded_by(&self, next: &Self) -> Self {
        let keys = next.keys.as_ref().map(|keys| succeeded(self.keys.as_deref().unwrap_or_default(), keys));
        let file = match (&self.file, &next.file) {
            (Some(known), Some(next)) if known.path() == next.path() => Some(Arc::clone(known)),
            (_, next) => next.clone(),
        };
        Self { keys, file }
    }

    /// Ends the stay of everyone whose key does not count among those who come after these.
    pub(super) fn give_way(&self, next: &Self) {
        end_others(self.keys.as_deref().unwrap_or_default(), next.keys.as_deref().unwrap_or_default());
        if let Some(file) = &self.file
            && !next.file.as_ref().is_some_and(|next| Arc::ptr_eq(file, next))
        {
            file.known().iter().for_each(|key| key.stay.end());
        }
    }

    /// Looks whether keys have gone from their file, or lapsed. True if somebody's stay has ended since the last look.
    pub(super) fn look(&self) -> bool {
        let stored = self.file.as_ref().map(|file| file.keys());
        let now = SystemTime::now();
        let keys = self.keys.iter().chain(&stored).flat_map(|keys| keys.iter());
        let lapsed = keys.filter(|key| key.expires.is_some_and(|end| end <= now) && !key.stay.is_over());
        let lapsed = lapsed.inspect(|key| key.stay.end()).count() > 0;
        self.file.as_ref().is_some_and(|file| file.has_lost()) || lapsed
    }

    /// Every key is compared, whichever fits, so that the time says nothing.
    pub(super) fn by_key(&self, token: &str) -> Option<Guest> {
        let hash = Key::hash(token);
        let stored = self.file.as_ref().map(|file| file.keys());
        let keys = self.keys.iter().chain(&stored).flat_map(|keys| keys.iter());
        let mut found = None;
        for key in keys {
            if same(&key.hash, &hash) {
                found = Some(key);
            }
        }
        let now = SystemTime::now();
        found.filter(|key| key.expires.is_none_or(|end| now < end)).map(Key::guest)
    }
}

// === impl Key ===

impl Key {
    /// A key by its hash, as [`Key::hash`] makes it.
    pub fn new(caller: CallerName, hash: [u8; 32]) -> Self {
        Self { caller, hash, expires: None, stay: Stay::default() }
    }

    /// The same, until then.
    #[must_use]
    pub fn until(mut self, end: SystemTime) -> Self {
        self.expires = Some(end);
        self
    }

    /// Whether it is the same key, of the same caller.
    fn is_same(&self, other: &Self) -> bool {
        self.hash == other.hash && self.caller == other.caller
    }

    /// What is kept of a key. Keys are long and random, so one round is enough.
    pub fn hash(secret: &str) -> [u8; 32] {
        Sha256::digest(secret.as_bytes()).into()
    }

    fn guest(&self) -> Guest {
        Guest::new(self.caller.clone(), &self.stay)
    }

    /// A new key, of 256 bits that nobody can guess. `None` if the system has none.
    pub fn make() -> Option<Secret> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).ok()?;
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        Some(Secret::new(std::iter::once(BEGINNING.to_owned()).chain(digits).collect::<String>()))
    }
}

impl From<&StoredKey> for Key {
    fn from(stored: &StoredKey) -> Self {
        Self { expires: stored.expires, ..Self::new(stored.caller.clone(), stored.hash) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.caller)
    }
}

/// New keys in the place of those that were there: what is the same key goes on to be it.
fn succeeded(before: &[Key], next: &[Key]) -> Arc<[Key]> {
    let stay = |key: &Key| {
        let same = before.iter().find(|known| known.is_same(key) && !known.stay.is_over());
        same.map(|known| known.stay.clone()).unwrap_or_default()
    };
    next.iter().map(|key| Key { stay: stay(key), ..key.clone() }).collect()
}

/// Ends the stay of whoever came by a key that is not among these. True if there was one.
fn end_others(before: &[Key], next: &[Key]) -> bool {
    let gone = before.iter().filter(|key| !next.iter().any(|known| known.is_same(key)));
    gone.inspect(|key| key.stay.end()).count() > 0
}

/// What a caller says it may call with: one header, one token.
pub(super) fn token(head: &Head) -> Result<&str, Refused> {
    if !head.has_usual(Usual::Authorization) {
        return Err(Refused::Unnamed);
    }
    let token = head.one("authorization").and_then(bearer);
    token.ok_or(Refused::Unknown("one `Authorization: Bearer KEY` is needed"))
}

/// The token of `Bearer token`; the scheme in any case, one blank, nothing else.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

/// Compares in a time that does not depend on where they differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0_u8, |differs, (a, b)| differs | (a ^ b))) == 0
}
