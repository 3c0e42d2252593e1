//! The `[audit]` table: where the record is kept, and for how long.
//!
//! In: the table of a `wharf.toml`. Out: plain settings for the `store` room. Only the user's own file and one that is
//! named on the command line may have it.

use std::path::PathBuf;
use std::time::Duration;

use super::node::{Entry, Node, Value};
use super::problem::{Problem, nearest, shown};
use super::source::Source;

/// What `[audit]` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditSettings {
    /// Whether no record is kept. Defaults to false.
    pub off: bool,
    /// The file. Defaults to one in the user's folder for state.
    pub path: Option<PathBuf>,
    /// How long records are kept. Defaults to for ever.
    pub keep: Option<Duration>,
    /// How large the file may grow before its oldest records go, in bytes. Defaults to any size.
    pub keep_size: Option<u64>,
    /// Whether arguments are on record by size and digest alone: `arguments = "digest"`. Defaults to false.
    pub digest_only: bool,
}

const KEYS: [&str; 5] = ["off", "path", "keep", "keep_size", "arguments"];
const DAY: u64 = 24 * 60 * 60;

type Read<T> = Result<T, Box<Problem>>;

impl AuditSettings {
    /// Applies the table. On an error nothing was changed.
    pub(super) fn apply(&mut self, node: &Node, source: &Source) -> Read<()> {
        let Some(entries) = node.as_table() else {
            let message = format!("`audit` must be a table, not {}", node.kind());
            return Err(Box::new(source.problem(&node.span, message)));
        };
        let mut next = self.clone();
        for entry in entries {
            match entry.key.as_str() {
                "off" => next.off = flag(entry, source)?,
                "path" => next.path = Some(path(entry, source)?),
                "keep" => next.keep = Some(age(entry, source)?),
                "keep_size" => next.keep_size = Some(size(entry, source)?),
                "arguments" => next.digest_only = arguments(entry, source)?,
                unknown => {
                    let problem = source
                        .problem(&entry.key_span, format!("unknown key {} in `[audit]`", shown(unknown)));
                    return Err(Box::new(problem.hint(match nearest(unknown, KEYS) {
                        Some(name) => format!("did you mean `{name}`?"),
                        None => format!("the keys are `{}`", KEYS.join("`, `")),
                    })));
                }
            }
        }
        *self = next;
        Ok(())
    }
}

fn wrong<T>(entry: &Entry, source: &Source, message: String, hint: &str) -> Read<T> {
    Err(Box::new(source.problem(&entry.node.span, message).hint(hint)))
}

fn flag(entry: &Entry, source: &Source) -> Read<bool> {
    match entry.node.value {
        Value::Bool(on) => Ok(on),
        _ => wrong(
            entry,
            source,
            format!("`off` must be true or false, not {}", entry.node.kind()),
            "write `off = true`",
        ),
    }
}

/// Relative paths are meant from the file that has them.
fn path(entry: &Entry, source: &Source) -> Read<PathBuf> {
    let hint = "write the path of a file; it is made if it is not there";
    match entry.node.as_text() {
        Some(text) if !text.is_empty() => Ok(source.path.parent().unwrap_or(&source.path).join(text)),
        _ => wrong(entry, source, "`path` must be the path of a file".into(), hint),
    }
}

fn arguments(entry: &Entry, source: &Source) -> Read<bool> {
    match entry.node.as_text() {
        Some("redacted") => Ok(false),
        Some("digest") => Ok(true),
        _ => {
            let message = "`arguments` must be \"redacted\" or \"digest\"".into();
            wrong(entry, source, message, "\"digest\" keeps their size and SHA-256 alone")
        }
    }
}

fn age(entry: &Entry, source: &Source) -> Read<Duration> {
    let units = [("h", 60 * 60), ("d", DAY), ("w", 7 * DAY), ("y", 365 * DAY)];
    match entry.node.as_text().and_then(|text| in_units(text, &units)) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => {
            wrong(entry, source, "`keep` must be a time".into(), "write \"90d\", \"12h\", \"4w\" or \"1y\"")
        }
    }
}

fn size(entry: &Entry, source: &Source) -> Read<u64> {
    let units = [("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("TB", 1 << 40)];
    match entry.node.as_text().and_then(|text| in_units(text, &units)) {
        Some(bytes) if bytes >= 1 << 20 => Ok(bytes),
        _ => wrong(
            entry,
            source,
            "`keep_size` must be a size of at least 1 MB".into(),
            "write \"500MB\" or \"2GB\"",
        ),
    }
}

/// A whole number and one of these units.
fn in_units(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    number.parse::<u64>().ok().filter(|number| *number > 0)?.checked_mul(*factor)
}
