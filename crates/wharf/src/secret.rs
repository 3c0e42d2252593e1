//! Strings that cannot be printed, and the eraser for texts that may contain them.
//!
//! In: values that came from `${VAR}`, `env:VAR`, `env` and `headers`. Out: a [`Secret`] that only [`Secret::expose`]
//! opens, and a [`Redactor`] that replaces every known value wherever text leaves Wharf.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use url::Url;
use zeroize::Zeroizing;

/// A value that must not be seen. No `Display`, no `Serialize`; `Debug` prints `***`; wiped when dropped.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<String>>);

/// An address that may carry a secret in its query or user part. It shows itself without them.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(Url);

/// Replaces known secrets in text. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor(Arc<[Secret]>);

/// Shorter values are not searched for: erasing every `1` or `on` would make a text unreadable and hide nothing.
const SHORTEST_REDACTED: usize = 6;

// === impl Secret ===

impl Secret {
    /// Takes a value out of sight.
    pub fn new(value: impl Into<String>) -> Self {
        Self(Arc::new(Zeroizing::new(value.into())))
    }

    /// The value, for the one place that hands it to its user: a child's environment or a request's header.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl Eq for Secret {}

// === impl SecretUrl ===

impl SecretUrl {
    /// Takes an address.
    pub fn new(url: Url) -> Self {
        Self(url)
    }

    /// The address, for the one place that connects to it.
    pub fn expose(&self) -> &Url {
        &self.0
    }

    /// The values of its query and its password, which must not be seen.
    pub fn secrets(&self) -> impl Iterator<Item = Secret> {
        let values = self.0.query_pairs().map(|(_, value)| value.into_owned());
        values.chain(self.0.password().map(str::to_owned)).map(Secret::new)
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.port().map(|p| format!(":{p}")).unwrap_or_default();
        write!(f, "{}://{}{port}{}", self.0.scheme(), self.0.host_str().unwrap_or_default(), self.0.path())?;
        if self.0.query().is_some() { f.write_str("?***") } else { Ok(()) }
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Redactor ===

impl Redactor {
    /// Knows these values from now on. The longest is erased first, so that a secret inside another leaves no rest.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut known: Vec<Secret> =
            secrets.into_iter().filter(|s| s.expose().trim().len() >= SHORTEST_REDACTED).collect();
        known.sort_by_key(|s| std::cmp::Reverse(s.expose().len()));
        known.dedup();
        Self(known.into())
    }

    /// The text with every known secret as `***`.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = Cow::Borrowed(text);
        for secret in self.0.iter() {
            if out.contains(secret.expose()) {
                out = Cow::Owned(out.replace(secret.expose(), "***"));
            }
        }
        out
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.0.len())
    }
}

/// Whether a name of a variable, a header or a flag looks like it carries a credential.
pub fn is_credential_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    let words = [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "PRIVATE_KEY",
        "API_KEY",
        "APIKEY",
        "ACCESS_KEY",
        "AUTHORIZATION",
    ];
    words.iter().any(|w| name.contains(w))
        || name.ends_with("_KEY")
        || name.ends_with("_PAT")
        || name == "AUTH"
        || name.ends_with("_AUTH")
}

/// Whether a value has the shape of a credential that well-known services hand out.
pub fn is_credential_value(value: &str) -> bool {
    let prefixes = [
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "sk-",
        "sk_live_",
        "rk_live_",
        "xoxb-",
        "xoxp-",
        "xoxa-",
        "xapp-",
        "AKIA",
        "ASIA",
        "AIza",
        "ya29.",
        "npm_",
        "pypi-",
        "hf_",
        "Bearer ",
        "Basic ",
        "-----BEGIN ",
    ];
    let long_enough = value.len() >= 16;
    long_enough && (prefixes.iter().any(|p| value.starts_with(p)) || looks_like_jwt(value))
}

fn looks_like_jwt(value: &str) -> bool {
    let mut parts = value.split('.');
    value.starts_with("eyJ") && parts.clone().count() == 3 && parts.all(|p| p.len() >= 4)
}
