//! Resources that are watched: subscribed to at their server as long as somebody here wants to know, in either era.
//!
//! In: subscriptions, and what servers tell. Out: a stream of updates for each subscriber. A lost connection is the
//! business of `connect`; this room is told of the new one and subscribes again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::offered::Part;
use crate::connect::{Connection, Listening, Request, WeakConnection};
use crate::error::{Error, Result};
use crate::event::{Bus, Event};
use crate::mcp::{Era, method};
use crate::names::ServerName;
use crate::text::{Escaped, Foreign};
use crate::wire::{Json, Members};

/// Who wants to know of which resource. Cheap to clone; one for a host.
#[derive(Clone, Debug)]
pub struct Watchers(Arc<Inner>);

/// Word of one resource, as long as it is held. Dropping the last one of a resource unsubscribes from it.
#[derive(Debug)]
pub struct Subscription {
    updates: broadcast::Receiver<Update>,
    hold: Hold,
    /// What must not go before it.
    _kept: Option<Box<dyn std::fmt::Debug + Send + Sync>>,
}

/// A resource changed, or may have while nobody could hear it: read it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Its address: the one subscribed to, or one below it.
    pub uri: Foreign,
}

#[derive(Debug)]
struct Inner {
    watched: Mutex<HashMap<Key, Watched>>,
    next: AtomicU64,
    events: Bus,
}

type Key = (ServerName, String);

/// A resource that somebody watches, or did a moment ago.
#[derive(Clone, Debug)]
struct Watched {
    /// Told apart from an earlier one of the same resource that was given up.
    number: u64,
    users: usize,
    tell: broadcast::Sender<Update>,
    /// How it is held at the server, over each connection to it. Locked while that changes, so that the server hears one
    /// thing after another.
    grips: Grips,
}

type Grips = Arc<tokio::sync::Mutex<Vec<Grip>>>;

/// A subscription at a server.
#[derive(Debug)]
struct Grip {
    on: WeakConnection,
    timeout: Duration,
    /// How a modern server is held; a legacy one must be told when it is over.
    listening: Option<Listening>,
}

/// One user of a watched resource.
#[derive(Debug)]
struct Hold {
    inner: Weak<Inner>,
    key: Key,
    number: u64,
}

/// How many updates a subscriber may fall behind before they become one.
const BACKLOG: usize = 64;

// === impl Watchers ===

impl Watchers {
    /// Nobody watches anything yet.
    pub fn new(events: Bus) -> Self {
        Self(Arc::new(Inner { watched: Mutex::default(), next: AtomicU64::new(0), events }))
    }

    /// Subscribes to a resource. When this returns, the server has agreed.
    pub async fn subscribe(
        &self,
        connection: &Connection,
        uri: &str,
        timeout: Duration,
    ) -> Result<Subscription> {
        Part::Subscriptions.require(connection)?;
        let key = (connection.server().clone(), uri.to_owned());
        // Registered first: the server may tell of a change before it has agreed.
        let (subscription, grips) = self.register(key.clone());
        let mut grips = grips.lock().await;
        grips.retain(Grip::holds);
        if !grips.iter().any(|grip| grip.is_on(connection)) {
            grips.push(self.take(connection, &key, timeout).await?);
        }
        Ok(subscription)
    }

    /// A server says that a resource changed. False if nobody wants to know.
    pub fn heard(&self, server: &ServerName, uri: &str) -> bool {
        let mut wanted = false;
        for ((by, watched_uri), watched) in self.0.lock().iter() {
            if by == server && covers(watched_uri, uri) {
                wanted = true;
                // An error means that the last subscriber is just leaving.
                let _ = watched.tell.send(Update { uri: uri.into() });
            }
        }
        if wanted {
            let (server, uri) = (server.clone(), Foreign::from(uri));
            self.0.events.publish(|| Event::ResourceUpdated { server, uri });
        }
        wanted
    }

    /// There is a new connection to a server: everything that is watched there is subscribed to again.
    pub fn resume(&self, connection: &Connection, timeout: Duration) {
        self.again(connection, timeout, false);
    }

    /// The server has forgotten what it was asked over this connection: the same.
    pub fn renew(&self, connection: &Connection, timeout: Duration) {
        self.again(connection, timeout, true);
    }

    fn again(&self, connection: &Connection, timeout: Duration, forgotten: bool) {
        let lost: Vec<(Key, Watched)> = {
            let watched = self.0.lock();
            let of_server =
                watched.iter().filter(|((server, _), w)| server == connection.server() && w.users > 0);
            of_server.map(|(key, watched)| (key.clone(), watched.clone())).collect()
        };
        for (key, watched) in lost {
            let (watchers, connection) = (self.clone(), connection.downgrade());
            tokio::spawn(async move {
                let mut grips = watched.grips.lock().await;
                let Some(connection) = connection.upgrade() else { return };
                grips.retain(|grip| grip.holds() && !(forgotten && grip.is_on(&connection)));
                // Over another connection to the same server nothing was missed.
                let missed = forgotten || grips.is_empty();
                if watchers.retake(&connection, &key, &mut grips, timeout).await && missed {
                    watchers.heard(&key.0, &key.1);
                }
            });
        }
    }

    /// True if it is held now and was not.
    async fn retake(
        &self,
        connection: &Connection,
        key: &Key,
        grips: &mut Vec<Grip>,
        timeout: Duration,
    ) -> bool {
        if self.0.users(key) == 0 || grips.iter().any(|grip| grip.is_on(connection)) {
            return false;
        }
        match self.take(connection, key, timeout).await {
            Ok(taken) => {
                grips.push(taken);
                return true;
            }
            // Lost again: whoever makes the next connection comes here again.
            Err(_) if !connection.is_open() => {}
            Err(_) if !grips.is_empty() => {}
            Err(error) => self.0.give_up(key, &format!("it was not subscribed to again: {error}")),
        }
        false
    }

    fn register(&self, key: Key) -> (Subscription, Grips) {
        let mut all = self.0.lock();
        let fresh = || Watched {
            number: self.0.next.fetch_add(1, Ordering::Relaxed),
            users: 0,
            tell: broadcast::channel(BACKLOG).0,
            grips: Arc::default(),
        };
        let watched = all.entry(key.clone()).or_insert_with(fresh);
        watched.users += 1;
        let updates = watched.tell.subscribe();
        let hold = Hold { inner: Arc::downgrade(&self.0), key, number: watched.number };
        (Subscription { updates, hold, _kept: None }, Arc::clone(&watched.grips))
    }

    async fn take(&self, connection: &Connection, key: &Key, timeout: Duration) -> Result<Grip> {
        let uri = &key.1;
        if connection.info().revision.era() == Era::Legacy {
            let mut params = Members::new();
            params.text("uri", uri);
            connection.request(Request::new(method::SUBSCRIBE, params, timeout)).await?;
            return Ok(Grip { on: connection.downgrade(), timeout, listening: None });
        }
        let (inner, gone) = (Arc::downgrade(&self.0), key.clone());
        let on_end = move || {
            if let Some(inner) = inner.upgrade() {
                inner.give_up(&gone, "the server ends each request to hear of it at once");
            }
        };
        let wanted = Json::of(&serde_json::json!({ "resourceSubscriptions": [uri] }));
        let (listening, honoured) = connection.listen_for(wanted, timeout, on_end).await?;
        let subscribed = honoured.member("resourceSubscriptions").map(|uris| uris.to::<Vec<String>>());
        match subscribed {
            Some(Ok(uris)) if !uris.contains(uri) => Err(not_honoured(connection, uri)),
            None if !honoured.is_null() => Err(not_honoured(connection, uri)),
            _ => Ok(Grip { on: connection.downgrade(), timeout, listening: Some(listening) }),
        }
    }
}

fn not_honoured(connection: &Connection, uri: &str) -> Error {
    Error::NotOffered {
        server: connection.server().clone(),
        what: format!("no subscription to `{}`", Escaped(uri)),
        hint: "the server was asked and left it out; read the resource when it is needed".into(),
    }
}

/// Whether a change of one address is a change of another: the same, or below it.
fn covers(watched: &str, changed: &str) -> bool {
    match changed.strip_prefix(watched) {
        Some("") => true,
        Some(rest) => watched.ends_with('/') || rest.starts_with(['/', '?', '#']),
        None => false,
    }
}

// === impl Inner ===

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn users(&self, key: &Key) -> usize {
        self.lock().get(key).map_or(0, |watched| watched.users)
    }

    /// No word will come any more: the streams end.
    fn give_up(&self, key: &Key, why: &str) {
        if self.lock().remove(key).is_some() {
            let (server, uri) = key;
            let message = format!("no more word of `{}` of server `{server}`: {why}", Escaped(uri));
            self.events.publish(|| Event::Warning { server: server.clone(), message });
        }
    }

    /// One user less. With the last one, the server is told, unless another came meanwhile.
    async fn release(self: Arc<Self>, key: Key, watched: Watched) {
        let mut grips = watched.grips.lock().await;
        if self.users(&key) > 0 {
            return;
        }
        for grip in grips.drain(..) {
            grip.let_go(&key.1).await;
        }
        let mut all = self.lock();
        if all.get(&key).is_some_and(|watched| watched.users == 0) {
            all.remove(&key);
        }
    }
}

// === impl Grip ===

impl Grip {
    /// Whether its connection is still there.
    fn holds(&self) -> bool {
        self.on.upgrade().is_some_and(|held| held.is_open())
    }

    fn is_on(&self, connection: &Connection) -> bool {
        self.on.upgrade().is_some_and(|held| held.number() == connection.number())
    }

    async fn let_go(self, uri: &str) {
        // A modern server is told by the end of its request, which goes with the guard.
        if self.listening.is_some() {
            return;
        }
        if let Some(connection) = self.on.upgrade().filter(Connection::is_open) {
            let mut params = Members::new();
            params.text("uri", uri);
            // If it fails, updates come that nobody wants. They are counted like any others.
            let _ = connection.request(Request::new(method::UNSUBSCRIBE, params, self.timeout)).await;
        }
    }
}

// === impl Hold ===

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else { return };
        let last = {
            let mut all = inner.lock();
            let held = all.get_mut(&self.key).filter(|watched| watched.number == self.number);
            let Some(watched) = held else { return };
            watched.users = watched.users.saturating_sub(1);
            (watched.users == 0).then(|| watched.clone())
        };
        if let (Some(watched), Ok(runtime)) = (last, tokio::runtime::Handle::try_current()) {
            runtime.spawn(inner.release(self.key.clone(), watched));
        }
    }
}

// === impl Subscription ===

impl Subscription {
    /// The same, and this is held as long as it is.
    pub(crate) fn keeping(self, kept: impl std::fmt::Debug + Send + Sync + 'static) -> Self {
        Self { _kept: Some(Box::new(kept)), ..self }
    }

    /// The server.
    pub fn server(&self) -> &ServerName {
        &self.hold.key.0
    }

    /// The resource.
    pub fn uri(&self) -> &str {
        &self.hold.key.1
    }

    /// Waits for the next change. `None` when no more word will come: the host is gone, or the server refuses.
    pub async fn next(&mut self) -> Option<Update> {
        match self.updates.recv().await {
            Ok(update) => Some(update),
            Err(RecvError::Lagged(_)) => Some(Update { uri: self.uri().into() }),
            Err(RecvError::Closed) => None,
        }
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Update> + Send {
        futures_util::stream::unfold(self, |mut own| async move { Some((own.next().await?, own)) })
    }
}
