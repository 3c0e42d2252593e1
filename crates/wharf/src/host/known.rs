//! What servers are known to offer, without starting any.
//!
//! In: the servers that can be seen from here. Out: their tools, prompts and resources: from memory where a server is
//! connected, as it was last seen where it is not. Only a server of which nothing is known is asked. A server that is
//! down keeps its place and is reported.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::looks::{Awaited, Looks, PATIENCE, Sought, UnderWay};
use super::peer::HostPeer;
use super::scope::Scope;
use super::server::{Seen, Server, belief};
use super::shelf::{Dated, Shelf};
use super::{Everywhere, Host, Listing, STARTING};
use crate::catalog::{self, ListKind, Offered};
use crate::connect::Connection;
use crate::error::{Error, Result, StderrTail};
use crate::mcp::{Prompt, Resource, ResourceTemplate};
use crate::wire::Json;

/// What servers list beside tools.
pub(super) trait Listed: Clone + Send + Sync + 'static {
    const KIND: ListKind;
    fn shelf(server: &Server) -> &Shelf<Offered<Self>>;
    fn under_way(looks: &Looks) -> &UnderWay<Offered<Self>>;
    fn read(raw: Json) -> Result<Self, String>;
    /// What it is told apart by, and all of it.
    fn parts(&self) -> (&str, &Json);
    fn fetch(
        connection: &Connection,
        timeout: Duration,
    ) -> impl Future<Output = Result<Offered<Self>>> + Send;
}

/// What is known of a list, with the trouble that there is with its server; or how it is found out.
enum Known<V> {
    /// Nobody need be asked.
    Told(Option<V>, Option<Error>),
    /// The server is there and may have something newer.
    Older(V),
    /// Nothing, or nothing that this scope can count on.
    Sought(Awaited<V>, Option<V>),
}

/// What was last seen of a list.
enum Last<V> {
    /// The server has no such thing.
    Nothing,
    Seen(V),
    Unknown,
}

/// A list that has a last state.
trait Remembered: Sought {
    fn last(server: &Server) -> Last<Self>;
    /// Whether the time is over for which it is believed.
    fn has_run_out(server: &Server, connection: &Connection) -> bool;
}

/// What became of one server: as its scope sees it, its list, and why that is not as new as it should be.
struct Told<V> {
    server: Arc<Server>,
    list: Option<V>,
    error: Option<Error>,
    /// Whether it is shown already.
    shown: bool,
}

// === impl Host ===

impl Host {
    /// Every tool that is known, and nothing is started for it: from memory where a server is connected, as it was last
    /// seen where it is not. Only a server of which nothing is known is asked, and waited for for five seconds: what it tells
    /// later is told as a change. One that is down keeps its tools, and is among the failed.
    pub async fn known_tools(&self) -> Listing {
        let servers = self.scope.all_servers().into_iter().filter(|s| s.config.enabled).collect();
        // What is known of many servers is there at once, and is shown at once: names are given to all tools each time.
        let mut answers = std::pin::pin!(self.ask_around::<Seen>(servers).ready_chunks(STARTING));
        let mut told = Vec::new();
        while let Some(chunk) = answers.next().await {
            let mut homes: Vec<(&Scope, Vec<_>)> = Vec::new();
            for (place, Told { server, list, error, shown }) in chunk {
                let (name, home) = (server.config.name.clone(), self.scope.home(&server));
                let (offered, rejected) = list.map(|seen| (seen.offered, seen.rejected)).unzip();
                told.push((place, name, rejected, error));
                let Some(offered) = offered.filter(|_| !shown) else { continue };
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
        let (server, peer) = (Arc::clone(server), Arc::clone(&home.peer));
        tokio::spawn(async move { compare(&server, &peer).await });
        Ok(seen)
    }

    async fn known<T: Listed>(&self) -> Everywhere<T> {
        let servers = self.scope.whole_servers().into_iter().filter(|s| s.config.enabled).collect();
        let mut told: Vec<_> = self.ask_around::<Offered<T>>(servers).collect().await;
        told.sort_by_key(|(place, _)| *place);
        let mut found = Everywhere { offered: Vec::new(), failed: Vec::new() };
        for (_, Told { server, list, error, .. }) in told {
            let name = &server.config.name;
            found.offered.extend(list.map(|list| (name.clone(), shown::<T>(&server, list))));
            found.failed.extend(error.map(|error| (name.clone(), error)));
        }
        found
    }

    /// A list of each of these servers, by their place, as soon as it is there. All that have to be looked for are looked
    /// for from now on, so that they are waited for together.
    fn ask_around<V: Remembered>(
        &self,
        servers: Vec<Arc<Server>>,
    ) -> impl futures_util::Stream<Item = (usize, Told<V>)> {
        let known: Vec<_> = servers
            .into_iter()
            .map(|server| {
                let server = self.scope.as_seen(server);
                let known = self.recall::<V>(&server);
                (server, known)
            })
            .collect();
        let asked = known
            .into_iter()
            .enumerate()
            .map(move |(place, (server, known))| async move { (place, self.find_out(server, known).await) });
        futures_util::stream::iter(asked).buffer_unordered(STARTING)
    }

    /// What is known of a list without waiting for anybody.
    fn recall<V: Remembered>(&self, server: &Arc<Server>) -> Known<V> {
        let last = match V::last(server) {
            Last::Nothing => return Known::Told(None, server.trouble()),
            Last::Seen(list) => Some(list),
            Last::Unknown => None,
        };
        let settled = self.scope.is_settled(server);
        let Some(connection) = server.live() else { return self.out_of_touch(server, last, settled) };
        match last {
            // However many want a list that must be asked for again, there is one look, and nobody waits for it anew.
            Some(last) if settled && !V::has_run_out(server, &connection) => Known::Older(last),
            last => Known::Sought(self.scope.seek(server), last),
        }
    }

    /// The same where the server is not connected.
    fn out_of_touch<V: Remembered>(&self, server: &Arc<Server>, last: Option<V>, settled: bool) -> Known<V> {
        self.compare_later::<V>(server);
        if let Some(trouble) = out_of_reach(server, last.is_some()) {
            return Known::Told(last, Some(trouble));
        }
        match last {
            Some(last) if settled => Known::Told(Some(last), None),
            last => Known::Sought(self.scope.seek(server), last),
        }
    }

    /// A server that can be asked without starting anything is asked in the background for what an earlier run saw of it.
    fn compare_later<V: Remembered>(&self, server: &Arc<Server>) {
        if !server.is_program() && V::is_recalled(server) && server.is_due() {
            // All its lists, whichever it is that somebody wants.
            drop(self.scope.seek::<Seen>(server));
        }
    }

    /// The list, asked for where that has to be, with some patience.
    async fn find_out<V: Remembered>(&self, server: Arc<Server>, known: Known<V>) -> Told<V> {
        let (last, shown, found) = match known {
            Known::Told(list, error) => return Told { server, list, error, shown: false },
            Known::Older(last) => {
                let peer = Arc::clone(&self.scope.home(&server).peer);
                (Some(last), false, patiently(&server, peer).await.map(|list| (Arc::clone(&server), list)))
            }
            Known::Sought(awaited, last) => {
                let found = awaited.within(PATIENCE).await;
                (last, true, found.unwrap_or_else(|| Err(too_late(&server))))
            }
        };
        match found {
            Ok((server, list)) => Told { server, list: Some(list), error: None, shown },
            // A server that has no such thing has neither a list nor an error.
            Err(Error::NotOffered { .. }) => Told { server, list: None, error: None, shown },
            Err(error) => Told { server, list: last, error: Some(error), shown: false },
        }
    }
}

/// What of a list may be used.
pub(super) fn shown<T: Listed>(server: &Server, list: Offered<T>) -> Offered<T> {
    server.shown_list(T::KIND, list, T::parts, T::read)
}

/// Asks for a list, or gives it from memory where that is believed.
async fn look<T: Listed>(server: &Server, peer: &HostPeer) -> Result<Offered<T>> {
    let _held = server.hold()?;
    let connection = server.connection().await?;
    let belief = belief(&connection, T::KIND);
    let connected = &connection;
    let ask = |told: bool| async move {
        let list = T::fetch(connected, server.config.timeout).await?;
        let mut differs = server.keep(connected, T::KIND, || {
            let parts = list.items.iter().map(T::parts);
            parts.map(|(name, raw)| (name.to_owned(), raw.clone())).collect()
        });
        if let (true, Some(last)) = (server.compares_itself(), T::shelf(server).last()) {
            differs = !last.items.iter().map(T::parts).eq(list.items.iter().map(T::parts));
        }
        server.tell((differs && !told).then_some(peer), T::KIND);
        Ok(list)
    };
    server.note(T::shelf(server).look(&connection, Some(peer), belief, ask).await)
}

/// Why a server that is not connected is not asked.
fn out_of_reach(server: &Server, known: bool) -> Option<Error> {
    if known { server.trouble() } else { server.recent_trouble() }
}

/// Where something older can be shown, nobody waits long for the new. What comes late is told. The look is large and has
/// a place of its own, so that looks at many servers can be moved about.
async fn patiently<V: Sought>(server: &Arc<Server>, peer: Arc<HostPeer>) -> Result<V> {
    let mut look = {
        let (server, peer) = (Arc::clone(server), Arc::clone(&peer));
        Box::pin(async move { V::look(&server, &peer).await })
    };
    if let Ok(ended) = tokio::time::timeout(PATIENCE, &mut look).await {
        return ended;
    }
    let name = server.config.name.clone();
    tokio::spawn(async move {
        if look.await.is_ok() {
            peer.tell_changed(&name, V::KIND);
        }
    });
    Err(too_late(server))
}

fn too_late(server: &Server) -> Error {
    let (server, stderr) = (server.config.name.clone(), StderrTail::default());
    Error::Timeout { server, after: PATIENCE, sent: false, stderr }
}

/// After a server was started: its other lists may be others too, and somebody may have seen the old ones.
pub(super) async fn compare(server: &Server, peer: &HostPeer) {
    let Some(pinned) = server.recalled() else { return };
    let pinned = |kind| pinned.lists.contains_key(&kind);
    // What fails is found out when somebody asks.
    if pinned(Prompt::KIND) {
        let _ = look::<Prompt>(server, peer).await;
    }
    if pinned(Resource::KIND) {
        let _ = look::<Resource>(server, peer).await;
    }
    if pinned(ResourceTemplate::KIND) {
        let _ = look::<ResourceTemplate>(server, peer).await;
    }
}

// === impl Remembered ===

impl Remembered for Seen {
    fn last(server: &Server) -> Last<Self> {
        server.last_tools().map_or(Last::Unknown, Last::Seen)
    }

    fn has_run_out(server: &Server, connection: &Connection) -> bool {
        server.tools.has_run_out(connection, belief(connection, Self::KIND))
    }
}

impl<T: Listed> Sought for Offered<T> {
    const KIND: ListKind = T::KIND;

    fn under_way(looks: &Looks) -> &UnderWay<Self> {
        T::under_way(looks)
    }

    fn is_recalled(server: &Server) -> bool {
        T::shelf(server).is_recalled()
    }

    async fn look(server: &Server, peer: &HostPeer) -> Result<Self> {
        look::<T>(server, peer).await
    }

    async fn besides(_: &Server, _: &HostPeer) {}

    fn arrive(&self, _: &Scope, _: &Arc<Server>) {}
}

impl<T: Listed> Remembered for Offered<T> {
    fn last(server: &Server) -> Last<Self> {
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
        Last::Seen(T::shelf(server).recall(Self { items, rejected: Vec::new(), ttl: None }))
    }

    fn has_run_out(server: &Server, connection: &Connection) -> bool {
        T::shelf(server).has_run_out(connection, belief(connection, T::KIND))
    }
}

impl<T> Dated for Offered<T> {
    fn ttl(&self) -> Option<Duration> {
        self.ttl
    }
}

// === impl Listed ===

impl Listed for Prompt {
    const KIND: ListKind = ListKind::Prompts;

    fn shelf(server: &Server) -> &Shelf<Offered<Self>> {
        &server.prompts
    }

    fn under_way(looks: &Looks) -> &UnderWay<Offered<Self>> {
        &looks.prompts
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

    fn under_way(looks: &Looks) -> &UnderWay<Offered<Self>> {
        &looks.resources
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

    fn under_way(looks: &Looks) -> &UnderWay<Offered<Self>> {
        &looks.templates
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
