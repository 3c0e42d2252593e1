//! The whole, in order.
//!
//! In: servers, policy, who answers questions, and the world they live in. Out: a [`Host`] that lists and calls tools.
//! The host orders the rooms and decides nothing itself: every judgement is `policy`'s, every byte is `connect`'s.

mod again;
mod builder;
mod compared;
mod confirmed;
mod consent;
mod context;
mod declared;
mod docking;
mod duty;
mod ensemble;
mod fleet;
mod health;
mod instances;
mod known;
mod lanes;
mod load;
mod local;
mod login;
mod looks;
mod offers;
mod patience;
mod peer;
mod pins;
mod places;
mod reconcile;
mod register;
mod routes;
mod run;
mod scope;
mod server;
mod session;
mod shelf;
mod shown;
mod status;
mod trace;
#[cfg(test)]
mod tests;
mod turn;
mod views;

pub use builder::HostBuilder;
pub use context::Context;
pub(crate) use declared::Declared;
pub use ensemble::{Callable, Ensemble};
pub use health::{Condition, Health, Instance};
pub use load::{Load, LoadAll};
pub use local::{LOCAL_SET, LocalTool, NoArguments, Reply};
pub(crate) use looks::PATIENCE;
pub use offers::Everywhere;
pub(crate) use offers::TaskWatch;
pub use reconcile::Changes;
pub use session::{Docking, Session, SessionBuilder};
pub use status::ServerStatus;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};

use crate::ask::Asker;
use crate::call::{OnProgress, Relayed, Validators};
use crate::catalog::Rejected;
use crate::config::{Connect, ServerConfig};
use crate::connect::Berth;
use crate::error::{Error, Result};
use crate::event::{Bus, Meter};
use crate::names::{CallerName, ServerName, ToolName};
use crate::net::HttpClient;
use crate::outcome::Outcome;
use crate::policy::{Live, Policy};
use crate::registry::{Route, Snapshot};
use crate::session::{Extensions, Memory, State};
use crate::store::Approvals;
use crate::wire::Json;
use scope::Scope;
use server::Server;

/// Every docked server and every local tool, as one set of tools. Cheap to clone; when the last clone goes, the
/// connections close.
#[derive(Clone)]
pub struct Host {
    core: Arc<Core>,
    /// Through whose eyes: the program's own, or an agent's.
    scope: Arc<Scope>,
}

/// What all scopes of a host have in common.
struct Core {
    policy: Live<Policy>,
    /// How long calls may go on at a server that is taken away.
    drain: Duration,
    validators: Validators,
    events: Bus,
    /// Counts calls.
    meter: Meter,
    /// Where calls wait that somebody must allow.
    approvals: Option<Approvals>,
    /// How many sessions there were, and those that there are.
    sessions: Mutex<(u64, Vec<Weak<Scope>>)>,
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
    /// Whoever the call is made for: a caller of the gateway.
    pub relayed: Option<Arc<Relayed>>,
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
        &self.core.events
    }

    /// What decides where this program may go, and what goes there.
    pub(crate) fn reaching(&self) -> (Arc<Policy>, &HttpClient) {
        (self.core.policy.now(), &self.scope.pool.dock().net)
    }

    /// The same for whoever goes there again and again: by the rules that hold then.
    pub(crate) fn reaching_later(&self) -> (Live<Policy>, HttpClient) {
        (self.core.policy.clone(), self.scope.pool.dock().net.clone())
    }

    /// What tools' handlers can reach. What a session puts there is its own.
    pub fn extensions(&self) -> &Extensions {
        &self.scope.extensions
    }

    /// What is remembered now.
    pub fn state(&self) -> State {
        self.scope.memory.state()
    }

    /// Where it is remembered, for changes outside of a call.
    pub fn memory(&self) -> &Memory {
        &self.scope.memory
    }

    /// Who answers what is asked.
    pub fn asker(&self) -> &Arc<dyn Asker> {
        &self.scope.asker
    }

    /// The servers that can be seen from here, in the order of the configuration.
    pub fn servers(&self) -> Vec<Arc<ServerConfig>> {
        self.scope.all_servers().iter().map(|server| Arc::clone(&server.config)).collect()
    }

    /// Adds a server, or puts it in the place of one of the same name. Nothing is started yet.
    pub fn add_server(&self, config: ServerConfig) {
        self.scope.add(config);
    }

    /// Takes a server away, with its tools and its connection. False if there is none of that name here.
    pub async fn remove_server(&self, server: &str) -> bool {
        let name = ServerName::parse(server).ok();
        let known = name.and_then(|name| self.scope.servers.load().get(&name).cloned());
        match known {
            Some(server) => self.scope.remove(&server).await,
            None => false,
        }
    }

    /// The place of a server: connect, disconnect, see its state.
    pub fn berth(&self, server: impl Into<ServerRef>) -> Result<Berth> {
        match server.into() {
            ServerRef::Named(name) => Ok(self.scope.server(&name)?.berth.clone()),
            ServerRef::Inline(config) => {
                self.scope.admit(&config)?;
                Ok(self.scope.pool.berth(&config))
            }
        }
    }

    /// Every tool that is known now. Nobody is asked.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.scope.snapshot()
    }

    /// Asks every server for its tools, side by side. Those that fail are reported; the rest works.
    pub async fn tools(&self) -> Listing {
        let servers = self.scope.all_servers().into_iter().filter(|s| s.config.enabled).collect();
        self.list(servers).await
    }

    /// Asks one server for its tools.
    pub async fn tools_of(&self, server: &str) -> Result<Listing> {
        let server = self.scope.server(server)?;
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
    pub async fn call_with(&self, name: &str, arguments: Json, mut options: CallOptions<'_>) -> Outcome {
        // Held, not copied: most names are known, and lead where they led before.
        let snapshot = self.scope.snapshot();
        let known = snapshot.route(name).filter(|route| !self.scope.has_changed(route));
        let found = match known {
            Some(route) => Cow::Borrowed(route),
            // Put aside: most calls do not come this way, and should not be larger for it.
            None => match self.in_time(&mut options, None, self.route(name)).boxed().await {
                Ok(route) => Cow::Owned(route),
                Err(error) => {
                    let caller = self.caller(&options).clone();
                    return self.not_found(name.into(), &arguments, caller, error).boxed().await;
                }
            },
        };
        self.run(&found, &arguments, options).await
    }

    /// The same where it was just looked up what the name leads to.
    pub(crate) async fn call_at(&self, route: &Route, arguments: &Json, options: CallOptions<'_>) -> Outcome {
        if self.scope.has_changed(route) {
            return self.call_with(&route.public, arguments.clone(), options).boxed().await;
        }
        self.run(route, arguments, options).await
    }

    /// Calls a tool by its server and its original name.
    pub async fn call_tool(
        &self,
        server: &str,
        tool: &str,
        arguments: impl Into<Json>,
        mut options: CallOptions<'_>,
    ) -> Outcome {
        let arguments = arguments.into();
        let snapshot = self.scope.snapshot();
        let known = snapshot.find(server, tool).filter(|route| !self.scope.has_changed(route));
        let found = match known {
            Some(route) => Cow::Borrowed(route),
            None => match self.in_time(&mut options, Some(server), self.find(server, tool)).boxed().await {
                Ok(route) => Cow::Owned(route),
                Err(error) => {
                    let (name, caller) = (format!("{server}/{tool}"), self.caller(&options).clone());
                    return self.not_found(name.into(), &arguments, caller, error).boxed().await;
                }
            },
        };
        self.run(&found, &arguments, options).await
    }

    /// A server as a value: its tools, its configuration, its connection.
    pub async fn ensemble(&self, server: &str) -> Result<Ensemble> {
        Ensemble::open(self, server).await
    }

    /// One tool as a value that can be called.
    pub async fn callable(&self, server: &str, tool: &str) -> Result<Callable> {
        Ok(Callable::new(self.clone(), self.find(server, tool).await?))
    }

    /// Closes every connection, those of sessions too, and waits until nothing is left. Doing it twice is doing it once.
    /// They are made again when they are needed. A session closes what is its own, for good.
    pub async fn close(&self) {
        if self.scope.agent.is_none() {
            let scopes = self.core.scopes();
            futures_util::future::join_all(scopes.iter().map(|scope| scope.disconnect())).await;
        }
        self.scope.close().await;
        // What cannot be written is told to the next call.
        let _ = self.trail().flush().await;
    }

    async fn list(&self, servers: Vec<Arc<Server>>) -> Listing {
        let order: Vec<ServerName> = servers.iter().map(|server| server.config.name.clone()).collect();
        let asked = futures_util::stream::iter(servers).map(|server| async move {
            let home = self.scope.home(&server);
            let looked = server.look(Some(&home.peer)).await;
            let answer = looked.map(|seen| {
                home.publish(&server, seen.offered);
                seen.rejected
            });
            (server, answer)
        });
        let mut answers: Vec<_> = asked.buffer_unordered(STARTING).collect().await;
        answers.sort_by_key(|(server, _)| order.iter().position(|name| *name == server.config.name));
        let snapshot = self.scope.snapshot();
        let mut listing = Listing { snapshot, failed: Vec::new(), rejected: Vec::new() };
        for (server, answer) in answers {
            let name = &server.config.name;
            match answer {
                Ok(rejected) => {
                    let given = |r: &Rejected| match ToolName::parse(r.name.raw()) {
                        Ok(tool) => self.scope.gives(|rules| rules.gives_tool(name, &tool)),
                        Err(_) => self.scope.gives(|rules| rules.gives_server(name)),
                    };
                    let rejected = rejected.iter().filter(|r| given(r));
                    listing.rejected.extend(rejected.map(|r| (name.clone(), r.clone())));
                }
                Err(error) => listing.failed.push((name.clone(), error)),
            }
        }
        listing
    }

    async fn connect_eager(&self) -> Vec<(ServerName, Error)> {
        let servers = self.scope.servers.load();
        let eager = servers.values().filter(|s| s.config.enabled && s.config.connect == Connect::Eager);
        self.list(eager.cloned().collect()).await.failed
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("caller", &self.scope.caller)
            .field("servers", &self.scope.servers.load().keys().collect::<Vec<_>>())
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
        places::refused(&self.failed).unwrap_or(Error::UnknownTool { name: name.to_owned(), hint })
    }

    fn unknown_of(&self, server: &ServerConfig, tool: &str) -> Error {
        let rejected = self.rejected.iter().filter(|(name, _)| *name == server.name).map(|(_, r)| r);
        let own = self.snapshot.tools().iter().filter(|route| route.is_of(&server.name));
        unknown_of(&server.name, tool, rejected, own.map(|route| &route.tool.name))
    }
}

/// A server has no such tool, or has it and it cannot be used.
fn unknown_of<'a>(
    server: &ServerName,
    tool: &str,
    mut rejected: impl Iterator<Item = &'a Rejected>,
    known: impl Iterator<Item = &'a ToolName>,
) -> Error {
    let rejected = rejected.find(|r| r.name.raw() == tool);
    if let Some(denied) = rejected.and_then(|r| r.denied.as_deref()) {
        return denied.clone();
    }
    if let (Some(rejected), Ok(tool)) = (rejected, ToolName::parse(tool)) {
        return Error::Schema { server: server.clone(), tool, reason: rejected.reason.clone() };
    }
    let hint = builder::did_you_mean(tool, known.map(ToolName::as_str));
    Error::UnknownTool { name: format!("{server}/{tool}"), hint }
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
