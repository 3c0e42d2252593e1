//! Servers in and out of a scope.
//!
//! In: a server, docked or on its way. Out: the scope's servers and its share of the registry, changed together. What is
//! looked at before a server arrives leaves nothing behind if it does not.

use std::sync::{Arc, PoisonError};

use indexmap::IndexMap;

use super::scope::Scope;
use super::server::Server;
use crate::config::ServerConfig;
use crate::error::{Error, Result};
use crate::registry::ServerTools;

/// A server on its way into a scope. If it does not arrive, its connection closes.
pub(super) struct Opening {
    pub(super) server: Arc<Server>,
    scope: Arc<Scope>,
}

// === impl Opening ===

impl Opening {
    /// Nothing is started yet, and nobody sees it.
    pub(super) fn new(scope: &Arc<Scope>, config: ServerConfig) -> Result<Self> {
        usable(&config)?;
        let server = Arc::new(Server::new(Arc::new(config), &scope.pool, scope.store.as_ref()));
        Ok(Self { server, scope: Arc::clone(scope) })
    }

    /// It will not arrive. Waits until nothing of it is left.
    pub(super) async fn give_up(self) {
        if !self.scope.uses(&self.server) {
            self.server.disconnect().await;
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !self.scope.uses(&self.server) {
            self.scope.pool.forget(&self.server.config);
        }
    }
}

// === impl Scope ===

impl Scope {
    /// Docks a server in this scope, in the place of one of its name. Nothing is started.
    pub(super) fn add(&self, config: ServerConfig) -> Arc<Server> {
        let server = Arc::new(Server::new(Arc::new(config), &self.pool, self.store.as_ref()));
        self.put(&server, true);
        server
    }

    /// Docks a server, in the place of one of its name or only if there is none. False if it was not docked.
    pub(super) fn put(&self, server: &Arc<Server>, replace: bool) -> bool {
        let _one_at_a_time = self.docking.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &server.config.name;
        let before = self.servers.load().get(name).cloned();
        match before {
            Some(_) if !replace => return false,
            Some(before) if before.identity != server.identity => self.pool.forget(&before.config),
            _ => {}
        }
        let mut servers = IndexMap::clone(&self.servers.load());
        servers.insert(name.clone(), Arc::clone(server));
        self.servers.store(Arc::new(servers));
        self.registry.remove(name);
        true
    }

    /// Takes a server away, with its tools and its connection. False if it is not there any more.
    pub(super) async fn remove(&self, server: &Arc<Server>) -> bool {
        {
            let _one_at_a_time = self.docking.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.owns(server) {
                return false;
            }
            let mut servers = IndexMap::clone(&self.servers.load());
            servers.shift_remove(&server.config.name);
            self.servers.store(Arc::new(servers));
            self.registry.remove(&server.config.name);
            self.pool.forget(&server.config);
        }
        server.disconnect().await;
        true
    }

    /// Shows what a server offers, unless it was taken away in the meantime.
    pub(super) fn publish(&self, server: &Arc<Server>, offered: ServerTools) {
        self.publish_all(vec![(Arc::clone(server), offered)]);
    }

    /// The same for several servers of this scope at once.
    pub(super) fn publish_all(&self, mut all: Vec<(Arc<Server>, ServerTools)>) {
        for (server, offered) in all.extract_if(.., |(server, _)| server.view.is_some()) {
            self.publish_view(&server, offered);
        }
        if all.is_empty() {
            return;
        }
        let _one_at_a_time = self.docking.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.into_iter().filter(|(server, _)| self.owns(server));
        self.registry.replace_all(own.map(|(_, offered)| offered));
    }

    /// The scope that a server belongs to: this one, or the shared one. A view is its caller's.
    pub(super) fn home(&self, server: &Arc<Server>) -> &Self {
        match &self.agent {
            Some(agent) if server.view.is_none() && !self.owns(server) => agent.shared.home(server),
            _ => self,
        }
    }

    pub(super) fn owns(&self, server: &Arc<Server>) -> bool {
        self.servers.load().get(&server.config.name).is_some_and(|own| Arc::ptr_eq(own, server))
    }

    /// Whether a docked server has this one's connection.
    fn uses(&self, server: &Server) -> bool {
        self.servers.load().get(&server.config.name).is_some_and(|own| own.identity == server.identity)
    }
}

/// Whether a server may be used at all.
pub(super) fn usable(config: &ServerConfig) -> Result<()> {
    if config.enabled {
        return Ok(());
    }
    Err(Error::Denied {
        what: format!("server `{}`", config.name),
        rule: "`enabled = false` in its configuration".into(),
        hint: "set `enabled = true` to use it".into(),
    })
}
