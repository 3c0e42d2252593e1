//! How much callers may ask for at a time.
//!
//! In: a caller, and the server it wants something of. Out: a [`Pass`], at once or when its turn comes, or a refusal at
//! once if too many wait already. Turns go round the callers, so that one's flood does not cost the others theirs; each
//! server has a queue of its own and leaves room for the others, so that a slow one holds up nobody who wants something
//! else.

mod bounds;
mod gauge;
mod overloaded;
mod rate;

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::barred::{Bar, Barred, Whence};
use super::metrics;
use crate::config::CallLimits;
use crate::names::{CallerName, ServerName};
use bounds::Bounds;
pub(super) use gauge::{Crush, Gauge, Load};
use overloaded::Why;
pub(super) use overloaded::{Overloaded, retry_after};
use rate::{Bucket, Rate};

/// The gate that calls go through. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Inner>);

/// Leave to call. Whoever drops it has ended, and the next one's turn comes.
#[derive(Debug)]
pub(super) enum Pass<'a> {
    /// Nobody had to be waited for: whoever asked is still there to be named.
    AtOnce(&'a Gate, &'a CallerName, Option<&'a ServerName>),
    InTurn {
        _ticket: Ticket,
        /// How much of its time is left.
        left: Duration,
    },
}

/// A pass that goes to whoever waits for it, wherever that is.
#[derive(Debug)]
pub(super) struct Ticket {
    gate: Gate,
    caller: CallerName,
    server: Option<ServerName>,
}

#[derive(Debug)]
struct Inner {
    /// Where it is kept who was turned away.
    barred: Barred,
    state: Mutex<State>,
    /// Whether it matters how often a caller asks.
    is_rated: AtomicBool,
    /// How many were refused because they came too often, and because too many waited.
    too_often: AtomicU64,
    too_many: AtomicU64,
    /// Callers that whoever watches was told of by name.
    named: Mutex<HashSet<CallerName>>,
}

#[derive(Debug)]
struct State {
    bounds: Bounds,
    callers: Map<CallerName, Caller>,
    servers: Map<ServerName, Server>,
    /// Where calls of what is not there go.
    nowhere: Server,
    /// At all servers together.
    under_way: usize,
    waiting: usize,
    tickets: u64,
    /// How many callers are remembered before those that are not in use are forgotten.
    sweep_at: usize,
}

type Map<K, V> = IndexMap<K, V, foldhash::fast::RandomState>;

#[derive(Debug, Default)]
struct Caller {
    under_way: usize,
    waiting: usize,
    rate: Option<Bucket>,
}

#[derive(Debug, Default)]
struct Server {
    under_way: usize,
    rate: Option<Bucket>,
    /// Who has calls under way, or waits; and a few of those who did. Whose turn is next stands first.
    turns: Map<CallerName, Turn>,
    waiting: usize,
    crush: Crush,
}

/// One caller at one server.
#[derive(Debug, Default)]
struct Turn {
    under_way: usize,
    queue: VecDeque<(u64, oneshot::Sender<Ticket>)>,
}

/// A place in a queue, given up when nobody waits there any more.
struct Place<'a> {
    gate: &'a Inner,
    caller: &'a CallerName,
    server: Option<&'a ServerName>,
    number: u64,
    since: Instant,
}

/// So many callers of one server keep their turns while they do nothing: most servers have no more, and it costs less to
/// leave a turn than to take it away and make it again with every call.
const KEPT_TURNS: usize = 8;
/// What is not in use is forgotten when there is so much of it.
const REMEMBERED: usize = 4096;

// === impl Gate ===

impl Gate {
    /// `is_shared`: whether there may be more than one caller.
    pub(super) fn new(limits: CallLimits, is_shared: bool, barred: Barred) -> Self {
        let bounds = Bounds::of(limits, is_shared);
        let is_rated = AtomicBool::new(bounds.rate().is_some());
        let (state, too_often, too_many) =
            (Mutex::new(State::new(bounds)), AtomicU64::new(0), AtomicU64::new(0));
        let named = Mutex::default();
        Self(Arc::new(Inner { barred, state, is_rated, too_often, too_many, named }))
    }

    /// Lets through what other limits do, from now on. Calls under way go on, and those that wait go if they may now.
    pub(super) fn adopt(&self, limits: CallLimits, is_shared: bool) {
        let (mut called, mut state) = (Vec::new(), self.0.lock());
        if state.bounds.limits == limits && state.bounds.is_shared == is_shared {
            return;
        }
        state.bounds = Bounds::of(limits, is_shared);
        self.0.is_rated.store(state.bounds.rate().is_some(), Relaxed);
        let servers: Vec<_> = state.servers.keys().cloned().map(Some).chain([None]).collect();
        servers.iter().for_each(|server| self.call_next(&mut state, server.as_ref(), &mut called));
        drop(state);
        tell(called);
    }

    /// A caller asks for something, whatever it is.
    pub(super) fn arrive(&self, caller: &CallerName) -> Result<(), Overloaded> {
        if !self.0.is_rated.load(Relaxed) {
            return Ok(());
        }
        let mut state = self.0.lock();
        let Some(rate) = state.bounds.rate() else { return Ok(()) };
        state.sweep();
        let known = state.callers.entry(caller.clone()).or_default();
        let taken = known.rate.get_or_insert_with(|| Bucket::full(rate)).take(rate);
        drop(state);
        taken.inspect_err(|_| {
            metrics::count(&self.0.too_often);
            self.turn_away(Whence::Caller(caller.clone(), None), Bar::Rate);
        })
    }

    /// Puts it on record that somebody was turned away.
    pub(super) fn turn_away(&self, from: Whence, bar: Bar) {
        self.0.barred.note(from, bar);
    }

    /// Nobody comes any more: what was only counted goes on record.
    pub(super) fn settle(&self) {
        self.0.barred.settle();
    }

    /// Lets a call through when its turn has come, unless its time is over first. Dropping the future gives the turn up.
    pub(super) async fn enter<'a>(
        &'a self,
        caller: &'a CallerName,
        server: Option<&'a ServerName>,
        time: impl FnOnce() -> Duration,
    ) -> Result<Pass<'a>, Overloaded> {
        let (place, turn) = match self.0.ask(caller, server) {
            Ok(Asked::Through) => return Ok(Pass::AtOnce(self, caller, server)),
            Ok(Asked::Wait(number, turn)) => {
                (Place { gate: &self.0, caller, server, number, since: Instant::now() }, turn)
            }
            Err(overloaded) => return Err(self.overloaded((caller, server), overloaded)),
        };
        let time = time();
        // Put aside: most calls do not wait.
        match Box::pin(tokio::time::timeout(time, turn)).await {
            Ok(Ok(ticket)) => {
                Ok(Pass::InTurn { _ticket: ticket, left: time.saturating_sub(place.since.elapsed()) })
            }
            Ok(Err(_)) => Err(Overloaded::MUCH),
            Err(_) => Err(self.overloaded((caller, server), Overloaded::MUCH)),
        }
    }

    /// Counts somebody who is refused, and puts it on record.
    #[cold]
    fn overloaded(
        &self,
        (caller, server): (&CallerName, Option<&ServerName>),
        overloaded: Overloaded,
    ) -> Overloaded {
        self.0.refused(server, overloaded.why);
        let bar = if overloaded.why == Why::Much { Bar::Limits } else { Bar::Rate };
        self.turn_away(Whence::Caller(caller.clone(), server.cloned()), bar);
        overloaded
    }

    /// A call has ended: whoever can go now goes.
    fn leave(&self, caller: &CallerName, server: Option<&ServerName>) {
        let mut called = Vec::new();
        let mut state = self.0.lock();
        let waits = match state.callers.get_mut(caller) {
            Some(of_caller) => {
                of_caller.under_way -= 1;
                of_caller.waiting > 0
            }
            None => false,
        };
        state.under_way -= 1;
        let Some(at) = state.at(server) else { return };
        at.under_way -= 1;
        if let Some(turn) = at.turns.get_mut(caller) {
            turn.under_way -= 1;
            at.tidy(caller);
        }
        if at.waiting > 0 {
            self.call_next(&mut state, server, &mut called);
        }
        if waits {
            // It may wait for this at any server.
            let others = state.servers.iter().filter(|(_, at)| at.waiting > 0);
            let others: Vec<_> = others.map(|(name, _)| Some(name.clone())).chain([None]).collect();
            others.iter().for_each(|other| self.call_next(&mut state, other.as_ref(), &mut called));
        }
        drop(state);
        tell(called);
    }

    /// Calls those whose turn it is at a server, as long as there is room.
    fn call_next(&self, state: &mut State, server: Option<&ServerName>, called: &mut Vec<Called>) {
        let State { bounds, callers, servers, nowhere, under_way, waiting, .. } = state;
        let Some(at) = server.map_or(Some(nowhere), |server| servers.get_mut(server)) else { return };
        while at.waiting > 0 && at.under_way < bounds.limits.calls_per_server {
            let may_go = |(name, turn): (&CallerName, &Turn)| {
                let of_caller = callers.get(name).map_or(0, |caller| caller.under_way);
                !turn.queue.is_empty() && bounds.has_room(turn.under_way, of_caller)
            };
            let Some(place) = at.turns.iter().position(may_go) else { return };
            // Whoever had its turn stands last now.
            let last = at.turns.len() - 1;
            at.turns.move_index(place, last);
            let Some((name, turn)) = at.turns.get_index_mut(last) else { return };
            let Some((_, call)) = turn.queue.pop_front() else { return };
            turn.under_way += 1;
            at.under_way += 1;
            *under_way += 1;
            at.waiting -= 1;
            *waiting -= 1;
            if let Some(of_caller) = callers.get_mut(name) {
                of_caller.under_way += 1;
                of_caller.waiting -= 1;
            }
            let ticket = Ticket { gate: self.clone(), caller: name.clone(), server: server.cloned() };
            called.push((call, ticket));
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(CallLimits::default(), true, Barred::default())
    }
}

/// Somebody whose turn it is, and what it is to be given.
type Called = (oneshot::Sender<Ticket>, Ticket);

/// Calls them. A ticket that nobody takes is dropped here, without the lock, and its turn goes to the next.
fn tell(called: Vec<Called>) {
    for (call, ticket) in called {
        drop(call.send(ticket));
    }
}

enum Asked {
    Through,
    Wait(u64, oneshot::Receiver<Ticket>),
}

// === impl Inner ===

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts are changed together and between them nothing can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, caller: &CallerName, server: Option<&ServerName>) -> Result<Asked, Overloaded> {
        let mut state = self.lock();
        state.sweep();
        let State { bounds, callers, servers, nowhere, under_way, waiting, tickets, .. } = &mut *state;
        let limits = &bounds.limits;
        let of_caller = at_name(callers, caller);
        let at = server.map_or(nowhere, |server| at_name(servers, server));
        if let Some(rate) = limits.server_calls_per_second {
            let rate = Rate { of: Why::Calls, a_second: rate, at_once: (rate * 2.0).max(1.0) };
            at.rate.get_or_insert_with(|| Bucket::full(rate)).take(rate)?;
        }
        let turn = at.turn(caller);
        let turn = &mut at.turns[turn];
        // Nobody goes past those of its own who came before.
        let is_free = bounds.has_room(turn.under_way, of_caller.under_way) && turn.queue.is_empty();
        if is_free && at.under_way < limits.calls_per_server {
            of_caller.under_way += 1;
            turn.under_way += 1;
            at.under_way += 1;
            *under_way += 1;
            return Ok(Asked::Through);
        }
        if !bounds.may_wait((turn.queue.len(), at.waiting), *waiting) {
            at.tidy(caller);
            return Err(Overloaded::MUCH);
        }
        let (call, called) = oneshot::channel();
        *tickets += 1;
        turn.queue.push_back((*tickets, call));
        at.waiting += 1;
        at.crush.waits += 1;
        of_caller.waiting += 1;
        *waiting += 1;
        Ok(Asked::Wait(*tickets, called))
    }
}

/// What is kept under a name, from the first time on.
fn at_name<'a, K: Clone + Eq + Hash, V: Default>(map: &'a mut Map<K, V>, name: &K) -> &'a mut V {
    let place = map.get_index_of(name).unwrap_or_else(|| map.insert_full(name.clone(), V::default()).0);
    &mut map[place]
}

// === impl State ===

impl State {
    fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            callers: Map::default(),
            servers: Map::default(),
            nowhere: Server::default(),
            under_way: 0,
            waiting: 0,
            tickets: 0,
            sweep_at: REMEMBERED,
        }
    }

    fn at(&mut self, server: Option<&ServerName>) -> Option<&mut Server> {
        server.map_or(Some(&mut self.nowhere), |server| self.servers.get_mut(server))
    }

    /// Forgets those that nothing is known of but their names, when there are many.
    fn sweep(&mut self) {
        if self.callers.len() < self.sweep_at {
            return;
        }
        let rate = self.bounds.rate();
        let is_spent = |bucket: &mut Bucket| rate.is_some_and(|rate| bucket.refill(rate) < rate.at_once);
        self.callers.retain(|_, caller| {
            caller.under_way > 0 || caller.waiting > 0 || caller.rate.as_mut().is_some_and(is_spent)
        });
        self.sweep_at = (2 * self.callers.len()).max(REMEMBERED);
    }
}

// === impl Server ===

impl Server {
    /// Where a caller's turn is. Whoever comes back while others wait stands behind them.
    fn turn(&mut self, caller: &CallerName) -> usize {
        match self.turns.get_index_of(caller) {
            Some(place) if self.waiting > 0 && self.turns[place].is_over() => {
                let last = self.turns.len() - 1;
                self.turns.move_index(place, last);
                last
            }
            Some(place) => place,
            None => self.turns.insert_full(caller.clone(), Turn::default()).0,
        }
    }

    /// Takes a turn away that is over, where there are many.
    fn tidy(&mut self, caller: &CallerName) {
        if self.turns.len() > KEPT_TURNS && self.turns.get(caller).is_some_and(Turn::is_over) {
            self.turns.shift_remove(caller);
        }
    }
}

// === impl Turn ===

impl Turn {
    fn is_over(&self) -> bool {
        self.under_way == 0 && self.queue.is_empty()
    }
}

// === impl Place ===

impl Drop for Place<'_> {
    /// The wait has ended, however it did. Whoever was called has no place any more, and there is no more to do.
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        let Some(at) = state.at(self.server) else { return };
        at.crush.waited += self.since.elapsed();
        let Some(turn) = at.turns.get_mut(self.caller) else { return };
        let Some(place) = turn.queue.iter().position(|(number, _)| *number == self.number) else { return };
        turn.queue.remove(place);
        at.tidy(self.caller);
        at.waiting -= 1;
        state.waiting -= 1;
        if let Some(caller) = state.callers.get_mut(self.caller) {
            caller.waiting -= 1;
        }
    }
}

// === impl Pass ===

impl Pass<'_> {
    /// Whether nobody had to be waited for.
    pub(super) fn is_at_once(&self) -> bool {
        matches!(self, Self::AtOnce(..))
    }

    /// How much is left of the time of a call that had to wait.
    pub(super) fn left(&self) -> Option<Duration> {
        match self {
            Self::AtOnce(..) => None,
            Self::InTurn { left, .. } => Some(*left),
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Self::AtOnce(gate, caller, server) = self {
            gate.leave(caller, *server);
        }
    }
}

// === impl Ticket ===

impl Drop for Ticket {
    fn drop(&mut self) {
        self.gate.leave(&self.caller, self.server.as_ref());
    }
}
