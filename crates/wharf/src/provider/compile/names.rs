//! The names that providers are given: within their rules, and no two alike.
//!
//! In: public names of the registry. Out: the same where they fit. Others are cut and get a suffix of the tool's
//! identity, which does not depend on the other tools. Nothing is ever read back out of a name.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::registry::Route;

/// Digits of the suffix: for every day, and for whoever provokes more.
const DIGITS: [usize; 2] = [10, 32];

/// One name each, or `None` where it would still be like another's.
pub(super) fn assign(routes: &[&Route], max: usize) -> Vec<Option<String>> {
    let plain: Vec<String> = routes.iter().map(|route| allowed(&route.public)).collect();
    let mut claims: HashMap<String, usize> = HashMap::new();
    for name in &plain {
        *claims.entry(name.to_ascii_lowercase()).or_default() += 1;
    }
    // Who has a plain name that nobody else wants keeps it, whatever the order.
    let keeps = |name: &String| name.len() <= max && claims.get(&name.to_ascii_lowercase()) == Some(&1);
    let mut taken: HashSet<String> =
        plain.iter().filter(|n| keeps(n)).map(|n| n.to_ascii_lowercase()).collect();
    let mut names = Vec::with_capacity(routes.len());
    for (route, name) in routes.iter().zip(plain) {
        if keeps(&name) {
            names.push(Some(name));
            continue;
        }
        let suffixed = DIGITS.map(|digits| with_suffix(&name, route, max, digits));
        names.push(suffixed.into_iter().find(|name| taken.insert(name.to_ascii_lowercase())));
    }
    names
}

/// Letters, digits, `_` and `-`, and a letter or `_` first: what every provider takes.
fn allowed(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let mut allowed: String = name.chars().map(plain).collect();
    if !allowed.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        allowed.insert(0, '_');
    }
    allowed
}

fn with_suffix(name: &str, route: &Route, max: usize, digits: usize) -> String {
    let identity = Sha256::new()
        .chain_update(route.server.as_str())
        .chain_update([0])
        .chain_update(route.tool.name.as_str())
        .finalize();
    // Allowed names are ASCII, so any cut is between characters.
    let mut suffixed = name[..name.len().min(max.saturating_sub(digits + 1))].to_owned();
    suffixed.push('_');
    for byte in &identity[..digits / 2] {
        let _ = write!(suffixed, "{byte:02x}");
    }
    suffixed
}
