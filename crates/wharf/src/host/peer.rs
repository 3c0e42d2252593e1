//! The host's ear: what servers ask goes to the asker, what they tell becomes an event.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ask::{self, Asker};
use crate::call;
use crate::catalog::{ListKind, TaskWatchers, Watchers};
use crate::connect::{Answering, Connection, Peer, WeakConnection};
use crate::event::{Bus, Event};
use crate::mcp::{Era, LogLevel, method};
use crate::names::ServerName;
use crate::text::Foreign;
use crate::wire::{Json, Members};

/// Stands behind every connection of a host.
pub(super) struct HostPeer {
    asker: Arc<dyn Asker>,
    events: Bus,
    /// The number of the session whose connections these are, if they are one's.
    session: Option<u64>,
    /// Lists that changed since their servers were last asked. A flood of notices is one entry.
    changed: Mutex<HashSet<(ServerName, ListKind)>>,
    /// Whether there is any, so that a call need not look.
    any_changed: AtomicBool,
    /// Which resources are watched.
    pub(super) watchers: Watchers,
    /// Which tasks are.
    pub(super) tasks: TaskWatchers,
    /// How grave a message of a server's log must be, where somebody said so.
    levels: Mutex<HashMap<ServerName, LogLevel>>,
    /// The same for every server where nobody said otherwise.
    level: Mutex<Option<LogLevel>>,
    /// Whether there is one, so that a call need not look.
    has_level: AtomicBool,
    /// The connections to each server. A session may have several.
    connections: Mutex<HashMap<ServerName, Vec<WeakConnection>>>,
}

/// How long a new connection may take to hear what was asked of the last one.
const RESTORE: Duration = Duration::from_secs(30);
/// How much of a log message becomes an event.
const LOG_SHOWN: usize = 4096;

impl HostPeer {
    pub(super) fn new(asker: Arc<dyn Asker>, events: Bus, session: Option<u64>) -> Self {
        let watchers = Watchers::new(events.clone());
        Self {
            asker,
            events,
            session,
            changed: Mutex::default(),
            any_changed: AtomicBool::new(false),
            watchers,
            tasks: TaskWatchers::default(),
            levels: Mutex::default(),
            level: Mutex::default(),
            has_level: AtomicBool::new(false),
            connections: Mutex::default(),
        }
    }

    /// Whether a list of the server changed since this was last asked.
    pub(super) fn take_changed(&self, server: &ServerName, kind: ListKind) -> bool {
        if !self.any_changed.load(Ordering::Acquire) {
            return false;
        }
        let mut changed = self.lock();
        let removed = changed.remove(&(server.clone(), kind));
        self.any_changed.store(!changed.is_empty(), Ordering::Release);
        removed
    }

    /// The same for its tools, without an answer to whoever asks next being different.
    pub(super) fn has_changed(&self, server: &ServerName) -> bool {
        self.any_changed.load(Ordering::Acquire) && self.lock().contains(&(server.clone(), ListKind::Tools))
    }

    /// A list changed: whoever wants it asks for it again.
    pub(super) fn mark_changed(&self, server: &ServerName, kind: ListKind) {
        let mut changed = self.lock();
        changed.insert((server.clone(), kind));
        self.any_changed.store(true, Ordering::Release);
    }

    /// Tells that a list is another one now.
    pub(super) fn tell_changed(&self, server: &ServerName, kind: ListKind) {
        let (server, session) = (server.clone(), self.session);
        self.events.publish(|| match kind {
            ListKind::Tools => Event::ToolsChanged { server, session },
            ListKind::Prompts => Event::PromptsChanged { server, session },
            ListKind::Resources | ListKind::ResourceTemplates => Event::ResourcesChanged { server, session },
        });
    }

    /// The level that later connections to the server are told too.
    pub(super) fn remember_level(&self, server: &ServerName, level: LogLevel) {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner).insert(server.clone(), level);
    }

    /// The level that every server is told, now and later.
    pub(super) fn log_from(&self, level: LogLevel) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
        self.has_level.store(true, Ordering::Release);
        self.live().iter().for_each(|connection| self.restore_level(connection));
    }

    /// Whether every server is told a level.
    pub(super) fn has_level(&self) -> bool {
        self.has_level.load(Ordering::Acquire)
    }

    /// Tells something to every legacy server that is connected.
    pub(super) fn tell(&self, method: &str) {
        let legacy = self.live().into_iter().filter(|c| c.info().revision.era() == Era::Legacy);
        legacy.for_each(|connection| connection.notify(method, &Members::new()));
    }

    fn live(&self) -> Vec<Connection> {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.values().flatten().filter_map(WeakConnection::upgrade).collect()
    }

    /// Tells the level that was asked of the last connection to a new one.
    fn restore_level(&self, connection: &Connection) {
        let own =
            self.levels.lock().unwrap_or_else(PoisonError::into_inner).get(connection.server()).copied();
        let every = *self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(level) = own.or(every) else { return };
        if connection.info().revision.era() == Era::Modern {
            connection.log_from(level);
            return;
        }
        let connection = connection.clone();
        tokio::spawn(async move {
            // A server that has no log any more, or is gone again, is not asked twice.
            let _ = call::set_log_level(&connection, level, RESTORE).await;
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(ServerName, ListKind)>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_log(&self, server: &ServerName, params: Option<&Json>) {
        self.events.publish(|| {
            let text = |key: &str| {
                let value = params.and_then(|p| p.member(key));
                let plain = value.as_ref().and_then(|v| v.to::<String>().ok());
                let text = plain.or_else(|| value.map(|v| v.as_str().to_owned())).unwrap_or_default();
                Foreign::from(text.chars().take(LOG_SHOWN).collect::<String>())
            };
            Event::Log { server: server.clone(), level: text("level"), data: text("data") }
        });
    }
}

impl Peer for HostPeer {
    fn capabilities(&self) -> Json {
        self.asker.capabilities()
    }

    fn legacy_capabilities(&self) -> Json {
        self.asker.legacy_capabilities()
    }

    fn connected(&self, connection: &Connection) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let known = connections.entry(connection.server().clone()).or_default();
        known.retain(|known| known.upgrade().is_some_and(|known| known.is_open()));
        known.push(connection.downgrade());
        drop(connections);
        self.restore_level(connection);
        self.watchers.resume(connection, RESTORE);
    }

    fn renewed(&self, server: &ServerName) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<_> = connections.get(server).into_iter().flatten().cloned().collect();
        drop(connections);
        for connection in known.iter().filter_map(WeakConnection::upgrade) {
            self.restore_level(&connection);
            self.watchers.renew(&connection, RESTORE);
        }
    }

    fn request(&self, server: &ServerName, method: &str, params: Option<Json>) -> Answering {
        Box::pin(ask::answer(Arc::clone(&self.asker), server.clone(), method.to_owned(), params))
    }

    fn log(&self, server: &ServerName, params: &Json) {
        self.asker.log(server, params);
    }

    fn notification(&self, server: &ServerName, name: &str, params: Option<&Json>) -> bool {
        match name {
            method::TOOLS_CHANGED => {
                self.mark_changed(server, ListKind::Tools);
                self.tell_changed(server, ListKind::Tools);
                true
            }
            method::MESSAGE => {
                self.tell_log(server, params);
                true
            }
            method::RESOURCES_CHANGED => {
                self.mark_changed(server, ListKind::Resources);
                self.mark_changed(server, ListKind::ResourceTemplates);
                self.tell_changed(server, ListKind::Resources);
                true
            }
            method::PROMPTS_CHANGED => {
                self.mark_changed(server, ListKind::Prompts);
                self.tell_changed(server, ListKind::Prompts);
                true
            }
            method::RESOURCE_UPDATED => {
                let uri = params.and_then(|p| p.member("uri")).and_then(|uri| uri.to::<String>().ok());
                uri.is_some_and(|uri| self.watchers.heard(server, &uri))
            }
            method::TASK_CHANGED => params.is_some_and(|state| self.tasks.heard(server, state)),
            method::ELICITATION_COMPLETE => {
                let id = params.and_then(|p| p.member("elicitationId")).and_then(|id| id.to::<String>().ok());
                if let Some(id) = id {
                    self.events.publish(|| Event::PageVisited { server: server.clone(), id: id.into() });
                }
                true
            }
            // Known, and nothing here depends on it.
            method::CANCELLED | method::LISTEN_ACKNOWLEDGED | "notifications/tasks/status" => true,
            _ => false,
        }
    }
}
