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

use super::h1::Head;
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

    /// Who a request comes from. `us` is whom its token must be for.
    pub(super) async fn admit(
        &self,
        tokens: Option<&Tokens>,
        head: &Head,
        us: &str,
    ) -> Result<CallerName, Refused> {
        if self.is_anyone() && tokens.is_none() {
            return Ok(CallerName::local());
        }
        let token = token(head)?;
        if let Some(caller) = self.by_key(token) {
            return Ok(caller);
        }
        match tokens {
            // Three parts: what is none of a JWT is not worth a question to its issuer.
            Some(tokens) if token.split('.').count() == 3 => Box::pin(tokens.judge(token, us)).await,
            _ => Err(Refused::Unknown("that key is not known here")),
        }
    }

    /// Every key is compared, whichever fits, so that the time says nothing.
    fn by_key(&self, token: &str) -> Option<CallerName> {
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
        found.filter(|key| key.expires.is_none_or(|end| now < end)).map(|key| key.caller.clone())
    }
}

// === impl Key ===

impl Key {
    /// A key by its hash, as [`Key::hash`] makes it.
    pub fn new(caller: CallerName, hash: [u8; 32]) -> Self {
        Self { caller, hash, expires: None }
    }

    /// The same, until then.
    #[must_use]
    pub fn until(mut self, end: SystemTime) -> Self {
        self.expires = Some(end);
        self
    }

    /// What is kept of a key. Keys are long and random, so one round is enough.
    pub fn hash(secret: &str) -> [u8; 32] {
        Sha256::digest(secret.as_bytes()).into()
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
        Self { caller: stored.caller.clone(), hash: stored.hash, expires: stored.expires }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.caller)
    }
}

/// What a caller says it may call with: one header, one token.
fn token(head: &Head) -> Result<&str, Refused> {
    if !head.has("authorization") {
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
