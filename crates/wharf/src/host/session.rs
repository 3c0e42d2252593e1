//! One agent's scope over the host.
//!
//! A session is the host seen through an agent's eyes: it has every method of [`Host`], and each obeys the agent's
//! permission and sees its own connections, then the shared ones, and never another agent's.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;

use super::docking::Opening;
use super::scope::{Agent, Scope};
use super::server::Server;
use super::{Core, Host};
use crate::ask::Asker;
use crate::config::ServerConfig;
use crate::error::{Error, Result};
use crate::mcp::LogLevel;
use crate::names::{CallerName, ServerName, ToolName};
use crate::outcome::Outcome;
use crate::policy::{CallerRules, Permission, Reach};
use crate::registry::{Owner, ServerTools};
use crate::session::{Slice, Taint, Visibility};

/// One agent's scope. Cheap to clone; when the last clone goes, what is its own closes.
#[derive(Clone, Debug)]
pub struct Session(Arc<Host>);

/// Collects what a session needs.
pub struct SessionBuilder {
    host: Host,
    name: String,
    permission: Option<Permission>,
    asker: Option<Arc<dyn Asker>>,
    rules: Option<Arc<CallerRules>>,
    relays: Option<u64>,
    taint: Option<Taint>,
}

/// A server on its way to a session: who will see it, and what may be called without asking.
#[derive(Clone, Debug)]
pub struct Docking {
    config: ServerConfig,
    visibility: Visibility,
    consent: Ask,
}

/// What a [`Permission::Trusted`] agent asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ask {
    /// The first use of the server.
    #[default]
    AtFirstUse,
    /// Nothing.
    Never,
    /// Every tool by itself.
    ToolByTool,
}

impl Host {
    /// Starts to build a scope for an agent. Without a permission it may call nothing.
    pub fn session(&self, agent: impl Into<String>) -> SessionBuilder {
        SessionBuilder {
            host: self.clone(),
            name: agent.into(),
            permission: None,
            asker: None,
            rules: None,
            relays: None,
            taint: None,
        }
    }
}

// === impl Core ===

impl Core {
    /// A number for a new session.
    pub(super) fn next(&self) -> u64 {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.0 += 1;
        sessions.0
    }

    pub(super) fn enlist(&self, scope: &Arc<Scope>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.1.retain(|known| known.strong_count() > 0);
        sessions.1.push(Arc::downgrade(scope));
    }

    pub(super) fn scopes(&self) -> Vec<Arc<Scope>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.1.iter().filter_map(Weak::upgrade).collect()
    }
}

// === impl SessionBuilder ===

impl SessionBuilder {
    /// How far the agent is trusted. Defaults to not at all.
    #[must_use]
    pub fn permission(mut self, permission: Permission) -> Self {
        self.permission = Some(permission);
        self
    }

    /// Who is asked for consent, and answers what the agent's own servers ask. Defaults to the host's asker.
    #[must_use]
    pub fn asker(mut self, asker: impl Asker) -> Self {
        self.asker = Some(Arc::new(asker));
        self
    }

    /// What the agent is given of all there is: the rest is as if it were not there. Defaults to everything, or to what
    /// the session that makes this one is given.
    #[must_use]
    pub fn rules(mut self, rules: Arc<CallerRules>) -> Self {
        self.rules = Some(rules);
        self
    }

    /// It calls for somebody else, a caller of the gateway of this number: what the asker offers is what servers are
    /// told of them.
    #[must_use]
    pub(crate) fn relaying(mut self, gateway: u64) -> Self {
        self.relays = Some(gateway);
        self
    }

    /// Where it is marked that something private came in, for sessions that are one agent's. Defaults to a mark of its
    /// own, or that of the session that makes this one.
    #[must_use]
    pub fn taint(mut self, taint: Taint) -> Self {
        self.taint = Some(taint);
        self
    }

    /// Makes the session.
    pub fn start(self) -> Result<Session> {
        let caller = CallerName::parse(&self.name).map_err(|e| Error::config(e.to_string()))?;
        self.host.scope.open()?;
        // A session of a session stands beside it, on the same shared ground, and is trusted no further.
        let (shared, ceiling) = match &self.host.scope.agent {
            Some(agent) => (&agent.shared, Some(agent)),
            None => (&self.host.scope, None),
        };
        let given = ceiling.and_then(|maker| maker.trust.load().rules.clone());
        let wider = |maker: &Agent| {
            reach_of(self.permission) > reach_of(maker.permission)
                || (given.is_some() && self.rules.is_some())
        };
        if ceiling.is_some_and(wider) {
            return Err(Error::Denied {
                what: format!("the session `{caller}`"),
                rule: format!("the permission of `{}`, which makes it", self.host.scope.caller),
                hint: "give it no wider permission than its maker has, and no rules but its maker's".into(),
            });
        }
        let asker = self.asker.unwrap_or_else(|| Arc::clone(&self.host.scope.asker));
        let owner = Owner(self.host.core.next());
        let trust = (self.permission, self.rules.or(given));
        let mut scope = Scope::of_agent(shared, owner, caller, trust, asker);
        scope.relay(self.relays);
        // What its maker has read, it may have been told.
        let inherited = ceiling.map(|_| self.host.scope.taint.clone());
        scope.taint = inherited.or(self.taint).unwrap_or_default();
        let scope = Arc::new(scope);
        self.host.core.enlist(&scope);
        Ok(Session(Arc::new(Host { core: Arc::clone(&self.host.core), scope })))
    }
}

fn reach_of(permission: Option<Permission>) -> u8 {
    match permission {
        None => 0,
        Some(Permission::Sandboxed) => 1,
        Some(Permission::Trusted) => 2,
        Some(Permission::Yolo) => 3,
    }
}

impl std::fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionBuilder")
            .field("name", &self.name)
            .field("permission", &self.permission)
            .finish_non_exhaustive()
    }
}

// === impl Session ===

impl Session {
    /// Who it is for.
    pub fn agent(&self) -> &CallerName {
        &self.0.scope.caller
    }

    /// How far the agent is trusted.
    pub fn permission(&self) -> Option<Permission> {
        self.of_agent().permission
    }

    /// Connects a server, and gives the names of its tools. A server that cannot be connected is not kept.
    pub async fn connect(&self, docking: Docking) -> Result<Vec<Arc<str>>> {
        let Docking { config, visibility, consent } = docking;
        self.0.scope.admit(&config)?;
        let agent = self.of_agent();
        let (home, owner) = match visibility {
            Visibility::Private => (&self.0.scope, Some(agent.owner)),
            Visibility::Shared => (&agent.shared, None),
        };
        let name = config.name.clone();
        if home.servers.load().contains_key(&name) {
            return Err(self.taken(&name, visibility));
        }
        // Nobody sees it until it is there, and what does not come to that leaves nothing behind.
        let opening = Opening::new(home, config)?;
        let server = Arc::clone(&opening.server);
        let offered = match open(&server).await {
            Ok(offered) => offered,
            Err(error) => {
                opening.give_up().await;
                return Err(error);
            }
        };
        if !home.put(&server, false) {
            opening.give_up().await;
            return Err(self.taken(&name, visibility));
        }
        if visibility == Visibility::Shared {
            agent.gave().push(name.clone());
        }
        self.remember(&server, consent);
        home.publish(&server, offered);
        if let Err(closed) = self.0.scope.open() {
            self.forget(home, &server).await;
            return Err(closed);
        }
        let snapshot = self.0.scope.snapshot();
        let own = snapshot.tools().iter().filter(|route| route.is_of(&name) && route.owner == owner);
        Ok(own.map(|route| Arc::clone(&route.public)).collect())
    }

    /// Closes connections of this session's own to shared servers that were not used for so long.
    pub(crate) async fn recycle(&self, idle: Duration) {
        self.0.scope.lanes.recycle(idle).await;
    }

    /// What tells this session from every other.
    pub(crate) fn number(&self) -> u64 {
        self.of_agent().owner.0
    }

    /// Whether it sees a shared server in its own way: what changes for others does not for it.
    pub(crate) fn has_view(&self, server: &ServerName) -> bool {
        self.0.scope.views(server)
    }

    /// Whether a server would be given to it, if there were one of this name: some of its tools, and all of it.
    pub(crate) fn is_given(&self, server: &ServerName) -> (bool, bool) {
        let scope = &self.0.scope;
        (scope.gives(|rules| rules.may_give(server)), scope.gives(|rules| rules.gives_server(server)))
    }

    /// Gives it something else from now on; `None`: everything.
    pub(crate) fn give(&self, rules: Option<Arc<CallerRules>>) {
        self.0.scope.give(rules);
    }

    /// Whether a tool is given to it, or without one a server as a whole.
    pub(crate) fn may_use(&self, server: &ServerName, tool: Option<&ToolName>) -> bool {
        self.0.scope.gives(|rules| match tool {
            Some(tool) => rules.gives_tool(server, tool),
            None => rules.gives_server(server),
        })
    }

    /// What servers are told of whoever this session calls for.
    pub(crate) fn says(&self) -> Bytes {
        self.of_agent().relays.as_ref().map(|relays| relays.said.bytes().clone()).unwrap_or_default()
    }

    /// Whether somebody else holds it, too.
    pub(crate) fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1 || Arc::strong_count(&self.0.scope) > 1
    }

    /// Every server that this session has to itself is asked for its log from this level on, now and later.
    pub(crate) fn log_from(&self, level: LogLevel) {
        self.0.scope.peer.log_from(level);
    }

    /// Tells something to every legacy server that this session has to itself.
    pub(crate) fn tell_lanes(&self, method: &str) {
        self.0.scope.peer.tell(method);
    }

    /// Closes a connection that this session made. Those of others are left alone.
    pub async fn disconnect(&self, server: &str) -> Result<()> {
        let agent = self.of_agent();
        let name = ServerName::parse(server).map_err(|e| Error::config(e.to_string()))?;
        let own = self.0.scope.servers.load().get(&name).cloned();
        if let Some(server) = own {
            self.forget(&self.0.scope, &server).await;
            return Ok(());
        }
        // Unknown names get the error that says what may have been meant.
        let shared = self.0.scope.server(name.as_str())?;
        if !agent.gave().contains(&name) {
            return Err(Error::Denied {
                what: format!("disconnecting `{name}`"),
                rule: "ownership: another shared it".into(),
                hint: "leave it connected, or let its owner disconnect it".into(),
            });
        }
        self.forget(&agent.shared, &shared).await;
        Ok(())
    }

    /// The servers that this session sees, and who else does.
    pub fn connections(&self) -> Vec<(Arc<ServerConfig>, Visibility)> {
        let own = self.0.scope.servers.load();
        let seen = self.0.scope.all_servers();
        let visibility = |server: &Server| match own.contains_key(&server.config.name) {
            true => Visibility::Private,
            false => Visibility::Shared,
        };
        seen.iter().map(|server| (Arc::clone(&server.config), visibility(server))).collect()
    }

    /// Allows every tool of a server without asking, or one of them.
    pub fn allow(&self, server: &str, tool: Option<&str>) -> Result<()> {
        let server = self.0.scope.server(server)?;
        let agent = self.of_agent();
        match tool {
            None => agent.remember(|grants| grants.with_server(server.identity.clone())),
            Some(tool) => {
                let tool = ToolName::parse(tool).map_err(|e| Error::config(e.to_string()))?;
                agent.remember(|grants| grants.with(&server.identity, &tool, Reach::Tool));
            }
        }
        Ok(())
    }

    /// Takes back what was allowed of a server, one by one or with everything: it is asked for again.
    pub fn revoke(&self, server: &str) -> Result<()> {
        let server = self.0.scope.server(server)?;
        self.of_agent().remember(|grants| grants.revoked(&server.identity));
        Ok(())
    }

    /// Makes a slice of the state of every call that succeeds, in the transaction of that call.
    pub fn reduce<T: Slice>(&self, reducer: impl Fn(Option<&T>, &Outcome) -> T + Send + Sync + 'static) {
        let reducer = Arc::new(reducer);
        let apply = move |transaction: &crate::session::Transaction, outcome: &Outcome| {
            let (reducer, outcome) = (Arc::clone(&reducer), outcome.clone());
            transaction.update(move |before: Option<&T>| reducer(before, &outcome));
        };
        let apply: super::scope::Reducer = Arc::new(apply);
        self.0
            .scope
            .reducers
            .change(|known| known.into_iter().flatten().cloned().chain([Arc::clone(&apply)]).collect());
    }

    /// Closes what is this session's own, and only that, and waits until nothing of it is left. Its calls are refused
    /// from now on. What it shared is everyone's and stays: [`Session::disconnect`] takes it back before.
    pub async fn close(&self) {
        self.0.close().await;
    }

    fn remember(&self, server: &Server, consent: Ask) {
        let identity = || server.identity.clone();
        match consent {
            Ask::AtFirstUse => {}
            Ask::Never => self.of_agent().remember(|grants| grants.with_server(identity())),
            Ask::ToolByTool => self.of_agent().remember(|grants| grants.tool_by_tool(identity())),
        }
    }

    fn taken(&self, name: &ServerName, visibility: Visibility) -> Error {
        let hint = if visibility == Visibility::Shared && !self.of_agent().gave().contains(name) {
            "it is shared already: use it, or connect yours as private".into()
        } else {
            format!("disconnect `{name}` first, or give this one another name")
        };
        Error::Config { message: format!("server `{name}` is connected already"), hint: Some(hint) }
    }

    async fn forget(&self, scope: &Scope, server: &Arc<Server>) {
        let agent = self.of_agent();
        agent.remember(|grants| grants.without(&server.identity));
        agent.gave().retain(|name| *name != server.config.name);
        scope.remove(server).await;
    }

    fn of_agent(&self) -> &Agent {
        match &self.0.scope.agent {
            Some(agent) => agent,
            // `SessionBuilder::start` is the only maker, and gives every session its agent.
            None => unreachable!("a session without an agent"),
        }
    }
}

/// Connects a server that nobody sees yet, and looks at its tools.
async fn open(server: &Server) -> Result<ServerTools> {
    server.berth.connect().await?;
    Ok(server.look(None).await?.offered)
}

impl Deref for Session {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.0
    }
}

// === impl Docking ===

impl Docking {
    /// A server for this session alone; a trusted agent asks at its first use.
    pub fn new(config: ServerConfig) -> Self {
        Self { config, visibility: Visibility::default(), consent: Ask::default() }
    }

    /// Who will see it. Defaults to private.
    #[must_use]
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.visibility = visibility;
        self
    }

    /// Every tool may be called without asking.
    #[must_use]
    pub fn allow_all(mut self) -> Self {
        self.consent = Ask::Never;
        self
    }

    /// Every tool must be asked for by itself.
    #[must_use]
    pub fn per_tool(mut self) -> Self {
        self.consent = Ask::ToolByTool;
        self
    }
}
