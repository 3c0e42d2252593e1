//! Whose connection a request goes over.
//!
//! In: a server, and whoever a request is made for. Out: a connection that is safe for them: everybody's, where the
//! server cannot take one caller for another, or a lane of their own. A legacy server learns capabilities once, and may
//! not say which request a question belongs to; so callers who can be asked do not share it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::time::Instant;

use super::fleet::{Aboard, Fleet};
use super::places::Places;
use super::scope::Scope;
use super::server::{Seen, Server};
use super::shelf::{Belief, Shelf};
use crate::call::Relayed;
use crate::catalog::{Catalog, ListKind};
use crate::config::{ServerConfig, Share};
use crate::connect::{Berth, Connection, Pool};
use crate::error::Result;
use crate::mcp::Era;
use crate::names::CallerName;

/// The lanes of one scope.
pub(super) struct Lanes {
    by_config: Mutex<HashMap<[u8; 32], Vec<Arc<Lane>>>>,
    /// Whose they are.
    caller: CallerName,
    /// How many lanes there may be, over all scopes of a host.
    places: Arc<Places>,
    /// How long calls may go on at a server that is taken away.
    drain: Duration,
    /// How many scopes there were, and which of them this one is: each stays at another instance of a server.
    scopes: Arc<AtomicUsize>,
    number: usize,
}

/// The way of one request, held until its end.
pub(super) struct Way {
    pub(super) connection: Connection,
    /// Whether nobody else's requests go over it.
    pub(super) private: bool,
    hold: Option<Hold>,
    /// At which of several instances.
    aboard: Option<Aboard>,
}

/// A connection to a server that one scope has to itself.
pub(super) struct Lane {
    pub(super) berth: Berth,
    /// The same at each instance, where there are several: it leads to where its caller is.
    pub(super) fleet: Option<Arc<Fleet>>,
    /// Who has it.
    pub(super) caller: CallerName,
    places: Arc<Places>,
    /// What was seen at its end, where that was asked for on its own account.
    tools: Shelf<Seen>,
    /// Held by a request that must be alone.
    turn: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<LaneState>,
}

struct LaneState {
    users: usize,
    /// How many questions of the request that has it to itself wait for an answer.
    asking: Option<Arc<AtomicUsize>>,
    used: Instant,
    /// The last connection over which its caller asked for something: it may show what is this caller's own.
    spent: Option<u64>,
    place: Option<OwnedSemaphorePermit>,
}

/// Keeps a lane from being closed, and others from it if it must be.
pub(super) struct Hold {
    lane: Arc<Lane>,
    turn: Option<OwnedMutexGuard<()>>,
}

/// How many requests that must be alone one caller may have under way at one server; more wait. Those whose server waits
/// for an answer do not count, up to a limit.
const ALONE: usize = 4;
const ALONE_AND_ASKING: usize = 20;

/// The rest of a connection's end.
pub(super) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

// === impl Lanes ===

impl Lanes {
    pub(super) fn new(drain: Duration) -> Self {
        let (caller, places) = (CallerName::local(), Arc::default());
        Self { by_config: Mutex::default(), caller, places, drain, scopes: Arc::default(), number: 0 }
    }

    /// No lanes yet, for another scope of the same host.
    pub(super) fn beside(&self, caller: CallerName) -> Self {
        let (places, scopes) = (Arc::clone(&self.places), Arc::clone(&self.scopes));
        let number = scopes.fetch_add(1, Ordering::Relaxed);
        Self { by_config: Mutex::default(), caller, places, drain: self.drain, scopes, number }
    }

    /// A lane of this scope's caller. Nothing is started yet.
    pub(super) fn lane(&self, berth: Berth) -> Arc<Lane> {
        Arc::new(Lane::new((berth, None), &self.caller, &self.places))
    }

    /// One more lane to a server. All of them lead to the same instance.
    fn one_more(&self, server: &Server, pool: &Pool, lanes: &[Arc<Lane>]) -> Arc<Lane> {
        let Some(fleet) = server.instances() else {
            return self.lane(pool.lane(&server.config, lanes.len()));
        };
        let seat = lanes.first().and_then(|lane| lane.fleet.as_ref()?.seat().cloned());
        self.lane_of(&fleet.of_caller(pool, seat.unwrap_or_else(|| fleet.free_seat(self.number))))
    }

    fn lane_of(&self, fleet: &Arc<Fleet>) -> Arc<Lane> {
        Arc::new(Lane::new((fleet.first().clone(), Some(Arc::clone(fleet))), &self.caller, &self.places))
    }

    /// The first lane to a server. Nothing is started yet.
    pub(super) fn first(&self, server: &Server, pool: &Pool) -> Arc<Lane> {
        let mut lanes = self.lock();
        let lanes = lanes.entry(server.config.identity()).or_default();
        if lanes.is_empty() {
            lanes.push(self.one_more(server, pool, &[]));
        }
        Arc::clone(&lanes[0])
    }

    /// A lane to a server: the first, or one on which nothing is under way.
    async fn enter(&self, server: &Server, pool: &Pool, relayed: &Relayed) -> Result<Hold> {
        // Over HTTP a question comes with the request that it belongs to.
        let alone = relayed.alone && server.config.transport_name() != "http";
        let (lane, turn) = {
            let mut lanes = self.lock();
            let lanes = lanes.entry(server.config.identity()).or_default();
            let free = |lane: &Arc<Lane>| match alone {
                true => {
                    Arc::clone(&lane.turn).try_lock_owned().ok().map(|turn| (Arc::clone(lane), Some(turn)))
                }
                false => Some((Arc::clone(lane), None)),
            };
            match lanes.iter().find_map(free) {
                Some(found) => found,
                None if has_room(lanes) => {
                    let lane = self.one_more(server, pool, lanes);
                    let turn = alone.then(|| Arc::clone(&lane.turn).try_lock_owned().ok()).flatten();
                    lanes.push(Arc::clone(&lane));
                    (lane, turn)
                }
                // Which of them is free first, nobody knows.
                None => (Arc::clone(soonest_free(lanes)), None),
            }
        };
        let mut hold = lane.hold()?;
        hold.turn = match turn {
            None if alone => Some(Arc::clone(&hold.lane.turn).lock_owned().await),
            turn => turn,
        };
        hold.lane.lock().asking = alone.then(|| Arc::clone(relayed.asking()));
        Ok(hold)
    }

    /// Closes what was not used for so long, and what callers have left. It is made again when it is needed.
    pub(super) async fn recycle(&self, idle: Duration) {
        let all: Vec<Arc<Lane>> = self.lock().values().flatten().cloned().collect();
        let rested = all.iter().filter_map(|lane| lane.rest(idle)).map(|(place, closing)| async move {
            if let Some(closing) = closing {
                closing.await;
            }
            drop(place);
        });
        futures_util::future::join_all(rested).await;
        let left = all.iter().filter_map(|lane| lane.fleet.as_ref()).map(|fleet| fleet.close_left());
        futures_util::future::join_all(left).await;
    }

    /// Closes every lane. They are made again when they are needed.
    pub(super) async fn disconnect(&self) {
        let all: Vec<Arc<Lane>> = self.lock().values().flatten().cloned().collect();
        futures_util::future::join_all(all.iter().map(|lane| lane.disconnect())).await;
    }

    /// The lanes to a server that is taken away, or is another one now: nobody new comes in, and they close when the
    /// calls at it have ended.
    pub(super) fn leave(&self, server: Arc<Server>, pool: &Pool) {
        let lanes = self.lock().remove(&server.config.identity()).unwrap_or_default();
        lanes.iter().enumerate().for_each(|(number, lane)| pool.forget_lane(lane.berth.config(), number));
        let drain = self.drain;
        // Without a runtime nothing is under way: they close with their last users.
        if let (false, Ok(runtime)) = (lanes.is_empty(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                server.duty().idle(drain).await;
                futures_util::future::join_all(lanes.iter().map(|lane| lane.disconnect())).await;
            });
        }
    }

    /// A live connection of a lane to a server, if there is one.
    pub(super) fn live(&self, config: &ServerConfig) -> Option<Connection> {
        self.lock()
            .get(&config.identity())?
            .iter()
            .find_map(|lane| lane.berths().iter().find_map(Berth::live))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Vec<Arc<Lane>>>> {
        self.by_config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there may be one more lane.
fn has_room(lanes: &[Arc<Lane>]) -> bool {
    lanes.len() < ALONE_AND_ASKING && lanes.iter().filter(|lane| !lane.is_asking()).count() < ALONE
}

/// A lane to wait for: one whose server waits for nobody's answer, if there is one.
fn soonest_free(lanes: &[Arc<Lane>]) -> &Arc<Lane> {
    let from = fastrand::usize(..lanes.len());
    let turned = || lanes[from..].iter().chain(&lanes[..from]);
    turned().find(|lane| !lane.is_asking()).unwrap_or(&lanes[from])
}

// === impl Lane ===

impl Lane {
    fn is_asking(&self) -> bool {
        let asking = self.lock().asking.clone();
        asking.is_some_and(|asking| asking.load(Ordering::Relaxed) > 0)
    }

    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new((berth, fleet): (Berth, Option<Arc<Fleet>>), caller: &CallerName, places: &Arc<Places>) -> Self {
        let state = LaneState { users: 0, asking: None, used: Instant::now(), spent: None, place: None };
        let (caller, places, tools) = (caller.clone(), Arc::clone(places), Shelf::new(ListKind::Tools));
        Self { berth, fleet, caller, places, tools, turn: Arc::default(), state: Mutex::new(state) }
    }

    /// The tools at the end of its connection, asked for once, and again when its server was looked at since.
    async fn tools(&self, server: &Server, connection: &Connection) -> Result<Seen> {
        let ask = |_| async {
            let catalog = Catalog::fetch(connection, server.config.timeout).await?;
            Ok(server.seen(catalog.tools, catalog.rejected, catalog.ttl))
        };
        let belief = match self.tools.is_older_than_that_of(&server.tools) {
            true => Belief::Never,
            false => Belief::UntilTold,
        };
        self.tools.look(connection, None, belief, ask).await.map(|seen| server.shown(seen))
    }

    fn berths(&self) -> Vec<Berth> {
        match &self.fleet {
            Some(fleet) => fleet.berths().cloned().collect(),
            None => vec![self.berth.clone()],
        }
    }

    fn disconnect(&self) -> Closing {
        let berths = self.berths();
        Box::pin(async move {
            futures_util::future::join_all(berths.iter().map(Berth::disconnect)).await;
        })
    }

    /// Keeps it from being closed. It takes one of the places that there are.
    pub(super) fn hold(self: &Arc<Self>) -> Result<Hold> {
        if !self.is_used_again() {
            Arc::clone(&self.places).seat(self)?;
        }
        Ok(Hold { lane: Arc::clone(self), turn: None })
    }

    /// One user more, if it has a place.
    pub(super) fn is_used_again(&self) -> bool {
        let mut state = self.lock();
        let seated = state.place.is_some();
        state.users += usize::from(seated);
        seated
    }

    /// A place, and one user more.
    pub(super) fn sit(&self, place: OwnedSemaphorePermit) {
        let mut state = self.lock();
        state.place = Some(place);
        state.users += 1;
    }

    pub(super) fn has_place(&self) -> bool {
        self.lock().place.is_some()
    }

    /// When somebody last let go of it.
    pub(super) fn used(&self) -> Instant {
        self.lock().used
    }

    /// Whether its caller asked for something over this connection.
    pub(super) fn is_spent(&self, connection: &Connection) -> bool {
        self.lock().spent == Some(connection.number())
    }

    /// Gives its place up and begins to close, if nobody used it for so long.
    pub(super) fn rest(&self, idle: Duration) -> Option<(OwnedSemaphorePermit, Option<Closing>)> {
        let mut state = self.lock();
        if state.users > 0 || state.used.elapsed() < idle {
            return None;
        }
        let place = state.place.take()?;
        let mut closing = self.disconnect();
        // Begun before anybody can come in: nobody is given a connection that is about to go.
        let is_closed = (&mut closing).now_or_never().is_some();
        Some((place, (!is_closed).then_some(closing)))
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lane").field(&self.caller).field(&self.berth).finish()
    }
}

// === impl Hold ===

impl Hold {
    #[cfg(test)]
    pub(super) fn lane(&self) -> Arc<Lane> {
        Arc::clone(&self.lane)
    }

    /// The lane's connection, for something that its caller asks for.
    async fn connection(&self, server: &Server) -> Result<(Connection, Option<Aboard>)> {
        let places = (&self.lane.berth, self.lane.fleet.as_ref());
        let (connection, aboard) = server.board_at(places, &self.lane.places.free).await?;
        self.spend(&connection);
        Ok((connection, aboard))
    }

    fn spend(&self, connection: &Connection) {
        self.lane.lock().spent = Some(connection.number());
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hold").field(&self.lane.berth).finish()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.lane.lock();
        state.users -= 1;
        state.used = Instant::now();
        drop(state);
        // The next one may come in now.
        self.turn.take();
    }
}

// === impl Way ===

impl Way {
    fn shared((connection, aboard): (Connection, Option<Aboard>)) -> Self {
        Self { connection, private: false, hold: None, aboard }
    }

    /// Whether it leads to another connection than the one over which the tools of its server were seen. Instances are
    /// compared as they are boarded.
    pub(super) fn is_unseen(&self, server: &Server) -> bool {
        self.aboard.is_none() && !server.tools.is_of(self.connection.number())
    }

    /// The tools at its other end. What everybody sees of a server is seen over a connection that is everybody's.
    pub(super) async fn tools(&self, server: &Server) -> Result<Seen> {
        match &self.hold {
            Some(hold) => hold.lane.tools(server, &self.connection).await,
            None => server.look_over(&self.connection, None).await,
        }
    }

    /// Whether there are other instances to go to.
    pub(super) fn has_others(&self) -> bool {
        self.aboard.is_some()
    }

    /// The same way over a fresh connection, or to another instance where there are several. `unsent`: nothing could be sent
    /// over this one.
    pub(super) async fn again(&mut self, server: &Server, unsent: bool) -> Result<()> {
        if let Some(aboard) = &self.aboard {
            // What a caller has to itself is where it was, unless nothing gets through to it.
            let stays = self.hold.is_some() && !(unsent && self.connection.is_open());
            let (connection, aboard) = aboard.move_on(server, stays).await?;
            (self.connection, self.aboard) = (connection, Some(aboard));
            self.hold.iter().for_each(|hold| hold.spend(&self.connection));
            return Ok(());
        }
        self.connection = match &self.hold {
            Some(hold) => hold.connection(server).await?.0,
            None => server.berth.connection().await?,
        };
        Ok(())
    }
}

// === impl Scope ===

impl Scope {
    /// The way of most requests, the same that [`Scope::way`] would find: over the connection that is there, where it is
    /// everybody's. `owned`: the server may be this scope's own.
    pub(super) fn short_way(&self, server: &Server, owned: bool, relayed: Option<&Relayed>) -> Option<Way> {
        if server.view.is_some() || server.fleet.is_some() || (self.agent.is_some() && owned) {
            return None;
        }
        let connection = server.berth.live()?;
        let shares = match (relayed.filter(|_| self.agent.is_some()), server.config.share) {
            (None, _) | (_, Some(Share::All)) => true,
            (_, Some(Share::Never | Share::PerCaller)) => false,
            (Some(relayed), None) => {
                connection.info().revision.era() == Era::Modern || relayed.asks_nothing()
            }
        };
        shares.then(|| Way::shared((connection, None)))
    }

    /// The way to a server for a request, which may be made for somebody else.
    pub(super) async fn way(&self, server: &Arc<Server>, relayed: Option<&Relayed>) -> Result<Way> {
        if let Some(view) = &server.view {
            return match (server.config.share, relayed) {
                (Some(Share::Never), Some(_)) => self.once(server).await,
                (_, Some(relayed)) => {
                    enter(server, self.lanes.enter(server, &self.pool, relayed).await?).await
                }
                (_, None) => enter(server, view.lane.hold()?).await,
            };
        }
        let Some(relayed) = relayed.filter(|_| self.agent.is_some() && !self.owns(server)) else {
            let private = self.agent.is_some() && self.owns(server);
            return Ok(Way { private, ..Way::shared(server.board(&self.lanes.places.free).await?) });
        };
        match server.config.share {
            Some(Share::All) => return Ok(Way::shared(server.board(&self.lanes.places.free).await?)),
            Some(Share::Never) => return self.once(server).await,
            Some(Share::PerCaller) => {}
            None if relayed.asks_nothing() => {
                return Ok(Way::shared(server.board(&self.lanes.places.free).await?));
            }
            None if self.pool.dock().known_era(&server.config) == Some(Era::Legacy) => {}
            None => {
                let way = server.board(&self.lanes.places.free).await?;
                if way.0.info().revision.era() == Era::Modern {
                    return Ok(Way::shared(way));
                }
            }
        }
        enter(server, self.lanes.enter(server, &self.pool, relayed).await?).await
    }

    /// A connection for one request alone.
    async fn once(&self, server: &Server) -> Result<Way> {
        let lane = match server.instances() {
            None => self.lanes.lane(self.pool.unlisted(&server.config)),
            Some(fleet) => self.lanes.lane_of(&fleet.of_caller(&self.pool, fleet.next_seat())),
        };
        enter(server, lane.hold()?).await
    }
}

async fn enter(server: &Server, hold: Hold) -> Result<Way> {
    let (connection, aboard) = hold.connection(server).await?;
    Ok(Way { connection, private: true, hold: Some(hold), aboard })
}
