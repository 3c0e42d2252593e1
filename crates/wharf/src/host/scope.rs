//! What one scope has docked: its servers, its functions, what it remembers, and how far it is trusted.
//!
//! The host is the scope of the program itself. A session is another on top of it: it sees its own first, then what is
//! shared, and never another session's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use indexmap::IndexMap;

use super::builder::did_you_mean;
use super::docking::usable;
use super::lanes::Lanes;
use super::local::Function;
use super::looks::Looks;
use super::peer::HostPeer;
use super::server::Server;
use super::views::{Relays, Views};
use crate::ask::Asker;
use crate::catalog::{CatalogMemory, CatalogStore};
use crate::config::ServerConfig;
use crate::connect::{Dock, Leaving, Pool};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::names::{CallerName, ServerName, ToolName};
use crate::outcome::Outcome;
use crate::policy::{CallerRules, Grants, Permission, Rare, Standing};
use crate::registry::{Owner, Registry, Route, Sees, Source};
use crate::secret::Redactor;
use crate::session::{Extensions, Memory, Taint, Transaction};

/// Looked into at every call, so by a quick hash.
pub(super) type Servers = IndexMap<ServerName, Arc<Server>, foldhash::fast::RandomState>;
/// By set and name.
pub(super) type Functions = IndexMap<(ServerName, ToolName), Arc<Function>>;

/// Makes something of an outcome, in the transaction of its call.
pub(super) type Reducer = Arc<dyn Fn(&Transaction, &Outcome) + Send + Sync>;

/// One scope.
pub(super) struct Scope {
    pub(super) caller: CallerName,
    pub(super) servers: ArcSwap<Servers>,
    pub(super) pool: Pool,
    /// Connections to shared servers that this scope has to itself.
    pub(super) lanes: Lanes,
    /// What shared servers show over those.
    pub(super) views: Views,
    /// Servers of which it is found out what they offer.
    pub(super) looks: Looks,
    /// Where it is kept what servers offer. An agent's own servers are nobody else's to know.
    pub(super) store: Option<Arc<dyn CatalogStore>>,
    /// The same for what they offer over lanes, where nothing is kept beyond this run.
    pub(super) views_store: Arc<dyn CatalogStore>,
    pub(super) peer: Arc<HostPeer>,
    pub(super) registry: Arc<Registry>,
    pub(super) functions: ArcSwap<Functions>,
    /// Held while servers come and go, so that servers and tools change together. Never across an await.
    pub(super) docking: Mutex<()>,
    /// Servers that were taken away and still have calls to end.
    pub(super) leaving: Mutex<Vec<Arc<Server>>>,
    /// Held while functions are registered, so that what was looked at is what is changed.
    pub(super) registering: Mutex<()>,
    pub(super) asker: Arc<dyn Asker>,
    pub(super) memory: Memory,
    pub(super) extensions: Extensions,
    /// Whether something private came in.
    pub(super) taint: Taint,
    /// What is remembered of every call that succeeds.
    pub(super) reducers: Rare<Vec<Reducer>>,
    /// An agent's; `None` for the program itself, which needs nobody's leave.
    pub(super) agent: Option<Agent>,
}

/// What makes a scope an agent's.
pub(super) struct Agent {
    pub(super) owner: Owner,
    pub(super) permission: Option<Permission>,
    pub(super) trust: ArcSwap<Trust>,
    /// Held while somebody is asked, so that one answer serves everyone who waits for it.
    pub(super) asking: tokio::sync::Mutex<()>,
    /// Servers that this agent gave to everyone.
    pub(super) gave: Mutex<Vec<ServerName>>,
    pub(super) shared: Arc<Scope>,
    /// If it calls for somebody else: a caller of the gateway.
    pub(super) relays: Option<Relays>,
    pub(super) closed: AtomicBool,
}

/// What an agent may do, as far as it changes while it is there. Together, so that a call looks once.
#[derive(Default)]
pub(super) struct Trust {
    pub(super) grants: Grants,
    /// What it is given of all there is; `None`: everything.
    pub(super) rules: Option<Arc<CallerRules>>,
}

/// Where a route leads.
pub(super) enum Target {
    Server(Arc<Server>),
    Function(Arc<Function>),
}

impl Scope {
    /// The scope of the program itself, with nothing docked yet.
    pub(super) fn of_program(
        dock: Dock,
        peer: Arc<HostPeer>,
        asker: Arc<dyn Asker>,
        (registry, lanes): (Registry, Lanes),
    ) -> Self {
        Self {
            caller: CallerName::local(),
            servers: ArcSwap::default(),
            pool: Pool::new(Arc::new(dock)),
            lanes,
            views: Views::default(),
            looks: Looks::default(),
            store: None,
            views_store: Arc::new(CatalogMemory::default()),
            peer,
            registry: Arc::new(registry),
            functions: ArcSwap::default(),
            docking: Mutex::default(),
            leaving: Mutex::default(),
            registering: Mutex::default(),
            asker,
            memory: Memory::default(),
            extensions: Extensions::default(),
            taint: Taint::new(),
            reducers: Rare::default(),
            agent: None,
        }
    }

    /// Tells what the words of a failed call may mean: what the server's sandbox keeps from it. The result stays as it is.
    pub(super) fn advise(&self, server: &Server, said: &str) {
        let live = server.live().or_else(|| self.lanes.live(&server.config));
        if let Some(message) = live.and_then(|connection| connection.advice(said)) {
            let name = server.config.name.clone();
            server.events.publish(|| Event::Warning { server: name, message });
        }
    }

    /// An agent's scope on top of this one. Connections of its own are made by the same rules, and what their servers
    /// ask goes to its asker.
    pub(super) fn of_agent(
        shared: &Arc<Self>,
        owner: Owner,
        caller: CallerName,
        (permission, rules): (Option<Permission>, Option<Arc<CallerRules>>),
        asker: Arc<dyn Asker>,
    ) -> Self {
        let events = shared.pool.dock().events.clone();
        let peer = Arc::new(HostPeer::new(Arc::clone(&asker), events, Some(owner.0)));
        let leaving = Leaving::default();
        let dock = Dock { peer: Arc::clone(&peer) as _, leaving, ..Dock::clone(shared.pool.dock()) };
        let registry = Registry::above(&shared.registry, owner, sees(permission), rules.clone());
        let agent = Agent {
            owner,
            permission,
            trust: ArcSwap::from_pointee(Trust { grants: Grants::default(), rules }),
            asking: tokio::sync::Mutex::default(),
            gave: Mutex::default(),
            shared: Arc::clone(shared),
            relays: None,
            closed: AtomicBool::new(false),
        };
        Self {
            servers: ArcSwap::default(),
            pool: Pool::new(Arc::new(dock)),
            lanes: shared.lanes.beside(caller.clone()),
            caller,
            views: Views::default(),
            looks: Looks::default(),
            store: None,
            views_store: Arc::new(CatalogMemory::default()),
            peer,
            registry: Arc::new(registry),
            functions: ArcSwap::default(),
            docking: Mutex::default(),
            leaving: Mutex::default(),
            registering: Mutex::default(),
            asker,
            memory: Memory::default(),
            extensions: shared.extensions.above(),
            taint: Taint::new(),
            reducers: Rare::default(),
            agent: Some(agent),
        }
    }

    /// Every server that this scope may ask, its own first.
    pub(super) fn all_servers(&self) -> Vec<Arc<Server>> {
        match self.sees() {
            Sees::All if self.open().is_ok() => {
                let given = |server: &Arc<Server>| self.gives(|rules| rules.may_give(&server.config.name));
                self.docked().into_iter().filter(given).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Every server that is here, its own first, whoever may ask it.
    fn docked(&self) -> Vec<Arc<Server>> {
        let own = self.servers.load();
        let mut all: Vec<Arc<Server>> = own.values().cloned().collect();
        if let Some(agent) = &self.agent {
            let shared = agent.shared.servers.load();
            let others = shared.values().filter(|s| !own.contains_key(&s.config.name));
            all.extend(others.map(|server| self.seen(server)));
        }
        all
    }

    /// A server by its name: this scope's own, or a shared one.
    pub(super) fn server(&self, name: &str) -> Result<Arc<Server>> {
        if let Some(server) = self.known(name).filter(|s| self.gives(|rules| rules.may_give(&s.config.name)))
        {
            self.admit(&server.config)?;
            usable(&server.config)?;
            return Ok(server);
        }
        self.open()?;
        Err(self.unknown(name))
    }

    /// The same for what is no tool: a server that is given whole. Another reads like one that is not there.
    pub(super) fn whole_server(&self, name: &str) -> Result<Arc<Server>> {
        let server = self.server(name)?;
        if self.gives(|rules| rules.gives_server(&server.config.name)) {
            Ok(server)
        } else {
            Err(self.unknown(name))
        }
    }

    /// Every server that is given as a whole: what is no tool is given only so.
    pub(super) fn whole_servers(&self) -> Vec<Arc<Server>> {
        let whole = |server: &Arc<Server>| self.gives(|rules| rules.gives_server(&server.config.name));
        self.all_servers().into_iter().filter(whole).collect()
    }

    /// Whether this scope's rules give something, if it has any.
    pub(super) fn gives(&self, gives: impl FnOnce(&CallerRules) -> bool) -> bool {
        self.agent.as_ref().is_none_or(|agent| agent.trust.load().rules.as_deref().is_none_or(gives))
    }

    /// Gives an agent something else from now on. False if it is what it is given already.
    pub(super) fn give(&self, rules: Option<Arc<CallerRules>>) -> bool {
        let Some(agent) = self.agent.as_ref().filter(|agent| agent.trust.load().rules != rules) else {
            return false;
        };
        agent.trust.rcu(|trust| Trust { grants: trust.grants.clone(), rules: rules.clone() });
        self.registry.give(rules);
        true
    }

    fn unknown(&self, name: &str) -> Error {
        let known = self.all_servers();
        let hint = did_you_mean(name, known.iter().map(|server| server.config.name.as_str()));
        Error::UnknownServer { name: name.to_owned(), hint }
    }

    /// Whether anything may be done here: not in a session that is closed.
    pub(super) fn open(&self) -> Result<()> {
        if self.agent.as_ref().is_some_and(|agent| agent.closed.load(Ordering::Acquire)) {
            let reason = format!("the session of `{}` is closed", self.caller);
            return Err(Error::Cancelled { reason, sent: false });
        }
        Ok(())
    }

    /// Whether this scope may have to do with a server at all.
    pub(super) fn admit(&self, config: &ServerConfig) -> Result<()> {
        self.open()?;
        let policy = self.pool.dock().policy.now();
        self.standing(|standing| policy.admit(standing, Some(config))).unwrap_or(Ok(()))
    }

    fn known(&self, name: &str) -> Option<Arc<Server>> {
        let servers = self.servers.load();
        // The exact name first: it is what a call has.
        let exact = servers.get(name).cloned();
        let normalised = || ServerName::parse(name).ok().and_then(|name| servers.get(&name).cloned());
        let shared = || self.agent.as_ref()?.shared.known(name).map(|server| self.seen(&server));
        exact.or_else(normalised).or_else(shared)
    }

    /// Where a route leads, if it is still this scope's to follow.
    pub(super) fn target(&self, route: &Route) -> Result<Target> {
        self.open()?;
        let scope = match (&self.agent, route.owner) {
            (Some(agent), None) => &agent.shared,
            (Some(agent), Some(owner)) if agent.owner == owner => self,
            (None, None) => self,
            _ => return Err(gone(route)),
        };
        match route.source {
            Source::Mcp => {
                let found = scope.servers.load().get(&route.server).cloned();
                let server = match (&self.agent, route.owner) {
                    (Some(_), None) => found.map(|server| self.seen(&server)),
                    // What is its own is a server, or what it sees of a shared one.
                    (Some(_), Some(_)) => found.or_else(|| self.current_view(&route.server)),
                    (None, _) => found,
                };
                server.map(Target::Server).ok_or_else(|| gone(route))
            }
            Source::Local => {
                let key = (route.server.clone(), route.tool.name.clone());
                let function = scope.functions.load().get(&key).cloned();
                function.map(Target::Function).ok_or_else(|| gone(route))
            }
        }
    }

    /// Whether a tool's server said that its tools are others now.
    pub(super) fn has_changed(&self, route: &Route) -> bool {
        let peer = match &self.agent {
            Some(agent) if route.owner.is_none() => &agent.shared.peer,
            _ => &self.peer,
        };
        route.source == Source::Mcp && peer.has_changed(&route.server)
    }

    /// Closes this scope's own connections and waits until nothing of them is left. An agent's scope is over then.
    pub(super) async fn close(&self) {
        if let Some(agent) = &self.agent {
            agent.closed.store(true, Ordering::Release);
            self.registry.close();
            self.functions.store(Arc::default());
            self.extensions.clear();
        }
        self.disconnect().await;
    }

    /// Closes this scope's own connections. They are made again when they are needed.
    pub(super) async fn disconnect(&self) {
        self.looks.end();
        let servers = self.servers.load_full();
        let leaving = self.leaving().clone();
        let all = servers.values().chain(&leaving);
        futures_util::future::join_all(all.map(|server| server.disconnect())).await;
        self.lanes.disconnect().await;
        self.pool.close().await;
    }

    pub(super) fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Server>>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Erases the secrets of every server that is here.
    pub(super) fn redactor(&self) -> Redactor {
        Redactor::of_all(self.docked().iter().map(|server| server.redactor.clone()))
    }

    /// How far this scope is trusted, or `None` for the program itself.
    pub(super) fn standing<'a, R>(&'a self, judge: impl FnOnce(&Standing<'a, '_>) -> R) -> Option<R> {
        let agent = self.agent.as_ref()?;
        let trust = agent.trust.load();
        let (permission, grants, rules) = (agent.permission, &trust.grants, trust.rules.as_deref());
        let taint = self.taint.get();
        Some(judge(&Standing { caller: &self.caller, permission, grants, rules, taint }))
    }

    fn sees(&self) -> Sees {
        self.agent.as_ref().map_or(Sees::All, |agent| sees(agent.permission))
    }
}

impl Agent {
    pub(super) fn remember(&self, change: impl Fn(&Grants) -> Grants) {
        self.trust.rcu(|trust| Trust { grants: change(&trust.grants), rules: trust.rules.clone() });
    }

    pub(super) fn gave(&self) -> MutexGuard<'_, Vec<ServerName>> {
        self.gave.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is shown to whom: nothing that a call would refuse.
fn sees(permission: Option<Permission>) -> Sees {
    match permission {
        None => Sees::Nothing,
        Some(Permission::Sandboxed) => Sees::Local,
        Some(_) => Sees::All,
    }
}

/// A route that was valid when it was made.
pub(super) fn gone(route: &Route) -> Error {
    Error::UnknownTool {
        name: route.public.to_string(),
        hint: "it was there and is not any more; list the tools again".into(),
    }
}
