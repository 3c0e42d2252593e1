//! What the test server remembers: the note, who watches it, and of a legacy client what it was told and asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use wharf::mcp::{LogLevel, meta, method};
use wharf::wire::{Json, Members, RpcError, notification, request};

use super::answer::Frames;

/// What all clients of one server share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    note: Mutex<String>,
    watchers: Mutex<Vec<(u64, Watcher)>>,
    next: AtomicU64,
}

/// Who hears that a resource changed.
#[derive(Debug)]
struct Watcher {
    uri: String,
    ear: Ear,
}

#[derive(Debug)]
enum Ear {
    /// A legacy client, wherever its news goes at the time.
    Client(Weak<Client>),
    /// A modern request that stands open, by its id.
    Stream(mpsc::WeakSender<Vec<u8>>, Json),
}

/// A modern request that stands open. Dropped, it hears no more.
#[derive(Debug)]
pub(super) struct Watching {
    shared: Arc<Shared>,
    number: u64,
}

/// A legacy client.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Where it hears what belongs to no request of its own.
    news: Mutex<Option<Frames>>,
    level: Mutex<Option<LogLevel>>,
    /// Whether it said that it fills in forms.
    fills_forms: Mutex<bool>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Result<Json, RpcError>>>>,
    next: AtomicU64,
}

// === impl Shared ===

impl Shared {
    pub(super) fn note(&self) -> String {
        lock(&self.note).clone()
    }

    /// Writes on the note, and tells those who watch it.
    pub(super) async fn write_note(&self, text: &str, uri: &str) {
        text.clone_into(&mut lock(&self.note));
        let mut told = Vec::new();
        lock(&self.watchers).retain(|(_, watcher)| {
            let (frames, subscription) = match &watcher.ear {
                Ear::Client(client) => match client.upgrade() {
                    Some(client) => (lock(&client.news).clone(), None),
                    None => return false,
                },
                Ear::Stream(frames, id) => (frames.upgrade(), Some(id)),
            };
            if let (Some(frames), true) = (frames, watcher.uri == uri) {
                let mut params = json!({"uri": uri});
                if let Some(id) = subscription {
                    params["_meta"] = json!({meta::SUBSCRIPTION_ID: id});
                }
                told.push((frames, notification(method::RESOURCE_UPDATED, &Members::of(&params.into()))));
            }
            true
        });
        for (frames, news) in told {
            // Who is gone needs no news.
            let _ = frames.send(news).await;
        }
    }

    /// A legacy client wants to hear of a resource, or no more.
    pub(super) fn watch_for(&self, client: &Arc<Client>, uri: &str, wanted: bool) {
        let same = |ear: &Ear| matches!(ear, Ear::Client(c) if std::ptr::eq(c.as_ptr(), Arc::as_ptr(client)));
        let mut watchers = lock(&self.watchers);
        watchers.retain(|(_, watcher)| watcher.uri != uri || !same(&watcher.ear));
        if wanted {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let ear = Ear::Client(Arc::downgrade(client));
            watchers.push((number, Watcher { uri: uri.to_owned(), ear }));
        }
    }

    /// A modern request wants to hear of resources as long as it stands open.
    pub(super) fn watch(self: &Arc<Self>, frames: &Frames, id: &Json, uris: Vec<String>) -> Watching {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let ear = || Ear::Stream(frames.downgrade(), id.clone());
        let watchers = uris.into_iter().map(|uri| (number, Watcher { uri, ear: ear() }));
        lock(&self.watchers).extend(watchers);
        Watching { shared: Arc::clone(self), number }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        lock(&self.shared.watchers).retain(|(number, _)| *number != self.number);
    }
}

// === impl Client ===

impl Client {
    /// A client that hears news here from the beginning.
    pub(super) fn on(frames: Frames) -> Arc<Self> {
        Arc::new(Self { news: Mutex::new(Some(frames)), ..Self::default() })
    }

    /// Its news goes here from now on.
    pub(super) fn hear(&self, frames: Frames) {
        *lock(&self.news) = Some(frames);
    }

    /// What it said of itself in its `initialize`.
    pub(super) fn introduced(&self, params: &Value) {
        let forms = params["capabilities"].get("elicitation");
        *lock(&self.fills_forms) =
            forms.is_some_and(|e| e.get("form").is_some() || e.as_object().is_some_and(|e| e.is_empty()));
    }

    pub(super) fn fills_forms(&self) -> bool {
        *lock(&self.fills_forms)
    }

    pub(super) fn log_from(&self, level: LogLevel) {
        *lock(&self.level) = Some(level);
    }

    pub(super) fn level(&self) -> Option<LogLevel> {
        *lock(&self.level)
    }

    /// Asks it something, and waits for what it says.
    pub(super) async fn ask(&self, frames: &Frames, name: &str, params: &Value) -> Option<Json> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, told) = oneshot::channel();
        lock(&self.asked).insert(id, tell);
        frames.send(request(id, name, Members::of(&params.into()))).await.ok()?;
        told.await.ok()?.ok()
    }

    /// It answered a question.
    pub(super) fn answered(&self, id: Option<u64>, outcome: Result<Json, RpcError>) {
        if let Some(waiting) = id.and_then(|id| lock(&self.asked).remove(&id)) {
            let _ = waiting.send(outcome);
        }
    }
}

/// What is locked here is whole after every statement, so a panic elsewhere does not spoil it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
