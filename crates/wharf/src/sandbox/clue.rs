//! Why a confined server may have failed, told from its words.
//!
//! In: the end of its standard error, or what it says of a call that failed, and what the plan let in. Out: the line to add
//! to its profile, where a path that it complains about is there on the machine and was not let in, or a host has no
//! address inside. The words are the server's, and it may lie: a person is told what it says, and no line is ever proposed
//! for what is never let in or for where secrets are kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::grants::{Access, Grants, real};
use super::plan::{Mount, Plan};
use super::stage::VOICE;
use super::{Sandbox, secrets};
use crate::names::ServerName;
use crate::policy::Target;
use crate::text::{Escaped, Foreign};

/// What is known of a confined server when it fails.
#[derive(Debug)]
pub(crate) struct Clue {
    server: ServerName,
    sandbox: Sandbox,
    readable: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    /// Whether it was given a way to the network; then the proxy tells what it refused.
    has_way_out: bool,
    /// What was said of its calls already.
    said: Mutex<BTreeSet<String>>,
}

/// What a complaint is about.
enum Lack {
    Path(Access, PathBuf),
    /// A host's name, if it said which.
    Host(Option<String>),
}

/// What programs say when a file is not there, or not theirs to change.
const MISSING: [&str; 5] = ["ENOENT", "No such file", "not found", "cannot find", "does not exist"];
const FORBIDDEN: [&str; 6] =
    ["EROFS", "Read-only file system", "EACCES", "Permission denied", "EPERM", "Operation not permitted"];
/// What programs say when there is no network.
const UNREACHED: [&str; 10] = [
    "EAI_AGAIN",
    "ENOTFOUND",
    "ENETUNREACH",
    "Network is unreachable",
    "name resolution",
    "Name or service not known",
    "Could not resolve host",
    "nodename nor servname",
    "getaddrinfo",
    "no such host",
];
/// And what they say before its name.
const BEFORE_A_HOST: [&str; 9] = [
    "ENOTFOUND ",
    "EAI_AGAIN ",
    "resolve host: ",
    "resolve '",
    "host='",
    "host=\"",
    "hostname '",
    "lookup ",
    "://",
];
/// How much of what a server says is looked at, and how many of the paths in it.
const LONGEST: usize = 4096;
const MOST_PATHS: usize = 16;
/// How many different things are said of the calls of one server.
const MOST_SAID: usize = 20;

impl Clue {
    pub(crate) fn new(server: &ServerName, plan: &Plan, sandbox: &Sandbox) -> Self {
        // Not its private folders: what is there on the machine under the same name is not in them.
        let places = |wanted: fn(&Mount) -> bool| {
            plan.mounts.iter().filter(|mount| wanted(mount)).map(|mount| mount.at().to_path_buf()).collect()
        };
        Self {
            server: server.clone(),
            sandbox: sandbox.clone(),
            readable: places(|mount| matches!(mount, Mount::Read { .. } | Mount::Write { .. })),
            writable: places(|mount| matches!(mount, Mount::Write { .. })),
            has_way_out: plan.relay.is_some(),
            said: Mutex::default(),
        }
    }

    /// The next step, if the last words tell of one.
    pub(crate) fn advice(&self, lines: &[Foreign]) -> Option<String> {
        let lines: Vec<&str> = lines.iter().map(Foreign::raw).collect();
        if lines.iter().any(|line| line.starts_with("bwrap: ") || line.starts_with(VOICE)) {
            return Some(format!(
                "the sandbox itself failed: `wharf check` tells what this machine lacks; `sandbox = false` for `{}` in \
                 your own `wharf.toml` runs it without",
                self.server
            ));
        }
        let lack = lines.iter().rev().find_map(|line| self.lack(line))?;
        Some(self.words(&lack))
    }

    /// What a person should know of a call that failed, by the server's own words. The same is said once.
    pub(crate) fn of_call(&self, said: &str) -> Option<String> {
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).len() >= MOST_SAID {
            return None;
        }
        let end = said.char_indices().nth(LONGEST).map_or(said.len(), |(at, _)| at);
        let lack = said[..end].lines().find_map(|line| self.lack(line))?;
        let words = format!("a call of `{}` failed: {}", self.server, self.words(&lack));
        let mut all = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        (all.len() < MOST_SAID && all.insert(words.clone())).then_some(words)
    }

    fn words(&self, lack: &Lack) -> String {
        let server = &self.server;
        match lack {
            Lack::Path(access, path) => {
                let key = if *access == Access::Write { "write" } else { "read" };
                let shown = Escaped(&path.display().to_string()).to_string();
                let real = real(path).or_else(|| real(path.parent()?)).unwrap_or_else(|| path.clone());
                if secrets::are_in(path) || secrets::are_in(&real) {
                    return format!(
                        "it says that it cannot {key} {shown}; its sandbox keeps it from there, where secrets are kept"
                    );
                }
                if Grants::new(&self.sandbox).allows(&real, *access) {
                    return format!(
                        "its sandbox does not let it {key} {shown}: if it should, add `sandbox.{key} = [{shown:?}]` to \
                         `{server}`"
                    );
                }
                format!("it says that it cannot {key} {shown}, which is let into no sandbox")
            }
            Lack::Host(Some(rule)) => format!(
                "its sandbox does not let it reach {rule}: if it should, add `sandbox.domains = [{rule:?}]` to `{server}`"
            ),
            Lack::Host(None) => format!(
                "its sandbox lets it reach no host: `wharf sandbox learn {server}` tells which it asks for"
            ),
        }
    }

    fn lack(&self, line: &str) -> Option<Lack> {
        self.refused(line).or_else(|| self.unreached(line))
    }

    /// A path in a complaint that is there for us, but was not let in.
    fn refused(&self, line: &str) -> Option<Lack> {
        let missing = MISSING.iter().any(|words| line.contains(words));
        let forbidden = FORBIDDEN.iter().any(|words| line.contains(words));
        if !missing && !forbidden {
            return None;
        }
        let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
        let path = paths(line)
            .take(MOST_PATHS)
            .find(|path| is_there(path) || (forbidden && path.parent().is_some_and(Path::is_dir)))?;
        let within = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        if missing && !within(&self.readable) {
            Some(Lack::Path(Access::Read, path))
        } else if forbidden && !within(&self.writable) {
            Some(Lack::Path(Access::Write, path))
        } else {
            None
        }
    }

    /// A host that has no address inside.
    fn unreached(&self, line: &str) -> Option<Lack> {
        if self.has_way_out || !UNREACHED.iter().any(|words| line.contains(words)) {
            return None;
        }
        // Only where programs put it: much else in such a line has dots in it.
        let ends = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':'));
        let named = BEFORE_A_HOST.iter().filter_map(|words| line.split_once(words));
        let mut named = named.map(|(_, rest)| rest.split(ends).next().unwrap_or_default());
        let rule =
            named.find_map(|host| Target::parse(host.trim_end_matches(['.', ':']), Some(443)).ok()?.rule());
        Some(Lack::Host(rule))
    }
}

/// The absolute paths in a line: between quotes, or up to a space.
fn paths(line: &str) -> impl Iterator<Item = PathBuf> {
    const QUOTES: [char; 4] = ['\'', '"', '`', ' '];
    let ends = |c: char| QUOTES.contains(&c) || matches!(c, ',' | ')' | '(' | '[' | ']');
    let words = line.split(ends).map(|word| word.trim_end_matches(['.', ':', ';']));
    let absolute = words.filter(|word| word.len() > 1 && word.starts_with('/') && !word.starts_with("//"));
    absolute.map(PathBuf::from)
}
