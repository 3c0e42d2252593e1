//! What was accepted, against what is there now.
//!
//! In: a lockfile's facts, and the program, the address or the definition as it is found. Out: nothing, where it is the
//! accepted one, or a refusal that names the rule and how to look at the difference. Reading files, hashing programs and
//! asking servers is done elsewhere.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Policy;
use super::shape;
use crate::config::{ServerConfig, Transport};
use crate::error::{Error, Result};
use crate::mcp::ListKind;
use crate::names::ServerName;
use crate::text::Escaped;

/// What was accepted of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    servers: HashMap<ServerName, LockedServer>,
    /// Whether a server that is not named has nothing accepted. Otherwise it is free.
    closed: bool,
}

/// What was accepted of one server. The empty one is a server of which nothing was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockedServer {
    /// What is started or reached. `None`: nothing was accepted.
    pub source: Option<LockedSource>,
    /// The SHA-256 of programs that may be started for it.
    pub programs: BTreeSet<String>,
    /// The fingerprints of its definitions, by name.
    pub accepted: BTreeMap<ListKind, HashMap<String, String>>,
}

/// What is started or reached, as far as it is the same on every machine and tells no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedSource {
    /// `stdio`, `http`, `sse`, `ws` or `unix`.
    pub transport: String,
    /// The command as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The packages that the command fetches and runs, as they are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// The address, without what is secret in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where the same server is reached as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<String>,
}

/// What the lock says of one server.
enum Says<'a> {
    /// It does not speak of it.
    Nothing,
    Locked(&'a LockedServer),
    /// Nothing of it was accepted.
    Unknown,
}

// === impl Lock ===

impl Lock {
    /// A lock that speaks of no server.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with what was accepted of a server.
    #[must_use]
    pub fn with(mut self, server: ServerName, locked: LockedServer) -> Self {
        self.servers.insert(server, locked);
        self
    }

    /// The same, and of servers that it does not name nothing is accepted.
    #[must_use]
    pub fn closed(mut self) -> Self {
        self.closed = true;
        self
    }

    fn of(&self, server: &ServerName) -> Says<'_> {
        match self.servers.get(server) {
            Some(locked) if locked.source.is_some() => Says::Locked(locked),
            Some(_) => Says::Unknown,
            None if self.closed => Says::Unknown,
            None => Says::Nothing,
        }
    }
}

// === impl LockedSource ===

impl LockedSource {
    /// What a configuration starts or reaches.
    pub fn of(config: &ServerConfig) -> Self {
        let transport = config.transport_name().to_owned();
        match &config.transport {
            Transport::Stdio(stdio) => Self {
                transport,
                command: Some(stdio.command.clone()),
                packages: shape::packages(&stdio.command, &stdio.args),
                ..Self::default()
            },
            Transport::Unix(socket) => {
                Self { transport, url: Some(socket.path.display().to_string()), ..Self::default() }
            }
            Transport::Http(remote) | Transport::Sse(remote) | Transport::WebSocket(remote) => {
                let replicas = config.resilience.replicas.iter().map(ToString::to_string).collect();
                Self { transport, url: Some(remote.url.to_string()), replicas, ..Self::default() }
            }
        }
    }

    /// Whether it is one of the places where another one is reached, and nothing beyond that.
    fn is_part_of(&self, other: &Self) -> bool {
        let places: Vec<&String> = other.url.iter().chain(&other.replicas).collect();
        self.url.is_some()
            && self.transport == other.transport
            && self.url.iter().chain(&self.replicas).all(|place| places.contains(&place))
    }

    /// What it is, on one line.
    pub fn words(&self) -> String {
        let parts = self.command.iter().chain(&self.packages).chain(&self.url).chain(&self.replicas);
        let parts: Vec<String> = parts.map(|part| Escaped(part).to_string()).collect();
        format!("{} {}", self.transport, parts.join(" "))
    }
}

// === impl Policy ===

impl Policy {
    /// The same, and only what was accepted may be started, shown and called. `None` takes that back.
    #[must_use]
    pub fn with_lock(&self, lock: Option<Arc<Lock>>) -> Self {
        self.with(|rules| rules.lock = lock)
    }

    /// What was accepted, where that is asked for.
    pub fn lock(&self) -> Option<&Arc<Lock>> {
        self.rules.lock.as_ref()
    }

    /// Whether only what was accepted of this server may be used.
    pub fn is_locked(&self, server: &ServerName) -> bool {
        !matches!(self.says(server), Says::Nothing)
    }

    /// Is what a server's configuration starts or reaches what was accepted?
    pub fn permit_source(&self, config: &ServerConfig) -> Result<()> {
        let name = &config.name;
        match self.says(name) {
            Says::Nothing => Ok(()),
            Says::Unknown => Err(unknown(format!("server `{name}`"), name, None)),
            Says::Locked(locked) => {
                let now = LockedSource::of(config);
                if locked.source.as_ref().is_some_and(|source| *source == now || now.is_part_of(source)) {
                    return Ok(());
                }
                let before = locked.source.as_ref().map(LockedSource::words).unwrap_or_default();
                Err(Error::Denied {
                    what: format!("server `{name}`"),
                    rule: format!("`lock.source`: it is `{}` now, and `{before}` was accepted", now.words()),
                    hint: next_step(name, None),
                })
            }
        }
    }

    /// Is the program that was found one that was accepted? `found` is its SHA-256, `None` if it could not be read.
    pub(super) fn permit_program(&self, server: &ServerName, found: Option<&str>) -> Result<()> {
        let locked = match self.says(server) {
            Says::Nothing => return Ok(()),
            Says::Unknown => return Err(unknown(format!("server `{server}`"), server, None)),
            Says::Locked(locked) => locked,
        };
        if found.is_some_and(|found| locked.programs.contains(found)) {
            return Ok(());
        }
        Err(Error::Denied {
            what: format!("the program of server `{server}`"),
            rule: match found {
                Some(_) => "`lock.program`: it is not the one that was accepted".into(),
                None => "`lock.program`: it cannot be read, so it cannot be compared".into(),
            },
            hint: next_step(server, None),
        })
    }

    /// Are the packages that were fetched for a server those that were accepted? `found` is the digest of all of them.
    pub(crate) fn permit_packages(&self, server: &ServerName, found: impl FnOnce() -> String) -> Result<()> {
        let locked = match self.says(server) {
            Says::Nothing => return Ok(()),
            Says::Unknown => return Err(unknown(format!("server `{server}`"), server, None)),
            Says::Locked(locked) => locked,
        };
        if locked.programs.contains(&found()) {
            return Ok(());
        }
        Err(Error::Denied {
            what: format!("the packages of server `{server}`"),
            rule: "`lock.package`: they, or what they need, are not those that were accepted".into(),
            hint: next_step(server, None),
        })
    }

    /// Is this definition the one that was accepted? `live` is the fingerprint of what the server says now.
    pub fn permit_definition(
        &self,
        server: &ServerName,
        kind: ListKind,
        name: &str,
        live: impl FnOnce() -> String,
    ) -> Result<()> {
        let what = || format!("{} `{}` of server `{server}`", kind.word(), Escaped(name));
        let locked = match self.says(server) {
            Says::Nothing => return Ok(()),
            Says::Unknown => return Err(unknown(what(), server, Some(name))),
            Says::Locked(locked) => locked,
        };
        match locked.accepted.get(&kind).and_then(|list| list.get(name)) {
            Some(accepted) if *accepted == live() => Ok(()),
            Some(_) => Err(Error::Denied {
                what: what(),
                rule: "`lock.changed`: its definition is not the one that was accepted".into(),
                hint: next_step(server, Some(name)),
            }),
            None => Err(unknown(what(), server, Some(name))),
        }
    }

    /// The names of what was accepted of a server.
    pub fn accepted(&self, server: &ServerName, kind: ListKind) -> impl Iterator<Item = &str> {
        let list = match self.says(server) {
            Says::Locked(locked) => locked.accepted.get(&kind),
            _ => None,
        };
        list.into_iter().flat_map(|list| list.keys().map(String::as_str))
    }

    fn says(&self, server: &ServerName) -> Says<'_> {
        self.rules.lock.as_ref().map_or(Says::Nothing, |lock| lock.of(server))
    }
}

/// Nobody has accepted it yet.
fn unknown(what: String, server: &ServerName, name: Option<&str>) -> Error {
    let rule = "`lock.new`: it is not in the lockfile".into();
    Error::Denied { what, rule, hint: next_step(server, name) }
}

fn next_step(server: &ServerName, name: Option<&str>) -> String {
    let plain = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let item = name.filter(plain).map(|name| format!("/{name}")).unwrap_or_default();
    format!(
        "see what changed with `wharf diff {server}`, and take it with `wharf lock --accept {server}{item}`"
    )
}
