//! Resources that callers watch: each is subscribed to at its server as long as one of them does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use indexmap::IndexSet;
use tokio::task::AbortHandle;

use super::addresses;
use super::desk::{Desk, told};
use super::errands::not_found;
use super::news::FLOOD;
use super::offers::Place;
use crate::catalog::Subscription;
use crate::error::Error;
use crate::host::Session;
use crate::mcp::{code, method};
use crate::wire::{Members, RpcError};

/// One resource that a caller watches.
#[derive(Debug)]
pub(super) struct Watching {
    place: Place,
    subscription: Subscription,
    /// For whom.
    scope: Session,
}

/// What one conversation watches, by the addresses that it used.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<HashMap<String, AbortHandle>>);

/// How many resources one caller may watch at a time, in one conversation or one request.
pub(super) const MOST: usize = 1000;
/// How many addresses are told of at once.
const AT_ONCE: usize = 256;

// === impl Desk ===

impl Desk {
    /// Subscribes to a resource for a caller. When this returns, its server has agreed.
    pub(super) async fn watch(&self, scope: &Session, uri: &str) -> Result<Watching, RpcError> {
        self.require(scope, method::SUBSCRIBE).await?;
        let place = self.offers.resource(scope, uri).await.ok_or_else(|| not_found(uri))?;
        let subscribed = scope.subscribe(place.server.as_str(), &place.own).await;
        let subscription = subscribed.map_err(|error| match error {
            Error::UnknownServer { .. } | Error::Denied { .. } | Error::NotOffered { .. } => not_found(uri),
            error => told(error),
        })?;
        Ok(Watching { place, subscription, scope: scope.clone() })
    }
}

// === impl Watching ===

impl Watching {
    /// Tells of each change, as long as there are any to come. A flood of them is told as few.
    pub(super) async fn tell(mut self, say: impl Fn(Members)) {
        while let Some(first) = self.subscription.next().await {
            let mut changed = IndexSet::from([first.uri.raw().to_owned()]);
            let more = async {
                while let Some(update) = self.subscription.next().await {
                    changed.insert(update.uri.raw().to_owned());
                    if changed.len() >= AT_ONCE {
                        return;
                    }
                }
            };
            // An error means that the time is over.
            let _ = tokio::time::timeout(FLOOD, more).await;
            // It was given when it was asked for.
            if !self.scope.may_use(&self.place.server, None) {
                return;
            }
            for uri in &changed {
                let mut params = Members::new();
                match self.place.marked {
                    true => params.text("uri", &addresses::marked(&self.place.server, uri)),
                    false => params.text("uri", uri),
                };
                say(params);
            }
        }
    }
}

// === impl Watches ===

impl Watches {
    /// Starts to watch. Whoever watches the same address already goes on with the new one.
    pub(super) fn add(
        &self,
        uri: String,
        telling: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), RpcError> {
        let mut all = self.lock();
        if all.len() >= MOST && !all.contains_key(&uri) {
            return Err(RpcError::new(code::INTERNAL, "too many resources are watched; let go of some"));
        }
        let task = tokio::spawn(telling);
        if let Some(before) = all.insert(uri, task.abort_handle()) {
            before.abort();
        }
        Ok(())
    }

    /// Stops to watch. What was not watched is left so.
    pub(super) fn remove(&self, uri: &str) {
        if let Some(task) = self.lock().remove(uri) {
            task.abort();
        }
    }

    /// Stops to watch anything.
    pub(super) fn clear(&self) {
        self.lock().drain().for_each(|(_, task)| task.abort());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.clear();
    }
}
