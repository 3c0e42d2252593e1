//! The traffic of a server as events, for servers with `debug`: redacted, cut, and free where nobody listens.

use std::borrow::Cow;

use bytes::Bytes;

use crate::event::{Bus, Event, Redacted};
use crate::names::ServerName;
use crate::secret::{Redactor, erase_credentials};
use crate::text::Foreign;
use crate::wire::{Json, RpcError};

/// What is shown of the traffic of a server with `debug`.
#[derive(Clone)]
pub(crate) struct Monitor {
    pub(crate) events: Bus,
    pub(crate) debug: bool,
    pub(crate) redactor: Redactor,
}

/// The longest message of an error, and the most that comes with it.
const ERROR_TEXT: usize = 8 * 1024;
const ERROR_DATA: usize = 64 * 1024;
/// How much of a message is shown in a `Traffic` event.
const SHOWN: usize = 4096;
/// How deep a message may be to be looked through.
const DEPTH: usize = 128;

// === impl Monitor ===

impl Monitor {
    pub(crate) fn traffic(&self, server: &ServerName, sent: bool, frame: &[u8]) {
        if self.debug {
            self.events.publish(|| {
                // What has a credential's name is found in a message; in what is none, what is known.
                let text = match Json::parse(Bytes::copy_from_slice(frame.trim_ascii()), DEPTH) {
                    Ok(json) => Redacted::new(json, self.redactor.clone()).to_text(),
                    Err(_) => erase_credentials(String::from_utf8_lossy(frame).trim_end()).into_owned(),
                };
                let message = Foreign::from(self.redactor.redact_beginning(&text, SHOWN).into_owned());
                Event::Traffic { server: server.clone(), sent, message }
            });
        }
    }

    /// An error as the server gave it, without the secrets that the server was given.
    pub(crate) fn clean(&self, mut error: RpcError) -> RpcError {
        let whole = error.message.raw();
        if whole.len() > ERROR_TEXT {
            // An error is read by people: what is longer than that is none.
            let cut = format!("{}…", self.redactor.redact_beginning(whole, ERROR_TEXT));
            error.message = cut.into();
        }
        error.data = error.data.filter(|data| data.bytes().len() <= ERROR_DATA);
        if let Cow::Owned(clean) = self.redactor.redact(error.message.raw()) {
            error.message = clean.into();
        }
        error.data = error.data.map(|data| Redacted::new(data, self.redactor.clone()).to_json());
        error
    }
}
