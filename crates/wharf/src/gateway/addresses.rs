//! Addresses of resources: those that say which server they are of, and those that a template stands for.

use crate::names::ServerName;

/// What an address begins with that names its server.
const MARK: &str = "wharf+";

/// Which part of an address a gap stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// One step of a path, as RFC 6570 has it for a plain gap.
    Step,
    /// Anything: servers take paths where their templates say a step.
    Anything,
}

/// An address that names its server.
pub(super) fn marked(server: &ServerName, address: &str) -> String {
    format!("{MARK}{server}:{address}")
}

/// Whether an address begins like one that names its server.
pub(super) fn is_marked(address: &str) -> bool {
    address.starts_with(MARK)
}

/// The server that an address names, and the address as that server knows it.
pub(super) fn unmarked(address: &str) -> Option<(&str, &str)> {
    address.strip_prefix(MARK)?.split_once(':')
}

/// Whether a template may stand for an address. Literal text must be there; gaps take what is between.
pub(super) fn fits(template: &str, address: &str, gap: Gap) -> bool {
    let Some((first, mut rest)) = literal(template) else { return false };
    let Some(mut left) = address.strip_prefix(first) else { return false };
    while let Some((expression, after)) = rest.split_once('}') {
        let Some((text, next)) = literal(after) else { return false };
        let end = match (text, next) {
            ("", "") => Some(left.len()),
            ("", _) => Some(0),
            // The last text stands at the end.
            (text, "") => left.len().checked_sub(text.len()).filter(|at| left.get(*at..) == Some(text)),
            (text, _) => left.find(text),
        };
        let Some(end) = end else { return false };
        // Two gaps side by side are one: the second takes it all.
        let is_first_of_two = text.is_empty() && !next.is_empty();
        if !is_first_of_two && !fills(expression, &left[..end], gap) {
            return false;
        }
        left = &left[end + text.len()..];
        rest = next;
    }
    // A gap that does not end is none.
    left.is_empty() && rest.is_empty()
}

/// The text before the next gap, and what follows its brace. `None` if a brace closes that was never opened.
fn literal(template: &str) -> Option<(&str, &str)> {
    let (text, rest) = template.split_once('{').unwrap_or((template, ""));
    (!text.contains('}')).then_some((text, rest))
}

/// Whether a gap may stand for a text.
fn fills(expression: &str, text: &str, gap: Gap) -> bool {
    match expression.chars().next() {
        // What comes with an operator may have any shape, or be left out.
        Some('+' | '#' | '.' | '/' | ';' | '?' | '&') => true,
        _ => !text.is_empty() && (gap == Gap::Anything || !text.contains(['/', '?', '#'])),
    }
}
