//! Who calls.
//!
//! In: the headers of a request. Out: a name that policy knows, or a refusal that says how to knock.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use crate::names::CallerName;

/// Who may call.
#[derive(Clone, Debug, Default)]
pub enum Callers {
    /// Whoever reaches the gateway, which must then be on this machine only.
    #[default]
    Anyone,
    /// Whoever has one of these keys.
    Keys(Arc<[Key]>),
}

/// A key, kept as its hash. What the caller holds cannot be had from it.
#[derive(Clone)]
pub struct Key {
    caller: CallerName,
    hash: [u8; 32],
}

/// Why a caller is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It did not say who it is.
    Unnamed,
    /// What it said is not known.
    Unknown,
}

// === impl Callers ===

impl Callers {
    /// Whether nobody is asked.
    pub(super) fn is_anyone(&self) -> bool {
        matches!(self, Self::Anyone)
    }

    /// Who a request comes from. Every key is compared, whichever fits, so that the time says nothing.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<CallerName, Refused> {
        let Self::Keys(keys) = self else { return Ok(CallerName::local()) };
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = values.next().ok_or(Refused::Unnamed)?;
        let token = value.to_str().ok().and_then(bearer).filter(|_| values.next().is_none());
        let hash = Key::hash(token.ok_or(Refused::Unknown)?);
        let mut found = None;
        for key in keys.iter() {
            if same(&key.hash, &hash) {
                found = Some(key.caller.clone());
            }
        }
        found.ok_or(Refused::Unknown)
    }
}

// === impl Key ===

impl Key {
    /// A key by its hash, as [`Key::hash`] makes it.
    pub fn new(caller: CallerName, hash: [u8; 32]) -> Self {
        Self { caller, hash }
    }

    /// What is kept of a key. Keys are long and random, so one round is enough.
    pub fn hash(secret: &str) -> [u8; 32] {
        Sha256::digest(secret.as_bytes()).into()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.caller)
    }
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
