//! The whole, in order.
//!
//! In: servers, policy, who answers questions, and the world they live in. Out: a [`Host`] that lists and calls tools.
//! The host orders the rooms and decides nothing itself: every judgement is `policy`'s, every byte is `connect`'s.

mod builder;
mod ensemble;
mod peer;
mod server;

pub use builder::HostBuilder;
pub use ensemble::{Callable, Ensemble};

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::StreamExt;
use indexmap::IndexMap;
use tokio::time::Instant;

use crate::ask::Asker;
use crate::call::{self, Call, OnProgress, Validators};
use crate::catalog::Rejected;
use crate::config::{Connect, ServerConfig};
use crate::connect::{Berth, Pool};
use crate::error::{Error, Result};
use crate::event::{Bus, Event};
use crate::names::{CallerName, ServerName, ToolName};
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::registry::{Registry, Route, Snapshot};
use crate::wire::Json;
use peer::HostPeer;
use server::Server;

/// Every configured server, as one set of tools. Cheap to clone; when the last clone goes, the connections close.
#[derive(Clone, Debug)]
pub struct Host(Arc<Whole>);

struct Whole {
    servers: ArcSwap<IndexMap<ServerName, Arc<Server>>>,
    pool: Pool,
    policy: Policy,
    registry: Registry,
    validators: Validators,
    asker: Arc<dyn Asker>,
    peer: Arc<HostPeer>,
    events: Bus,
}

/// What was found when servers were asked for their tools.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Every tool that can be called.
    pub snapshot: Arc<Snapshot>,
    /// Servers that could not be asked, and why. The others are not affected.
    pub failed: Vec<(ServerName, Error)>,
    /// Tools that cannot be used, and why.
    pub rejected: Vec<(ServerName, Rejected)>,
}

/// How one call is made.
#[derive(Default)]
pub struct CallOptions<'a> {
    /// Who calls. Defaults to the person or program on this machine.
    pub caller: Option<CallerName>,
    /// How long to wait without a sign of life. Defaults to the server's own.
    pub timeout: Option<Duration>,
    /// How long to wait whatever the signs. Defaults to twenty timeouts.
    pub hard_timeout: Option<Duration>,
    /// Who hears of progress, in order, before the outcome.
    pub on_progress: Option<OnProgress<'a>>,
}

/// Which server is meant: one of the host's, or one described on the spot.
#[derive(Clone, Debug)]
pub enum ServerRef {
    /// A configured server.
    Named(String),
    /// Any server; policy judges it like a configured one.
    Inline(Box<ServerConfig>),
}

/// How many servers are started at the same time.
const STARTING: usize = 16;

// === impl Host ===

impl Host {
    /// Starts to build a host.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// Where events come out.
    pub fn events(&self) -> &Bus {
        &self.0.events
    }

    /// The servers, in the order of the configuration.
    pub fn servers(&self) -> Vec<Arc<ServerConfig>> {
        self.0.servers.load().values().map(|server| Arc::clone(&server.config)).collect()
    }

    /// Adds a server, or puts it in the place of one of the same name. Nothing is started yet.
    pub fn add_server(&self, config: ServerConfig) {
        let server = Arc::new(Server::new(Arc::new(config), &self.0.pool));
        let before = self.0.servers.load().get(&server.config.name).cloned();
        if let Some(before) = before.filter(|b| b.config.identity() != server.config.identity()) {
            self.0.pool.forget(&before.config);
        }
        self.0.servers.rcu(|servers| {
            let mut servers = IndexMap::clone(servers);
            servers.insert(server.config.name.clone(), Arc::clone(&server));
            servers
        });
        self.0.registry.remove(&server.config.name);
    }

    /// The place of a server: connect, disconnect, see its state.
    pub fn berth(&self, server: impl Into<ServerRef>) -> Result<Berth> {
        match server.into() {
            ServerRef::Named(name) => Ok(self.server(&name)?.berth.clone()),
            ServerRef::Inline(config) => Ok(self.0.pool.berth(&config)),
        }
    }

    /// Asks every server for its tools, side by side. Those that fail are reported; the rest works.
    pub async fn tools(&self) -> Listing {
        let servers: Vec<Arc<Server>> =
            self.0.servers.load().values().filter(|s| s.config.enabled).cloned().collect();
        self.list(servers).await
    }

    /// Asks one server for its tools.
    pub async fn tools_of(&self, server: &str) -> Result<Listing> {
        let server = self.server(server)?;
        let mut listing = self.list(vec![server]).await;
        match listing.failed.pop() {
            Some((_, error)) => Err(error),
            None => Ok(listing),
        }
    }

    /// Calls a tool by its public name. Whatever happens is an [`Outcome`]; [`Outcome::into_result`] makes an error of it.
    pub async fn call(&self, name: &str, arguments: impl Into<Json>) -> Outcome {
        self.call_with(name, arguments.into(), CallOptions::default()).await
    }

    /// The same, with options.
    pub async fn call_with(&self, name: &str, arguments: Json, options: CallOptions<'_>) -> Outcome {
        match self.route(name).await {
            Ok(route) => self.run(&route, &arguments, options).await,
            Err(error) => Outcome::not_found(error),
        }
    }

    /// Calls a tool by its server and its original name.
    pub async fn call_tool(
        &self,
        server: &str,
        tool: &str,
        arguments: impl Into<Json>,
        options: CallOptions<'_>,
    ) -> Outcome {
        match self.find(server, tool).await {
            Ok(route) => self.run(&route, &arguments.into(), options).await,
            Err(error) => Outcome::not_found(error),
        }
    }

    /// Where a public name leads. Servers that were not asked yet are asked now.
    pub async fn route(&self, name: &str) -> Result<Route> {
        if let Some(route) = self.0.registry.snapshot().route(name) {
            if !self.0.peer.has_changed(&route.server) {
                return Ok(route.clone());
            }
            // Only the server itself is asked: another one's trouble is not this call's.
            self.tools_of(route.server.as_str()).await?;
            if let Some(route) = self.0.registry.snapshot().route(name) {
                return Ok(route.clone());
            }
        }
        let listing = self.tools().await;
        match listing.snapshot.route(name) {
            Some(route) => Ok(route.clone()),
            None => Err(listing.unknown(name)),
        }
    }

    /// A tool by its server and its original name. The server is asked if it was not yet.
    pub async fn find(&self, server: &str, tool: &str) -> Result<Route> {
        let fresh = |server: &str| {
            let snapshot = self.0.registry.snapshot();
            snapshot.find(server, tool).filter(|route| !self.0.peer.has_changed(&route.server)).cloned()
        };
        if let Some(route) = fresh(server) {
            return Ok(route);
        }
        let known = self.server(server)?;
        if let Some(route) = fresh(known.config.name.as_str()) {
            return Ok(route);
        }
        let listing = self.tools_of(server).await?;
        if let Some(route) = listing.snapshot.find(known.config.name.as_str(), tool) {
            return Ok(route.clone());
        }
        Err(listing.unknown_of(&known.config, tool))
    }

    /// A server as a value: its tools, its configuration, its connection.
    pub async fn ensemble(&self, server: &str) -> Result<Ensemble> {
        Ensemble::open(self, server).await
    }

    /// One tool as a value that can be called.
    pub async fn callable(&self, server: &str, tool: &str) -> Result<Callable> {
        Ok(Callable::new(self.clone(), self.find(server, tool).await?))
    }

    /// Closes every connection and waits until nothing is left. Doing it twice is doing it once.
    pub async fn close(&self) {
        let servers = self.0.servers.load_full();
        futures_util::future::join_all(servers.values().map(|server| server.berth.disconnect())).await;
        self.0.pool.close().await;
    }

    /// The way of a call, one line a room.
    async fn run(&self, route: &Route, arguments: &Json, options: CallOptions<'_>) -> Outcome {
        let started = Instant::now();
        let outcome = match self.try_run(route, arguments, options).await {
            Ok(raw) => Outcome::from_result(route.server.clone(), route.tool.name.clone(), raw),
            Err(error) => Outcome::from_error(route.server.clone(), route.tool.name.clone(), error),
        };
        let outcome = outcome.after(started.elapsed());
        self.0.events.publish(|| Event::ToolInvoked {
            server: route.server.clone(),
            tool: route.tool.name.clone(),
            success: outcome.success,
            error: outcome.error.as_ref().map(Error::kind),
            took: outcome.took,
        });
        outcome
    }

    async fn try_run(&self, route: &Route, arguments: &Json, options: CallOptions<'_>) -> Result<Json> {
        let server = self.server(route.server.as_str())?;
        let caller = options.caller.unwrap_or_else(CallerName::local);
        let permit = self.0.policy.permit_call(&caller, &server.config, &route.tool.name)?;
        let misfit = self.0.validators.check(&route.tool.input_schema, arguments).await.err();
        if let Some(misfit) = misfit {
            return Err(misfit.into_error(route.server.clone(), route.tool.name.clone()));
        }
        let connection = server.berth.connection().await?;
        let timeout = options.timeout.unwrap_or(server.config.timeout);
        let call = Call {
            permit: &permit,
            tool: &route.tool,
            arguments,
            timeout,
            hard_timeout: options.hard_timeout,
        };
        let mut on_progress = options.on_progress;
        let first = on_progress.as_mut().map(|listener| &mut **listener as OnProgress<'_>);
        match call::send(&connection, &call, &self.0.asker, first).await {
            // It certainly never reached the server, so it may go once more over a fresh connection.
            Err(error) if error.is_retryable() && !connection.is_open() => {
                let connection = server.berth.connection().await?;
                call::send(&connection, &call, &self.0.asker, on_progress).await
            }
            ended => ended,
        }
    }

    async fn list(&self, servers: Vec<Arc<Server>>) -> Listing {
        let asked = futures_util::stream::iter(servers).map(|server| async move {
            let answer = server.refresh(&self.0.peer, &self.0.registry).await;
            (server, answer)
        });
        let mut answers: Vec<_> = asked.buffer_unordered(STARTING).collect().await;
        let order = self.0.servers.load();
        answers.sort_by_key(|(server, _)| order.get_index_of(&server.config.name));
        let mut listing =
            Listing { snapshot: self.0.registry.snapshot(), failed: Vec::new(), rejected: Vec::new() };
        for (server, answer) in answers {
            let name = &server.config.name;
            match answer {
                Ok(rejected) => listing.rejected.extend(rejected.into_iter().map(|r| (name.clone(), r))),
                Err(error) => listing.failed.push((name.clone(), error)),
            }
        }
        listing
    }

    fn server(&self, name: &str) -> Result<Arc<Server>> {
        let servers = self.0.servers.load();
        // The exact name first: it is what a call has.
        let exact = servers.get(name).cloned();
        let normalised = || ServerName::parse(name).ok().and_then(|name| servers.get(&name).cloned());
        if let Some(server) = exact.or_else(normalised) {
            if server.config.enabled {
                return Ok(server);
            }
            return Err(Error::Denied {
                what: format!("server `{}`", server.config.name),
                rule: "`enabled = false` in its configuration".into(),
                hint: "set `enabled = true` to use it".into(),
            });
        }
        let names = servers.keys().map(ServerName::as_str);
        Err(Error::UnknownServer { name: name.to_owned(), hint: builder::did_you_mean(name, names) })
    }

    pub(super) async fn connect_eager(&self) -> Vec<(ServerName, Error)> {
        let servers = self.0.servers.load();
        let eager = servers.values().filter(|s| s.config.enabled && s.config.connect == Connect::Eager);
        self.list(eager.cloned().collect()).await.failed
    }
}

impl std::fmt::Debug for Whole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("servers", &self.servers.load().keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CallOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallOptions")
            .field("caller", &self.caller)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

// === impl Listing ===

impl Listing {
    fn unknown(&self, name: &str) -> Error {
        let names = self.snapshot.tools().iter().map(|route| &*route.public);
        let mut hint = builder::did_you_mean(name, names);
        if !self.failed.is_empty() {
            let failed: Vec<String> = self.failed.iter().map(|(server, _)| format!("`{server}`")).collect();
            hint.push_str(&format!("; it may be a tool of {}, which could not be asked", failed.join(", ")));
        }
        Error::UnknownTool { name: name.to_owned(), hint }
    }

    fn unknown_of(&self, server: &ServerConfig, tool: &str) -> Error {
        let rejected = self.rejected.iter().find(|(name, r)| *name == server.name && r.name.raw() == tool);
        if let (Some((_, rejected)), Ok(tool)) = (rejected, ToolName::parse(tool)) {
            return Error::Schema { server: server.name.clone(), tool, reason: rejected.reason.clone() };
        }
        let own = self.snapshot.tools().iter().filter(|route| route.server == server.name);
        let hint = builder::did_you_mean(tool, own.map(|route| route.tool.name.as_str()));
        Error::UnknownTool { name: format!("{}/{tool}", server.name), hint }
    }
}

// === impl ServerRef ===

impl From<&str> for ServerRef {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<ServerConfig> for ServerRef {
    fn from(config: ServerConfig) -> Self {
        Self::Inline(Box::new(config))
    }
}
