//! The traffic of a server as events, for servers with `debug`: redacted, cut, and free where nobody listens.

use std::borrow::Cow;

use crate::event::{Bus, Event, Redacted};
use crate::names::ServerName;
use crate::secret::Redactor;
use crate::text::Foreign;
use crate::wire::RpcError;

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
                let text = String::from_utf8_lossy(frame);
                let message =
                    Foreign::from(self.redactor.redact_beginning(text.trim_end(), SHOWN).into_owned());
                Event::Traffic { server: server.clone(), sent, message }
            });
        }
    }

    /// An error as the server gave it, without the secrets that the server was given.
    pub(crate) fn clean(&self, mut error: RpcError) -> RpcError {
        if let Cow::Owned(clean) = self.redactor.redact(error.message.raw()) {
            error.message = clean.into();
        }
        error.data = error.data.map(|data| Redacted::new(data, self.redactor.clone()).to_json());
        error
    }
}
