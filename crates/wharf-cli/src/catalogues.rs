//! What servers were last seen to offer, in a folder of the cache: a file for each configuration of a server, so that two
//! programs that write at once do not lose what the other wrote.
//!
//! It is only ever a shortcut: a file that is missing, broken or too large is as good as none, and is told of once.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use wharf::catalog::{CATALOGUE_MAX, CatalogStore, Catalogue, PinKey, Pinned};
use wharf::config::edit::write_atomically;
use wharf::names::ServerName;

use crate::output::Ui;

/// Catalogues in a folder.
#[derive(Debug)]
pub(crate) struct CatalogFolder {
    folder: PathBuf,
    ui: Arc<Ui>,
}

/// More than that many configurations are not remembered; those that were written longest ago go first.
const MOST: usize = 500;
/// The bits by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// How much of each hash is in a file's name.
const DIGITS: usize = 12;

impl CatalogFolder {
    pub(crate) fn new(folder: PathBuf, ui: Arc<Ui>) -> Self {
        Self { folder, ui }
    }

    fn path(&self, server: &ServerName, key: &PinKey) -> PathBuf {
        let short = |hash: &str| hash.chars().take(DIGITS).collect::<String>();
        let local = key.local.as_deref().map(short).unwrap_or_default();
        self.folder.join(format!("{server}-{}{local}.json", short(&key.identity)))
    }

    fn read(path: &Path) -> Result<Option<Catalogue>, String> {
        let Ok(file) = File::open(path) else { return Ok(None) };
        let facts = file.metadata().map_err(|error| format!("it cannot be read: {error}"))?;
        if facts.permissions().mode() & OTHERS_WRITE != 0 {
            return Err("others can write it".into());
        }
        let mut bytes = Vec::new();
        let read = file.take(CATALOGUE_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("it cannot be read: {error}"))?;
        Catalogue::parse(&bytes).map(Some)
    }

    /// Makes room for one more.
    fn tidy(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let age = |entry: &fs::DirEntry| entry.metadata().and_then(|facts| facts.modified());
        let mut files: Vec<(SystemTime, PathBuf)> =
            entries.flatten().filter_map(|entry| Some((age(&entry).ok()?, entry.path()))).collect();
        files.sort();
        for (_, path) in files.iter().take(files.len().saturating_sub(MOST - 1)) {
            let _ = fs::remove_file(path);
        }
    }
}

impl CatalogStore for CatalogFolder {
    fn get(&self, server: &ServerName, key: &PinKey) -> Option<Pinned> {
        let path = self.path(server, key);
        match Self::read(&path) {
            Ok(catalogue) => catalogue?.servers.remove(server),
            Err(why) => {
                // What replaces it is the owner's alone.
                let _ = fs::remove_file(&path);
                let path = wharf::text::Escaped(&path.display().to_string()).to_string();
                let why = wharf::text::Escaped(&why).to_string();
                self.ui.warn(format_args!("{path}, which says what `{server}` offers, is not used: {why}"));
                None
            }
        }
    }

    fn put(&self, server: &ServerName, pinned: &Pinned) {
        let path = self.path(server, &pinned.key);
        if !path.exists() {
            self.tidy();
        }
        let catalogue = Catalogue { servers: [(server.clone(), pinned.clone())].into() };
        let text = catalogue.to_text();
        // One that could not be read again is not worth writing.
        if text.len() <= CATALOGUE_MAX {
            let _ = write_atomically(&path, &text);
        }
    }
}
