//! What servers are known to offer, without starting any.
//!
//! In: the servers that can be seen from here. Out: their tools, prompts and resources: from memory where a server is
//! connected, as it was last seen where it is not. Only a server of which nothing is known is asked. A server that is
//! down keeps its place and is reported.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::peer::HostPeer;
use super::scope::Scope;
use super::server::{Seen, Server};
use super::shelf::Shelf;
use super::{Everywhere, Host, Listing, STARTING};
use crate::catalog::{self, ListKind, Offered};
use crate::connect::Connection;
use crate::error::{Error, Result, StderrTail};
use crate::mcp::{Prompt, Resource, ResourceTemplate};
use crate::wire::Json;

/// How long a server that is connected may take to tell its list, if there is an older one to show instead.
const PATIENCE: Duration = Duration::from_secs(5);

/// What servers list beside tools.
pub(super) trait Listed: Clone + Send + Sync + 'static {
    const KIND: ListKind;
    fn shelf(server: &Server) -> &Shelf<Offered<Self>>;
    fn read(raw: Json) -> Result<Self, String>;
    /// What it is told apart by, and all of it.
    fn parts(&self) -> (&str, &Json);
    fn fetch(
        connection: &Connection,
        timeout: Duration,
    ) -> impl Future<Output = Result<Offered<Self>>> + Send;
}

// === impl Host ===

impl Host {
    /// Every tool that is known, and nothing is started for it: from memory where a server is connected, as it was last
    /// seen where it is not. Only a server of which nothing is known is asked. One that is down keeps its tools, and is
    /// among the failed.
    pub async fn known_tools(&self) -> Listing {
        let servers: Vec<_> = self.scope.all_servers().into_iter().filter(|s| s.config.enabled).collect();
        let looks = servers.into_iter().enumerate().map(|(place, server)| async move {
            let server = self.scope.settled(server).await;
            let (seen, error) = known_tools(&server, &self.scope.home(&server).peer).await;
            (place, server, seen, error)
        });
        // What is known of many servers is there at once, and is shown at once: names are given to all tools each time.
        let mut answers = futures_util::stream::iter(looks).buffer_unordered(STARTING).ready_chunks(STARTING);
        let mut told = Vec::new();
        while let Some(chunk) = answers.next().await {
            let mut homes: Vec<(&Scope, Vec<_>)> = Vec::new();
            for (place, server, seen, error) in chunk {
                let (name, home) = (server.config.name.clone(), self.scope.home(&server));
                let (offered, rejected) = seen.map(|seen| (seen.offered, seen.rejected)).unzip();
                told.push((place, name, rejected, error));
                let Some(offered) = offered else { continue };
                match homes.iter_mut().find(|(known, _)| std::ptr::eq(*known, home)) {
                    Some((_, all)) => all.push((server, offered)),
                    None => homes.push((home, vec![(server, offered)])),
                }
            }
            homes.into_iter().for_each(|(home, all)| home.publish_all(all));
        }
        told.sort_by_key(|(place, ..)| *place);
        let (mut failed, mut all_rejected) = (Vec::new(), Vec::new());
        for (_, name, rejected, error) in told {
            all_rejected.extend(rejected.iter().flat_map(|r| r.iter()).map(|r| (name.clone(), r.clone())));
            failed.extend(error.map(|error| (name, error)));
        }
        Listing { snapshot: self.scope.snapshot(), failed, rejected: all_rejected }
    }

    /// The same for prompts. Servers that have none are left out.
    pub async fn known_prompts(&self) -> Everywhere<Prompt> {
        self.known().await
    }

    /// The same for resources.
    pub async fn known_resources(&self) -> Everywhere<Resource> {
        self.known().await
    }

    /// The same for templates of resources.
    pub async fn known_resource_templates(&self) -> Everywhere<ResourceTemplate> {
        self.known().await
    }

    /// Looks at the tools of a server that was perhaps just started, and shows them. What an earlier run saw of its other
    /// lists is compared in the background.
    pub(super) async fn confirm(&self, server: &Arc<Server>) -> Result<Seen> {
        let home = self.scope.home(server);
        let seen = server.look(Some(&home.peer)).await?;
        home.publish(server, seen.offered.clone());
        tokio::spawn(compare(Arc::clone(server), Arc::clone(&home.peer)));
        Ok(seen)
    }

    async fn known<T: Listed>(&self) -> Everywhere<T> {
        let servers: Vec<_> = self.scope.whole_servers().into_iter().filter(|s| s.config.enabled).collect();
        let looks = servers.into_iter().map(|server| async move {
            let server = self.scope.settled(server).await;
            let (list, error) = known_list::<T>(&server, &self.scope.home(&server).peer).await;
            let list = list.map(|list| shown::<T>(&server, list));
            (server.config.name.clone(), list, error)
        });
        let mut found = Everywhere { offered: Vec::new(), failed: Vec::new() };
        let mut answers = futures_util::stream::iter(looks).buffered(STARTING);
        while let Some((server, list, error)) = answers.next().await {
            found.offered.extend(list.map(|list| (server.clone(), list)));
            found.failed.extend(error.map(|error| (server, error)));
        }
        found
    }
}

/// What of a list may be used.
pub(super) fn shown<T: Listed>(server: &Server, list: Offered<T>) -> Offered<T> {
    server.shown_list(T::KIND, list, T::parts, T::read)
}

/// A server's tools as they are known, and why they could not be asked for.
async fn known_tools(server: &Arc<Server>, peer: &Arc<HostPeer>) -> (Option<Seen>, Option<Error>) {
    let last = server.last_tools();
    if server.live().is_none() {
        if let Some(trouble) = out_of_reach(server, last.is_some()) {
            return (last, Some(trouble));
        }
        if last.is_some() {
            return (last, None);
        }
    }
    let look = {
        let (server, peer) = (Arc::clone(server), Arc::clone(peer));
        Box::pin(async move { server.look(Some(&peer)).await })
    };
    match patiently((server, peer), ListKind::Tools, last.is_some(), look).await {
        Ok(seen) => (Some(seen), None),
        Err(error) => (last, Some(error)),
    }
}

/// The same for its other lists. A server that has no such thing has neither a list nor an error.
async fn known_list<T: Listed>(
    server: &Arc<Server>,
    peer: &Arc<HostPeer>,
) -> (Option<Offered<T>>, Option<Error>) {
    let last = match last_list::<T>(server) {
        Last::Nothing => return (None, server.trouble()),
        Last::Seen(list) => Some(list),
        Last::Unknown => None,
    };
    if server.live().is_none() {
        if let Some(trouble) = out_of_reach(server, last.is_some()) {
            return (last, Some(trouble));
        }
        if last.is_some() {
            return (last, None);
        }
    }
    let look = {
        let (server, peer) = (Arc::clone(server), Arc::clone(peer));
        Box::pin(async move { look::<T>(&server, &peer).await })
    };
    match patiently((server, peer), T::KIND, last.is_some(), look).await {
        Ok(list) => (Some(list), None),
        Err(Error::NotOffered { .. }) => (None, None),
        Err(error) => (last, Some(error)),
    }
}

/// What was last seen of a list.
enum Last<T> {
    /// The server has no such thing.
    Nothing,
    Seen(Offered<T>),
    Unknown,
}

fn last_list<T: Listed>(server: &Server) -> Last<T> {
    if let Some(list) = T::shelf(server).last() {
        return Last::Seen(list);
    }
    if server.live().is_some() {
        return Last::Unknown;
    }
    let Some(pinned) = server.recalled() else { return Last::Unknown };
    if !pinned.offers(T::KIND.capability()) {
        return Last::Nothing;
    }
    let Some(list) = pinned.lists.get(&T::KIND) else { return Last::Unknown };
    let items = list.iter().filter_map(|d| T::read(d.raw.clone()).ok()).collect();
    Last::Seen(T::shelf(server).recall(Offered { items, rejected: Vec::new() }))
}

/// Asks for a list, or gives it from memory where the server promised to tell of changes.
async fn look<T: Listed>(server: &Server, peer: &HostPeer) -> Result<Offered<T>> {
    let _held = server.hold()?;
    let connection = server.connection().await?;
    let lasts = connection.info().offers_flag(T::KIND.capability(), "listChanged");
    let connected = &connection;
    let ask = |told: bool| async move {
        let list = T::fetch(connected, server.config.timeout).await?;
        let mut differs = server.keep(connected, T::KIND, || {
            let parts = list.items.iter().map(T::parts);
            parts.map(|(name, raw)| (name.to_owned(), raw.clone())).collect()
        });
        if let (Some(_), Some(last)) = (&server.view, T::shelf(server).last()) {
            differs = !last.items.iter().map(T::parts).eq(list.items.iter().map(T::parts));
        }
        server.tell((differs && !told).then_some(peer), T::KIND);
        Ok(list)
    };
    server.note(T::shelf(server).look(&connection, Some(peer), lasts, ask).await)
}

/// Why a server that is not connected is not asked.
fn out_of_reach(server: &Server, known: bool) -> Option<Error> {
    if known { server.trouble() } else { server.recent_trouble() }
}

/// Where something older can be shown, nobody waits long for the new. What comes late is told. The look is large and comes
/// in a place of its own, so that looks at many servers can be moved about.
async fn patiently<T: Send + 'static>(
    (server, peer): (&Arc<Server>, &Arc<HostPeer>),
    kind: ListKind,
    known: bool,
    mut look: Pin<Box<impl Future<Output = Result<T>> + Send + 'static>>,
) -> Result<T> {
    if !known {
        return look.await;
    }
    if let Ok(ended) = tokio::time::timeout(PATIENCE, &mut look).await {
        return ended;
    }
    let (name, peer) = (server.config.name.clone(), Arc::clone(peer));
    tokio::spawn(async move {
        if look.await.is_ok() {
            peer.tell_changed(&name, kind);
        }
    });
    let server = server.config.name.clone();
    Err(Error::Timeout { server, after: PATIENCE, stderr: StderrTail::default() })
}

/// After a server was started: its other lists may be others too, and somebody may have seen the old ones.
async fn compare(server: Arc<Server>, peer: Arc<HostPeer>) {
    let Some(pinned) = server.recalled() else { return };
    let pinned = |kind| pinned.lists.contains_key(&kind);
    // What fails is found out when somebody asks.
    if pinned(Prompt::KIND) {
        let _ = look::<Prompt>(&server, &peer).await;
    }
    if pinned(Resource::KIND) {
        let _ = look::<Resource>(&server, &peer).await;
    }
    if pinned(ResourceTemplate::KIND) {
        let _ = look::<ResourceTemplate>(&server, &peer).await;
    }
}

// === impl Listed ===

impl Listed for Prompt {
    const KIND: ListKind = ListKind::Prompts;

    fn shelf(server: &Server) -> &Shelf<Offered<Self>> {
        &server.prompts
    }

    fn read(raw: Json) -> Result<Self, String> {
        Self::read(raw)
    }

    fn parts(&self) -> (&str, &Json) {
        (self.name.raw(), &self.raw)
    }

    async fn fetch(connection: &Connection, timeout: Duration) -> Result<Offered<Self>> {
        catalog::prompts(connection, timeout).await
    }
}

impl Listed for Resource {
    const KIND: ListKind = ListKind::Resources;

    fn shelf(server: &Server) -> &Shelf<Offered<Self>> {
        &server.resources
    }

    fn read(raw: Json) -> Result<Self, String> {
        Self::read(raw)
    }

    fn parts(&self) -> (&str, &Json) {
        (self.uri.raw(), &self.raw)
    }

    async fn fetch(connection: &Connection, timeout: Duration) -> Result<Offered<Self>> {
        catalog::resources(connection, timeout).await
    }
}

impl Listed for ResourceTemplate {
    const KIND: ListKind = ListKind::ResourceTemplates;

    fn shelf(server: &Server) -> &Shelf<Offered<Self>> {
        &server.templates
    }

    fn read(raw: Json) -> Result<Self, String> {
        Self::read(raw)
    }

    fn parts(&self) -> (&str, &Json) {
        (self.uri_template.raw(), &self.raw)
    }

    async fn fetch(connection: &Connection, timeout: Duration) -> Result<Offered<Self>> {
        catalog::resource_templates(connection, timeout).await
    }
}
