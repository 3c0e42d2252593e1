//! What every command works with: the world, the flags, the way to the reader; and from there the configuration and
//! a host.
//!
//! In: the command line and the world. Out: a [`Setup`] (files read, nothing started) and, from it, a host that is
//! always closed again. Which project files count is decided by the person, here.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use wharf::Host;
use wharf::ask::Asker;
use wharf::catalog::{CatalogStore, LockedCatalogs};
use wharf::config::{self, Config, Connect, Origin, PendingFile, ServerConfig, Sources, TrustStore};
use wharf::event::Bus;
use wharf::names::ServerName;
use wharf::policy::{Live, Policy};
use wharf::sandbox::Sandbox;
use wharf::sandbox::packages::PackageOptions;
use wharf::store::{ApprovalOptions, Approvals, Audit, AuditOptions};

use crate::catalogues::CatalogFolder;
use crate::cli::Globals;
use crate::eras::EraFile;
use crate::events;
use crate::failure::{Failure, Result};
use crate::lockfiles::Locks;
use crate::output::Ui;
use crate::terminal::{self, AtTerminal};
use crate::world::{OwnFiles, World};
use crate::{logins, logs};

/// The name of the built-in server.
pub(crate) const DEMO: &str = "demo";

/// What every command is handed.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) world: World,
    pub(crate) globals: Globals,
    pub(crate) ui: Arc<Ui>,
}

/// The configuration as it counts here and now.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) policy: Policy,
    pub(crate) locks: Locks,
    sources: Sources,
    named_lockfile: Option<PathBuf>,
    /// The sandbox that watches what servers look for, if they are watched.
    pub(crate) watched: Option<Sandbox>,
}

/// A host that is to be closed.
#[derive(Debug)]
pub(crate) struct OpenHost {
    pub(crate) host: Host,
    /// What is shown of servers before they are started.
    pub(crate) accepted: Arc<LockedCatalogs>,
    /// How the record is kept, and how calls wait for an answer, where they do.
    pub(crate) audit: Option<Live<AuditOptions>>,
    pub(crate) approvals: Option<Live<ApprovalOptions>>,
    teller: tokio::task::JoinHandle<()>,
}

// === impl App ===

impl App {
    /// Reads the configuration. Nothing is started.
    pub(crate) fn setup(&self) -> Result<Setup> {
        let own = self.world.own.as_ref();
        let trust = own.map(|own| TrustStore::open(&own.trust)).transpose()?.unwrap_or_default();
        let sources = Sources {
            user: own.map(|own| own.config.clone()),
            folders: config::find_folders(&self.world.cwd, own.map(|own| own.home.as_path())),
            explicit: self.globals.config.iter().map(|file| self.world.cwd.join(file)).collect(),
            env: self.world.env.clone(),
            trust,
            given: self.demo().into_iter().collect(),
        };
        Setup::load(sources, self.named_lockfile())
    }

    /// Reads the configuration once more, from the same files.
    pub(crate) fn setup_again(&self, before: &Setup) -> Result<Setup> {
        match self.world.own {
            // What is trusted without a home is known to this process alone.
            None => Setup::load(before.sources.clone(), self.named_lockfile()),
            Some(_) => self.setup(),
        }
    }

    /// Every file that decides what the configuration is, whether it is there or not.
    pub(crate) fn files(&self, setup: &Setup) -> Vec<PathBuf> {
        let sources = &setup.sources;
        let in_folder = |folder: &PathBuf| [".mcp.json", "wharf.toml"].map(|name| folder.join(name));
        let trust = self.world.own.as_ref().map(|own| own.trust.clone());
        let files = sources.user.iter().chain(&sources.explicit).cloned();
        let locks = setup.locks.places.values().cloned().collect::<BTreeSet<_>>();
        files.chain(sources.folders.iter().flat_map(in_folder)).chain(trust).chain(locks).collect()
    }

    /// The built-in server: this program, started once more.
    fn demo(&self) -> Option<ServerConfig> {
        let exe = self.world.exe.to_str()?;
        let mut demo = ServerConfig::stdio(ServerName::parse(DEMO).ok()?, exe, ["test-server"]);
        demo.origin = Origin::BuiltIn;
        Some(demo)
    }

    /// Runs something with a host of these servers, and closes it whatever happens. Ctrl-C ends the work, not the
    /// closing; a second one ends that too.
    pub(crate) async fn with_host<T>(
        &self,
        setup: &Setup,
        servers: Vec<ServerConfig>,
        work: impl AsyncFnOnce(&Host) -> Result<T>,
    ) -> Result<T> {
        let asker = AtTerminal::new(Arc::clone(&self.ui), self.world.can_ask());
        let open = self.open(setup, servers, asker).await?;
        let done = tokio::select! {
            biased;
            done = work(&open.host) => done,
            () = interrupted() => Err(Failure::Interrupted),
        };
        open.close().await;
        done
    }

    /// A host of these servers, and somebody who tells what happens in it. Whoever opens it closes it.
    pub(crate) async fn open(
        &self,
        setup: &Setup,
        servers: Vec<ServerConfig>,
        asker: impl Asker,
    ) -> Result<OpenHost> {
        self.open_with(setup, servers, asker, None).await
    }

    /// The same for whoever stays: what servers offer is remembered from run to run.
    pub(crate) async fn open_to_stay(
        &self,
        setup: &Setup,
        servers: Vec<ServerConfig>,
        asker: impl Asker,
    ) -> Result<OpenHost> {
        let folder = |own: &OwnFiles| CatalogFolder::new(own.catalogues.clone(), Arc::clone(&self.ui));
        let kept = self.world.own.as_ref().map(|own| Arc::new(folder(own)) as Arc<dyn CatalogStore>);
        self.open_with(setup, servers, asker, Some(kept)).await
    }

    async fn open_with(
        &self,
        setup: &Setup,
        servers: Vec<ServerConfig>,
        asker: impl Asker,
        stays: Option<Option<Arc<dyn CatalogStore>>>,
    ) -> Result<OpenHost> {
        let debugged: HashSet<ServerName> =
            servers.iter().filter(|s| s.debug).map(|s| s.name.clone()).collect();
        let bus = Bus::default();
        // Only a curious person hears of every call.
        let heard = if self.ui.verbose > 0 { bus.subscribe() } else { bus.subscribe_but_calls() };
        let teller = match self.ui.keeps_log() {
            true => tokio::spawn(logs::tell(Arc::clone(&self.ui), heard)),
            false => tokio::spawn(events::tell(Arc::clone(&self.ui), heard, debugged)),
        };
        let eras = EraFile::open(self.world.own.as_ref().map(|own| own.eras.clone()));
        let is_to_stay = stays.is_some();
        let accepted = Arc::new(LockedCatalogs::new(setup.locks.entries.clone(), stays.flatten()));
        let mut builder = Host::builder()
            .servers(servers.into_iter().map(|server| self.adjusted(server)))
            .policy(setup.policy.clone())
            .environment(self.world.env.clone())
            .limits(setup.config.limits.clone())
            .asker(asker)
            .eras(Arc::new(eras))
            .tokens(logins::store(&self.world))
            .sandbox(setup.watched.clone().unwrap_or_else(|| self.sandbox()))
            .events(bus);
        if let Some(options) = self.package_options(setup) {
            builder = builder.packages(options);
        }
        let (audit, approvals) = (self.audit(setup)?, self.approvals(setup)?);
        let keeping =
            (audit.as_ref().map(|a| a.options().clone()), approvals.as_ref().map(|a| a.options().clone()));
        if let Some(audit) = audit {
            builder = builder.audit(&audit);
        }
        if let Some(approvals) = approvals {
            builder = builder.approvals(approvals);
        }
        if is_to_stay {
            builder = builder.catalogs(Arc::clone(&accepted) as _);
        }
        let host = builder.start().await?;
        Ok(OpenHost { host, accepted, audit: keeping.0, approvals: keeping.1, teller })
    }

    /// How packages are fetched, if that is not left to their launchers.
    pub(crate) fn package_options(&self, setup: &Setup) -> Option<PackageOptions> {
        let own = self.world.own.as_ref().filter(|_| setup.config.policy.sandbox)?;
        let (options, settings) = (PackageOptions::new(own.packages.clone()), &setup.config.packages);
        Some(PackageOptions {
            home: Some(own.home.clone()),
            scripts_of: settings.scripts.clone(),
            time: settings.time.unwrap_or(options.time),
            size: settings.size.unwrap_or(options.size),
            ..options
        })
    }

    /// Where the record is kept, and where calls wait for an answer.
    pub(crate) fn store(&self, setup: &Setup) -> Option<PathBuf> {
        setup.config.audit.path.clone().or_else(|| self.world.own.as_ref().map(|own| own.store.clone()))
    }

    /// The record of what is decided and done. Where it cannot be written, nothing runs.
    pub(crate) fn audit(&self, setup: &Setup) -> Result<Option<Audit>> {
        let settings = &setup.config.audit;
        let Some(path) = self.store(setup).filter(|_| !settings.off) else {
            if !settings.off {
                let hint = "name a file with `path` in `[audit]`, or set `off = true` there";
                return Err(Failure::general("there is no home folder to keep the audit log in").hint(hint));
            }
            return Ok(None);
        };
        Ok(Some(Audit::open(path, setup.audit_options())?))
    }

    /// Where calls wait that somebody must allow. Nothing is opened before there is one.
    pub(crate) fn approvals(&self, setup: &Setup) -> Result<Option<Approvals>> {
        let queue = |path| Approvals::new(path, setup.approval_options());
        Ok(self.store(setup).map(queue).transpose()?)
    }

    /// How servers are confined: by this program, away from the home folder and from everything that Wharf keeps.
    pub(crate) fn sandbox(&self) -> Sandbox {
        let sandbox = Sandbox::new(&self.world.exe)
            .protect(self.globals.config.iter().map(|file| self.world.cwd.join(file)));
        match &self.world.own {
            Some(own) => {
                let folders = [&own.config, &own.trust, &own.store].map(|file| file.parent());
                let kept = [own.eras.as_path(), own.catalogues.as_path()];
                sandbox.home(&own.home).protect(folders.into_iter().flatten().chain(kept))
            }
            None => sandbox,
        }
    }

    /// One command uses a server once: naming it is connecting it by hand, and nothing is started early.
    pub(crate) fn adjusted(&self, mut server: ServerConfig) -> ServerConfig {
        server.connect = Connect::Lazy;
        server.debug |= self.ui.verbose > 0;
        if let Some(timeout) = self.globals.timeout {
            server.timeout = timeout;
            server.start_timeout = timeout;
        }
        server
    }
}

/// What is being waited for while a server starts: `starting github (npx)`.
pub(crate) fn starting(server: &ServerConfig) -> String {
    match &server.transport {
        config::Transport::Stdio(_) if server.origin == Origin::BuiltIn => {
            format!("starting {}", server.name)
        }
        config::Transport::Stdio(stdio) => {
            format!("starting {} ({})", server.name, wharf::text::Escaped(&stdio.command))
        }
        _ => format!("reaching {}", server.name),
    }
}

// === impl OpenHost ===

impl OpenHost {
    /// Waits until nothing of it is left, or until somebody loses patience.
    pub(crate) async fn close(self) {
        tokio::select! {
            () = self.host.close() => {}
            () = interrupted() => {}
        }
        drop(self.host);
        // What was reported last is still told, unless a task holds the bus open.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(50), self.teller).await;
    }
}

/// Ctrl-C, or the wish of whoever runs the machine, heard from the moment that this is made.
pub(crate) struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let hear = |kind| signal(kind).map_err(|e| Failure::general(format!("cannot hear Ctrl-C: {e}")));
        Ok(Self { interrupt: hear(SignalKind::interrupt())?, terminate: hear(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ctrl-C, or the wish of whoever runs the machine.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

// === impl Setup ===

impl Setup {
    fn load(sources: Sources, named_lockfile: Option<PathBuf>) -> Result<Self> {
        let config = config::load(&sources)?;
        let locks = Locks::read(named_lockfile.as_deref(), &config)?;
        let policy =
            Policy::from(&config.policy).with_flow(config.flow.clone()).with_lock(locks.lock.clone());
        Ok(Self { config, policy, locks, sources, named_lockfile, watched: None })
    }

    /// How the record is kept.
    pub(crate) fn audit_options(&self) -> AuditOptions {
        let settings = &self.config.audit;
        let (digest_only, keep_for, keep_size) = (settings.digest_only, settings.keep, settings.keep_size);
        AuditOptions { digest_only, keep_for, keep_size }
    }

    /// How calls wait for an answer.
    pub(crate) fn approval_options(&self) -> ApprovalOptions {
        let settings = &self.config.approvals;
        let (wait, expires, callers) = (settings.wait, settings.expires, settings.callers);
        ApprovalOptions { wait, expires, callers }
    }

    /// A configured server by its name.
    pub(crate) fn known(&self, server: &str) -> Result<ServerName> {
        let name = ServerName::parse(server).ok().filter(|name| self.config.servers.contains_key(name));
        name.ok_or_else(|| {
            let known: Vec<&str> = self.config.servers.keys().map(ServerName::as_str).collect();
            let hint = format!("there are {}", known.join(", "));
            wharf::Error::UnknownServer { name: wharf::text::Escaped(server).to_string(), hint }.into()
        })
    }

    /// Whether the user has configured anything, so that the built-in server need not stand in.
    pub(crate) fn is_bare(&self) -> bool {
        let config = &self.config;
        config.servers.values().all(|server| server.origin == Origin::BuiltIn)
            && config.pending.is_empty()
            && config.problems.is_empty()
    }

    /// The servers that are listed: all that are configured, and the built-in one where there is no other.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &ServerConfig> {
        let bare = self.is_bare();
        self.config.servers.values().filter(move |server| bare || server.origin != Origin::BuiltIn)
    }

    /// Sees to project files that are not trusted: at a terminal the person is asked, once; elsewhere they are left
    /// out. `wanted` is the one server that is needed; without it they all are.
    pub(crate) fn settle(&mut self, app: &App, wanted: Option<&str>) -> Result<()> {
        let name = wanted.and_then(|name| ServerName::parse(name).ok());
        let concerns = |file: &PendingFile| match (&name, wanted) {
            (Some(name), _) => file.servers.iter().any(|server| server.name == name.as_str()),
            (None, Some(_)) => false,
            (None, None) => true,
        };
        let concerned: Vec<PendingFile> =
            self.config.pending.iter().filter(|f| concerns(f)).cloned().collect();
        if concerned.is_empty() {
            return Ok(());
        }
        let mut trusted = false;
        if app.world.can_ask() && !app.ui.json {
            for file in concerned.iter().filter(|file| file.obstacle.is_none()) {
                describe(app, file);
                if terminal::confirm(&app.ui, "Trust this file?") {
                    self.sources.trust.trust_pending(file)?;
                    trusted = true;
                }
            }
        }
        if trusted {
            let named = self.named_lockfile.take();
            *self = Self::load(std::mem::take(&mut self.sources), named)?;
        }
        self.refuse_pending(app, name.as_ref())
    }

    /// Says which files have no say, and ends the command where nothing is left without them.
    pub(crate) fn refuse_pending(&self, app: &App, wanted: Option<&ServerName>) -> Result<()> {
        for file in &self.config.pending {
            let (message, hint) = untrusted(app, file, wanted);
            let is_needed = match wanted {
                Some(name) => {
                    let defines = file.servers.iter().any(|server| server.name == name.as_str());
                    if !defines {
                        continue;
                    }
                    // The built-in server is no substitute for one that somebody wrote.
                    self.config.servers.get(name).is_none_or(|other| other.origin == Origin::BuiltIn)
                }
                None => self.listed().next().is_none() && self.config.problems.is_empty(),
            };
            if is_needed {
                return Err(Failure::pending(message).hint(hint));
            }
            app.ui.warn(format_args!("{message}; {hint}"));
        }
        Ok(())
    }

    /// Reports what is wrong in the files: about one server, or about all. A server that is left out because of a
    /// problem is an error for whoever names it.
    pub(crate) fn report(&self, app: &App, wanted: Option<&str>) -> Result<()> {
        let name = wanted.and_then(|name| ServerName::parse(name).ok());
        let is_about = |server: &Option<String>| match (server, &name) {
            (Some(server), Some(name)) => ServerName::parse(server).is_ok_and(|server| server == *name),
            (Some(_), None) => wanted.is_none(),
            (None, _) => true,
        };
        let left_out = name.as_ref().filter(|name| !self.config.servers.contains_key(*name));
        for problem in self.config.problems.iter().filter(|problem| is_about(&problem.server)) {
            if left_out.is_some() && problem.server.is_some() {
                return Err(problem.to_error().into());
            }
            app.ui.trouble(problem);
        }
        for warning in self.config.warnings.iter().filter(|warning| is_about(&warning.server)) {
            app.ui.warn(warning);
        }
        Ok(())
    }
}

/// Why a file has no say, and what to do about it.
pub(crate) fn untrusted(app: &App, file: &PendingFile, wanted: Option<&ServerName>) -> (String, String) {
    let path = app.world.show(&file.path);
    let what = match wanted {
        Some(name) => format!("server `{name}` is defined in {path}, "),
        None => format!("{path} "),
    };
    let which = if wanted.is_some() { "which " } else { "" };
    if let Some(obstacle) = &file.obstacle {
        let see = || format!("see what is wrong: wharf trust {}", app.world.typed(&file.path));
        let hint = obstacle.hint.clone().unwrap_or_else(see);
        return (format!("{what}{which}cannot be trusted: {}", obstacle.message), hint);
    }
    let why = if file.changed_since_trusted { "has changed since you trusted it" } else { "is not trusted" };
    (
        format!("{what}{which}{why}"),
        format!("look at it and trust it: wharf trust {}", app.world.typed(&file.path)),
    )
}

/// Shows everything that a project's file would do.
pub(crate) fn describe(app: &App, file: &PendingFile) {
    let ui = &app.ui;
    let changed = if file.changed_since_trusted { ", which has changed since you trusted it," } else { "" };
    ui.say(format_args!("{}{changed} defines:", app.world.show(&file.path)));
    if file.servers.is_empty() {
        ui.say("  no server");
    }
    for server in &file.servers {
        ui.say(format_args!("  {}: {}", server.name, server.does));
        if !server.reads.is_empty() {
            ui.say(format_args!("    takes from your environment: {}", server.reads.join(", ")));
        }
        if !server.sets.is_empty() {
            ui.say(format_args!("    sets: {}", server.sets.join(", ")));
        }
    }
}
