//! Logging in at remote servers.
//!
//! In: a server that refuses, a person with a browser, a place to keep logins. Out: what every request to the server
//! shows, renewed by itself. The way of a login: `challenge` reads the refusal, `discover` finds the authorization
//! server, `client` says who we are, `visit` goes through the browser (and comes back through `loopback`), `token`
//! fetches, `grant` is what is kept in a `store`, `pass` shows and renews it. Who may call *us* is `gateway`'s; nothing
//! of a caller's comes here.

mod challenge;
mod client;
mod discover;
mod errand;
mod grant;
mod login;
mod loopback;
mod pass;
mod sealed;
mod store;
#[cfg(test)]
mod tests;
mod token;
mod visit;

pub(crate) use challenge::Challenge;
pub use login::LoggedOut;
pub use loopback::Loopback;
pub(crate) use pass::{Pass, Shown};
pub use sealed::{LoginNotes, SealedFiles};
pub use store::{Lock, LoginState, Outline, TokenMemory, TokenStore};
pub use visit::{Page, Visiting, Visitor};

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::Dock;
use crate::config::{Remote, ServerConfig, Transport};
use crate::error::{Error, Result};
use crate::net::HttpClient;
use crate::policy::{Live, Policy};
use errand::Errand;

/// The passes of all servers, and where their logins are kept. Cheap to clone.
#[derive(Clone)]
pub struct Logins {
    store: Arc<dyn TokenStore>,
    passes: Arc<Mutex<HashMap<String, Arc<Pass>>>>,
}

// === impl Logins ===

impl Logins {
    /// Keeps logins there.
    pub fn new(store: Arc<dyn TokenStore>) -> Self {
        Self { store, passes: Arc::default() }
    }

    /// Whether somebody is logged in at a server. Nobody is contacted.
    pub fn state(&self, config: &ServerConfig) -> LoginState {
        match remote(config) {
            Some(remote) => LoginState::of(self.store.outline(&key(config, remote)), SystemTime::now()),
            None => LoginState::NotUsed,
        }
    }

    /// What a server is shown, if it is one where somebody can log in.
    fn pass(&self, config: &ServerConfig, policy: &Live<Policy>, net: &HttpClient) -> Option<Arc<Pass>> {
        let remote = remote(config)?;
        let key = key(config, remote);
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = passes.get(&key) {
            return Some(Arc::clone(known));
        }
        let mut home = remote.url.expose().clone();
        let scheme = match home.scheme() {
            "wss" => "https",
            "ws" => "http",
            other => other,
        }
        .to_owned();
        // Between these four it always can be.
        let _ = home.set_scheme(&scheme);
        let errand = Errand { server: config.name.clone(), home, policy: policy.clone(), net: net.clone() };
        let pass = Arc::new(Pass::new(errand, key.clone(), Arc::clone(&self.store)));
        passes.insert(key, Arc::clone(&pass));
        Some(pass)
    }
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logins").finish_non_exhaustive()
    }
}

// === impl Dock ===

impl Dock {
    pub(crate) fn pass(&self, config: &ServerConfig) -> Option<Arc<Pass>> {
        self.logins.pass(config, &self.policy, &self.net)
    }

    /// Logs in at a server. `more` is what the token is to be good for beside what the server asks for.
    ///
    /// # Errors
    /// If it is no server to log in at, or the way there is not one that is gone.
    pub async fn login(
        &self,
        config: &ServerConfig,
        visitor: &dyn Visitor,
        more: &[String],
    ) -> Result<Outline> {
        let bad = more.iter().find(|scope| !challenge::is_scope(scope));
        if let Some(bad) = bad {
            return Err(Error::config(format!("`{}` is not a scope", crate::text::Escaped(bad))));
        }
        self.pass_or_error(config)?.login(&config.oauth, visitor, more).await
    }

    /// Forgets the login at a server, and tells the authorization server.
    ///
    /// # Errors
    /// If it is no server to log in at, or the login cannot be removed.
    pub async fn logout(&self, config: &ServerConfig) -> Result<LoggedOut> {
        self.pass_or_error(config)?.logout().await
    }

    fn pass_or_error(&self, config: &ServerConfig) -> Result<Arc<Pass>> {
        self.pass(config).ok_or_else(|| {
            let why = match &config.transport {
                Transport::Stdio(_) | Transport::Unix(_) => "is on this machine",
                _ => "has an `Authorization` of its own in `headers`",
            };
            Error::config(format!("server `{}` {why}; there is nothing to log in at", config.name))
        })
    }
}

/// The address of a server where somebody can log in: not where the config has a credential already.
fn remote(config: &ServerConfig) -> Option<&Remote> {
    match &config.transport {
        Transport::Http(remote) | Transport::Sse(remote) | Transport::WebSocket(remote) => {
            let has_own = remote.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
            (!has_own).then_some(remote)
        }
        Transport::Stdio(_) | Transport::Unix(_) => None,
    }
}

/// Under which key a login is kept: the server by name and address, and who we say we are there. No secret.
fn key(config: &ServerConfig, remote: &Remote) -> String {
    let mut hash = Sha256::new();
    let client = config.oauth.client_id.as_deref();
    let document = config.oauth.client_metadata_url.as_ref().map(url::Url::as_str);
    for part in [Some(config.name.as_str()), Some(remote.url.expose().as_str()), client, document] {
        let part = part.unwrap_or_default();
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let hex: String = hash.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect();
    format!("{}-{hex}", config.name)
}
