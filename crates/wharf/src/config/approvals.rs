//! The `[approvals]` table: how calls that somebody must allow are waited for.
//!
//! In: the table of a `wharf.toml`. Out: plain settings for the `store` room. Which calls those are is said by `ask` in
//! `[policy]` and in `[callers.NAME]`.

use std::time::Duration;

use super::duration;
use super::node::{Node, Value};
use super::problem::{Problem, nearest, shown};
use super::source::Source;

/// What `[approvals]` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// How long a call waits for an answer before its caller is told to come back. Defaults to not at all.
    pub wait: Duration,
    /// For how long a question can be answered, and a yes be used. Defaults to an hour.
    pub expires: Duration,
    /// Whether a caller that can be asked may answer for itself: the person at the other end. Defaults to true.
    pub callers: bool,
}

const KEYS: [&str; 3] = ["wait", "expires", "callers"];

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self { wait: Duration::ZERO, expires: Duration::from_secs(60 * 60), callers: true }
    }
}

impl ApprovalSettings {
    /// Applies the table. On an error nothing was changed.
    pub(super) fn apply(&mut self, node: &Node, source: &Source) -> Result<(), Box<Problem>> {
        let Some(entries) = node.as_table() else {
            let message = format!("`approvals` must be a table, not {}", node.kind());
            return Err(Box::new(source.problem(&node.span, message)));
        };
        let mut next = self.clone();
        for entry in entries {
            let time = || {
                let read = duration::read(&entry.node, source.format);
                read.map_err(|(why, hint)| Box::new(source.problem(&entry.node.span, why).hint(hint)))
            };
            match (entry.key.as_str(), &entry.node.value) {
                ("wait", Value::Number(number, _)) if *number == 0.0 => next.wait = Duration::ZERO,
                ("wait", _) => next.wait = time()?,
                ("expires", _) => next.expires = time()?,
                ("callers", Value::Bool(on)) => next.callers = *on,
                ("callers", _) => {
                    let message = format!("`callers` must be true or false, not {}", entry.node.kind());
                    return Err(Box::new(source.problem(&entry.node.span, message)));
                }
                (unknown, _) => {
                    let message = format!("unknown key {} in `[approvals]`", shown(unknown));
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
