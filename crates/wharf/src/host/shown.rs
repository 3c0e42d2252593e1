//! What of a server's lists is shown.
//!
//! In: lists as the server gave them. Out: what `policy` permits of them, and word of what was kept back, once. The lists
//! themselves stay as they came, so that another lock shows another part of them without the server being asked.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::server::{Seen, Server};
use crate::catalog::{Offered, Rejected};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::mcp::{ListKind, Tool};
use crate::policy::Policy;
use crate::wire::{Json, fingerprint};

/// What was shown last, and of what that was made.
#[derive(Default)]
pub(super) struct Shown {
    last: Mutex<Option<Last>>,
    /// What was told of: kind, name, and the fingerprint, or nothing for what is gone.
    told: Mutex<HashSet<(ListKind, String, String)>>,
}

struct Last {
    under: Arc<Policy>,
    of: Arc<[Arc<Tool>]>,
    shown: Seen,
}

/// A server that offers ever new things is not told of for ever.
const MOST_TOLD: usize = 1000;

// === impl Server ===

impl Server {
    /// Whether only what was accepted of it may be used.
    pub(super) fn is_locked(&self) -> bool {
        self.policy.with(|policy| policy.is_locked(&self.config.name))
    }

    /// May this definition be used?
    pub(super) fn permit(&self, kind: ListKind, name: &str, raw: &Json) -> Result<()> {
        self.policy
            .with(|policy| policy.permit_definition(&self.config.name, kind, name, || fingerprint(raw)))
    }

    /// The tools that may be used; the others are among the rejected. Of a server that is held to what was accepted, in the
    /// order of their names, so that the order is the same before it is started and after.
    pub(super) fn shown(&self, seen: Seen) -> Seen {
        let policy = self.policy.now();
        if !policy.is_locked(&self.config.name) {
            return seen;
        }
        let mut last = self.shown.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && Arc::ptr_eq(&last.under, &policy)
            && Arc::ptr_eq(&last.of, &seen.offered.tools)
            && Arc::ptr_eq(&last.shown.offered.config, &seen.offered.config)
        {
            return last.shown.clone();
        }
        let (of, mut rejected) = (Arc::clone(&seen.offered.tools), seen.rejected.to_vec());
        let mut tools: Vec<Arc<Tool>> = Vec::with_capacity(of.len());
        for tool in of.iter() {
            let live = || tool.fingerprint().to_owned();
            match policy.permit_definition(&self.config.name, ListKind::Tools, tool.name.as_str(), live) {
                Ok(()) => tools.push(Arc::clone(tool)),
                Err(error) => {
                    self.tell_blocked(ListKind::Tools, tool.name.as_str(), tool.fingerprint(), &error);
                    rejected.push(blocked(tool.name.as_str(), error));
                }
            }
        }
        for gone in policy.accepted(&self.config.name, ListKind::Tools) {
            if !of.iter().any(|tool| tool.name.as_str() == gone) {
                self.tell_gone(gone);
            }
        }
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        let shown = self.seen(tools.into(), rejected);
        *last = Some(Last { under: policy, of, shown: shown.clone() });
        shown
    }

    /// The same for another list.
    pub(super) fn shown_list<T>(
        &self,
        kind: ListKind,
        mut list: Offered<T>,
        parts: impl Fn(&T) -> (&str, &Json),
    ) -> Offered<T> {
        // Resources come and go: they are not held to anything.
        if kind == ListKind::Resources || !self.is_locked() {
            return list;
        }
        let (mut items, all) = (Vec::with_capacity(list.items.len()), std::mem::take(&mut list.items));
        for item in all {
            let (name, raw) = parts(&item);
            match self.permit(kind, name, raw) {
                Ok(()) => items.push(item),
                Err(error) => {
                    self.tell_blocked(kind, name, &fingerprint(raw), &error);
                    list.rejected.push(blocked(name, error));
                }
            }
        }
        Offered { items, ..list }
    }

    fn tell_blocked(&self, kind: ListKind, name: &str, fingerprint: &str, error: &Error) {
        if self.is_news(kind, name, fingerprint) {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            self.events.publish(|| Event::Blocked {
                server: self.config.name.clone(),
                kind,
                name: name.into(),
                reason: format!("{error}{hint}"),
            });
        }
    }

    fn tell_gone(&self, tool: &str) {
        if self.is_news(ListKind::Tools, tool, "") {
            let server = self.config.name.clone();
            let message = format!(
                "server `{server}` has no tool `{}` any more, which is in the lockfile; see `wharf diff {server}`",
                crate::text::Escaped(tool)
            );
            self.events.publish(|| Event::Warning { server, message });
        }
    }

    fn is_news(&self, kind: ListKind, name: &str, fingerprint: &str) -> bool {
        let mut told = self.shown.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < MOST_TOLD && told.insert((kind, name.to_owned(), fingerprint.to_owned()))
    }
}

fn blocked(name: &str, error: Error) -> Rejected {
    Rejected { name: name.into(), reason: error.to_string(), denied: Some(Box::new(error)) }
}
