//! The `[limits]` table: how much a server may send.
//!
//! In: the table of a `wharf.toml`. Out: [`Limits`] for the wire. A project's file may only lower them.

use crate::wire::Limits;

use super::node::{Node, Value};
use super::policy::Refusal;
use super::problem::{nearest, shown};
use super::source::Source;

/// The keys, and the most each may be.
const KEYS: [(&str, usize); 6] = [
    ("line", GIB),
    ("event", GIB),
    ("body", GIB),
    ("depth", 127),
    ("unexpected_notifications", 1_000_000),
    ("banner_lines", 10_000),
];
const GIB: usize = 1024 * 1024 * 1024;

/// Applies the table. With `only_lower`, a higher limit than now is refused.
pub(super) fn apply(node: &Node, source: &Source, only_lower: bool, to: &mut Limits) -> Result<(), Refusal> {
    let Some(entries) = node.as_table() else {
        let message = format!("`limits` must be a table, not {}", node.kind());
        return Err(Refusal::Invalid(Box::new(source.problem(&node.span, message))));
    };
    let mut next = to.clone();
    for entry in entries {
        let Some((name, most)) = KEYS.iter().find(|(name, _)| *name == entry.key) else {
            let message = format!("unknown limit {} in `[limits]`", shown(&entry.key));
            let names = KEYS.map(|(name, _)| name);
            let hint = match nearest(&entry.key, names) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("the limits are {}", names.map(|n| format!("`{n}`")).join(", ")),
            };
            return Err(Refusal::Invalid(Box::new(source.problem(&entry.key_span, message).hint(hint))));
        };
        let least = if *name == "banner_lines" || *name == "unexpected_notifications" { 0 } else { 1 };
        let value = match &entry.node.value {
            Value::Number(number, spelling) => spelling.parse::<usize>().ok().filter(|_| number.is_finite()),
            _ => None,
        };
        let Some(value) = value.filter(|value| (least..=*most).contains(value)) else {
            let message = format!("`{name}` must be a whole number from {least} to {most}");
            return Err(Refusal::Invalid(Box::new(source.problem(&entry.node.span, message))));
        };
        let field = match *name {
            "line" => &mut next.line,
            "event" => &mut next.event,
            "body" => &mut next.body,
            "depth" => &mut next.depth,
            "unexpected_notifications" => &mut next.unexpected_notifications,
            _ => &mut next.banner_lines,
        };
        if only_lower && value > *field {
            let message =
                format!("a project's file may lower a limit, not raise it: `{name}` is {field} so far");
            return Err(Refusal::Widens(Box::new(source.problem(&entry.node.span, message))));
        }
        *field = value;
    }
    *to = next;
    Ok(())
}
