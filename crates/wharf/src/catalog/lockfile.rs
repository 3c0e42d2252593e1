//! `wharf.lock`: what was accepted of servers, for people to review and for policy to hold them to.
//!
//! In: what a server is and offers now, or the bytes of a file. Out: the file, sorted, a line for each member and nothing
//! hidden in it, so that a change of a server is a small diff; the facts that `policy` compares; and the lists, told again
//! without a server being started. What changed, in words, is `drift`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};

use super::pinned::{CatalogStore, Definition, Definitions, PinKey, Pinned, checked, era};
use super::{Catalog, prompts, resource_templates};
use crate::config::ServerConfig;
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::mcp::{ListKind, Revision};
use crate::names::ServerName;
use crate::policy::{Lock, LockedServer, LockedSource};
use crate::wire::canonical::pretty;
use crate::wire::{Json, fingerprint};

/// A lockfile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lockfile {
    /// What was accepted of each server.
    pub servers: BTreeMap<ServerName, LockEntry>,
}

/// What was accepted of one server, or what it is now.
#[derive(Clone, Debug)]
pub struct LockEntry {
    /// What is started or reached.
    pub source: LockedSource,
    /// The programs that may be started for it, and the packages that may be run: where each was found, or what they are, by
    /// its SHA-256. Another machine may have another.
    pub programs: BTreeMap<String, String>,
    /// The revision that was spoken with it.
    pub revision: Revision,
    /// What it can do, as it said it.
    pub capabilities: Json,
    /// What it wants a model to know.
    pub instructions: Option<String>,
    /// Its lists, each sorted by name: tools, prompts and resource templates. Resources come and go, and are not here.
    pub lists: BTreeMap<ListKind, BTreeMap<String, Definition>>,
}

/// A store of catalogues that knows what was accepted: that is what is shown before a server is started. What servers
/// are seen to offer goes to the store beneath, if there is one.
pub struct LockedCatalogs {
    entries: ArcSwap<BTreeMap<ServerName, LockEntry>>,
    beneath: Option<Arc<dyn CatalogStore>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    wharf_lock: u32,
    servers: BTreeMap<String, EntryOnDisk>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryOnDisk {
    source: LockedSource,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    programs: BTreeMap<String, String>,
    /// For people; the revision says it too.
    era: String,
    revision: String,
    capabilities: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<BTreeMap<String, OneOnDisk>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompts: Option<BTreeMap<String, OneOnDisk>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_templates: Option<BTreeMap<String, OneOnDisk>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneOnDisk {
    fingerprint: String,
    definition: Json,
}

/// The version of the format.
const VERSION: u32 = 1;
/// The largest lockfile that is read.
pub const LOCKFILE_MAX: usize = 64 * 1024 * 1024;

// === impl Lockfile ===

impl Lockfile {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it. A file that is wrong anywhere says nothing at all: nobody knows what else is.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > LOCKFILE_MAX {
            return Err(format!("it has {} bytes, more than {LOCKFILE_MAX}", bytes.len()));
        }
        let file: OnDisk = serde_json::from_slice(bytes).map_err(|e| format!("it cannot be read: {e}"))?;
        if file.wharf_lock != VERSION {
            return Err(format!("it is of version {}, not {VERSION}", file.wharf_lock));
        }
        // A twin would be seen by a reviewer, and another one taken.
        let whole =
            Json::parse(bytes.to_vec(), crate::wire::Limits::default().depth).map_err(|e| e.to_string())?;
        whole.refuse_duplicates().map_err(|e| e.to_string())?;
        let entry = |(name, entry): (String, EntryOnDisk)| {
            let parsed = ServerName::parse(&name).map_err(|e| e.to_string())?;
            Ok((parsed, entry.read().map_err(|why| format!("server `{name}`: {why}"))?))
        };
        Ok(Self { servers: file.servers.into_iter().map(entry).collect::<Result<_, String>>()? })
    }

    /// The file: what is the same is the same text.
    pub fn to_text(&self) -> String {
        let servers = self.servers.iter().map(|(name, entry)| (name.to_string(), entry.to_disk()));
        pretty(&Json::of(&OnDisk { wharf_lock: VERSION, servers: servers.collect() }))
    }

    /// What policy holds servers to: of those that are not in it, nothing is accepted.
    pub fn lock(&self) -> Lock {
        let with =
            |lock: Lock, (name, entry): (&ServerName, &LockEntry)| lock.with(name.clone(), entry.locked());
        self.servers.iter().fold(Lock::new(), with).closed()
    }
}

// === impl LockEntry ===

impl LockEntry {
    /// What a server is and offers now, asked over its connection. `programs` are where its program was found and that
    /// program's SHA-256, and the same of the packages that were fetched for it.
    pub async fn ask(
        config: &ServerConfig,
        connection: &Connection,
        programs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        let (info, timeout) = (connection.info(), config.timeout);
        let mut lists = BTreeMap::new();
        let tools = Catalog::fetch(connection, timeout).await?.tools;
        let tools = tools.iter().map(|tool| (tool.name.as_str().to_owned(), tool.raw.clone()));
        lists.insert(ListKind::Tools, by_name(tools));
        if let Some(all) = offered(prompts(connection, timeout).await)? {
            let parts = all.items.into_iter().map(|prompt| (prompt.name.raw().to_owned(), prompt.raw));
            lists.insert(ListKind::Prompts, by_name(parts));
        }
        if let Some(all) = offered(resource_templates(connection, timeout).await)? {
            let parts = all.items.into_iter().map(|one| (one.uri_template.raw().to_owned(), one.raw));
            lists.insert(ListKind::ResourceTemplates, by_name(parts));
        }
        Ok(Self {
            source: LockedSource::of(config),
            programs: programs.into_iter().map(|(path, hash)| (hash, path)).collect(),
            revision: info.revision,
            capabilities: info.capabilities.clone(),
            instructions: info.instructions.as_ref().map(|text| text.raw().to_owned()),
            lists,
        })
    }

    /// What policy compares.
    pub fn locked(&self) -> LockedServer {
        let prints = |list: &BTreeMap<String, Definition>| {
            list.values().map(|one| (one.name.clone(), one.fingerprint.clone())).collect()
        };
        LockedServer {
            source: Some(self.source.clone()),
            programs: self.programs.keys().cloned().collect(),
            accepted: self.lists.iter().map(|(kind, list)| (*kind, prints(list))).collect(),
        }
    }

    /// Every text of it that came from the server.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let definitions = self.lists.values().flat_map(|list| list.values().map(|one| one.raw.as_str()));
        self.instructions.as_deref().into_iter().chain([self.capabilities.as_str()]).chain(definitions)
    }

    /// What it offers, as a catalogue has it.
    pub fn to_pinned(&self, key: &PinKey) -> Pinned {
        self.pinned(key, None)
    }

    fn pinned(&self, key: &PinKey, beneath: Option<Pinned>) -> Pinned {
        let mut lists = beneath.map(|pinned| pinned.lists).unwrap_or_default();
        for (kind, list) in &self.lists {
            let list = list.values().map(|one| (one.name.clone(), one.raw.clone()));
            lists.insert(*kind, Definitions::new(list));
        }
        Pinned {
            key: key.clone(),
            revision: self.revision,
            capabilities: self.capabilities.clone(),
            instructions: self.instructions.clone(),
            lists,
        }
    }

    fn to_disk(&self) -> EntryOnDisk {
        let list = |kind| {
            let one = |(name, one): (&String, &Definition)| {
                let on_disk = OneOnDisk { fingerprint: one.fingerprint.clone(), definition: one.raw.clone() };
                (name.clone(), on_disk)
            };
            self.lists.get(&kind).map(|list| list.iter().map(one).collect())
        };
        EntryOnDisk {
            source: self.source.clone(),
            programs: self.programs.clone(),
            era: era(self.revision).to_owned(),
            revision: self.revision.to_string(),
            capabilities: self.capabilities.clone(),
            instructions: self.instructions.clone(),
            tools: list(ListKind::Tools),
            prompts: list(ListKind::Prompts),
            resource_templates: list(ListKind::ResourceTemplates),
        }
    }
}

impl PartialEq for LockEntry {
    /// Whether the same was accepted. What it says of its own capabilities only helps to list it.
    fn eq(&self, other: &Self) -> bool {
        self.locked() == other.locked()
            && (self.revision, &self.instructions) == (other.revision, &other.instructions)
    }
}

/// A list that a server has, if it has such things.
fn offered<T>(asked: Result<T>) -> Result<Option<T>> {
    match asked {
        Ok(list) => Ok(Some(list)),
        Err(Error::NotOffered { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn by_name(list: impl Iterator<Item = (String, Json)>) -> BTreeMap<String, Definition> {
    Definitions::new(list).iter().map(|one| (one.name.clone(), one.clone())).collect()
}

impl EntryOnDisk {
    fn read(self) -> Result<LockEntry, String> {
        let revision = Revision::parse(&self.revision).ok_or("its revision is not known")?;
        let all = [
            (ListKind::Tools, self.tools),
            (ListKind::Prompts, self.prompts),
            (ListKind::ResourceTemplates, self.resource_templates),
        ];
        let mut lists = BTreeMap::new();
        for (kind, list) in all {
            let one = |(name, one): (String, OneOnDisk)| Ok((name.clone(), one.read(name)?));
            if let Some(list) = list {
                lists.insert(kind, list.into_iter().map(one).collect::<Result<_, String>>()?);
            }
        }
        Ok(LockEntry {
            source: self.source,
            programs: self.programs,
            revision,
            capabilities: checked(&self.capabilities)?,
            instructions: self.instructions,
            lists,
        })
    }
}

impl OneOnDisk {
    fn read(self, name: String) -> Result<Definition, String> {
        let raw = checked(&self.definition)?;
        match fingerprint(&raw) == self.fingerprint {
            true => Ok(Definition { name, fingerprint: self.fingerprint, raw }),
            false => Err(format!("`{}` does not have its fingerprint", crate::text::Escaped(&name))),
        }
    }
}

// === impl LockedCatalogs ===

impl LockedCatalogs {
    /// A store that shows these entries. Only those belong in it whose servers are what was accepted.
    pub fn new(entries: BTreeMap<ServerName, LockEntry>, beneath: Option<Arc<dyn CatalogStore>>) -> Self {
        Self { entries: ArcSwap::from_pointee(entries), beneath }
    }

    /// Other entries were accepted.
    pub fn replace(&self, entries: BTreeMap<ServerName, LockEntry>) {
        self.entries.store(Arc::new(entries));
    }
}

impl CatalogStore for LockedCatalogs {
    fn get(&self, server: &ServerName, key: &PinKey) -> Option<Pinned> {
        let beneath = self.beneath.as_ref().and_then(|store| store.get(server, key));
        match self.entries.load().get(server) {
            Some(entry) => Some(entry.pinned(key, beneath)),
            None => beneath,
        }
    }

    fn put(&self, server: &ServerName, pinned: &Pinned) {
        if let Some(store) = &self.beneath {
            store.put(server, pinned);
        }
    }
}

impl std::fmt::Debug for LockedCatalogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockedCatalogs").field("entries", &self.entries.load().len()).finish_non_exhaustive()
    }
}
