//! Strings that cannot be printed, and the eraser for texts that may contain them.
//!
//! In: values that came from `${VAR}`, `env:VAR`, `env` and `headers`. Out: a [`Secret`] that only [`Secret::expose`]
//! opens, and a [`Redactor`] that replaces every known value wherever text leaves Wharf.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use aho_corasick::AhoCorasick;
use arc_swap::ArcSwap;
use url::Url;
use zeroize::Zeroizing;

/// A value that must not be seen. No `Display`, no `Serialize`; `Debug` prints `***`; wiped when dropped.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<String>>);

/// An address that may carry a secret in its query or user part. It shows itself without them.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl {
    url: Url,
    /// What variables put into it. If there is any, the path is not shown either.
    secrets: Vec<Secret>,
}

/// Replaces known secrets in text. Cheap to clone, and for nothing where nothing is known.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<Sought>>);

/// What is searched for.
#[derive(Clone, Default)]
struct Sought {
    known: Vec<Secret>,
    live: Vec<LiveSecrets>,
}

/// Secrets that come while they are searched for: tokens that are renewed. Cheap to clone; the clones are one list.
#[derive(Clone, Default)]
pub struct LiveSecrets(Arc<ArcSwap<Vec<Secret>>>);

/// So many forms of live secrets are remembered; older ones have ended.
const MOST_LIVE: usize = 64;

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
        Self { url, secrets: Vec::new() }
    }

    /// Takes an address that these values went into. They may stand in its path, so nothing after the host is shown.
    pub fn with_secrets(url: Url, secrets: Vec<Secret>) -> Self {
        Self { url, secrets }
    }

    /// The address, for the one place that connects to it.
    pub fn expose(&self) -> &Url {
        &self.url
    }

    /// The values of its query, its password and what variables put into it, which must not be seen.
    pub fn secrets(&self) -> impl Iterator<Item = Secret> {
        let meant = self.url.query_pairs().map(|(_, value)| value.into_owned());
        let written = self.url.query().into_iter().flat_map(|query| query.split('&'));
        let written = written.filter_map(|pair| Some(pair.split_once('=')?.1.to_owned()));
        let user = self.url.password().unwrap_or_else(|| self.url.username());
        // A variable that held the whole address shows up in other texts as its path.
        let path = (!self.secrets.is_empty()).then(|| self.url.path().trim_start_matches('/').to_owned());
        meant
            .chain(written)
            .chain([user.to_owned(), percent_decoded(user)])
            .chain(path)
            .filter(|v| !v.is_empty())
            .map(Secret::new)
            .chain(self.secrets.iter().cloned())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.url.port().map(|p| format!(":{p}")).unwrap_or_default();
        write!(f, "{}://{}{port}", self.url.scheme(), self.url.host_str().unwrap_or_default())?;
        if !self.secrets.is_empty() {
            return f.write_str("/***");
        }
        f.write_str(self.url.path())?;
        if self.url.query().is_some() { f.write_str("?***") } else { Ok(()) }
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Redactor ===

impl Redactor {
    /// Knows these values from now on, in the forms in which a server or a library may repeat them.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut known: Vec<Secret> = secrets.into_iter().flat_map(|s| forms(s.expose())).collect();
        known.sort_by(|a, b| a.expose().cmp(b.expose()));
        known.dedup();
        Self::of(Sought { known, live: Vec::new() })
    }

    fn of(sought: Sought) -> Self {
        let nothing = sought.known.is_empty() && sought.live.is_empty();
        Self((!nothing).then(|| Arc::new(sought)))
    }

    /// Knows these as well, as they come.
    #[must_use]
    pub fn and_live(self, live: &LiveSecrets) -> Self {
        let mut sought = self.0.map(Arc::unwrap_or_clone).unwrap_or_default();
        sought.live.push(live.clone());
        Self::of(sought)
    }

    /// The text with every known secret as `***`. Secrets that overlap are erased together.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.redact_beginning(text, text.len())
    }

    /// The same for the first so many bytes of a text, or one character less. A secret that stands across the cut is
    /// erased as well: what is cut first could not be recognised any more.
    pub fn redact_beginning<'a>(&self, text: &'a str, max: usize) -> Cow<'a, str> {
        let end = text.floor_char_boundary(max);
        let Some(Sought { known, live }) = self.0.as_deref() else { return Cow::Borrowed(&text[..end]) };
        let live: Vec<Arc<Vec<Secret>>> = live.iter().map(|live| live.0.load_full()).collect();
        let all = || known.iter().chain(live.iter().flat_map(|live| live.iter()));
        let longest = all().map(|secret| secret.expose().len()).max().unwrap_or_default();
        let searched = &text[..text.ceil_char_boundary(end.saturating_add(longest))];
        let found = all().flat_map(|secret| occurrences(searched, secret.expose()));
        let mut found: Vec<Range<usize>> = found.filter(|place| place.start < end).collect();
        if found.is_empty() {
            return Cow::Borrowed(&text[..end]);
        }
        found.sort_by_key(|place| place.start);
        let mut out = String::with_capacity(end);
        let mut copied = 0;
        for place in found {
            if place.start >= copied {
                // A place that begins where the last one ended is one more secret, not the rest of it.
                out.push_str(&text[copied..place.start]);
                out.push_str("***");
            }
            copied = copied.max(place.end);
        }
        out.push_str(text.get(copied..end).unwrap_or_default());
        Cow::Owned(out)
    }

    /// Knows the secrets of all of these.
    pub fn of_all(redactors: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Sought::default();
        for sought in redactors.into_iter().filter_map(|redactor| redactor.0) {
            all.known.extend_from_slice(&sought.known);
            all.live.extend_from_slice(&sought.live);
        }
        all.known.sort_by(|a, b| a.expose().cmp(b.expose()));
        all.known.dedup();
        Self::of(all)
    }
}

// === impl LiveSecrets ===

impl LiveSecrets {
    /// Knows these, too, from now on.
    pub fn add(&self, secrets: impl IntoIterator<Item = Secret>) {
        let new: Vec<Secret> = secrets.into_iter().flat_map(|secret| forms(secret.expose())).collect();
        self.0.rcu(|known| {
            let mut all: Vec<Secret> = Vec::clone(known);
            all.extend(new.iter().filter(|secret| !known.contains(secret)).cloned());
            all.drain(..all.len().saturating_sub(MOST_LIVE));
            all
        });
    }
}

impl fmt::Debug for LiveSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A value, what follows `Bearer` in it, its lines, and each of these as JSON and URLs spell it.
fn forms(value: &str) -> Vec<Secret> {
    let value = value.trim();
    let token = value.split_once(' ').filter(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphabetic()));
    let plain = std::iter::once(value)
        .chain(token.map(|(_, token)| token.trim()))
        .chain(value.lines().map(str::trim));
    let mut forms = Vec::new();
    for form in plain.filter(|form| form.len() >= SHORTEST_REDACTED) {
        let json = serde_json::to_string(form).unwrap_or_default();
        let url: String = url::form_urlencoded::byte_serialize(form.as_bytes()).collect();
        forms.push(Secret::new(form));
        forms.extend([json.trim_matches('"'), &url].into_iter().filter(|f| *f != form).map(Secret::new));
    }
    forms
}

/// Every place where a text holds a value, also where two of them overlap.
fn occurrences<'t>(text: &'t str, value: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text.get(from..)?.find(value)?;
        from = start + text[start..].chars().next().map_or(1, char::len_utf8);
        Some(start..start + value.len())
    })
}

fn percent_decoded(text: &str) -> String {
    // A pair with an empty key decodes its value alone; `+` is a plus here, not a space.
    let pair = format!("={}", text.replace('+', "%2B"));
    url::form_urlencoded::parse(pair.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.0.as_ref().map_or(0, |sought| sought.known.len()))
    }
}

/// Whether a name of a variable, a header or a flag looks like it carries a credential.
pub fn is_credential_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    CREDENTIAL_WORDS.iter().any(|w| name.contains(w))
        || name.ends_with("_KEY")
        || name.ends_with("_PAT")
        || name == "AUTH"
        || name.ends_with("_AUTH")
}

/// What stands in the names of credentials.
const CREDENTIAL_WORDS: [&str; 12] = [
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
    "COOKIE",
];

/// Whether a text of JSON may have a credential in it, by name or by shape. A quick look: if it says no, there is none.
pub(crate) fn may_hold_credential(json: &str) -> bool {
    static TELLING: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
        // Endings of names, and the two schemes that stand before a credential.
        let ends = ["KEY\"", "PAT\"", "AUTH\"", "BASIC ", "BEARER "].map(str::to_owned);
        let words = CREDENTIAL_WORDS.iter().flat_map(|word| [(*word).to_owned(), word.replace('_', "-")]);
        let shapes = CREDENTIAL_BEGINNINGS.iter().chain([&JWT_BEGINNING]).map(|begin| (*begin).to_owned());
        AhoCorasick::builder().ascii_case_insensitive(true).build(words.chain(ends).chain(shapes)).ok()
    });
    // What is escaped reads otherwise.
    memchr::memchr(b'\\', json.as_bytes()).is_some()
        || TELLING.as_ref().is_none_or(|telling| telling.is_match(json))
}

/// How the credentials begin that well-known services hand out, and what stands before one.
const CREDENTIAL_BEGINNINGS: [&str; 24] = [
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

/// How a JSON Web Token begins.
const JWT_BEGINNING: &str = "eyJ";

/// Whether a value has the shape of a credential that well-known services hand out.
pub fn is_credential_value(value: &str) -> bool {
    let long_enough = value.len() >= 16;
    long_enough && (CREDENTIAL_BEGINNINGS.iter().any(|p| value.starts_with(p)) || looks_like_jwt(value))
}

/// A text without the words in it that have such a shape.
pub fn erase_credentials(text: &str) -> Cow<'_, str> {
    if let Some(begin) = text.find("-----BEGIN ") {
        // A key fills many lines, none of which looks like one.
        let rest = &text[begin..];
        let end = rest.find("-----END ").map_or(rest.len(), |end| rest.len().min(end + "-----END ".len()));
        let (before, after) = (erase_credentials(&text[..begin]), erase_credentials(&rest[end..]));
        return Cow::Owned(format!("{before}***{after}"));
    }
    let in_word = |c: char| c.is_ascii_alphanumeric() || "_-.+/=~".contains(c);
    let mut out = String::new();
    let (mut copied, mut from, mut scheme) = (0, 0, false);
    while let Some(start) = text[from..].find(in_word).map(|at| from + at) {
        let end = text[start..].find(|c| !in_word(c)).map_or(text.len(), |at| start + at);
        let word = &text[start..end];
        let follows = scheme && word.len() >= SHORTEST_REDACTED && text[from..start] == *" ";
        if follows || is_credential_value(word) {
            out.push_str(&text[copied..start]);
            out.push_str("***");
            copied = end;
        }
        scheme = word.eq_ignore_ascii_case("bearer");
        from = end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

fn looks_like_jwt(value: &str) -> bool {
    let mut parts = value.split('.');
    value.starts_with(JWT_BEGINNING) && parts.clone().count() == 3 && parts.all(|p| p.len() >= 4)
}
