//! Looks at servers of which nothing is known, or nothing newer than from an earlier run.
//!
//! In: a server, and how long its list is waited for. Out: the list, or nothing in that time. A look goes on when nobody
//! waits for it any more, and whoever comes meanwhile waits for the same one. What comes too late for somebody, or is
//! another than it was, is told as a change. Looks end with the scope that they belong to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::STARTING;
use super::known;
use super::peer::HostPeer;
use super::scope::Scope;
use super::server::{Seen, Server};
use crate::catalog::{ListKind, Offered};
use crate::error::{Error, Result};
use crate::mcp::{Prompt, Resource, ResourceTemplate};
use crate::names::ServerName;

/// How long somebody who asks for a list is kept waiting by a server that has not told its own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A list of a server, as it is looked for.
pub(super) trait Sought: Clone + Send + Sync + 'static {
    const KIND: ListKind;
    /// Where looks for it are kept.
    fn under_way(looks: &Looks) -> &UnderWay<Self>;
    /// Whether an earlier run saw it, and nobody in this one.
    fn is_recalled(server: &Server) -> bool;
    fn look(server: &Server, peer: &HostPeer) -> impl Future<Output = Result<Self>> + Send;
    /// What is looked at besides, where something is known from an earlier run.
    fn besides(server: &Server, peer: &HostPeer) -> impl Future<Output = ()> + Send;
    /// It has come, and is shown.
    fn arrive(&self, home: &Scope, server: &Arc<Server>);
}

/// The looks of one scope.
pub(super) struct Looks {
    pub(super) tools: UnderWay<Seen>,
    pub(super) prompts: UnderWay<Offered<Prompt>>,
    pub(super) resources: UnderWay<Offered<Resource>>,
    pub(super) templates: UnderWay<Offered<ResourceTemplate>>,
    /// So many servers are started at the same time, as long as they are quick.
    starting: Arc<Semaphore>,
}

/// Those for one kind of list, by the name of the server.
pub(super) struct UnderWay<V>(Mutex<HashMap<ServerName, Look<V>>>);

/// One look. Dropped, it ends.
struct Look<V> {
    /// Another server of the same name is looked at anew.
    of: Weak<Server>,
    awaited: Awaited<V>,
    task: AbortHandle,
}

/// What somebody waits for.
#[derive(Clone)]
pub(super) struct Awaited<V> {
    since: Instant,
    found: watch::Receiver<Option<Found<V>>>,
}

/// A list, and whose it is: the server that was asked for, or what its scope sees of it.
type Found<V> = Result<(Arc<Server>, V)>;

// === impl Looks ===

impl Default for Looks {
    fn default() -> Self {
        Self {
            tools: UnderWay::default(),
            prompts: UnderWay::default(),
            resources: UnderWay::default(),
            templates: UnderWay::default(),
            starting: Arc::new(Semaphore::new(STARTING)),
        }
    }
}

impl Looks {
    /// Ends all of them.
    pub(super) fn end(&self) {
        self.tools.lock().clear();
        self.prompts.lock().clear();
        self.resources.lock().clear();
        self.templates.lock().clear();
    }
}

// === impl UnderWay ===

impl<V> Default for UnderWay<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V> UnderWay<V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<ServerName, Look<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Drop for Look<V> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Awaited ===

impl<V: Clone> Awaited<V> {
    /// What was found, if that does not take longer than so since the look began.
    pub(super) async fn within(mut self, time: Duration) -> Option<Found<V>> {
        let left = time.saturating_sub(self.since.elapsed());
        let ended = || Error::Cancelled {
            reason: "the look at it ended with whoever it was for".into(),
            sent: false,
        };
        match tokio::time::timeout(left, self.found.wait_for(Option::is_some)).await {
            Ok(Ok(found)) => found.clone(),
            Ok(Err(_)) => Some(Err(ended())),
            Err(_) => None,
        }
    }
}

// === impl Scope ===

impl Scope {
    /// Looks at a server that can be seen from here. If somebody does already, it is the same look.
    pub(super) fn seek<V: Sought>(self: &Arc<Self>, server: &Arc<Server>) -> Awaited<V> {
        let keeper = self.keeper(server);
        let mut looks = V::under_way(&keeper.looks).lock();
        if let Some(look) = looks.get(&server.config.name).filter(|look| look.is_at(server)) {
            return look.awaited.clone();
        }
        let (tell, found) = watch::channel(None);
        let awaited = Awaited { since: Instant::now(), found };
        let starting = Arc::clone(&keeper.looks.starting);
        let (place, since) = (Arc::downgrade(keeper), awaited.since);
        let looking = run((place, starting), Arc::clone(server), tell, since);
        let task = tokio::spawn(looking).abort_handle();
        let look = Look { of: Arc::downgrade(server), awaited: awaited.clone(), task };
        looks.insert(server.config.name.clone(), look);
        awaited
    }

    /// The look at a server that is under way, if there is one.
    pub(super) fn sought<V: Sought>(self: &Arc<Self>, server: &Arc<Server>) -> Option<Awaited<V>> {
        let looks = V::under_way(&self.keeper(server).looks).lock();
        looks.get(&server.config.name).filter(|look| look.is_at(server)).map(|look| look.awaited.clone())
    }

    /// Whose look it is: everybody's, unless it is this scope that sees the server in a way of its own.
    fn keeper(self: &Arc<Self>, server: &Arc<Server>) -> &Arc<Self> {
        match &self.agent {
            Some(agent) if self.is_settled(server) && server.view.is_none() && !self.owns(server) => {
                &agent.shared
            }
            _ => self,
        }
    }
}

impl<V> Look<V> {
    /// Whether it is a look at this server. One that began before it was known that there is a view ends with the view's.
    fn is_at(&self, server: &Arc<Server>) -> bool {
        let of = self.of.as_ptr();
        of == Arc::as_ptr(server) || server.view.as_ref().is_some_and(|view| of == Arc::as_ptr(&view.of))
    }
}

/// One look, to its end.
async fn run<V: Sought>(
    (keeper, starting): (Weak<Scope>, Arc<Semaphore>),
    server: Arc<Server>,
    tell: watch::Sender<Option<Found<V>>>,
    since: Instant,
) {
    let (name, asked, recalled) =
        (server.config.name.clone(), Arc::downgrade(&server), V::is_recalled(&server));
    let found = {
        let mut looking = Box::pin(find::<V>(&keeper, server));
        let place = starting.acquire_owned().await;
        let in_time = tokio::time::timeout(PATIENCE, &mut looking).await;
        // One that takes so long does not keep others from being started.
        drop(place);
        match in_time {
            Ok(found) => found,
            Err(_) => looking.await,
        }
    };
    let of = found.as_ref().ok().map(|(server, _)| Arc::clone(server));
    tell.send_replace(Some(found));
    let peer = |server: &Arc<Server>| Some(Arc::clone(&keeper.upgrade()?.home(server).peer));
    if let Some((server, peer)) = of.and_then(|server| Some((Arc::clone(&server), peer(&server)?))) {
        if recalled {
            // What is another now is told by the look itself.
            V::besides(&server, &peer).await;
        } else if since.elapsed() >= PATIENCE {
            // Somebody may have been shown a list without it.
            peer.tell_changed(&name, V::KIND);
        }
    }
    let Some(keeper) = keeper.upgrade() else { return };
    // That ends this very task, so nothing comes after it. Another server of the name may be looked at by now.
    let mut looks = V::under_way(&keeper.looks).lock();
    if looks.get(&name).is_some_and(|look| look.of.ptr_eq(&asked)) {
        looks.remove(&name);
    }
}

/// Finds out how its scope sees a server, and what that offers. The scope is not kept meanwhile.
async fn find<V: Sought>(keeper: &Weak<Scope>, server: Arc<Server>) -> Found<V> {
    let scope = || {
        let left = || Error::Cancelled { reason: "whoever looked at it has left".into(), sent: false };
        keeper.upgrade().ok_or_else(left)
    };
    if !scope()?.is_settled(&server) {
        server.connection().await?;
    }
    let (server, peer) = {
        let scope = scope()?;
        let server = scope.as_seen(server);
        let peer = Arc::clone(&scope.home(&server).peer);
        (server, peer)
    };
    let found = V::look(&server, &peer).await?;
    let scope = scope()?;
    found.arrive(scope.home(&server), &server);
    Ok((server, found))
}

// === impl Sought ===

impl Sought for Seen {
    const KIND: ListKind = ListKind::Tools;

    fn under_way(looks: &Looks) -> &UnderWay<Self> {
        &looks.tools
    }

    fn is_recalled(server: &Server) -> bool {
        server.last_tools().is_some() && server.tools.is_recalled()
    }

    async fn look(server: &Server, peer: &HostPeer) -> Result<Self> {
        server.look(Some(peer)).await
    }

    async fn besides(server: &Server, peer: &HostPeer) {
        known::compare(server, peer).await;
    }

    fn arrive(&self, home: &Scope, server: &Arc<Server>) {
        home.publish(server, self.offered.clone());
    }
}
