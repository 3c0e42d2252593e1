//! What may start, what may be reached, what may be called.
//!
//! In: a request described by plain values. Out: a permit, which only this room can make and which the next room
//! demands, or an error that names the rule and how to allow it. Pure: no IO, no async, no clock.

pub mod address;
mod alike;
mod call;
mod caller;
mod egress;
mod environment;
mod fetch;
mod flow;
mod found;
mod launch;
mod live;
mod lock;
mod package;
mod permission;
mod permit;
mod remote;
mod scan;
mod settings;
mod shape;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use crate::config::{CallerRules, FlowLabel, FlowSettings, PackageRule, ScanRule, ToolPattern};
pub use call::is_visible;
pub use egress::{EgressPermit, EgressRules, Target};
pub use environment::{EnvRules, Filtered, filter_environment};
pub use flow::{FlowReason, Tainted};
pub use launch::LaunchRequest;
pub use live::Live;
pub(crate) use live::Rare;
pub use lock::{Lock, LockedServer, LockedSource};
pub(crate) use package::{Package, Registry};
pub use permission::{Decision, Grants, Identity, Permission, Reach, Standing, Subject, Wanted};
pub use permit::{CallPermit, Confinement, ConnectPermit, LaunchPermit, SocketPermit};
pub use socket::{FoundFile, SocketRequest};

/// The commands that a strict policy lets servers be started with, unless it is told otherwise.
pub const DEFAULT_COMMANDS: [&str; 18] = [
    "bun",
    "deno",
    "node",
    "npm",
    "npx",
    "pdm",
    "pipx",
    "poetry",
    "python",
    "python3",
    "python3.10",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
    "rye",
    "uv",
    "uvx",
];

/// The rules. Immutable and cheap to clone: every `with_…` returns a new one and leaves this one as it was.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Arc<Rules>,
}

#[derive(Clone, Debug)]
struct Rules {
    strict: bool,
    commands: BTreeSet<String>,
    packages: PackageRule,
    env_allowed: BTreeSet<String>,
    private_networks: bool,
    allowed_argv: BTreeSet<Vec<String>>,
    asked: Vec<ToolPattern>,
    sandbox: bool,
    unconfined: BTreeSet<String>,
    /// What was accepted; `None` where nobody asks for that.
    lock: Option<Arc<Lock>>,
    flow: FlowSettings,
    scan: Option<ScanRule>,
}

// === impl Policy ===

impl Policy {
    /// The built-in policy: only [`DEFAULT_COMMANDS`], only command lines that cannot run code given as text, only
    /// public addresses.
    pub fn strict() -> Self {
        let rules = Rules {
            strict: true,
            commands: DEFAULT_COMMANDS.into_iter().map(str::to_owned).collect(),
            packages: PackageRule::Any,
            env_allowed: BTreeSet::new(),
            private_networks: false,
            allowed_argv: BTreeSet::new(),
            asked: Vec::new(),
            sandbox: true,
            unconfined: BTreeSet::new(),
            lock: None,
            flow: FlowSettings::default(),
            scan: None,
        };
        Self { rules: Arc::new(rules) }
    }

    /// Allows more commands: bare names, or exact absolute paths.
    #[must_use]
    pub fn with_commands<C: Into<String>>(&self, commands: impl IntoIterator<Item = C>) -> Self {
        self.with(|rules| rules.commands.extend(commands.into_iter().map(Into::into)))
    }

    /// Allows these commands and no others. None at all means that no server may be started.
    #[must_use]
    pub fn replace_commands<C: Into<String>>(&self, commands: impl IntoIterator<Item = C>) -> Self {
        self.with(|rules| rules.commands = commands.into_iter().map(Into::into).collect())
    }

    /// Off: any command with any arguments may be started. What remains are the rules about odd names, sizes,
    /// variables and addresses.
    #[must_use]
    pub fn with_strict(&self, strict: bool) -> Self {
        self.with(|rules| rules.strict = strict)
    }

    /// Says which packages may be fetched and run.
    #[must_use]
    pub fn with_packages(&self, packages: PackageRule) -> Self {
        self.with(|rules| rules.packages = packages)
    }

    /// Allows servers to be given these variables though they can change what a program runs.
    #[must_use]
    pub fn with_env_allowed<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> Self {
        self.with(|rules| rules.env_allowed.extend(names.into_iter().map(Into::into)))
    }

    /// Whether servers on private networks may be reached. Link-local and metadata addresses never are.
    #[must_use]
    pub fn with_private_networks(&self, allowed: bool) -> Self {
        self.with(|rules| rules.private_networks = allowed)
    }

    /// Allows these command lines (the command first) past the argument rules, exactly as they stand.
    #[must_use]
    pub fn with_allowed_argv(&self, argv: Vec<Vec<String>>) -> Self {
        self.with(|rules| rules.allowed_argv.extend(argv))
    }

    /// Whether programs run confined where their own configuration does not say. Off is for whoever confines them in
    /// another way, or trusts them all.
    #[must_use]
    pub fn with_sandbox(&self, confined: bool) -> Self {
        self.with(|rules| rules.sandbox = confined)
    }

    /// Lets these servers run without a sandbox, by name.
    #[must_use]
    pub fn with_unconfined<N: Into<String>>(&self, servers: impl IntoIterator<Item = N>) -> Self {
        self.with(|rules| rules.unconfined.extend(servers.into_iter().map(Into::into)))
    }

    /// Wants somebody to be asked before each call of these tools by an agent or a caller. The program itself is not one.
    #[must_use]
    pub fn with_asked(&self, tools: impl IntoIterator<Item = ToolPattern>) -> Self {
        self.with(|rules| rules.asked.extend(tools))
    }

    /// The commands that may be started, in order.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.rules.commands.iter().map(String::as_str)
    }

    /// Whether the allowlist and the argument rules hold.
    pub fn is_strict(&self) -> bool {
        self.rules.strict
    }

    fn with(&self, change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = Rules::clone(&self.rules);
        change(&mut rules);
        Self { rules: Arc::new(rules) }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::strict()
    }
}
