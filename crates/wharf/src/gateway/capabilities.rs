//! What the whole can do: what one of the servers behind it can.
//!
//! In: a caller's view of the servers. Out: their capabilities, merged. What a server once declared is remembered, so
//! that the whole does not seem to lose something while a server is away.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::desk::invalid;
use crate::host::{Declared, PATIENCE, Session};
use crate::mcp::{Era, extension, method};
use crate::names::ServerName;
use crate::wire::{Json, RpcError};

/// What is known of each server.
#[derive(Debug, Default)]
pub(super) struct Capabilities(Mutex<HashMap<Key, Known>>);

/// A server, and what it is told of the caller, as a hash: it may declare other things to others.
type Key = (ServerName, [u8; 32]);

#[derive(Debug)]
enum Known {
    Declared(Declared),
    /// It could not be asked at that time.
    Nothing(Instant),
}

/// How soon one that could not be asked is asked again.
const AGAIN: Duration = Duration::from_secs(30);
/// How much is remembered: callers may make up what they say of themselves.
const MOST: usize = 10_000;
/// How much a caller may say of itself.
const LARGEST: usize = 16 * 1024;

// === impl Capabilities ===

impl Capabilities {
    /// What a caller's servers can do together.
    pub(super) async fn of(&self, scope: &Session) -> Declared {
        let says: [u8; 32] = Sha256::digest(scope.says()).into();
        let is_known = |server: &ServerName| match self.lock().get(&(server.clone(), says)) {
            Some(Known::Declared(_)) => true,
            Some(Known::Nothing(since)) => since.elapsed() < AGAIN,
            None => false,
        };
        let all = scope.declared(PATIENCE, is_known).await;
        let mut known = self.lock();
        if known.len() >= MOST {
            known.clear();
        }
        let mut together = Declared::default();
        for (server, declared) in all {
            let server = (server, says);
            let declared = match (declared, known.get(&server)) {
                (Some(declared), _) => {
                    known.insert(server, Known::Declared(declared));
                    declared
                }
                (None, Some(Known::Declared(declared))) => *declared,
                (None, Some(Known::Nothing(since))) if since.elapsed() < AGAIN => continue,
                (None, _) => {
                    known.insert(server, Known::Nothing(Instant::now()));
                    continue;
                }
            };
            together = together.or(declared);
        }
        together
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether what a caller says of itself can be kept.
pub(super) fn are_small(capabilities: &[u8]) -> Result<(), RpcError> {
    if capabilities.len() <= LARGEST {
        return Ok(());
    }
    Err(invalid(&format!("the capabilities of the caller have more than {LARGEST} bytes")))
}

/// Capabilities as a server says them. Lists may always change: servers come and go behind the gateway.
pub(super) fn written(declared: Declared, era: Era) -> Json {
    let mut all = json!({ "tools": { "listChanged": true } });
    if declared.prompts {
        all["prompts"] = json!({ "listChanged": true });
    }
    if declared.resources {
        all["resources"] = json!({ "subscribe": declared.subscriptions, "listChanged": true });
    }
    if declared.completions {
        all["completions"] = json!({});
    }
    if declared.logging {
        all["logging"] = json!({});
    }
    if declared.tasks && era == Era::Modern {
        all["extensions"] = json!({ (extension::TASKS): {} });
    }
    Json::of(&all)
}

/// Whether a method is one that these capabilities have.
pub(super) fn has(declared: Declared, method: &str) -> bool {
    match method {
        method::PROMPTS_LIST | method::PROMPTS_GET => declared.prompts,
        method::RESOURCES_LIST | method::TEMPLATES_LIST | method::RESOURCES_READ => declared.resources,
        method::SUBSCRIBE | method::UNSUBSCRIBE => declared.subscriptions,
        method::COMPLETE => declared.completions,
        method::SET_LEVEL => declared.logging,
        method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => declared.tasks,
        _ => false,
    }
}
