//! MCP Apps: user interfaces that servers bring along, and tools that are for these interfaces alone.
//!
//! To a caller all servers are one, so it cannot keep the app of one server from calling another's tools. That is done
//! here: a tool that is for apps only is there for callers who have read a user interface of the same server.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::visit::Visit;
use crate::mcp::extension;
use crate::names::{CallerName, ServerName};
use crate::registry::{Route, Snapshot};

/// Whose user interfaces callers have read.
#[derive(Debug, Default)]
pub(super) struct Apps(Mutex<HashMap<CallerName, HashSet<ServerName>>>);

/// What the addresses of user interfaces begin with.
const INTERFACE: &str = "ui://";
/// How many callers are remembered. More than that begin anew: they read an interface again.
const MOST: usize = 10_000;

// === impl Apps ===

impl Apps {
    /// A caller has read a resource of a server.
    pub(super) fn read(&self, caller: &CallerName, server: &ServerName, uri: &str) {
        if !uri.starts_with(INTERFACE) {
            return;
        }
        let mut known = self.lock();
        if known.len() >= MOST && !known.contains_key(caller) {
            known.clear();
        }
        known.entry(caller.clone()).or_default().insert(server.clone());
    }

    /// Whether a caller may call this tool at all.
    pub(super) fn may_call(&self, caller: &CallerName, route: &Route, visit: &Visit<'_>) -> bool {
        !route.tool.app_only || (are_known(visit) && self.has(caller, &route.server))
    }

    /// The tool that an app means by the name that its server gave it, if only one can be meant.
    pub(super) fn tool<'s>(
        &self,
        caller: &CallerName,
        snapshot: &'s Snapshot,
        name: &str,
    ) -> Option<&'s Route> {
        let mut meant = snapshot
            .tools()
            .iter()
            .filter(|route| route.tool.name.as_str() == name && self.has(caller, &route.server));
        let first = meant.next();
        first.filter(|_| meant.next().is_none())
    }

    fn has(&self, caller: &CallerName, server: &ServerName) -> bool {
        self.lock().get(caller).is_some_and(|servers| servers.contains(server))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallerName, HashSet<ServerName>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a caller says that it shows user interfaces.
pub(super) fn are_known(visit: &Visit<'_>) -> bool {
    let capabilities = visit.relayed.told.capabilities.as_ref();
    capabilities.is_some_and(|all| extension::is_in(all, extension::APPS))
}
