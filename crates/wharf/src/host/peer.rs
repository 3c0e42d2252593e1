//! The host's ear: what servers ask goes to the asker, what they tell becomes an event.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ask::{self, Asker};
use crate::connect::{Answering, Peer};
use crate::event::{Bus, Event};
use crate::mcp::method;
use crate::names::ServerName;
use crate::text::Foreign;
use crate::wire::Json;

/// Stands behind every connection of a host.
pub(super) struct HostPeer {
    asker: Arc<dyn Asker>,
    events: Bus,
    /// Servers whose tools changed since they were last asked. A flood of notices is one entry.
    changed: Mutex<HashSet<ServerName>>,
}

/// How much of a log message becomes an event.
const LOG_SHOWN: usize = 4096;

impl HostPeer {
    pub(super) fn new(asker: Arc<dyn Asker>, events: Bus) -> Self {
        Self { asker, events, changed: Mutex::default() }
    }

    /// Whether the server's tools changed since this was last asked.
    pub(super) fn take_changed(&self, server: &ServerName) -> bool {
        self.lock().remove(server)
    }

    /// The same, without an answer to whoever asks next being different.
    pub(super) fn has_changed(&self, server: &ServerName) -> bool {
        self.lock().contains(server)
    }

    /// They changed, and whoever wanted to know could not be told.
    pub(super) fn mark_changed(&self, server: &ServerName) {
        self.lock().insert(server.clone());
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<ServerName>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, server: &ServerName, params: Option<&Json>) {
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
        self.asker.offers().capabilities()
    }

    fn request(&self, server: &ServerName, method: &str, params: Option<Json>) -> Answering {
        Box::pin(ask::answer(Arc::clone(&self.asker), server.clone(), method.to_owned(), params))
    }

    fn notification(&self, server: &ServerName, name: &str, params: Option<&Json>) -> bool {
        match name {
            method::TOOLS_CHANGED => {
                self.mark_changed(server);
                self.events.publish(|| Event::ToolsChanged { server: server.clone() });
                true
            }
            method::MESSAGE => {
                self.log(server, params);
                true
            }
            // Known, and nothing here depends on it.
            method::PROMPTS_CHANGED
            | method::RESOURCES_CHANGED
            | method::CANCELLED
            | method::LISTEN_ACKNOWLEDGED
            | "notifications/resources/updated"
            | "notifications/elicitation/complete"
            | "notifications/tasks/status" => true,
            _ => false,
        }
    }
}
