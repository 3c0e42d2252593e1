//! What servers were last seen to offer, written down.
//!
//! In: definitions as they came. Out: a file that tells them again without a server being started, each with its
//! fingerprint, sorted, with a line for each member: made to be looked at in a review. Where it is kept is the business
//! of whoever hands in a [`CatalogStore`]; whether it is still true is known only when the server is asked.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::{ServerConfig, Transport};
use crate::mcp::{Era, ListKind, Revision};
use crate::names::ServerName;
use crate::wire::canonical::{self, hex};
use crate::wire::{Json, fingerprint};

/// A file's worth of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// What each server was last seen to offer.
    pub servers: BTreeMap<ServerName, Pinned>,
}

/// What one server was last seen to offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Which configuration it was.
    pub key: PinKey,
    /// The revision that was spoken with it.
    pub revision: Revision,
    /// What it can do, as it said it.
    pub capabilities: Json,
    /// What it wants a model to know.
    pub instructions: Option<String>,
    /// Its lists; one that nobody asked for yet is not there.
    pub lists: BTreeMap<ListKind, Definitions>,
}

/// Which configuration a server had. Two hashes, and no secret in either.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PinKey {
    /// What everybody with the same configuration has in common: the command and its arguments or the address, and the
    /// names of variables and headers.
    pub identity: String,
    /// What is this machine's own: the values of variables and headers, and folders. `None` in a file that is for
    /// others too, where even the hash of a short secret would say too much.
    pub local: Option<String>,
}

/// A list as the server gave it.
#[derive(Clone, Debug, Default)]
pub struct Definitions(Vec<Definition>);

/// One entry of a list.
#[derive(Clone, Debug)]
pub struct Definition {
    /// What it is told apart by: a name, or an address.
    pub name: String,
    /// The fingerprint of the whole definition.
    pub fingerprint: String,
    /// The whole definition.
    pub raw: Json,
}

/// Where catalogues are kept. The binary keeps them in files.
pub trait CatalogStore: Send + Sync + 'static {
    /// What a server of this configuration was last seen to offer.
    fn get(&self, server: &ServerName, key: &PinKey) -> Option<Pinned>;
    /// Remembers what a server offers now.
    fn put(&self, server: &ServerName, pinned: &Pinned);
}

/// Catalogues for the life of the process.
#[derive(Debug, Default)]
pub struct CatalogMemory(Mutex<HashMap<(ServerName, PinKey), Pinned>>);

/// The file.
#[derive(Serialize, Deserialize)]
struct OnDisk {
    wharf_catalogue: u32,
    servers: BTreeMap<String, ServerOnDisk>,
}

#[derive(Serialize, Deserialize)]
struct ServerOnDisk {
    identity: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    local: Option<String>,
    /// For people; the revision says it too.
    era: String,
    revision: String,
    capabilities: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    #[serde(default)]
    lists: BTreeMap<ListKind, ListOnDisk>,
}

#[derive(Serialize, Deserialize)]
struct ListOnDisk {
    /// The server's own order: the definitions are sorted.
    order: Vec<String>,
    definitions: BTreeMap<String, DefinitionOnDisk>,
}

#[derive(Serialize, Deserialize)]
struct DefinitionOnDisk {
    fingerprint: String,
    definition: Json,
}

/// The version of the format.
const VERSION: u32 = 1;
/// The largest file that is read: ten thousand definitions of good length.
pub const CATALOGUE_MAX: usize = 64 * 1024 * 1024;
/// How many catalogues are kept for the life of the process: callers may make up what servers are told of them.
const REMEMBERED: usize = 1000;
/// How deep a definition may be nested.
const DEPTH: usize = 127;

// === impl Catalogue ===

impl Catalogue {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it. A definition that does not have its fingerprint is wrong, too: then all of it is doubtful.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > CATALOGUE_MAX {
            return Err(format!("it has {} bytes, more than {CATALOGUE_MAX}", bytes.len()));
        }
        let file: OnDisk = serde_json::from_slice(bytes).map_err(|e| format!("it cannot be read: {e}"))?;
        if file.wharf_catalogue != VERSION {
            return Err(format!("it is of version {}, not {VERSION}", file.wharf_catalogue));
        }
        let server = |(name, server): (String, ServerOnDisk)| {
            let parsed = ServerName::parse(&name).map_err(|e| e.to_string())?;
            Ok((parsed, server.read().map_err(|why| format!("server `{name}`: {why}"))?))
        };
        Ok(Self { servers: file.servers.into_iter().map(server).collect::<Result<_, String>>()? })
    }

    /// The file: the same catalogue is the same text.
    pub fn to_text(&self) -> String {
        let servers = self.servers.iter().map(|(name, pinned)| (name.to_string(), pinned.to_disk()));
        let file = OnDisk { wharf_catalogue: VERSION, servers: servers.collect() };
        canonical::pretty(&Json::of(&file))
    }
}

// === impl Pinned ===

impl Pinned {
    /// Whether the server declared a capability, for example `prompts`.
    pub fn offers(&self, capability: &str) -> bool {
        self.capabilities.member(capability).is_some_and(|c| !c.is_null())
    }

    fn to_disk(&self) -> ServerOnDisk {
        let list = |(kind, list): (&ListKind, &Definitions)| (*kind, list.to_disk());
        ServerOnDisk {
            identity: self.key.identity.clone(),
            local: self.key.local.clone(),
            era: era(self.revision).to_owned(),
            revision: self.revision.to_string(),
            capabilities: self.capabilities.clone(),
            instructions: self.instructions.clone(),
            lists: self.lists.iter().map(list).collect(),
        }
    }
}

impl ServerOnDisk {
    fn read(self) -> Result<Pinned, String> {
        let revision = Revision::parse(&self.revision).ok_or("its revision is not known")?;
        let list = |(kind, list): (ListKind, ListOnDisk)| Ok((kind, list.read()?));
        Ok(Pinned {
            key: PinKey { identity: self.identity, local: self.local },
            revision,
            capabilities: checked(&self.capabilities)?,
            instructions: self.instructions,
            lists: self.lists.into_iter().map(list).collect::<Result<_, String>>()?,
        })
    }
}

pub(super) fn era(revision: Revision) -> &'static str {
    match revision.era() {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    }
}

/// A part of the file without the whitespace that is the file's.
pub(super) fn checked(json: &Json) -> Result<Json, String> {
    let mut text = canonical::compact(json);
    // It is kept, and the file's whitespace is more than half of it.
    text.shrink_to_fit();
    Json::parse(text, DEPTH).map_err(|e| e.to_string())
}

// === impl Definitions ===

impl Definitions {
    /// Takes a list, in the server's order.
    pub fn new<N: Into<String>>(list: impl IntoIterator<Item = (N, Json)>) -> Self {
        let definition =
            |(name, raw): (N, Json)| Definition { name: name.into(), fingerprint: fingerprint(&raw), raw };
        Self(list.into_iter().map(definition).collect())
    }

    /// The definitions, in the server's order.
    pub fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.0.iter()
    }

    /// Whether the same is offered, in whatever order.
    pub fn offers_same(&self, other: &Self) -> bool {
        self.fingerprints() == other.fingerprints()
    }

    fn fingerprints(&self) -> BTreeMap<&str, &str> {
        self.iter().map(|d| (&*d.name, &*d.fingerprint)).collect()
    }

    fn to_disk(&self) -> ListOnDisk {
        let definition = |d: &Definition| {
            let on_disk = DefinitionOnDisk { fingerprint: d.fingerprint.clone(), definition: d.raw.clone() };
            (d.name.clone(), on_disk)
        };
        ListOnDisk {
            order: self.iter().map(|d| d.name.clone()).collect(),
            definitions: self.iter().map(definition).collect(),
        }
    }
}

impl PartialEq for Definitions {
    /// The same definitions in the same order. Whitespace, and the order of their members, do not count.
    fn eq(&self, other: &Self) -> bool {
        let parts = |d: &Definition| (d.name.clone(), d.fingerprint.clone());
        self.0.len() == other.0.len() && self.iter().map(parts).eq(other.iter().map(parts))
    }
}

impl Eq for Definitions {}

impl ListOnDisk {
    fn read(self) -> Result<Definitions, String> {
        let mut known: IndexMap<String, DefinitionOnDisk> = self.definitions.into_iter().collect();
        let mut list = Vec::with_capacity(known.len());
        for name in self.order {
            let on_disk = known.swap_remove(&name).ok_or("an entry has an order and no definition")?;
            let raw = checked(&on_disk.definition)?;
            if fingerprint(&raw) != on_disk.fingerprint {
                return Err("a definition does not have its fingerprint".into());
            }
            list.push(Definition { name, fingerprint: on_disk.fingerprint, raw });
        }
        match known.is_empty() {
            true => Ok(Definitions(list)),
            false => Err("an entry has a definition and no order".into()),
        }
    }
}

// === impl PinKey ===

impl PinKey {
    /// The key of a configuration. `environment` is what variables are passed through from.
    pub fn of(config: &ServerConfig, environment: &BTreeMap<String, String>) -> Self {
        let (mut common, mut local) = (Parts::default(), Parts::default());
        common.add(config.name.as_str());
        common.add(config.transport_name());
        match &config.transport {
            Transport::Stdio(stdio) => {
                common.add(&stdio.command);
                common.all("args", stdio.args.iter().map(String::as_str));
                common.all("env", stdio.env.keys().map(String::as_str));
                common.all("passthrough", stdio.env_passthrough.iter().map(String::as_str));
                local.all("env", stdio.env.values().map(|value| value.expose()));
                let passed = |name: &String| environment.get(name).map_or("", String::as_str);
                local.all("passthrough", stdio.env_passthrough.iter().map(passed));
                local.add(&format!("{:?} {:?}", stdio.cwd, stdio.base));
            }
            Transport::Unix(socket) => common.add(&socket.path.display().to_string()),
            Transport::Http(remote) | Transport::Sse(remote) | Transport::WebSocket(remote) => {
                common.add(&remote.url.to_string());
                common.all("headers", remote.headers.keys().map(String::as_str));
                local.add(remote.url.expose().as_str());
                local.all("headers", remote.headers.values().map(|value| value.expose()));
            }
        }
        Self { identity: common.hash(), local: Some(local.hash()) }
    }

    /// The same server as it shows itself to whoever says this of itself: a legacy server may offer more to clients that
    /// can be asked something. Nothing said is what everybody sees.
    #[must_use]
    pub fn shown_to(self, capabilities: &Json) -> Self {
        if *capabilities == Json::empty_object() {
            return self;
        }
        let mut parts = Parts::default();
        parts.add(&self.identity);
        parts.add(&fingerprint(capabilities));
        Self { identity: parts.hash(), ..self }
    }

    /// Whether what was seen with this key holds for a server with the other.
    pub fn fits(&self, other: &Self) -> bool {
        let same_machine = self.local.is_none() || other.local.is_none() || self.local == other.local;
        self.identity == other.identity && same_machine
    }
}

/// Parts of a configuration, each with its length, so that no two configurations give the same bytes.
#[derive(Default)]
struct Parts(Sha256);

impl Parts {
    fn add(&mut self, part: &str) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part.as_bytes());
    }

    fn all<'a>(&mut self, what: &str, parts: impl ExactSizeIterator<Item = &'a str>) {
        self.add(what);
        self.0.update((parts.len() as u64).to_le_bytes());
        parts.for_each(|part| self.add(part));
    }

    fn hash(self) -> String {
        hex(&self.0.finalize())
    }
}

// === impl CatalogMemory ===

impl CatalogStore for CatalogMemory {
    fn get(&self, server: &ServerName, key: &PinKey) -> Option<Pinned> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(server.clone(), key.clone())).cloned()
    }

    fn put(&self, server: &ServerName, pinned: &Pinned) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (server.clone(), pinned.key.clone());
        if known.len() >= REMEMBERED && !known.contains_key(&key) {
            // Any will do: it is only ever a shortcut.
            let any = known.keys().next().cloned();
            any.and_then(|any| known.remove(&any));
        }
        known.insert(key, pinned.clone());
    }
}
