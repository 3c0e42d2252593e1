//! The one way of a confined server to the network: a proxy at a Unix socket.
//!
//! In: requests to proxy, `CONNECT` and plain HTTP in absolute form, from a server that has no other way out. Out:
//! connections to hosts that its rules name, opened by `net` at addresses that were judged; an event for each, and for
//! each refusal. TLS is never opened: only the name in its first message is read. Which hosts are allowed is for
//! [`policy`](crate::policy::EgressRules) to say.

mod asked;
mod hello;
mod meter;
mod plain;
mod proxy;
#[cfg(test)]
mod tests;
mod tunnel;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use tokio::net::UnixListener;
use tokio::task::AbortHandle;

use crate::error::{Error, Result};
use crate::event::Bus;
use crate::names::ServerName;
use crate::net::NetOptions;
use crate::policy::EgressRules;
use crate::text::Escaped;
pub use asked::Asked;
use proxy::Proxy;

/// What the proxy reads of the first bytes of a TLS connection, for those who compare it with another reading (`fuzz`): the
/// name it is for, or why that cannot be known. `None` while there is more to come.
#[doc(hidden)]
pub fn read_hello(bytes: &[u8]) -> Option<std::result::Result<Option<String>, &'static str>> {
    match hello::read(bytes) {
        hello::Hello::More => None,
        hello::Hello::For(name) => Some(Ok(name)),
        hello::Hello::Odd(why) => Some(Err(why)),
    }
}

/// A proxy that listens. When it is dropped, every connection through it is cut and its socket is gone.
#[derive(Debug)]
pub struct Egress {
    path: PathBuf,
    /// Device and number: what others put in its place is not ours to remove.
    id: (u64, u64),
    serving: AbortHandle,
}

/// Whom a proxy is for, and what it lets through.
#[derive(Clone, Debug)]
pub struct EgressOptions {
    /// The server.
    pub server: ServerName,
    /// Where it may go.
    pub rules: EgressRules,
    /// How hosts are reached; also how long connecting may take.
    pub net: NetOptions,
    /// The bounds.
    pub limits: EgressLimits,
    /// Where connections are told of.
    pub events: Bus,
    /// Where it is noted which hosts were asked for that no rule names. `None`: nowhere.
    pub asked: Option<Arc<Asked>>,
}

/// The bounds of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressLimits {
    /// How many connections a server may have at once. Defaults to 128.
    pub connections: usize,
    /// How large the head of a request may be; at least 8 KiB. Defaults to 64 KiB.
    pub head: usize,
    /// How long the head of a request, or the first message in a tunnel, may take. Defaults to 30 seconds.
    pub opening: Duration,
    /// How long a connection may be silent in both directions. Defaults to 10 minutes.
    pub idle: Duration,
}

/// Nobody but us may look into the folder of a socket.
const OPEN_TO_OTHERS: u32 = 0o077;

// === impl Egress ===

impl Egress {
    /// Begins to listen at a path that is not there yet, in a folder that is ours alone. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the folder is open to others, or nothing can be listened at there.
    pub fn listen(path: &Path, options: EgressOptions) -> Result<Self> {
        let failed = |error: io::Error| {
            let path = path.display().to_string();
            Error::Internal(format!("no proxy can be had at {}: {error}", Escaped(&path)))
        };
        let folder = path.parent().ok_or_else(|| failed(io::Error::other("it is in no folder")))?;
        let meta = folder.symlink_metadata().map_err(failed)?;
        if !meta.is_dir() || meta.uid() != geteuid().as_raw() || meta.mode() & OPEN_TO_OTHERS != 0 {
            return Err(failed(io::Error::other("its folder is not ours alone")));
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let meta = path.symlink_metadata().map_err(failed)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        let serving = tokio::spawn(proxy::serve(listener, Arc::new(Proxy::new(options)))).abort_handle();
        Ok(Self { path: path.to_path_buf(), id: (meta.dev(), meta.ino()), serving })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.serving.abort();
        if self.path.symlink_metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == self.id) {
            // It is in a folder of ours that goes as well; failing to remove it harms nobody.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

// === impl EgressOptions ===

impl EgressOptions {
    /// The defaults, for a server with these rules.
    pub fn new(server: ServerName, rules: EgressRules, events: Bus) -> Self {
        let (net, limits) = (NetOptions::default(), EgressLimits::default());
        Self { server, rules, net, limits, events, asked: None }
    }
}

// === impl EgressLimits ===

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            head: 64 * 1024,
            opening: Duration::from_secs(30),
            idle: Duration::from_secs(600),
        }
    }
}
