//! Credentials that stand in a text.

use super::{Hit, Severity};
use crate::secret::is_credential_value;

/// What the rule is called.
pub(super) const RULE: &str = "secret.value";

/// So many different characters has no placeholder: `ghp_xxxxxxxxxxxxxxxx` is none.
const VARIED: usize = 10;

pub(super) fn hits(text: &str) -> Vec<Hit> {
    let mut hits = Vec::new();
    if let Some(start) = text.find("-----BEGIN ")
        && text[start..].lines().next().is_some_and(|line| line.contains("PRIVATE KEY"))
    {
        let end = text[start..].find("-----END").map_or(text.len(), |at| start + at);
        hits.push(Hit { rule: RULE, severity: Severity::High, range: start..end });
    }
    let in_word = |c: char| c.is_ascii_alphanumeric() || "_-.+/~".contains(c);
    let mut from = 0;
    while let Some(start) = text[from..].find(in_word).map(|at| from + at) {
        let end = text[start..].find(|c| !in_word(c)).map_or(text.len(), |at| start + at);
        let word = &text[start..end];
        if word.len() >= 16 && is_credential_value(word) && varied(word) {
            hits.push(Hit { rule: RULE, severity: Severity::High, range: start..end });
        }
        from = end;
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
