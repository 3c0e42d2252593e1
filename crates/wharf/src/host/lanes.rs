//! Whose connection a request goes over.
//!
//! In: a server, and whoever a request is made for. Out: a connection that is safe for them: everybody's, where the
//! server cannot take one caller for another, or a lane of their own. A legacy server learns capabilities once, and may
//! not say which request a question belongs to; so callers who can be asked do not share it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::scope::Scope;
use super::server::Server;
use crate::call::Relayed;
use crate::config::Share;
use crate::connect::{Berth, Connection, Pool};
use crate::error::{Error, Result, StderrTail};
use crate::mcp::Era;

/// The lanes of one scope.
pub(super) struct Lanes {
    by_config: Mutex<HashMap<[u8; 32], Vec<Arc<Lane>>>>,
    /// How many lanes there may be, over all scopes of a host.
    places: Arc<Semaphore>,
}

/// The way of one request, held until its end.
pub(super) struct Way {
    pub(super) connection: Connection,
    /// Whether nobody else's requests go over it.
    pub(super) private: bool,
    hold: Option<Hold>,
}

/// A connection to a server that one scope has to itself.
struct Lane {
    berth: Berth,
    /// Held by a request that must be alone.
    turn: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<LaneState>,
}

struct LaneState {
    users: usize,
    /// How many questions of the request that has it to itself wait for an answer.
    asking: Option<Arc<AtomicUsize>>,
    used: Instant,
    place: Option<OwnedSemaphorePermit>,
}

/// Keeps a lane from being closed, and others from it if it must be.
struct Hold {
    lane: Arc<Lane>,
    turn: Option<OwnedMutexGuard<()>>,
}

/// How many requests that must be alone one caller may have under way at one server; more wait. Those whose server waits
/// for an answer do not count, up to a limit.
const ALONE: usize = 4;
const ALONE_AND_ASKING: usize = 20;

// === impl Lanes ===

impl Lanes {
    pub(super) fn new(places: Arc<Semaphore>) -> Self {
        Self { by_config: Mutex::default(), places }
    }

    /// As many as there may be in all.
    pub(super) fn places(&self) -> &Arc<Semaphore> {
        &self.places
    }

    /// A lane to a server: the first, or one on which nothing is under way.
    async fn enter(&self, server: &Server, pool: &Pool, relayed: &Relayed) -> Result<Hold> {
        // Over HTTP a question comes with the request that it belongs to.
        let alone = relayed.alone && server.config.transport_name() != "http";
        let (lane, turn) = {
            let mut lanes = self.by_config.lock().unwrap_or_else(PoisonError::into_inner);
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
                    let berth = pool.lane(&server.config, lanes.len());
                    let lane = Arc::new(Lane::new(berth));
                    let turn = alone.then(|| Arc::clone(&lane.turn).try_lock_owned().ok()).flatten();
                    lanes.push(Arc::clone(&lane));
                    (lane, turn)
                }
                // Which of them is free first, nobody knows.
                None => (Arc::clone(soonest_free(lanes)), None),
            }
        };
        let mut hold = Hold::new(lane, &self.places, server)?;
        hold.turn = match turn {
            None if alone => Some(Arc::clone(&hold.lane.turn).lock_owned().await),
            turn => turn,
        };
        hold.lane.lock().asking = alone.then(|| Arc::clone(&relayed.asking));
        Ok(hold)
    }

    /// Closes what was not used for so long. It is made again when it is needed.
    pub(super) async fn recycle(&self, idle: Duration) {
        let all: Vec<Arc<Lane>> = {
            let lanes = self.by_config.lock().unwrap_or_else(PoisonError::into_inner);
            lanes.values().flatten().cloned().collect()
        };
        let rested: Vec<_> = all.iter().filter_map(|lane| Some((lane, lane.rest(idle)?))).collect();
        futures_util::future::join_all(rested.iter().map(|(lane, _)| lane.berth.disconnect())).await;
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

    fn new(berth: Berth) -> Self {
        let state = LaneState { users: 0, asking: None, used: Instant::now(), place: None };
        Self { berth, turn: Arc::default(), state: Mutex::new(state) }
    }

    /// Gives its place up, if nobody used it for so long. The place is free when what is given back is gone.
    fn rest(&self, idle: Duration) -> Option<OwnedSemaphorePermit> {
        let mut state = self.lock();
        if state.users > 0 || state.used.elapsed() < idle {
            return None;
        }
        state.place.take()
    }
}

// === impl Hold ===

impl Hold {
    fn new(lane: Arc<Lane>, places: &Arc<Semaphore>, server: &Server) -> Result<Self> {
        let mut state = lane.lock();
        if state.place.is_none() {
            let place = Arc::clone(places).try_acquire_owned();
            state.place = Some(place.map_err(|_| {
                Error::Connection {
                    server: server.config.name.clone(),
                    transport: server.config.transport_name(),
                    reason: "too many callers have a connection of their own; try again later, or set \
                         `share = \"all\"` for servers that ask no questions"
                        .into(),
                    stderr: StderrTail::default(),
                    retryable: true,
                }
            })?);
        }
        state.users += 1;
        drop(state);
        Ok(Self { lane, turn: None })
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
    fn shared(connection: Connection) -> Self {
        Self { connection, private: false, hold: None }
    }

    /// The same way over a fresh connection.
    pub(super) async fn again(&mut self, server: &Server) -> Result<()> {
        let berth = self.hold.as_ref().map_or(&server.berth, |hold| &hold.lane.berth);
        self.connection = berth.connection().await?;
        Ok(())
    }
}

// === impl Scope ===

impl Scope {
    /// The way to a server for a request, which may be made for somebody else.
    pub(super) async fn way(&self, server: &Arc<Server>, relayed: Option<&Relayed>) -> Result<Way> {
        let Some(relayed) = relayed.filter(|_| self.agent.is_some() && !self.owns(server)) else {
            let private = self.agent.is_some() && self.owns(server);
            return Ok(Way { private, ..Way::shared(server.berth.connection().await?) });
        };
        match server.config.share {
            Some(Share::All) => return Ok(Way::shared(server.berth.connection().await?)),
            Some(Share::Never) => {
                let lane = Arc::new(Lane::new(self.pool.unlisted(&server.config)));
                return enter(Hold::new(lane, self.lanes.places(), server)?).await;
            }
            Some(Share::PerCaller) => {}
            None if relayed.asks_nothing() => return Ok(Way::shared(server.berth.connection().await?)),
            None if self.pool.dock().known_era(&server.config) == Some(Era::Legacy) => {}
            None => {
                let connection = server.berth.connection().await?;
                if connection.info().revision.era() == Era::Modern {
                    return Ok(Way::shared(connection));
                }
            }
        }
        enter(self.lanes.enter(server, &self.pool, relayed).await?).await
    }
}

async fn enter(hold: Hold) -> Result<Way> {
    let connection = hold.lane.berth.connection().await?;
    Ok(Way { connection, private: true, hold: Some(hold) })
}
