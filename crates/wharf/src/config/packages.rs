//! The `[packages]` table: how packages of `npx`, `uvx` and `pipx` are fetched for confined servers.
//!
//! In: the table of a `wharf.toml`. Out: plain settings for `sandbox::packages`. Only the user's own file and one that is
//! named on the command line may have it: scripts run outside of the sandbox.

use std::time::Duration;

use super::node::{Entry, Node, Value};
use super::problem::{Problem, nearest, shown};
use super::source::Source;
use super::{duration, policy, sandbox};

/// What `[packages]` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageSettings {
    /// Packages that may run code of their own while they are installed, by name. Defaults to none.
    pub scripts: Vec<String>,
    /// How long fetching one may take. Defaults to 5 minutes.
    pub time: Option<Duration>,
    /// How large one may be, with everything that it needs, in bytes. Defaults to 1 GiB.
    pub size: Option<u64>,
}

const KEYS: [&str; 3] = ["scripts", "time", "size"];
const SMALLEST: u64 = 1 << 20;

impl PackageSettings {
    /// Applies the table. On an error nothing was changed.
    pub(super) fn apply(&mut self, node: &Node, source: &Source) -> Result<(), Box<Problem>> {
        let Some(entries) = node.as_table() else {
            let message = format!("`packages` must be a table, not {}", node.kind());
            return Err(Box::new(source.problem(&node.span, message)));
        };
        let mut next = self.clone();
        for entry in entries {
            match entry.key.as_str() {
                "scripts" => {
                    let names = policy::texts_at(entry, source)?.into_iter();
                    next.scripts = names.map(|(name, _)| name.to_owned()).collect();
                }
                "time" => next.time = Some(time(entry, source)?),
                "size" => next.size = Some(size(entry, source)?),
                unknown => {
                    let message = format!("unknown key {} in `[packages]`", shown(unknown));
                    let hint = match nearest(unknown, KEYS) {
                        Some(name) => format!("did you mean `{name}`?"),
                        None => format!("the keys are `{}`", KEYS.join("`, `")),
                    };
                    return Err(Box::new(source.problem(&entry.key_span, message).hint(hint)));
                }
            }
        }
        *self = next;
        Ok(())
    }
}

fn time(entry: &Entry, source: &Source) -> Result<Duration, Box<Problem>> {
    duration::read(&entry.node, source.format)
        .map_err(|(why, hint)| Box::new(source.problem(&entry.node.span, why).hint(hint)))
}

fn size(entry: &Entry, source: &Source) -> Result<u64, Box<Problem>> {
    let bytes = match &entry.node.value {
        Value::Text(text) => sandbox::with_unit(text),
        _ => None,
    };
    bytes.filter(|bytes| *bytes >= SMALLEST).ok_or_else(|| {
        let problem = source.problem(&entry.node.span, "`size` must be a size of at least 1 MB");
        Box::new(problem.hint("write \"500MB\" or \"2GB\""))
    })
}
