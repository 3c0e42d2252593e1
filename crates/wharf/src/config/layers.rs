//! All the files become one configuration.
//!
//! In: the files that the caller named, the environment, the trust store. Out: a [`Config`]. The nearer file
//! replaces the farther server whole, a server with a problem is left out alone, a file that is not trusted has no
//! say, and whatever could hide a rule of the policy ends the load.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use crate::error::Result;
use crate::names::ServerName;
use crate::wire::Limits;

use super::approvals::ApprovalSettings;
use super::audit::AuditSettings;
use super::callers::CallerTable;
use super::edit::Format;
use super::fields::{Environment, Meaning, Reader};
use super::file::{self, Named, Parts};
use super::flow::FlowSettings;
use super::gateway::GatewaySettings;
use super::node::{Entry, Node};
use super::packages::PackageSettings;
use super::policy::{self, PolicySettings, Refusal};
use super::problem::Problem;
use super::read::{self, Contents, Writable};
use super::sandbox::SandboxSetting;
use super::server::{Origin, ServerConfig};
use super::source::Source;
use super::telemetry::TelemetrySettings;
use super::trust::{self, PendingFile, TrustStore};
use super::{limits, pending};

/// Where to read a configuration from.
#[derive(Clone, Default)]
pub struct Sources {
    /// The user's own `wharf.toml`. It may be missing.
    pub user: Option<PathBuf>,
    /// Project folders, the farthest ancestor first, the local one last. Each may hold `wharf.toml` and `.mcp.json`.
    pub folders: Vec<PathBuf>,
    /// Files named on the command line, the last the nearest. They need no trust, must exist, and replace the
    /// search: of the user's file only its rules still count, not its servers, and `folders` are not read.
    pub explicit: Vec<PathBuf>,
    /// The environment to expand from.
    pub env: BTreeMap<String, String>,
    /// Which project files are trusted.
    pub trust: TrustStore,
    /// Servers from the command line, nearest of all, and the built-in ones, farthest of all.
    pub given: Vec<ServerConfig>,
}

/// What all the files together mean.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The servers, those that are turned off included.
    pub servers: IndexMap<ServerName, ServerConfig>,
    /// What the user allows.
    pub policy: PolicySettings,
    /// How much a server may send.
    pub limits: Limits,
    /// What callers of the gateway are given. `None`: whoever is let in is given everything.
    pub callers: Option<CallerTable>,
    /// How callers of the gateway are received.
    pub gateway: GatewaySettings,
    /// Where the record is kept.
    pub audit: AuditSettings,
    /// How calls that somebody must allow are waited for.
    pub approvals: ApprovalSettings,
    /// Where traces go.
    pub telemetry: TelemetrySettings,
    /// How packages are fetched.
    pub packages: PackageSettings,
    /// What holds private data, reaches the open world, or destroys.
    pub flow: FlowSettings,
    /// What is wrong: each names the server, or the file, that was left out because of it.
    pub problems: Vec<Problem>,
    /// What is doubtful, but changed nothing.
    pub warnings: Vec<Problem>,
    /// Project files that are not trusted and had no effect.
    pub pending: Vec<PendingFile>,
    /// The user's own file, if it was there.
    pub user: Option<PathBuf>,
}

/// Why a file is read, which decides what it may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    User,
    /// The user's file beside explicit ones: its rules count, its servers do not.
    UserRules,
    Explicit,
    Project,
}

/// A server's place in the layers.
#[derive(Debug)]
struct Slot {
    enabled: bool,
    server: Result<Box<ServerConfig>, Vec<Problem>>,
}

#[derive(Debug)]
struct Layers<'a> {
    sources: &'a Sources,
    slots: IndexMap<ServerName, Slot>,
    config: Config,
}

/// Reads every file and puts them together.
///
/// # Errors
/// If a file named on the command line is missing, or a `wharf.toml` that has a say cannot be read, is open to other
/// users, or has an invalid table of rules: then nobody knows what it forbids.
pub fn load(sources: &Sources) -> Result<Config> {
    let mut layers = Layers { sources, slots: IndexMap::new(), config: Config::default() };
    layers.give(|origin| *origin == Origin::BuiltIn);
    let user = sources.user.as_deref();
    if sources.explicit.is_empty() {
        if let Some(user) = user {
            layers.file(user, Standing::User)?;
        }
        for folder in &sources.folders {
            // The later file is the nearer: in one folder `wharf.toml` wins.
            for name in [".mcp.json", "wharf.toml"] {
                let path = folder.join(name);
                if !user.is_some_and(|user| is_same_file(user, &path)) {
                    layers.file(&path, Standing::Project)?;
                }
            }
        }
    } else {
        if let Some(user) = user
            && !sources.explicit.iter().any(|path| is_same_file(user, path))
        {
            layers.file(user, Standing::UserRules)?;
        }
        for path in &sources.explicit {
            layers.file(path, Standing::Explicit)?;
        }
    }
    layers.give(|origin| *origin != Origin::BuiltIn);
    Ok(layers.finish())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path| std::fs::canonicalize(path).ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}

// === impl Layers ===

impl Layers<'_> {
    fn give(&mut self, wanted: impl Fn(&Origin) -> bool) {
        for server in self.sources.given.iter().filter(|server| wanted(&server.origin)) {
            let slot = Slot { enabled: server.enabled, server: Ok(Box::new(server.clone())) };
            self.slots.insert(server.name.clone(), slot);
        }
    }

    /// Puts one file on top of what is there.
    fn file(&mut self, path: &Path, standing: Standing) -> Result<(), Box<Problem>> {
        let contents = match (read::read(path), standing) {
            (Ok(Some(contents)), _) => contents,
            (Ok(None), Standing::Explicit) => {
                return Err(Box::new(Problem::of_file(path, "there is no such file")));
            }
            (Ok(None), _) => return Ok(()),
            // Nobody has looked at it, so it has no say; but one that was trusted may hold rules.
            (Err(problem), Standing::Project) if !self.sources.trust.knows(path) => {
                self.config.warnings.push(*problem);
                return Ok(());
            }
            (Err(problem), _) => return Err(problem),
        };
        if matches!(standing, Standing::User | Standing::UserRules) {
            self.config.user = Some(path.to_owned());
        }
        let format = Format::of(path);
        match standing {
            Standing::User | Standing::UserRules => {
                read::refuse_writable(path, contents.writable, Writable::OwnerOnly)?;
            }
            Standing::Explicit => read::refuse_writable(path, contents.writable, Writable::Group)?,
            Standing::Project => {
                let open = read::refuse_writable(path, contents.writable, Writable::Group);
                if open.is_err() || !self.sources.trust.is_trusted(path, &contents.bytes) {
                    self.hold_back(path, &contents, open.err());
                    return Ok(());
                }
            }
        }
        match self.take(path, &contents, standing) {
            // An `.mcp.json` holds no rules, so the others can go on without it.
            Err(problem) if format == Format::Json => {
                self.config.problems.push(*problem);
                Ok(())
            }
            taken => taken,
        }
    }

    /// Takes in what a file says. The error is about the file as a whole.
    fn take(&mut self, path: &Path, contents: &Contents, standing: Standing) -> Result<(), Box<Problem>> {
        let text = read::text(path, &contents.bytes)?;
        let (source, tree) = Source::parse(path, Format::of(path), text)?;
        let parts = file::parts(&tree, &source)?;
        match self.rules(&parts, &source, standing) {
            Ok(()) => {
                self.servers(parts, &source, standing);
                Ok(())
            }
            Err(Refusal::Widens(problem)) => {
                self.config.problems.push(*problem);
                Ok(())
            }
            Err(Refusal::Invalid(problem)) => Err(problem),
        }
    }

    /// Reads the tables of rules, all or none.
    fn rules(&mut self, parts: &Parts<'_>, source: &Source, standing: Standing) -> Result<(), Refusal> {
        let is_project = standing == Standing::Project;
        let mut policy = self.config.policy.clone();
        let mut limits = self.config.limits.clone();
        match parts.policy {
            Some(node) if is_project => policy::narrow(node, source, &mut policy)?,
            Some(node) => policy::apply(node, source, &mut policy).map_err(Refusal::Invalid)?,
            None => {}
        }
        if let Some(node) = parts.limits {
            limits::apply(node, source, is_project, &mut limits)?;
        }
        let (mut callers, mut gateway) = (self.config.callers.clone(), self.config.gateway.clone());
        if let Some(entry) = parts.callers {
            own_only(entry, source, is_project, "who calls the gateway")?;
            let table = callers.get_or_insert_default();
            table.apply(&entry.node, source).map_err(Refusal::Invalid)?;
        }
        if let Some(entry) = parts.gateway {
            own_only(entry, source, is_project, "who calls the gateway")?;
            gateway.apply(&entry.node, source).map_err(Refusal::Invalid)?;
        }
        let mut audit = self.config.audit.clone();
        if let Some(entry) = parts.audit {
            own_only(entry, source, is_project, "what is on record")?;
            audit.apply(&entry.node, source).map_err(Refusal::Invalid)?;
        }
        let mut approvals = self.config.approvals.clone();
        if let Some(entry) = parts.approvals {
            own_only(entry, source, is_project, "who allows calls")?;
            approvals.apply(&entry.node, source).map_err(Refusal::Invalid)?;
        }
        let mut telemetry = self.config.telemetry.clone();
        if let Some(entry) = parts.telemetry {
            own_only(entry, source, is_project, "where traces go")?;
            telemetry.apply(&entry.node, source, &self.sources.env).map_err(Refusal::Invalid)?;
        }
        let mut packages = self.config.packages.clone();
        if let Some(entry) = parts.packages {
            own_only(entry, source, is_project, "how packages are fetched")?;
            packages.apply(&entry.node, source).map_err(Refusal::Invalid)?;
        }
        let mut flow = self.config.flow.clone();
        if let Some(node) = parts.flow {
            // A label only ever takes away, so a project may give some too.
            flow.apply(node, source).map_err(Refusal::Invalid)?;
        }
        self.config.policy = policy;
        self.config.flow = flow;
        self.config.telemetry = telemetry;
        self.config.approvals = approvals;
        self.config.packages = packages;
        self.config.limits = limits;
        self.config.callers = callers;
        self.config.gateway = gateway;
        self.config.audit = audit;
        Ok(())
    }

    fn servers(&mut self, parts: Parts<'_>, source: &Source, standing: Standing) {
        if standing == Standing::UserRules {
            return;
        }
        self.config.problems.extend(parts.problems);
        self.config.warnings.extend(parts.warnings);
        let base = base_of(&source.path);
        for (name, named) in parts.servers {
            let entry = match named {
                Named::Once(entry) => entry,
                Named::Twice(problem) => {
                    self.slots.insert(name, Slot { enabled: true, server: Err(vec![problem]) });
                    continue;
                }
            };
            let reader = Reader::new(source, base.clone(), Environment(&self.sources.env), &entry.key);
            let reading = reader.read(&name, entry);
            self.config.warnings.extend(reading.warnings);
            let enabled = reading.enabled;
            let server = match reading.meaning {
                Ok(Meaning::Server(server)) => match self.unconfined(&server, source, standing, entry) {
                    Some(problem) => Err(vec![problem]),
                    None => Ok(server),
                },
                Ok(Meaning::Switch(on)) => match self.slots.get_mut(&name) {
                    Some(slot) => {
                        slot.enabled = on;
                        continue;
                    }
                    None => {
                        self.idle_switch(on, source, entry);
                        continue;
                    }
                },
                Err(problems) => Err(problems),
            };
            self.slots.insert(name, Slot { enabled, server });
        }
    }

    /// A project's file may not let a program out of the sandbox, or to services of this machine, even if it is trusted: the
    /// user's own rules may.
    fn unconfined(
        &self,
        server: &ServerConfig,
        source: &Source,
        standing: Standing,
        entry: &Entry,
    ) -> Option<Problem> {
        let name = server.name.as_str();
        let policy = &self.config.policy;
        let may = !policy.sandbox || policy.unconfined.iter().any(|listed| listed == name);
        if standing != Standing::Project || may {
            return None;
        }
        let (message, hint) = match &server.sandbox {
            Some(SandboxSetting::Off) => (
                format!("a project's file may not turn the sandbox of `{name}` off"),
                format!(
                    "if you trust it that far, write in your own wharf.toml:\n  [policy]\n  unconfined = [\"{name}\"]"
                ),
            ),
            Some(SandboxSetting::On(profile)) => {
                let rule = profile.names_this_machine()?;
                (
                    format!("a project's file may not let `{name}` reach this machine itself: `{rule}`"),
                    "if it should, define the server in your own wharf.toml".to_owned(),
                )
            }
            None => return None,
        };
        let mut keys = entry.node.as_table().unwrap_or_default().iter();
        let span = keys.find(|e| e.key == "sandbox").map_or(&entry.key_span, |e| &e.key_span);
        Some(Problem { server: Some(entry.key.clone()), ..source.problem(span, message).hint(hint) })
    }

    /// A switch for a server that no farther file defines.
    fn idle_switch(&mut self, on: bool, source: &Source, entry: &super::node::Entry) {
        let message = format!(
            "no farther file defines a server {} to turn {}",
            super::problem::shown(&entry.key),
            if on { "on" } else { "off" }
        );
        let problem = source.problem(&entry.key_span, message);
        let problem = Problem { server: Some(entry.key.clone()), ..problem };
        if on {
            self.config
                .problems
                .push(problem.hint("give it a `command` or a `url`, or trust the file that defines it"));
        } else {
            self.config.warnings.push(problem);
        }
    }

    /// Notes what a file that is not trusted would do.
    fn hold_back(&mut self, path: &Path, contents: &Contents, open: Option<Box<Problem>>) {
        let parsed =
            read::text(path, &contents.bytes).and_then(|text| Source::parse(path, Format::of(path), text));
        let described = parsed.and_then(|(source, tree): (Source, Node)| {
            let parts = file::parts(&tree, &source)?;
            Ok(pending::describe(&parts, source.format))
        });
        let (servers, broken) = match described {
            Ok(servers) => (servers, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        self.config.pending.push(PendingFile {
            path: path.to_owned(),
            hash: trust::hash(&contents.bytes),
            servers,
            changed_since_trusted: self.sources.trust.knows(path),
            obstacle: open.or(broken).map(|problem| *problem),
        });
    }

    fn finish(mut self) -> Config {
        for (name, slot) in self.slots {
            match slot.server {
                Ok(mut server) => {
                    server.enabled = slot.enabled;
                    self.config.servers.insert(name, *server);
                }
                Err(problems) if slot.enabled => self.config.problems.extend(problems),
                // It is off, so nothing is missing; but it could not be turned on.
                Err(problems) => self.config.warnings.extend(problems),
            }
        }
        self.config
    }
}

/// Who may call, and what, and what is kept of it, is not a project's to say.
fn own_only(entry: &Entry, source: &Source, is_project: bool, what: &str) -> Result<(), Refusal> {
    if !is_project {
        return Ok(());
    }
    let message = format!("a project's file may not say {what}: `{}`", entry.key);
    let hint = "say it in your own wharf.toml, or take it out of the project's";
    Err(Refusal::Widens(Box::new(source.problem(&entry.key_span, message).hint(hint))))
}

/// The folder that relative paths in a file start from.
fn base_of(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    std::fs::canonicalize(folder).ok()
}

// === impl Sources ===

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("user", &self.user)
            .field("folders", &self.folders)
            .field("explicit", &self.explicit)
            .field("env", &Environment(&self.env))
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}
