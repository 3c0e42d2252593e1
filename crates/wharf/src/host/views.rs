//! What callers see of shared servers over connections of their own.
//!
//! In: a shared server, and a scope that calls for somebody. Out: the server itself, or a view of it: the same server as
//! it shows itself over the scope's first lane, with lists of its own. A view is good as long as its server is there;
//! that is looked at whenever somebody looks, so nobody has to be told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pins::Pins;
use super::scope::{Scope, Servers};
use super::server::Server;
use crate::config::{Connect, Share};
use crate::mcp::Era;
use crate::names::ServerName;
use crate::registry::{ServerTools, Snapshot};
use crate::wire::Json;

/// The views of one scope.
#[derive(Default)]
pub(super) struct Views {
    /// Whether there is any, so that most need not look.
    any: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    views: HashMap<ServerName, Arc<Server>>,
    /// The shared servers that they were last compared with.
    with: Option<Arc<Servers>>,
}

/// Whoever a scope calls for.
pub(super) struct Relays {
    /// Whether they can be asked anything.
    is_able: bool,
    /// What servers are told of them.
    pub(super) said: Json,
    /// The number of the gateway whose callers they are.
    pub(super) gateway: u64,
}

// === impl Scope ===

impl Scope {
    /// From now on this scope calls for whoever its asker speaks for.
    pub(super) fn relay(&mut self, gateway: Option<u64>) {
        let (Some(agent), Some(gateway)) = (self.agent.as_mut(), gateway) else { return };
        let (modern, legacy) = (self.asker.capabilities(), self.asker.legacy_capabilities());
        let is_able = modern != Json::empty_object();
        let said = if modern == legacy { modern } else { Json::of(&[modern, legacy]) };
        agent.relays = Some(Relays { is_able, said, gateway });
    }

    /// What can be called now.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.refit();
        self.registry.snapshot()
    }

    /// A shared server as this scope sees it, as far as is known without asking anybody.
    pub(super) fn seen(&self, server: &Arc<Server>) -> Arc<Server> {
        match self.has_own_view(server) {
            Some(true) => self.view(server),
            _ => Arc::clone(server),
        }
    }

    /// Any server that can be seen from here, in the same way.
    pub(super) fn as_seen(&self, server: Arc<Server>) -> Arc<Server> {
        if server.view.is_some() { server } else { self.seen(&server) }
    }

    /// Whether it is known how this scope sees a server. Else its era has to be found out first.
    pub(super) fn is_settled(&self, server: &Arc<Server>) -> bool {
        server.view.is_some() || self.has_own_view(server).is_some()
    }

    /// The same, and a server whose era nobody knows is asked.
    pub(super) async fn settled(&self, server: Arc<Server>) -> Arc<Server> {
        if server.view.is_some() || self.has_own_view(&server) == Some(false) {
            return server;
        }
        if self.has_own_view(&server).is_none() && server.recent_trouble().is_none() {
            // What fails is remembered, and found by whoever looks for the lists.
            let _ = Box::pin(server.connection()).await;
        }
        self.seen(&server)
    }

    /// Whether it has a view of its own of a shared server.
    pub(super) fn views(&self, server: &ServerName) -> bool {
        self.views.any.load(Ordering::Acquire) && self.views.lock().views.contains_key(server)
    }

    /// What this scope sees of a shared server in its own way, if it does.
    pub(super) fn current_view(&self, server: &ServerName) -> Option<Arc<Server>> {
        let agent = self.agent.as_ref()?;
        let shared = agent.shared.servers.load().get(server).cloned()?;
        Some(self.seen(&shared)).filter(|server| server.view.is_some())
    }

    /// Shows what a view offers, unless its server was taken away in the meantime.
    pub(super) fn publish_view(&self, view: &Arc<Server>, offered: ServerTools) {
        let kept = self.views.lock();
        let is_kept = kept.views.get(&view.config.name).is_some_and(|kept| Arc::ptr_eq(kept, view));
        if is_kept && self.is_current(view) {
            self.registry.replace_view(offered);
        }
    }

    /// Lets go of views whose servers are gone or others now.
    pub(super) fn refit(&self) {
        let Some(agent) = self.agent.as_ref().filter(|_| self.views.any.load(Ordering::Acquire)) else {
            return;
        };
        let now = agent.shared.servers.load_full();
        let mut kept = self.views.lock();
        if kept.with.as_ref().is_some_and(|with| Arc::ptr_eq(with, &now)) {
            return;
        }
        let stale: Vec<Arc<Server>> =
            kept.views.values().filter(|view| !self.is_current(view)).cloned().collect();
        for view in stale {
            let name = &view.config.name;
            kept.views.remove(name);
            match now.get(name).filter(|server| is_same_place(&view, server)) {
                // It is only shown or called in another way.
                Some(server) => {
                    let next = self.view_of(server);
                    next.succeed(&view);
                    if let Some(seen) = next.tools.last() {
                        self.registry.replace_view(seen.offered);
                    }
                    kept.views.insert(name.clone(), next);
                }
                None => {
                    self.registry.remove_view(name);
                    self.lanes.leave(view, &self.pool);
                }
            }
        }
        kept.with = Some(now);
    }

    /// Whether this scope has a view of its own of a shared server: wherever its calls have a way of their own. `None`
    /// if that depends on an era that nobody knows yet.
    fn has_own_view(&self, server: &Arc<Server>) -> Option<bool> {
        let Some(relays) = self.agent.as_ref().and_then(|agent| agent.relays.as_ref()) else {
            return Some(false);
        };
        match server.config.share {
            Some(Share::All) => Some(false),
            // Nobody could connect it by hand.
            _ if server.config.connect == Connect::Manual => Some(false),
            Some(Share::PerCaller) => Some(true),
            _ if !relays.is_able && !self.peer.has_level() => Some(false),
            _ => {
                let kept = self.views.lock().views.get(&server.config.name).cloned();
                if kept.is_some_and(|view| is_of(&view, server)) {
                    return Some(true);
                }
                self.era_of(server).map(|era| era == Era::Legacy)
            }
        }
    }

    /// The era of a server, as far as is known without asking it.
    fn era_of(&self, server: &Arc<Server>) -> Option<Era> {
        let known = self.pool.dock().known_era(&server.config);
        let live = || server.live().map(|connection| connection.info().revision.era());
        let recalled = |server: &Server| server.recalled().map(|pinned| pinned.revision.era());
        known.or_else(live).or_else(|| recalled(server)).or_else(|| recalled(&self.view_of(server)))
    }

    fn view(&self, server: &Arc<Server>) -> Arc<Server> {
        let mut kept = self.views.lock();
        let before = kept.views.get(&server.config.name).cloned();
        if let Some(view) = before.as_ref().filter(|view| is_of(view, server)) {
            return Arc::clone(view);
        }
        let view = self.view_of(server);
        if let Some(before) = before.filter(|before| is_same_place(before, server)) {
            view.succeed(&before);
        }
        kept.views.insert(server.config.name.clone(), Arc::clone(&view));
        kept.with = None;
        self.views.any.store(true, Ordering::Release);
        view
    }

    fn view_of(&self, server: &Arc<Server>) -> Arc<Server> {
        let (shared, said) = match &self.agent {
            Some(agent) => (&*agent.shared, agent.relays.as_ref().map(|relays| &relays.said)),
            None => (self, None),
        };
        let store = shared.store.as_ref().unwrap_or(&shared.views_store);
        let environment = &self.pool.dock().environment;
        let pins = Pins::new(Arc::clone(store), &server.config, environment, server.redactor.clone());
        let pins = match said {
            Some(said) => pins.shown_to(said),
            None => pins,
        };
        let lane = self.lanes.first(server, &self.pool);
        Arc::new(Server::through(server, lane, pins))
    }

    /// Whether a view is of the server that is there now.
    fn is_current(&self, view: &Server) -> bool {
        let Some(agent) = &self.agent else { return false };
        agent.shared.servers.load().get(&view.config.name).is_some_and(|server| is_of(view, server))
    }
}

// === impl Views ===

impl Views {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of(view: &Server, server: &Arc<Server>) -> bool {
    view.view.as_ref().is_some_and(|view| Arc::ptr_eq(&view.of, server))
}

/// Whether a server has the connection of the one that a view is of.
fn is_same_place(view: &Server, server: &Server) -> bool {
    view.view.as_ref().is_some_and(|view| view.of.berth.is_same(&server.berth))
}
