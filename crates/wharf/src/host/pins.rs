//! What one server was last seen to offer, in this run or an earlier one.
//!
//! In: lists as they come. Out: the same lists before the server is started, and whether a new one differs. A list in
//! which one of the server's secrets stands is not written down.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::catalog::{CatalogStore, Definitions, ListKind, PinKey, Pinned};
use crate::config::ServerConfig;
use crate::mcp::ServerInfo;
use crate::names::ServerName;
use crate::secret::Redactor;
use crate::wire::Json;

/// A server's entry in the store.
pub(super) struct Pins {
    store: Arc<dyn CatalogStore>,
    server: ServerName,
    key: PinKey,
    redactor: Redactor,
    entry: Mutex<Entry>,
}

/// What is known of the entry.
enum Entry {
    /// The store was not asked yet.
    Unread,
    /// What it said, or was told since.
    Read(Option<Arc<Pinned>>),
}

// === impl Pins ===

impl Pins {
    pub(super) fn new(
        store: Arc<dyn CatalogStore>,
        config: &ServerConfig,
        environment: &BTreeMap<String, String>,
        redactor: Redactor,
    ) -> Self {
        let key = PinKey::of(config, environment);
        Self { store, server: config.name.clone(), key, redactor, entry: Mutex::new(Entry::Unread) }
    }

    /// The same for what the server shows to whoever says this of itself.
    pub(super) fn shown_to(mut self, capabilities: &Json) -> Self {
        self.key = self.key.shown_to(capabilities);
        self
    }

    /// Whether something else was known than what is offered now. It is not remembered.
    pub(super) fn differs(&self, kind: ListKind, list: &Definitions) -> bool {
        let known = self.get();
        let known = known.as_ref().and_then(|pinned| pinned.lists.get(&kind));
        known.is_some_and(|known| !known.offers_same(list))
    }

    /// What the server was last seen to offer.
    pub(super) fn get(&self) -> Option<Arc<Pinned>> {
        let mut entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        self.read(&mut entry)
    }

    /// Remembers a list. True if it was known, and something else is offered now.
    pub(super) fn keep(&self, info: &ServerInfo, kind: ListKind, list: Definitions) -> bool {
        let mut entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.read(&mut entry);
        let known = before.as_ref().and_then(|pinned| pinned.lists.get(&kind));
        let differs = known.is_some_and(|known| !known.offers_same(&list));
        let lists = before.as_ref().map(|pinned| pinned.lists.clone()).unwrap_or_default();
        let mut now = Pinned {
            key: self.key.clone(),
            revision: info.revision,
            capabilities: info.capabilities.clone(),
            instructions: info.instructions.as_ref().map(|text| text.raw().to_owned()),
            lists,
        };
        now.lists.insert(kind, list);
        if before.as_deref() != Some(&now) {
            if !self.tells_secrets(&now) {
                self.store.put(&self.server, &now);
            }
            *entry = Entry::Read(Some(Arc::new(now)));
        }
        differs
    }

    fn read(&self, entry: &mut Entry) -> Option<Arc<Pinned>> {
        if let Entry::Read(known) = entry {
            return known.clone();
        }
        let stored = self.store.get(&self.server, &self.key);
        let known = stored.filter(|pinned| pinned.key.fits(&self.key)).map(Arc::new);
        *entry = Entry::Read(known.clone());
        known
    }

    fn tells_secrets(&self, pinned: &Pinned) -> bool {
        let secret = |text: &str| matches!(self.redactor.redact(text), Cow::Owned(_));
        let definitions = pinned.lists.values().flat_map(Definitions::iter);
        pinned.instructions.as_deref().is_some_and(secret)
            || secret(pinned.capabilities.as_str())
            || definitions.into_iter().any(|d| secret(d.raw.as_str()))
    }
}
