//! The traffic of a server as events, for servers with `debug`: redacted, cut, and free where nobody listens.

use crate::event::{Bus, Event};
use crate::names::ServerName;
use crate::secret::Redactor;
use crate::text::Foreign;

/// What is shown of the traffic of a server with `debug`.
#[derive(Clone)]
pub(crate) struct Monitor {
    pub(crate) events: Bus,
    pub(crate) debug: bool,
    pub(crate) redactor: Redactor,
}

/// How much of a message is shown in a `Traffic` event.
const SHOWN: usize = 4096;

// === impl Monitor ===

impl Monitor {
    pub(crate) fn traffic(&self, server: &ServerName, sent: bool, frame: &[u8]) {
        if self.debug {
            self.events.publish(|| {
                let cut = String::from_utf8_lossy(&frame[..frame.len().min(SHOWN)]);
                let message = Foreign::from(self.redactor.redact(cut.trim_end()).into_owned());
                Event::Traffic { server: server.clone(), sent, message }
            });
        }
    }
}
