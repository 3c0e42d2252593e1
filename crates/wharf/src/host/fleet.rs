//! Several instances of one server.
//!
//! In: a server that there is more than once, and a call. Out: a connection to the instance that takes it: the next one,
//! or the one with the least to do; one that cannot be reached is passed over, because nothing was sent yet. There is one
//! catalogue, of whichever instance was looked at; the others must fit it. The connections of one caller are such a fleet
//! too: they lead to the instance where the caller is, and to another one when that cannot be reached.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::compared::Compared;
use super::health::Instance;
use super::server::Server;
use crate::config::{Balance, ServerConfig, Transport};
use crate::connect::{Berth, Connection, Pool};
use crate::error::{Error, Result, StderrTail};
use crate::event::State;

/// The instances of one server, the first of them first.
pub(super) struct Fleet {
    members: Vec<Member>,
    balance: Balance,
    /// Whose turn it is.
    next: AtomicUsize,
    /// The instance where the caller is whose connections these are. All its lanes to the server have it in common.
    seat: Option<Seat>,
}

/// At which of several instances a caller is.
pub(super) type Seat = Arc<AtomicUsize>;

/// One instance.
struct Member {
    berth: Berth,
    in_flight: AtomicUsize,
    compared: Compared,
    /// A further process takes one of the places that there are.
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

/// A call at one of several instances, until its end.
pub(super) struct Aboard {
    fleet: Arc<Fleet>,
    member: usize,
    places: Arc<Semaphore>,
}

/// How many calls more than another an instance may have under way. One that hangs collects so many, and no more.
const LAG: usize = 8;
/// How long an instance may take to be there until the next one is tried as well.
pub(super) const HEAD_START: Duration = Duration::from_secs(1);

// === impl Fleet ===

impl Fleet {
    /// The instances of a server, if there is more than one.
    pub(super) fn of(config: &ServerConfig, first: &Berth, pool: &Pool) -> Option<Arc<Self>> {
        let others = pool.others(config);
        if others.is_empty() {
            return None;
        }
        let members = std::iter::once(first.clone()).chain(others).map(Member::new).collect();
        let balance = config.resilience.balance;
        Some(Arc::new(Self { members, balance, next: AtomicUsize::new(0), seat: None }))
    }

    /// The same instances over connections of one caller's own. Nothing is started yet.
    pub(super) fn of_caller(&self, pool: &Pool, seat: Seat) -> Arc<Self> {
        let members = self.berths().map(|berth| Member::new(pool.unlisted(berth.config()))).collect();
        Arc::new(Self { members, balance: self.balance, next: AtomicUsize::new(0), seat: Some(seat) })
    }

    pub(super) fn first(&self) -> &Berth {
        &self.members[0].berth
    }

    /// Whether they are one caller's own.
    pub(super) fn is_of_caller(&self) -> bool {
        self.seat.is_some()
    }

    pub(super) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// How each of them is.
    pub(super) fn conditions(&self) -> Vec<Instance> {
        let of = |member: &Member| {
            let instance = Instance::of(&member.berth);
            Instance {
                trouble: instance.trouble.or_else(|| member.compared.trouble(&member.berth)),
                ..instance
            }
        };
        self.members.iter().map(of).collect()
    }

    pub(super) fn berths(&self) -> impl Iterator<Item = &Berth> {
        self.members.iter().map(|member| &member.berth)
    }

    /// The seat of a caller with connections of its own: each at another instance, and not at one that fails.
    pub(super) fn free_seat(&self, caller: usize) -> Seat {
        let mut all = self.turned(caller);
        let first = caller % self.members.len();
        let well = all.find(|member| self.members[*member].berth.admits().is_ok());
        Arc::new(AtomicUsize::new(well.unwrap_or(first)))
    }

    /// The seat of a caller for one call alone.
    pub(super) fn next_seat(&self) -> Seat {
        self.free_seat(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// All instances once, from one on.
    fn turned(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let all = self.members.len();
        (0..all).map(move |n| (first + n) % all)
    }

    /// Their places, from where the caller is whose they are.
    pub(super) fn seated(&self) -> impl Iterator<Item = &Berth> {
        let first = self.seat.as_ref().map_or(0, |seat| seat.load(Ordering::Relaxed));
        self.turned(first).map(|member| &self.members[member].berth)
    }

    /// Closes what a caller has left: nothing is under way there, and it does not come back as long as it is well where it is.
    pub(super) async fn close_left(&self) {
        let Some(seat) = self.seat.as_ref().map(|seat| seat.load(Ordering::Relaxed)) else { return };
        let is_idle = |member: &Member| member.in_flight.load(Ordering::Relaxed) == 0;
        let left = self.members.iter().enumerate().filter(|(number, _)| *number != seat);
        let left = left.filter(|(_, member)| member.berth.connected() && is_idle(member));
        futures_util::future::join_all(left.map(|(_, member)| member.berth.disconnect())).await;
    }

    /// In which order the instances are tried: those that are left alone after those that are not, before them those that
    /// seem to be stuck, and `last` at the end. A caller's own begin with the one where it is.
    fn order(&self, last: Option<usize>) -> Vec<usize> {
        if let Some(seat) = &self.seat {
            let mut order: Vec<usize> = self.turned(seat.load(Ordering::Relaxed)).collect();
            order
                .sort_by_key(|member| (self.members[*member].berth.admits().is_err(), Some(*member) == last));
            return order;
        }
        let from = self.next.fetch_add(1, Ordering::Relaxed);
        let admits = |member: &usize| self.members[*member].berth.admits().is_ok();
        let (mut order, others): (Vec<usize>, Vec<usize>) = (0..self.members.len()).partition(admits);
        let load = |member: &usize| self.members[*member].in_flight.load(Ordering::Relaxed);
        let least = order.iter().map(load).min().unwrap_or_default();
        match self.balance {
            // Round those that are asked: the neighbour of one that is not would have its calls as well.
            Balance::RoundRobin if !order.is_empty() => {
                let turn = from % order.len();
                order.rotate_left(turn);
            }
            Balance::RoundRobin => {}
            Balance::LeastInFlight => order.sort_by_key(load),
        }
        // Sorting keeps the order of equals.
        order.sort_by_key(|member| self.members[*member].is_stuck() || load(member) > least + LAG);
        order.extend(others);
        order.sort_by_key(|member| Some(*member) == last);
        order
    }

    /// A connection to the instance that takes the next call. The one where a call just failed is tried last. One that is not
    /// there soon is not waited for alone: the next one is tried beside it, and whoever was first has the call. What was begun
    /// goes on without it.
    pub(super) async fn board(
        self: &Arc<Self>,
        server: &Server,
        places: &Arc<Semaphore>,
        last: Option<usize>,
    ) -> Result<(Connection, Aboard)> {
        let mut order = self.order(last).into_iter().peekable();
        // Not every caller needs two processes because the first takes its time.
        let hurries = self.seat.is_none() || !server.is_program();
        let (mut tried, mut refused) = (FuturesUnordered::new(), None);
        loop {
            tried.extend(order.next().map(|member| self.attempt(server, places, member)));
            tokio::select! {
                biased;
                Some(end) = tried.next() => match end {
                    Ok(aboard) => {
                        if let Some(seat) = &self.seat {
                            seat.store(aboard.1.member, Ordering::Relaxed);
                        }
                        return Ok(aboard);
                    }
                    Err(error) => refused = Some(more_telling(refused, error)),
                },
                () = async { tokio::time::sleep(HEAD_START).await }, if hurries && order.peek().is_some() => {}
                else => break,
            }
        }
        Err(refused.unwrap_or_else(|| Error::Internal("a server without instances".into())))
    }

    async fn attempt(
        self: &Arc<Self>,
        server: &Server,
        places: &Arc<Semaphore>,
        member: usize,
    ) -> Result<(Connection, Aboard)> {
        // Counted before it is connected, so that calls which come meanwhile go elsewhere.
        self.members[member].in_flight.fetch_add(1, Ordering::Relaxed);
        let aboard = Aboard { fleet: Arc::clone(self), member, places: Arc::clone(places) };
        let connection = self.connection(server, &aboard).await?;
        Ok((connection, aboard))
    }

    async fn connection(&self, server: &Server, aboard: &Aboard) -> Result<Connection> {
        let member = &self.members[aboard.member];
        member.berth.admits()?;
        member.take_place(aboard)?;
        let connection = member.berth.connection().await.inspect_err(|_| member.give_place_up())?;
        // What a caller sees of its own is asked for anew where it has moved to.
        if self.seat.is_none() || server.is_locked() {
            member.compared.with(server, (aboard.member, &member.berth), &connection).await?;
        }
        Ok(connection)
    }
}

/// Of two reasons why an instance takes no call, the one to tell. That it is left alone says less than why another cannot be
/// reached; of those that are left alone, the first to be asked again says when to come back.
pub(super) fn more_telling(before: Option<Error>, error: Error) -> Error {
    let wait = |error: &Error| match error {
        Error::Unavailable { retry_after, .. } => Some(*retry_after),
        _ => None,
    };
    match (before, wait(&error)) {
        (Some(before), Some(longer)) if wait(&before).is_none_or(|before| before <= longer) => before,
        _ => error,
    }
}

// === impl Member ===

impl Member {
    fn new(berth: Berth) -> Self {
        Self { berth, in_flight: AtomicUsize::new(0), compared: Compared::default(), place: Mutex::default() }
    }

    /// Whether it does not answer at the moment, or is not there yet.
    fn is_stuck(&self) -> bool {
        self.berth.missed_checks() > 0
            || self.compared.is_awaited()
            || matches!(self.berth.state(), State::Connecting | State::Reconnecting)
    }

    /// Every process beside the first takes one of the places that callers' own connections take.
    fn take_place(&self, aboard: &Aboard) -> Result<()> {
        if aboard.member == 0
            || aboard.fleet.seat.is_some()
            || !matches!(self.berth.config().transport, Transport::Stdio(_))
        {
            return Ok(());
        }
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            let taken = Arc::clone(&aboard.places).try_acquire_owned();
            *place = Some(taken.map_err(|_| Error::Connection {
                server: self.berth.config().name.clone(),
                transport: "stdio",
                reason: "there are too many processes already for one more instance".into(),
                stderr: StderrTail::default(),
                retryable: true,
            })?);
        }
        Ok(())
    }

    /// What could not be started needs no place.
    fn give_place_up(&self) {
        if !self.berth.connected() {
            self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

// === impl Aboard ===

impl Aboard {
    /// Another instance, if one can be had. A caller that `stays` leaves its own only if it cannot be reached.
    pub(super) async fn move_on(&self, server: &Server, stays: bool) -> Result<(Connection, Self)> {
        self.fleet.board(server, &self.places, (!stays).then_some(self.member)).boxed().await
    }
}

impl Drop for Aboard {
    fn drop(&mut self) {
        self.fleet.members[self.member].in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
