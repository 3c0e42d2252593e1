//! Putting a host together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::lanes::Lanes;
use super::peer::HostPeer;
use super::scope::Scope;
use super::server::Server;
use super::{Core, Host};
use crate::ask::{Asker, Decline};
use crate::call::Validators;
use crate::catalog::CatalogStore;
use crate::config::ServerConfig;
use crate::connect::{Dock, EraMemory, EraStore, Leaving, Logins, StraysByServer, TokenMemory, TokenStore};
use crate::error::{Error, Result};
use crate::event::{Bus, Meter, Trail};
use crate::names::ServerName;
use crate::net::{HttpClient, NetOptions};
use crate::policy::{Live, Policy};
use crate::registry::{NameRules, Registry};
use crate::sandbox::Sandbox;
use crate::sandbox::packages::PackageOptions;
use crate::store::Approvals;
use crate::wire::{Json, Limits};

/// Collects what a host needs. Each setting names its default.
pub struct HostBuilder {
    servers: Vec<ServerConfig>,
    policy: Policy,
    environment: BTreeMap<String, String>,
    scratch: Option<PathBuf>,
    limits: Limits,
    names: NameRules,
    asker: Arc<dyn Asker>,
    events: Bus,
    eras: Arc<dyn EraStore>,
    catalogs: Option<Arc<dyn CatalogStore>>,
    tokens: Arc<dyn TokenStore>,
    client: (String, String),
    net: NetOptions,
    grace: Duration,
    retry_pause: Duration,
    drain: Duration,
    sandbox: Option<Sandbox>,
    trail: Trail,
    approvals: Option<Approvals>,
    packages: Option<PackageOptions>,
}

impl Default for HostBuilder {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            policy: Policy::strict(),
            environment: BTreeMap::new(),
            scratch: None,
            limits: Limits::default(),
            names: NameRules::default(),
            asker: Arc::new(Decline),
            events: Bus::default(),
            eras: Arc::new(EraMemory::default()),
            catalogs: None,
            tokens: Arc::new(TokenMemory::default()),
            client: ("wharf".into(), env!("CARGO_PKG_VERSION").into()),
            net: NetOptions::default(),
            grace: Duration::from_secs(2),
            retry_pause: Duration::from_millis(250),
            drain: Duration::from_secs(30),
            sandbox: None,
            trail: Trail::default(),
            approvals: None,
            packages: None,
        }
    }
}

impl HostBuilder {
    /// Adds a server. Defaults to none.
    #[must_use]
    pub fn server(mut self, server: ServerConfig) -> Self {
        self.servers.push(server);
        self
    }

    /// Adds servers.
    #[must_use]
    pub fn servers(mut self, servers: impl IntoIterator<Item = ServerConfig>) -> Self {
        self.servers.extend(servers);
        self
    }

    /// What may be started, reached and called. Defaults to the strict policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The environment: programs are found through its `PATH`, and servers inherit its safe part. Defaults to nothing,
    /// because the library does not read it by itself: pass `std::env::vars()`.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment = variables.into_iter().collect();
        self
    }

    /// Where servers without a folder of their own get an empty one. Defaults to `TMPDIR` of the environment, or `/tmp`.
    #[must_use]
    pub fn scratch(mut self, folder: impl Into<PathBuf>) -> Self {
        self.scratch = Some(folder.into());
        self
    }

    /// How much is accepted from a server. Defaults to [`Limits::default`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How tools are named. Defaults to `{prefix}_{tool}`, 64 characters.
    #[must_use]
    pub fn names(mut self, names: NameRules) -> Self {
        self.names = names;
        self
    }

    /// Who answers what servers ask. Defaults to nobody: questions are declined.
    #[must_use]
    pub fn asker(mut self, asker: impl Asker) -> Self {
        self.asker = Arc::new(asker);
        self
    }

    /// Where events go. Defaults to a bus of its own.
    #[must_use]
    pub fn events(mut self, events: Bus) -> Self {
        self.events = events;
        self
    }

    /// Where it is remembered which era a server speaks. Defaults to memory.
    #[must_use]
    pub fn eras(mut self, eras: Arc<dyn EraStore>) -> Self {
        self.eras = eras;
        self
    }

    /// Where it is kept what servers offer, so that it can be told before they are started: see [`Host::known_tools`].
    /// With it, the tools of a server are compared with what was known whenever it is connected, before a call is sent.
    /// Defaults to nowhere.
    #[must_use]
    pub fn catalogs(mut self, catalogs: Arc<dyn CatalogStore>) -> Self {
        self.catalogs = Some(catalogs);
        self
    }

    /// Where logins at servers are kept. Defaults to memory.
    #[must_use]
    pub fn tokens(mut self, tokens: Arc<dyn TokenStore>) -> Self {
        self.tokens = tokens;
        self
    }

    /// What servers are told about the program. Defaults to Wharf's own name and version.
    #[must_use]
    pub fn client_info(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.client = (name.into(), version.into());
        self
    }

    /// How servers are reached over the network: further certificates, a resolver. Defaults to [`NetOptions::default`].
    #[must_use]
    pub fn net(mut self, options: NetOptions) -> Self {
        self.net = options;
        self
    }

    /// How long a program may take to leave after its input was closed, and again after SIGTERM, before it is killed.
    /// Defaults to 2 seconds.
    #[must_use]
    pub fn grace(mut self, time: Duration) -> Self {
        self.grace = time;
        self
    }

    /// The first pause before a lost connection is made again; each further one is four times as long. Defaults to
    /// 250 milliseconds.
    #[must_use]
    pub fn retry_pause(mut self, time: Duration) -> Self {
        self.retry_pause = time;
        self
    }

    /// How long calls may go on at a server that another configuration takes away. Defaults to 30 seconds.
    #[must_use]
    pub fn drain(mut self, time: Duration) -> Self {
        self.drain = time;
        self
    }

    /// How programs are confined. Defaults to not at all: then a server that has to be confined does not start.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Where it is kept what was decided and done: an [`Audit`](crate::store::Audit). With it, nothing runs that cannot
    /// be written down. Defaults to nowhere.
    #[must_use]
    pub fn audit(mut self, trail: impl Into<Trail>) -> Self {
        self.trail = trail.into();
        self
    }

    /// Where calls wait that somebody must allow and nobody is there to be asked about. Defaults to nowhere: they are
    /// refused.
    #[must_use]
    pub fn approvals(mut self, approvals: Approvals) -> Self {
        self.approvals = Some(approvals);
        self
    }

    /// How packages are fetched, in a step of its own, for servers that run confined. Defaults to none: their launchers
    /// would have to fetch them, and have no network.
    #[must_use]
    pub fn packages(mut self, options: PackageOptions) -> Self {
        self.packages = Some(options);
        self
    }

    /// Makes the host, and connects the servers that are set to eager. One that fails is reported as an event and does
    /// not keep the others from working.
    pub async fn start(self) -> Result<Host> {
        let host = self.build()?;
        host.connect_eager().await;
        Ok(host)
    }

    fn build(self) -> Result<Host> {
        let peer = Arc::new(HostPeer::new(Arc::clone(&self.asker), self.events.clone(), None));
        let scratch = self.scratch.or_else(|| self.environment.get("TMPDIR").map(PathBuf::from));
        let (name, version) = self.client;
        let policy = Live::from(self.policy);
        let home = self.environment.get("HOME").cloned();
        let sandbox = self.sandbox.map(|sandbox| match home {
            Some(home) if !sandbox.has_home() => sandbox.home(home),
            _ => sandbox,
        });
        let dock = Dock {
            policy: policy.clone(),
            environment: self.environment,
            scratch: scratch.unwrap_or_else(|| PathBuf::from("/tmp")),
            limits: self.limits.into(),
            peer: Arc::clone(&peer) as _,
            events: self.events.clone(),
            trail: self.trail,
            eras: self.eras,
            logins: Logins::new(self.tokens),
            egress: self.net.clone(),
            net: HttpClient::new(self.net)?,
            client_info: Json::of(&serde_json::json!({ "name": name, "version": version })),
            grace: self.grace,
            retry_pause: self.retry_pause,
            leaving: Leaving::default(),
            strays: StraysByServer::default(),
            sandbox,
            packages: self.packages,
        };
        let mut order: Vec<ServerName> = Vec::new();
        for config in &self.servers {
            if order.contains(&config.name) {
                return Err(Error::config(format!("server `{}` is configured twice", config.name)));
            }
            order.push(config.name.clone());
        }
        let registry = Registry::new(self.names, order);
        let lanes = Lanes::new(self.drain);
        let mut scope = Scope::of_program(dock, peer, self.asker, (registry, lanes));
        scope.store = self.catalogs;
        let add = |config: ServerConfig| {
            let server = Arc::new(Server::new(Arc::new(config), &scope.pool, scope.store.as_ref()));
            (server.config.name.clone(), server)
        };
        scope.servers.store(Arc::new(self.servers.into_iter().map(add).collect()));
        let core = Core {
            policy,
            drain: self.drain,
            validators: Validators::default(),
            events: self.events,
            meter: Meter::default(),
            approvals: self.approvals,
            sessions: Mutex::default(),
        };
        Ok(Host { core: Arc::new(core), scope: Arc::new(scope) })
    }
}

impl std::fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBuilder").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// A hint for a name that is not there: the nearest ones, or all of them if they are few.
pub(super) fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    const ALIKE: f64 = 0.75;
    const FEW: usize = 12;
    let known: Vec<&str> = known.collect();
    let quoted = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|n| format!("`{}`", crate::text::Escaped(n))).collect();
        names.join(", ")
    };
    let mut near: Vec<(f64, &str)> = known
        .iter()
        .map(|k| (strsim::jaro_winkler(name, k), *k))
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.truncate(3);
    match &near[..] {
        [] if known.is_empty() => "there is none".into(),
        [] if known.len() == 1 => format!("there is only {}", quoted(&known)),
        [] if known.len() <= FEW => format!("there are {}", quoted(&known)),
        [] => format!("there are {} others; list them to see their names", known.len()),
        near => format!("did you mean {}?", quoted(&near.iter().map(|(_, k)| *k).collect::<Vec<_>>())),
    }
}
