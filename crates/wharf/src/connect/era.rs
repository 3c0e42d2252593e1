//! What is remembered about the era a server speaks, so that it is not probed every time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::config::{ServerConfig, Transport};
use crate::mcp::Era;

/// What a probe found, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The era the server answered in.
    pub era: Era,
    /// When it did.
    pub at: SystemTime,
}

/// Where verdicts are kept. The library keeps them in memory; the binary keeps them in a file.
pub trait EraStore: Send + Sync + 'static {
    /// What is known of a server.
    fn get(&self, key: &str) -> Option<Verdict>;
    /// Remembers what a probe found. Inconclusive probes never get here.
    fn put(&self, key: &str, verdict: Verdict);
}

/// Verdicts for the life of the process.
#[derive(Debug, Default)]
pub struct EraMemory(Mutex<HashMap<String, Verdict>>);

/// A server may be updated at any time; a legacy verdict would then go unnoticed for ever.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

impl EraStore for EraMemory {
    fn get(&self, key: &str) -> Option<Verdict> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    fn put(&self, key: &str, verdict: Verdict) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), verdict);
    }
}

impl Verdict {
    /// Whether it is recent enough to be relied on.
    pub fn is_fresh(&self, now: SystemTime) -> bool {
        now.duration_since(self.at).is_ok_and(|age| age < FRESH)
    }
}

/// Under which key a server's verdict is kept: what decides which program answers, and no secret.
pub(super) fn key(config: &ServerConfig) -> String {
    let text = match &config.transport {
        Transport::Stdio(stdio) => {
            format!("stdio\0{}\0{}\0{:?}", stdio.command, stdio.args.join("\0"), stdio.cwd)
        }
        Transport::Unix(socket) => format!("unix\0{}", socket.path.display()),
        Transport::Http(remote) | Transport::Sse(remote) | Transport::WebSocket(remote) => {
            format!("url\0{}", remote.url)
        }
    };
    let hash = Sha256::digest(text.as_bytes());
    let hex: String = hash.iter().take(16).map(|b| format!("{b:02x}")).collect();
    format!("{}-{hex}", config.name)
}
