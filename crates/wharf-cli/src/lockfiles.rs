//! Where lockfiles are, and what they hold servers to.
//!
//! In: the configured servers. Out: for each the lockfile that speaks of it (beside the file that defines it, or the one
//! that is named), what policy is to hold it to, and its lists as they were accepted. A lockfile that is there and cannot
//! be used ends the command: nobody knows what it forbids.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wharf::Error;
use wharf::catalog::{LOCKFILE_MAX, LockEntry, Lockfile};
use wharf::config::{Config, Origin, ServerConfig};
use wharf::names::ServerName;
use wharf::policy::{Lock, LockedServer, LockedSource};

use crate::app::App;
use crate::failure::Result;

/// The name of a lockfile.
pub(crate) const NAME: &str = "wharf.lock";

/// The lockfiles that count.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Those that are there.
    pub(crate) files: BTreeMap<PathBuf, Lockfile>,
    /// Where each server's is, or would be.
    pub(crate) places: BTreeMap<ServerName, PathBuf>,
    /// What servers are held to. `None` where there is no lockfile.
    pub(crate) lock: Option<Arc<Lock>>,
    /// What was accepted of servers that are still what they were.
    pub(crate) entries: BTreeMap<ServerName, LockEntry>,
}

/// Whoever may write a lockfile decides what is accepted.
const WORLD_WRITES: u32 = 0o002;

impl Locks {
    /// Reads every lockfile that speaks of one of these servers.
    pub(crate) fn read(named: Option<&Path>, config: &Config) -> Result<Self> {
        let mut locks = Self::default();
        for server in config.servers.values() {
            if let Some(place) = place_of(named, server) {
                locks.places.insert(server.name.clone(), place);
            }
        }
        for place in locks.places.values() {
            if !locks.files.contains_key(place)
                && let Some(file) = read(place)?
            {
                locks.files.insert(place.clone(), file);
            }
        }
        let mut lock = Lock::new();
        for (name, file) in locks.places.iter().filter_map(|(name, at)| Some((name, locks.files.get(at)?))) {
            let entry = file.servers.get(name);
            lock = lock.with(name.clone(), entry.map_or_else(LockedServer::default, LockEntry::locked));
            let is_same = |entry: &&LockEntry| {
                config.servers.get(name).is_some_and(|server| entry.source == LockedSource::of(server))
            };
            if let Some(entry) = entry.filter(is_same) {
                locks.entries.insert(name.clone(), entry.clone());
            }
        }
        let required = config.policy.lock_required;
        if required {
            // Where there is no lockfile, nothing was accepted.
            let others = config.servers.values().filter(|server| server.origin != Origin::BuiltIn);
            for server in others.filter(|server| !locks.is_spoken_of(&server.name)) {
                lock = lock.with(server.name.clone(), LockedServer::default());
            }
        }
        locks.lock = (required || !locks.files.is_empty()).then(|| Arc::new(lock));
        Ok(locks)
    }
}

impl Locks {
    /// Whether there is a lockfile that speaks of a server, or could.
    fn is_spoken_of(&self, server: &ServerName) -> bool {
        self.places.get(server).is_some_and(|place| self.files.contains_key(place))
    }
}

/// The lockfile that speaks of a server. What Wharf brings itself needs none.
fn place_of(named: Option<&Path>, server: &ServerConfig) -> Option<PathBuf> {
    match (&server.origin, named) {
        (Origin::BuiltIn, _) => None,
        (_, Some(named)) => Some(named.to_owned()),
        (Origin::File { path, .. }, None) => Some(path.parent()?.join(NAME)),
        (Origin::Given, None) => None,
    }
}

/// Reads a lockfile, if there is one.
fn read(path: &Path) -> Result<Option<Lockfile>> {
    let wrong = |why: String, hint: &str| Error::Config {
        message: format!("{}: {why}", wharf::text::Escaped(&path.display().to_string())),
        hint: Some(hint.to_owned()),
    };
    let unreadable = |error: std::io::Error| {
        wrong(
            format!("the lockfile cannot be read: {error}"),
            "a lockfile is never passed over; see to it first",
        )
    };
    let facts = match fs::metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error).into()),
    };
    if facts.permissions().mode() & WORLD_WRITES != 0 {
        let why = "the lockfile can be written by every user of this machine, so it is not used".into();
        return Err(wrong(why, &format!("chmod o-w {}", path.display())).into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(LOCKFILE_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let parsed = Lockfile::parse(&bytes).map_err(|why| {
        let why = format!("the lockfile cannot be used: {}", wharf::text::Escaped(&why));
        wrong(why, "get it back from version control, or remove it and look at what `wharf lock` writes")
    })?;
    Ok(Some(parsed))
}

impl App {
    /// The lockfile that was named, if one was.
    pub(crate) fn named_lockfile(&self) -> Option<PathBuf> {
        self.globals.lockfile.as_ref().map(|file| self.world.cwd.join(file))
    }
}
