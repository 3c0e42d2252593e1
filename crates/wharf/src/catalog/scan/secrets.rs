//! Credentials that stand in a text.

use super::{Hit, Severity};
use crate::secret::is_credential_value;

/// What the rule is called.
pub(super) const RULE: &str = "secret.value";

/// So many different characters has no placeholder: `ghp_xxxxxxxxxxxxxxxx` is none.
const VARIED: usize = 10;

/// No credential is shorter.
const SHORTEST: usize = 16;

pub(super) fn hits(text: &str) -> Vec<Hit> {
    let mut hits = Vec::new();
    if text.len() < SHORTEST {
        return hits;
    }
    if let Some(start) = memchr::memchr(b'-', text.as_bytes()).and_then(|_| text.find("-----BEGIN "))
        && text[start..].lines().next().is_some_and(|line| line.contains("PRIVATE KEY"))
    {
        let end = text[start..].find("-----END").map_or(text.len(), |at| start + at);
        hits.push(Hit { rule: RULE, severity: Severity::High, range: start..end });
    }
    // Words are ASCII, so bytes will do.
    let in_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'+' | b'/' | b'~');
    let mut from = 0;
    for word in text.as_bytes().split(|b| !in_word(b)) {
        let range = from..from + word.len();
        from = range.end + 1;
        let is_it = |word: &&str| is_credential_value(word) && varied(word);
        if word.len() >= SHORTEST && text.get(range.clone()).is_some_and(|word| is_it(&word)) {
            hits.push(Hit { rule: RULE, severity: Severity::High, range });
        }
    }
    hits
}

/// A finding must not repeat what it found.
pub(super) fn shown() -> String {
    "***".into()
}

fn varied(word: &str) -> bool {
    let mut seen = [false; 128];
    word.bytes().filter(u8::is_ascii).for_each(|b| seen[usize::from(b)] = true);
    seen.iter().filter(|seen| **seen).count() >= VARIED && word.bytes().any(|b| b.is_ascii_digit())
}
