//! Another configuration for a host that runs.
//!
//! In: the servers as they should be. Out: the difference, applied: what did not change keeps its connection, what did
//! is docked anew, and what is gone leaves when its calls have ended. Reading files and deciding whom to trust is done
//! before.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Host;
use super::scope::{Scope, Servers};
use super::server::Server;
use crate::catalog::ListKind;
use crate::config::{Connect, Origin, ServerConfig};
use crate::connect::{Dock, is_judged_alike};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::names::{CallerName, ServerName};
use crate::policy::{CallerRules, Lock, Policy};
use crate::wire::Limits;

/// What another configuration changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// Servers that are new.
    pub added: Vec<ServerName>,
    /// Servers that are gone.
    pub removed: Vec<ServerName>,
    /// Servers whose connection is made anew.
    pub restarted: Vec<ServerName>,
    /// Servers that are shown or called in another way, over the same connection.
    pub changed: Vec<ServerName>,
}

/// How much of a configuration another one shares.
#[derive(PartialEq, Eq)]
enum Likeness {
    Same,
    SameConnection,
    Other,
}

/// Other rules than those that connections were made under.
struct Edit {
    before: Arc<Policy>,
    now: Arc<Policy>,
    other_limits: bool,
}

// === impl Host ===

impl Host {
    /// Makes these the servers of the host, in this order. Only what differs is touched. Calls under way on a server that
    /// goes or is restarted may end first, within the time that [`super::HostBuilder::drain`] gives them; new calls find
    /// the new servers at once. What sessions docked is theirs and stays.
    ///
    /// # Errors
    /// If a name stands twice, or if this is a session: then nothing was changed.
    pub async fn reconcile(&self, servers: impl IntoIterator<Item = ServerConfig>) -> Result<Changes> {
        self.apply(servers.into_iter().collect(), None)
    }

    /// The same under other rules. They hold at once for what is called and shown. A server that they let start or be
    /// reached in another way than before is connected anew, and one that they refuse is ended; the others keep their
    /// connections. Other limits are other terms for every connection, so all are made anew.
    ///
    /// # Errors
    /// As for [`Host::reconcile`].
    pub async fn reconcile_under(
        &self,
        policy: Policy,
        limits: Limits,
        servers: impl IntoIterator<Item = ServerConfig>,
    ) -> Result<Changes> {
        self.apply(servers.into_iter().collect(), Some((policy, limits)))
    }

    /// Holds servers to what another lock accepts, from now on. Nothing is started, stopped or asked; what is shown may be
    /// more or less.
    pub fn relock(&self, lock: Option<Arc<Lock>>) {
        let policy = &self.scope.pool.dock().policy;
        policy.replace(policy.now().with_lock(lock));
        self.show_again();
    }

    /// Shows what the rules of now leave of what servers were seen to offer.
    fn show_again(&self) {
        let sessions = self.core.scopes();
        for scope in sessions.iter().chain([&self.scope]) {
            for server in scope.servers.load().values() {
                if let Some(seen) = server.tools.last().and_then(|_| server.last_tools()) {
                    scope.publish(server, seen.offered);
                }
                for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
                    scope.peer.tell_changed(&server.config.name, kind);
                }
            }
        }
    }

    /// A number for a gateway, by which the sessions of its callers are known.
    pub(crate) fn number_gateway(&self) -> u64 {
        self.core.next()
    }

    /// Gives the callers of a gateway what other rules give them, from now on. Their connections stay as they are. Says
    /// who is given something else now.
    pub(crate) fn regive(
        &self,
        gateway: u64,
        rules_of: impl Fn(&CallerName) -> Option<Arc<CallerRules>>,
    ) -> HashSet<CallerName> {
        let is_theirs = |scope: &&Arc<Scope>| {
            let relays = scope.agent.as_ref().and_then(|agent| agent.relays.as_ref());
            relays.is_some_and(|relays| relays.gateway == gateway)
        };
        let scopes = self.core.scopes();
        let changed = scopes.iter().filter(is_theirs).filter(|scope| scope.give(rules_of(&scope.caller)));
        changed.map(|scope| scope.caller.clone()).collect()
    }

    fn apply(&self, configs: Vec<ServerConfig>, rules: Option<(Policy, Limits)>) -> Result<Changes> {
        if self.scope.agent.is_some() {
            return Err(Error::Denied {
                what: "another configuration".into(),
                rule: "the session: a host is configured by its program".into(),
                hint: "dock the server in the session instead".into(),
            });
        }
        let mut names = HashSet::new();
        if let Some(twice) = configs.iter().find(|config| !names.insert(&config.name)) {
            return Err(Error::config(format!("server `{}` is configured twice", twice.name)));
        }
        let edit = rules.map(|(policy, limits)| Edit::make(self.scope.pool.dock(), policy, limits));
        if let Some(edit) = &edit {
            self.core.scopes().iter().for_each(|scope| scope.renew(edit, self.core.drain));
        }
        let shared: HashSet<ServerName> = self.core.scopes().iter().flat_map(|s| s.given_away()).collect();
        let (changes, eager) = self.scope.become_these(configs, &shared, edit.as_ref(), self.core.drain);
        self.core.scopes().iter().for_each(|scope| scope.refit());
        if edit.is_some_and(|edit| !edit.before.shows_like(&edit.now)) {
            self.show_again();
        }
        self.tell_of(&changes);
        if !eager.is_empty() {
            let host = self.clone();
            tokio::spawn(async move { host.list(eager).await });
        }
        Ok(changes)
    }

    fn tell_of(&self, changes: &Changes) {
        let Changes { added, removed, restarted, changed } = changes.clone();
        for server in added.iter().chain(&removed).chain(&restarted) {
            for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
                self.scope.peer.tell_changed(server, kind);
            }
        }
        changed.iter().for_each(|server| self.scope.peer.tell_changed(server, ListKind::Tools));
        self.core.events.publish(|| Event::Reloaded { added, removed, restarted, changed });
    }
}

// === impl Changes ===

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

// === impl Scope ===

impl Scope {
    /// Servers that this scope docked for everyone.
    fn given_away(&self) -> Vec<ServerName> {
        self.agent.as_ref().map(|agent| agent.gave().clone()).unwrap_or_default()
    }

    /// Puts these servers in the place of those that are there, except for `shared` ones. Gives also those that are to be
    /// connected now.
    fn become_these(
        self: &Arc<Self>,
        configs: Vec<ServerConfig>,
        shared: &HashSet<ServerName>,
        edit: Option<&Edit>,
        drain: Duration,
    ) -> (Changes, Vec<Arc<Server>>) {
        let _one_at_a_time = self.docking.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.servers.load_full();
        let (mut changes, mut now) = (Changes::default(), Servers::default());
        let (mut leaving, mut eager) = (Vec::new(), Vec::new());
        let order: Vec<ServerName> = configs.iter().map(|config| config.name.clone()).collect();
        for config in configs {
            let name = config.name.clone();
            let known = before.get(&name);
            let likeness = match known {
                Some(known) if edit.is_none_or(|edit| !edit.concerns(&known.config, self.pool.dock())) => {
                    Likeness::of(&known.config, &config)
                }
                _ => Likeness::Other,
            };
            let server = match (known, likeness) {
                (Some(known), Likeness::Same) => Arc::clone(known),
                (Some(known), Likeness::SameConnection) => {
                    changes.changed.push(name.clone());
                    Arc::new(self.server_of(config).in_place_of(known))
                }
                (known, _) => {
                    if let Some(known) = known {
                        self.pool.forget(&known.config);
                        leaving.push(Arc::clone(known));
                    }
                    let list = if known.is_some() { &mut changes.restarted } else { &mut changes.added };
                    list.push(name.clone());
                    let server = self.dock(config);
                    if server.config.enabled && server.config.connect == Connect::Eager {
                        eager.push(Arc::clone(&server));
                    }
                    server
                }
            };
            now.insert(name, server);
        }
        for (name, server) in before.iter().filter(|(name, _)| !now.contains_key(*name)).collect::<Vec<_>>() {
            if shared.contains(name) {
                now.insert(name.clone(), Arc::clone(server));
                continue;
            }
            self.pool.forget(&server.config);
            leaving.push(Arc::clone(server));
            changes.removed.push(name.clone());
        }
        self.servers.store(Arc::new(now));
        self.show(&changes, &order);
        leaving.into_iter().for_each(|server| self.see_off(server, drain));
        (changes, eager)
    }

    /// Brings the registry into the new order, without the tools of servers that are gone or not yet there.
    fn show(&self, changes: &Changes, order: &[ServerName]) {
        changes.removed.iter().chain(&changes.restarted).for_each(|name| drop(self.registry.remove(name)));
        self.registry.arrange(order);
        let servers = self.servers.load();
        for server in changes.changed.iter().filter_map(|name| servers.get(name)) {
            if let Some(seen) = server.last_tools() {
                self.registry.replace(seen.offered);
            }
        }
    }

    /// Closes those connections of an agent's own servers that an edit concerns, when their calls have ended: they are made
    /// again when they are needed, by the rules that hold then.
    fn renew(&self, edit: &Edit, drain: Duration) {
        let servers = self.servers.load();
        let concerned = servers.values().filter(|server| edit.concerns(&server.config, self.pool.dock()));
        for server in concerned.map(Arc::clone) {
            tokio::spawn(async move {
                server.duty().idle(drain).await;
                server.disconnect().await;
            });
        }
    }

    /// Lets a server go when its calls have ended, or when they take too long.
    fn see_off(self: &Arc<Self>, server: Arc<Server>, drain: Duration) {
        server.duty().end();
        self.leaving().push(Arc::clone(&server));
        let scope = Arc::downgrade(self);
        tokio::spawn(async move {
            server.duty().idle(drain).await;
            server.disconnect().await;
            if let Some(scope) = scope.upgrade() {
                scope.leaving().retain(|known| !Arc::ptr_eq(known, &server));
            }
        });
    }

    fn dock(&self, config: ServerConfig) -> Arc<Server> {
        Arc::new(self.server_of(config))
    }

    fn server_of(&self, config: ServerConfig) -> Server {
        Server::new(Arc::new(config), &self.pool, self.store.as_ref())
    }
}

// === impl Edit ===

impl Edit {
    /// Makes these the rules.
    fn make(dock: &Dock, policy: Policy, limits: Limits) -> Self {
        let before = dock.policy.now();
        dock.policy.replace(policy);
        let other_limits = *dock.limits.now() != limits;
        if other_limits {
            dock.limits.replace(limits);
        }
        Self { before, now: dock.policy.now(), other_limits }
    }

    /// Whether a server, or one of its instances, would not be connected now as it was before.
    fn concerns(&self, config: &ServerConfig, dock: &Dock) -> bool {
        let is_alike =
            |config: &ServerConfig| is_judged_alike(config, [&self.before, &self.now], &dock.environment);
        self.other_limits || !is_alike(config) || !config.others().iter().all(is_alike)
    }
}

// === impl Likeness ===

impl Likeness {
    /// Every setting is named here, so that a new one cannot be forgotten.
    fn of(one: &ServerConfig, other: &ServerConfig) -> Self {
        let ServerConfig {
            name: _,
            transport: _,
            enabled,
            debug,
            timeout,
            start_timeout,
            tool_prefix,
            enabled_tools,
            disabled_tools,
            connect,
            share,
            oauth,
            sandbox,
            resilience,
            origin,
        } = one;
        let same_connection = one.identity() == other.identity()
            && *enabled == other.enabled
            && *debug == other.debug
            && *start_timeout == other.start_timeout
            && *connect == other.connect
            && *share == other.share
            && *oauth == other.oauth
            && *sandbox == other.sandbox
            && resilience.connects_like(&other.resilience)
            && is_same_place(origin, &other.origin);
        let same_view = *timeout == other.timeout
            && *tool_prefix == other.tool_prefix
            && *enabled_tools == other.enabled_tools
            && *disabled_tools == other.disabled_tools
            && resilience.retries_like(&other.resilience);
        match (same_connection, same_view) {
            (true, true) => Self::Same,
            (true, false) => Self::SameConnection,
            (false, _) => Self::Other,
        }
    }
}

/// A server may move within its file.
fn is_same_place(one: &Origin, other: &Origin) -> bool {
    match (one, other) {
        (Origin::File { path: one, .. }, Origin::File { path: other, .. }) => one == other,
        (one, other) => one == other,
    }
}
