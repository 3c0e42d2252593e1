//! The `[policy]` table: what the user allows.
//!
//! In: the table of a `wharf.toml`. Out: plain settings for the `policy` room, which decides. An unknown key or a
//! wrong type refuses the whole load. A project's file may only take away: [`narrow`] says which keys would widen.

use super::callers::ToolPattern;
use super::node::{Entry, Node, Span, Value};
use super::problem::{Problem, nearest, shown};
use super::source::Source;

/// What the user's `[policy]` says. Every default is the strict one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySettings {
    /// Whether a command must be a bare name of the allowlist. `None` means it was not said; strict is the default.
    pub strict: Option<bool>,
    /// Commands that may be started: bare names or absolute paths. `None` means the built-in set. An empty list means
    /// none: it is read as if `extend_defaults = false` stood beside it, unless the file says otherwise.
    pub commands: Option<Vec<String>>,
    /// Whether `commands` adds to the built-in set or replaces it. Defaults to true.
    pub extend_defaults: bool,
    /// Set when a project narrowed the commands: of those allowed otherwise, only these. An empty list means none.
    pub commands_within: Option<Vec<String>>,
    /// What `npx`, `uvx` and `pipx` may fetch.
    pub packages: PackageRule,
    /// Loader variables (`LD_PRELOAD`, `NODE_OPTIONS` …) that a server may be given, by name.
    pub env_allow: Vec<String>,
    /// Whole command lines that the argument rules let pass, word by word.
    pub arguments_allow: Vec<Vec<String>>,
    /// Whether servers on private network addresses may be reached. Defaults to false.
    pub private_networks: bool,
    /// Tools for which somebody is asked at each call of an agent or a caller. Defaults to none.
    pub ask: Vec<ToolPattern>,
    /// Whether programs run confined unless their own entry says otherwise. Defaults to true.
    pub sandbox: bool,
    /// Servers that may run without a sandbox whichever file defines them, by name.
    pub unconfined: Vec<String>,
    /// What is done about what the scan finds. `None` means it was not said: then what servers offer is scanned and
    /// reported, and results are not looked at.
    pub scan: Option<ScanRule>,
    /// Whether a server needs a lockfile in which it was accepted (`lock = "required"`). Defaults to false: where there is
    /// no lockfile, nothing is compared.
    pub lock_required: bool,
}

/// What is done about what the scan finds in what servers offer and answer. Each does more than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScanRule {
    /// Nothing is scanned.
    Off,
    /// It is reported.
    Warn,
    /// Reported, and characters that hide are left out of what callers see.
    Strip,
    /// Reported, and what is grave is kept back.
    Block,
}

/// Which packages `npx`, `uvx`, `pipx` and the like may fetch and run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PackageRule {
    /// Any package; one without a version comes with a warning.
    #[default]
    Any,
    /// Only packages with an exact version.
    Pinned,
    /// Only these: a name stands for all its versions, `name@1.2.3` or `name==1.2.3` for that one.
    Listed(Vec<String>),
}

const KEYS: [&str; 12] = [
    "strict",
    "commands",
    "extend_defaults",
    "packages",
    "env_allow",
    "arguments_allow",
    "private_networks",
    "sandbox",
    "unconfined",
    "ask",
    "scan",
    "lock",
];

// === impl PolicySettings ===

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            strict: None,
            commands: None,
            extend_defaults: true,
            commands_within: None,
            packages: PackageRule::Any,
            env_allow: Vec::new(),
            arguments_allow: Vec::new(),
            private_networks: false,
            sandbox: true,
            unconfined: Vec::new(),
            ask: Vec::new(),
            scan: None,
            lock_required: false,
        }
    }
}

/// What one file's table says, key by key; `None` where it is silent.
#[derive(Debug, Default)]
struct Written {
    strict: Option<bool>,
    commands: Option<Vec<String>>,
    extend_defaults: Option<bool>,
    packages: Option<PackageRule>,
    env_allow: Option<Vec<String>>,
    arguments_allow: Option<Vec<Vec<String>>>,
    private_networks: Option<bool>,
    sandbox: Option<bool>,
    unconfined: Option<Vec<String>>,
    ask: Option<Vec<ToolPattern>>,
    scan: Option<ScanRule>,
    lock_required: Option<bool>,
}

/// Applies the table of a file that may say anything: the user's own, or one named on the command line.
pub(super) fn apply(node: &Node, source: &Source, to: &mut PolicySettings) -> Result<(), Box<Problem>> {
    let written = read(node, source)?;
    if let Some(strict) = written.strict {
        to.strict = Some(strict);
    }
    if let Some(commands) = written.commands {
        to.commands = Some(commands);
    }
    if let Some(extend) = written.extend_defaults {
        to.extend_defaults = extend;
    }
    if let Some(packages) = written.packages {
        to.packages = packages;
    }
    if let Some(names) = written.env_allow {
        to.env_allow = names;
    }
    if let Some(lines) = written.arguments_allow {
        to.arguments_allow = lines;
    }
    if let Some(private) = written.private_networks {
        to.private_networks = private;
    }
    if let Some(sandbox) = written.sandbox {
        to.sandbox = sandbox;
    }
    if let Some(names) = written.unconfined {
        to.unconfined = names;
    }
    if let Some(ask) = written.ask {
        to.ask = ask;
    }
    to.scan = written.scan.or(to.scan);
    to.lock_required = written.lock_required.unwrap_or(to.lock_required);
    Ok(())
}

/// Applies the table of a project's file, which may only take away. On an error nothing was applied.
pub(super) fn narrow(node: &Node, source: &Source, to: &mut PolicySettings) -> Result<(), Refusal> {
    let written = read(node, source).map_err(Refusal::Invalid)?;
    let widens = |key: &str, why: &str| {
        let span = key_span(node, key);
        let message = format!("a project's file may narrow the policy, not widen it: `{key}` {why}");
        let hint = "say it in your own wharf.toml, or take it out of the project's";
        Refusal::Widens(Box::new(source.problem(&span, message).hint(hint)))
    };
    let mut next = to.clone();
    narrow_sandbox(&written, &mut next).map_err(|(key, why)| widens(key, why))?;
    match written.strict {
        Some(false) if to.strict != Some(false) => return Err(widens("strict", "would be switched off")),
        Some(strict) => next.strict = Some(strict),
        None => {}
    }
    if let Some(commands) = written.commands {
        if written.extend_defaults != Some(false) {
            return Err(widens(
                "commands",
                "adds to the allowlist unless `extend_defaults = false` stands beside it",
            ));
        }
        let known = to.commands.as_deref().unwrap_or_default();
        if !to.extend_defaults && commands.iter().any(|command| !known.contains(command)) {
            return Err(widens("commands", "names a command that is not allowed so far"));
        }
        let within = |command: &String| to.commands_within.as_ref().is_none_or(|list| list.contains(command));
        next.commands_within = Some(commands.into_iter().filter(within).collect());
    } else if written.extend_defaults == Some(true) && !to.extend_defaults {
        return Err(widens("extend_defaults", "would bring the built-in set back"));
    } else if written.extend_defaults == Some(false) {
        next.extend_defaults = false;
    }
    if let Some(packages) = written.packages {
        if !packages.is_within(&to.packages) {
            return Err(widens("packages", "would allow more packages than now"));
        }
        next.packages = packages;
    }
    if let Some(names) = written.env_allow {
        if names.iter().any(|name| !to.env_allow.contains(name)) {
            return Err(widens("env_allow", "names a variable that is not allowed so far"));
        }
        next.env_allow = names;
    }
    if let Some(lines) = written.arguments_allow {
        if lines.iter().any(|line| !to.arguments_allow.contains(line)) {
            return Err(widens("arguments_allow", "names a command line that is not allowed so far"));
        }
        next.arguments_allow = lines;
    }
    match written.private_networks {
        Some(true) if !to.private_networks => return Err(widens("private_networks", "would be switched on")),
        Some(private) => next.private_networks = private,
        None => {}
    }
    // To be asked more often is to be allowed less.
    next.ask.extend(written.ask.into_iter().flatten());
    if let Some(scan) = written.scan {
        if scan < to.scan.unwrap_or(ScanRule::Warn) {
            return Err(widens("scan", "would look less closely"));
        }
        next.scan = Some(scan);
    }
    match written.lock_required {
        Some(false) if to.lock_required => return Err(widens("lock", "would not be needed any more")),
        Some(required) => next.lock_required = required,
        None => {}
    }
    *to = next;
    Ok(())
}

/// Nobody is let out of the sandbox by a project. The error is the key and what it would do.
fn narrow_sandbox(written: &Written, next: &mut PolicySettings) -> Result<(), (&'static str, &'static str)> {
    if written.sandbox == Some(false) && next.sandbox {
        return Err(("sandbox", "would be switched off"));
    }
    next.sandbox = written.sandbox.unwrap_or(next.sandbox);
    if let Some(names) = &written.unconfined {
        if names.iter().any(|name| !next.unconfined.contains(name)) {
            return Err(("unconfined", "names a server that is confined so far"));
        }
        next.unconfined.clone_from(names);
    }
    Ok(())
}

/// Why a project's table was not applied.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It cannot be read, so nobody knows what it forbids: the load ends.
    Invalid(Box<Problem>),
    /// It would allow more: the file is left out.
    Widens(Box<Problem>),
}

// === impl PackageRule ===

impl PackageRule {
    /// Whether everything that this rule allows is allowed by the other too.
    fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Any) | (Self::Pinned, Self::Pinned) => true,
            (Self::Listed(mine), Self::Listed(theirs)) => {
                let covers =
                    |package: &str| theirs.iter().any(|their| their == package || their == name_of(package));
                mine.iter().all(|package| covers(package))
            }
            (Self::Listed(mine), Self::Pinned) => mine.iter().all(|package| is_pinned(package)),
            _ => false,
        }
    }
}

/// A package without its version.
fn name_of(package: &str) -> &str {
    let cut = package.find("==").or_else(|| package.get(1..)?.rfind('@').map(|at| at + 1));
    cut.map_or(package, |cut| &package[..cut])
}

/// Whether a package is written with an exact version: `pkg@1.2.3`, `@scope/pkg@1.2.3` or `pkg==1.2.3`.
fn is_pinned(package: &str) -> bool {
    let version = package.split_once("==").map(|(_, version)| version);
    let version = version.or_else(|| package.get(1..)?.rsplit_once('@').map(|(_, version)| version));
    version.is_some_and(|v| {
        v.starts_with(|c: char| c.is_ascii_digit())
            && v.chars().all(|c| c.is_ascii_alphanumeric() || "+-.!".contains(c))
            && !v.split('.').any(|part| part == "x" || part == "X")
    })
}

fn key_span(node: &Node, key: &str) -> Span {
    let entries = node.as_table().unwrap_or_default();
    entries
        .iter()
        .find(|entry| entry.key == key)
        .map_or_else(|| node.span.clone(), |entry| entry.key_span.clone())
}

fn read(node: &Node, source: &Source) -> Result<Written, Box<Problem>> {
    let Some(entries) = node.as_table() else {
        return Err(wrong(source, &node.span, format!("`policy` must be a table, not {}", node.kind())));
    };
    let mut written = Written::default();
    for entry in entries {
        match entry.key.as_str() {
            "strict" => written.strict = Some(flag(entry, source)?),
            "commands" => written.commands = Some(texts(entry, source)?),
            "extend_defaults" => written.extend_defaults = Some(flag(entry, source)?),
            "packages" => written.packages = Some(package_rule(entry, source)?),
            "env_allow" => written.env_allow = Some(texts(entry, source)?),
            "arguments_allow" => written.arguments_allow = Some(command_lines(entry, source)?),
            "private_networks" => written.private_networks = Some(flag(entry, source)?),
            "sandbox" => written.sandbox = Some(flag(entry, source)?),
            "unconfined" => written.unconfined = Some(texts(entry, source)?),
            "ask" => written.ask = Some(patterns(entry, source)?),
            "scan" => written.scan = Some(scan_rule(entry, source)?),
            "lock" => written.lock_required = Some(lock_rule(entry, source)?),
            unknown => {
                let message = format!("unknown rule {} in `[policy]`", shown(unknown));
                let problem = source.problem(&entry.key_span, message);
                return Err(Box::new(match nearest(unknown, KEYS) {
                    Some(name) => problem.hint(format!("did you mean `{name}`?")),
                    None => {
                        problem.hint(format!("the rules are {}", KEYS.map(|k| format!("`{k}`")).join(", ")))
                    }
                }));
            }
        }
    }
    if written.commands.as_ref().is_some_and(Vec::is_empty) {
        written.extend_defaults.get_or_insert(false);
    }
    Ok(written)
}

fn wrong(source: &Source, span: &Span, message: String) -> Box<Problem> {
    Box::new(source.problem(span, message))
}

fn flag(entry: &Entry, source: &Source) -> Result<bool, Box<Problem>> {
    match entry.node.value {
        Value::Bool(flag) => Ok(flag),
        _ => {
            let message = format!("`{}` must be true or false, not {}", entry.key, entry.node.kind());
            Err(wrong(source, &entry.node.span, message))
        }
    }
}

fn texts(entry: &Entry, source: &Source) -> Result<Vec<String>, Box<Problem>> {
    Ok(texts_at(entry, source)?.into_iter().map(|(text, _)| text.to_owned()).collect())
}

/// A list of texts, each with its place.
pub(super) fn texts_at<'e>(
    entry: &'e Entry,
    source: &Source,
) -> Result<Vec<(&'e str, &'e Span)>, Box<Problem>> {
    let Some(items) = entry.node.as_list() else {
        let message = format!("`{}` must be a list of strings, not {}", entry.key, entry.node.kind());
        return Err(wrong(source, &entry.node.span, message));
    };
    let text = |item: &'e Node| match item.as_text().map(str::trim) {
        Some("") => Err(wrong(source, &item.span, format!("an entry of `{}` is empty", entry.key))),
        Some(text) => Ok((text, &item.span)),
        None => {
            let message = format!("an entry of `{}` must be a string, not {}", entry.key, item.kind());
            Err(wrong(source, &item.span, message))
        }
    };
    items.iter().map(text).collect()
}

fn patterns(entry: &Entry, source: &Source) -> Result<Vec<ToolPattern>, Box<Problem>> {
    let read = |(text, span)| ToolPattern::parse(text).map_err(|why| wrong(source, span, why));
    texts_at(entry, source)?.into_iter().map(read).collect()
}

fn package_rule(entry: &Entry, source: &Source) -> Result<PackageRule, Box<Problem>> {
    match entry.node.as_text() {
        Some("any") => Ok(PackageRule::Any),
        Some("pinned") => Ok(PackageRule::Pinned),
        None if entry.node.as_list().is_some() => texts(entry, source).map(PackageRule::Listed),
        _ => {
            let message = "`packages` must be \"any\", \"pinned\" or a list of packages".to_owned();
            Err(wrong(source, &entry.node.span, message))
        }
    }
}

fn scan_rule(entry: &Entry, source: &Source) -> Result<ScanRule, Box<Problem>> {
    match entry.node.as_text() {
        Some("off") => Ok(ScanRule::Off),
        Some("warn") => Ok(ScanRule::Warn),
        Some("strip") => Ok(ScanRule::Strip),
        Some("block") => Ok(ScanRule::Block),
        _ => {
            let message = "`scan` must be \"off\", \"warn\", \"strip\" or \"block\"".to_owned();
            Err(wrong(source, &entry.node.span, message))
        }
    }
}

fn lock_rule(entry: &Entry, source: &Source) -> Result<bool, Box<Problem>> {
    match entry.node.as_text() {
        Some("required") => Ok(true),
        Some("optional") => Ok(false),
        _ => {
            let message = "`lock` must be \"required\" or \"optional\"".to_owned();
            Err(wrong(source, &entry.node.span, message))
        }
    }
}

fn command_lines(entry: &Entry, source: &Source) -> Result<Vec<Vec<String>>, Box<Problem>> {
    let items = entry.node.as_list().unwrap_or_default();
    let is_nested = items.iter().any(|item| item.as_list().is_some());
    if !is_nested {
        let lines = texts(entry, source)?;
        return Ok(lines.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect());
    }
    let line = |item: &Node| {
        let named = Entry { key: entry.key.clone(), key_span: entry.key_span.clone(), node: item.clone() };
        texts(&named, source)
    };
    items.iter().map(line).collect()
}
