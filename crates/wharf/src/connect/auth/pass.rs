//! What a server is shown with every request: a token that is renewed before it ends, by one of all who need it.
//!
//! In: a login from the store. Out: the header of a request, without a lock while the token is good. A renewal is made
//! once however many calls wait for it, in this process and in others: under the store's lock the login is read anew,
//! and whoever finds it renewed already takes it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use tokio::time::Instant;

use super::challenge::Challenge;
use super::errand::Errand;
use super::grant::Grant;
use super::store::{Lock, TokenStore};
use super::token::{self, Refusal};
use crate::error::{Error, Result};
use crate::secret::{LiveSecrets, Secret};

/// The pass of one server. Shared by all its connections.
pub(crate) struct Pass {
    pub(super) errand: Errand,
    pub(super) key: String,
    pub(super) store: Arc<dyn TokenStore>,
    shown: ArcSwapOption<Shown>,
    /// Held while it is looked up or renewed.
    renewing: tokio::sync::Mutex<()>,
    /// What the server last said when it refused.
    challenge: Mutex<Option<Challenge>>,
    /// Erases every token from what is said of this server.
    secrets: LiveSecrets,
}

/// A token as it is shown, and the login it belongs to.
pub(crate) struct Shown {
    number: u64,
    pub(crate) header: HeaderValue,
    pub(super) grant: Grant,
}

/// How long the store's lock is waited for: longer than a renewal can take.
const LOCK: Duration = Duration::from_secs(45);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

impl Pass {
    pub(super) fn new(errand: Errand, key: String, store: Arc<dyn TokenStore>) -> Self {
        Self {
            errand,
            key,
            store,
            shown: ArcSwapOption::empty(),
            renewing: tokio::sync::Mutex::default(),
            challenge: Mutex::default(),
            secrets: LiveSecrets::default(),
        }
    }

    /// Looks up whether somebody has logged in. Called when a connection is made, so that requests need not.
    pub(crate) async fn look_up(&self) -> Result<()> {
        if self.shown.load().is_none() {
            let _one = self.renewing.lock().await;
            self.take(self.read().await?);
        }
        Ok(())
    }

    /// What the next request shows, if there is anything. A token that is about to end is renewed first.
    pub(crate) async fn show(self: &Arc<Self>) -> Result<Option<Arc<Shown>>> {
        let Some(shown) = self.shown.load_full() else { return Ok(None) };
        let now = SystemTime::now();
        if !shown.grant.is_old(now) {
            return Ok(Some(shown));
        }
        if shown.grant.refresh.is_none() {
            // Its end is only a guess of ours; the server knows better.
            return Ok(Some(shown));
        }
        match Box::pin(self.renewed(shown.number)).await {
            Ok(renewed) => Ok(renewed),
            // It is still good for a moment, and the next request tries again.
            Err(_) if !shown.grant.has_ended(now) => Ok(Some(shown)),
            Err(error) => Err(error),
        }
    }

    /// The server refused what it was shown, or wants to be shown something. Gives what to show instead, once.
    pub(crate) async fn refused(
        self: &Arc<Self>,
        shown: Option<&Shown>,
        challenge: Option<Challenge>,
    ) -> Result<Option<Arc<Shown>>> {
        self.note(challenge);
        self.renewed(shown.map_or(0, |shown| shown.number)).await
    }

    /// The token is good, but not for this. What it lacks is remembered for the next login.
    pub(crate) async fn wants_more(self: &Arc<Self>, challenge: Challenge) -> Result<()> {
        let wanted = challenge.scopes.clone().unwrap_or_default();
        self.note(Some(challenge));
        let pass = Arc::clone(self);
        own_task(async move {
            let _one = pass.renewing.lock().await;
            let _lock = pass.lock().await?;
            let Some(mut grant) = pass.read().await? else { return Ok(()) };
            if grant.wanted != wanted {
                grant.wanted = wanted;
                pass.keep(&grant).await?;
            }
            Ok(())
        })
        .await
    }

    /// What the server last said, for a login. It is said once.
    pub(super) fn take_challenge(&self) -> Option<Challenge> {
        self.challenge.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, challenge: Option<Challenge>) {
        *self.challenge.lock().unwrap_or_else(PoisonError::into_inner) = challenge;
    }

    /// Another token than the one with this number. `None` if nobody is logged in.
    async fn renewed(self: &Arc<Self>, number: u64) -> Result<Option<Arc<Shown>>> {
        let pass = Arc::clone(self);
        // A renewal that is begun is ended, whoever gives up: the old token may be gone already.
        own_task(async move { pass.renew(number).await }).await
    }

    async fn renew(&self, number: u64) -> Result<Option<Arc<Shown>>> {
        let _one = self.renewing.lock().await;
        let newer = self.shown.load_full().filter(|shown| shown.number != number);
        if newer.is_some() {
            return Ok(newer);
        }
        let _lock = self.lock().await?;
        let Some(mut grant) = self.read().await? else {
            self.shown.store(None);
            return Ok(None);
        };
        let used = self.shown.load_full().map(|shown| shown.grant.access.clone());
        if used.as_ref() != Some(&grant.access) && !grant.is_old(SystemTime::now()) {
            // Somebody else renewed it, or logged in meanwhile.
            return Ok(self.take(Some(grant)));
        }
        // What the server says of a token that cannot be renewed is said better by itself.
        let Some(refresh) = grant.refresh.clone() else { return Ok(None) };
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose()),
            ("resource", grant.resource.as_str()),
        ];
        match token::ask(&self.errand, &grant.token_endpoint, &grant.client, &form).await {
            Ok(tokens) => {
                grant.access = tokens.access;
                grant.refresh = tokens.refresh.or(Some(refresh));
                grant.expires = tokens.expires;
                grant.margin = tokens.margin;
                grant.scopes = tokens.scopes.unwrap_or(grant.scopes);
                // The new one counts even if it cannot be kept: the old one is gone.
                let kept = self.keep(&grant).await;
                let shown = self.take(Some(grant));
                kept.map(|()| shown)
            }
            Err(Refusal::Ended(reason)) => {
                grant.refresh = None;
                grant.expires = Some(SystemTime::UNIX_EPOCH);
                let _ = self.keep(&grant).await;
                self.shown.store(None);
                Err(self.ended(&reason))
            }
            Err(Refusal::Trouble(error)) => Err(error),
        }
    }

    fn ended(&self, reason: &str) -> Error {
        Error::Auth { server: self.errand.server.clone(), reason: reason.to_owned() }
    }

    /// Shows this from now on.
    pub(super) fn take(&self, grant: Option<Grant>) -> Option<Arc<Shown>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let shown = grant.and_then(|grant| {
            self.secrets.add(grant.secrets());
            let bearer = Secret::new(format!("Bearer {}", grant.access.expose()));
            let mut header = HeaderValue::from_str(bearer.expose()).ok()?;
            header.set_sensitive(true);
            Some(Arc::new(Shown { number: NEXT.fetch_add(1, Ordering::Relaxed), header, grant }))
        });
        self.shown.store(shown.clone());
        shown
    }

    /// The login as it is kept, unless policy has come to forbid that it is shown.
    pub(super) async fn read(&self) -> Result<Option<Grant>> {
        if !self.errand.policy.now().permits_token(&self.errand.home) {
            return Ok(None);
        }
        let (store, key) = (Arc::clone(&self.store), self.key.clone());
        let text = off_thread(move || store.get(&key)).await?;
        Ok(text.as_ref().and_then(Grant::read))
    }

    pub(super) async fn keep(&self, grant: &Grant) -> Result<()> {
        let (store, key) = (Arc::clone(&self.store), self.key.clone());
        let (text, outline) = (grant.write(), grant.outline());
        off_thread(move || store.put(&key, &text, &outline)).await
    }

    pub(super) async fn forget(&self) -> Result<bool> {
        let (store, key) = (Arc::clone(&self.store), self.key.clone());
        off_thread(move || store.remove(&key)).await
    }

    /// Every token that was ever shown, for whoever erases secrets.
    pub(crate) fn secrets(&self) -> &LiveSecrets {
        &self.secrets
    }

    /// The store's lock, against other processes.
    pub(super) async fn lock(&self) -> Result<Lock> {
        let until = Instant::now() + LOCK;
        loop {
            let (store, key) = (Arc::clone(&self.store), self.key.clone());
            if let Some(lock) = off_thread(move || store.try_lock(&key)).await? {
                return Ok(lock);
            }
            if Instant::now() >= until {
                let reason = "another process holds the login and does not let go";
                return Err(Error::Internal(format!("server `{}`: {reason}", self.errand.server)));
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    }

    /// Nobody else looks it up or renews it meanwhile.
    pub(super) async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.renewing.lock().await
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pass({})", self.errand.server)
    }
}

/// Stores block.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(Error::Internal("the store of logins broke".into())),
    }
}

/// Goes on although whoever waits for it gives up.
fn own_task<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> impl Future<Output = Result<T>> {
    let task = tokio::spawn(work);
    async move { task.await.unwrap_or_else(|_| Err(Error::Internal("the renewal of a login broke".into()))) }
}
