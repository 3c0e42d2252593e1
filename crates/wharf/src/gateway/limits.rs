//! How much callers may ask for at a time.
//!
//! In: a caller, and the server it wants something of. Out: a [`Pass`], at once or when its turn comes, or a refusal at
//! once if too many wait already. Turns go round the callers, so that one's flood does not cost the others theirs; each
//! server has a queue of its own, so that a slow one holds up nobody who wants something else.

mod gauge;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use indexmap::IndexMap;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::barred::{Bar, Barred, Whence};
use super::metrics;
use crate::config::CallLimits;
use crate::mcp::code;
use crate::names::{CallerName, ServerName};
use crate::wire::{Json, RpcError};
pub(super) use gauge::Load;

/// The gate that calls go through. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Inner>);

/// Leave to call. Whoever drops it has ended, and the next one's turn comes.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Inner>,
    caller: CallerName,
    server: Option<ServerName>,
}

/// There is too much to do already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overloaded {
    /// When it may be worth asking again.
    pub(super) retry_after: Duration,
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
}

/// How much is let through, until somebody says otherwise.
#[derive(Debug)]
struct Bounds {
    limits: CallLimits,
    /// Of one server's calls, how many may be one caller's.
    share: usize,
    /// Of one server's queue, how much may be one caller's.
    patience: usize,
}

#[derive(Debug)]
struct State {
    bounds: Bounds,
    callers: Map<CallerName, Caller>,
    servers: Map<Option<ServerName>, Server>,
    waiting: usize,
    tickets: u64,
    /// How many callers are remembered before those that are not in use are forgotten.
    sweep_at: usize,
}

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

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
    /// Who has calls under way, or waits. Whose turn is next stands first.
    turns: IndexMap<CallerName, Turn, foldhash::fast::RandomState>,
    waiting: usize,
}

/// One caller at one server.
#[derive(Debug, Default)]
struct Turn {
    under_way: usize,
    queue: VecDeque<(u64, oneshot::Sender<Pass>)>,
}

/// What is left of a rate.
#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    a_second: f64,
    at_once: f64,
}

/// A place in a queue, given up when nobody waits there any more.
struct Place<'a> {
    gate: &'a Inner,
    caller: &'a CallerName,
    server: Option<&'a ServerName>,
    ticket: u64,
}

/// What is not in use is forgotten when there is so much of it.
const REMEMBERED: usize = 4096;
/// What programs know the error by.
const KIND: &str = "overloaded";
/// The same where one server is left alone for a while: then it is not the caller who does too much.
const UNAVAILABLE: &str = "unavailable";
/// How soon a queue may have moved.
const SOON: Duration = Duration::from_secs(1);

// === impl Gate ===

impl Gate {
    pub(super) fn new(limits: CallLimits, barred: Barred) -> Self {
        let bounds = Bounds::of(limits);
        let is_rated = AtomicBool::new(bounds.rate().is_some());
        let (state, too_often, too_many) =
            (Mutex::new(State::new(bounds)), AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(Inner { barred, state, is_rated, too_often, too_many }))
    }

    /// Lets through what other limits do, from now on. Calls under way go on, and those that wait go if they may now.
    pub(super) fn adopt(&self, limits: CallLimits) {
        let (mut called, mut state) = (Vec::new(), self.0.lock());
        if state.bounds.limits == limits {
            return;
        }
        state.bounds = Bounds::of(limits);
        self.0.is_rated.store(state.bounds.rate().is_some(), Relaxed);
        let servers: Vec<_> = state.servers.keys().cloned().collect();
        servers.iter().for_each(|server| self.0.call_next(&mut state, server, &mut called));
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
            self.turn_away(Whence::Caller(caller.clone(), None), Bar::Limits);
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

    /// Lets a call through when its turn has come. Dropping the future gives the turn up.
    pub(super) async fn enter(
        &self,
        caller: &CallerName,
        server: Option<&ServerName>,
    ) -> Result<Pass, Overloaded> {
        let (_place, turn) = match self.0.ask(caller, server) {
            Ok(Asked::Through) => return Ok(self.0.pass(caller.clone(), server.cloned())),
            Ok(Asked::Wait(ticket, turn)) => (Place { gate: &self.0, caller, server, ticket }, turn),
            Err(overloaded) => {
                metrics::count(&self.0.too_many);
                self.turn_away(Whence::Caller(caller.clone(), server.cloned()), Bar::Limits);
                return Err(overloaded);
            }
        };
        turn.await.map_err(|_| Overloaded { retry_after: SOON })
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(CallLimits::default(), Barred::default())
    }
}

/// Somebody whose turn it is, and what it is to be given.
type Called = (oneshot::Sender<Pass>, Pass);

/// Calls them. A pass that nobody takes is dropped here, without the lock, and its turn goes to the next.
fn tell(called: Vec<Called>) {
    for (call, pass) in called {
        drop(call.send(pass));
    }
}

enum Asked {
    Through,
    Wait(u64, oneshot::Receiver<Pass>),
}

// === impl Inner ===

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts are changed together and between them nothing can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(self: &Arc<Self>, caller: CallerName, server: Option<ServerName>) -> Pass {
        Pass { gate: Arc::clone(self), caller, server }
    }

    fn ask(&self, caller: &CallerName, server: Option<&ServerName>) -> Result<Asked, Overloaded> {
        let server = server.cloned();
        let mut state = self.lock();
        state.sweep();
        let State { bounds, callers, servers, waiting, tickets, .. } = &mut *state;
        let limits = &bounds.limits;
        if !callers.contains_key(caller) {
            callers.insert(caller.clone(), Caller::default());
        }
        let (Some(of_caller), at) = (callers.get_mut(caller), servers.entry(server).or_default()) else {
            return Err(Overloaded { retry_after: SOON });
        };
        if let Some(rate) = limits.server_calls_per_second {
            let rate = Rate { a_second: rate, at_once: (rate * 2.0).max(1.0) };
            at.rate.get_or_insert_with(|| Bucket::full(rate)).take(rate)?;
        }
        let turn = at.turns.entry(caller.clone()).or_default();
        let is_free = of_caller.under_way < limits.calls_per_caller
            && at.under_way < limits.calls_per_server
            && turn.under_way < bounds.share
            // Nobody goes past those of its own who came before.
            && turn.queue.is_empty();
        if is_free {
            of_caller.under_way += 1;
            at.under_way += 1;
            turn.under_way += 1;
            return Ok(Asked::Through);
        }
        if *waiting >= limits.waiting || turn.queue.len() >= bounds.patience {
            if turn.is_over() {
                at.turns.shift_remove(caller);
            }
            return Err(Overloaded { retry_after: SOON });
        }
        let (call, called) = oneshot::channel();
        *tickets += 1;
        turn.queue.push_back((*tickets, call));
        at.waiting += 1;
        of_caller.waiting += 1;
        *waiting += 1;
        Ok(Asked::Wait(*tickets, called))
    }

    /// A call has ended: whoever can go now goes.
    fn leave(self: &Arc<Self>, caller: &CallerName, server: Option<&ServerName>) {
        let mut called = Vec::new();
        let server = server.cloned();
        let mut state = self.lock();
        let most = state.bounds.limits.calls_per_caller;
        let was_full = match state.callers.get_mut(caller) {
            Some(of_caller) => {
                of_caller.under_way -= 1;
                of_caller.waiting > 0 && of_caller.under_way + 1 >= most
            }
            None => false,
        };
        if let Some(at) = state.servers.get_mut(&server) {
            at.under_way -= 1;
            if let Some(turn) = at.turns.get_mut(caller) {
                turn.under_way -= 1;
                if turn.is_over() {
                    at.turns.shift_remove(caller);
                }
            }
        }
        self.call_next(&mut state, &server, &mut called);
        if was_full {
            // It may have waited for this at any server.
            let others = state.servers.iter().filter(|(_, at)| at.waiting > 0);
            let others: Vec<_> = others.map(|(name, _)| name.clone()).collect();
            others.iter().for_each(|other| self.call_next(&mut state, other, &mut called));
        }
        drop(state);
        tell(called);
    }

    /// Calls those whose turn it is at a server, as long as there is room.
    fn call_next(self: &Arc<Self>, state: &mut State, server: &Option<ServerName>, called: &mut Vec<Called>) {
        let State { bounds, callers, servers, waiting, .. } = state;
        let Some(at) = servers.get_mut(server) else { return };
        while at.waiting > 0 && at.under_way < bounds.limits.calls_per_server {
            let may_go = |(name, turn): (&CallerName, &Turn)| {
                let of_caller = callers.get(name).map_or(0, |caller| caller.under_way);
                !turn.queue.is_empty()
                    && turn.under_way < bounds.share
                    && of_caller < bounds.limits.calls_per_caller
            };
            let Some(place) = at.turns.iter().position(may_go) else { return };
            // Whoever had its turn stands last now.
            let last = at.turns.len() - 1;
            at.turns.move_index(place, last);
            let Some((name, turn)) = at.turns.get_index_mut(last) else { return };
            let Some((_, call)) = turn.queue.pop_front() else { return };
            turn.under_way += 1;
            at.under_way += 1;
            at.waiting -= 1;
            *waiting -= 1;
            if let Some(of_caller) = callers.get_mut(name) {
                of_caller.under_way += 1;
                of_caller.waiting -= 1;
            }
            called.push((call, self.pass(name.clone(), server.clone())));
        }
    }
}

// === impl State ===

impl State {
    fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            callers: Map::default(),
            servers: Map::default(),
            waiting: 0,
            tickets: 0,
            sweep_at: REMEMBERED,
        }
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

// === impl Bounds ===

impl Bounds {
    fn of(limits: CallLimits) -> Self {
        let (share, patience) = ((limits.calls_per_server / 2).max(1), (limits.waiting / 8).max(1));
        Self { limits, share, patience }
    }

    /// How often one caller may ask.
    fn rate(&self) -> Option<Rate> {
        let a_second = self.limits.requests_per_second?;
        let at_once = self.limits.burst.map_or(a_second * 2.0, |burst| burst as f64).max(1.0);
        Some(Rate { a_second, at_once })
    }
}

// === impl Turn ===

impl Turn {
    fn is_over(&self) -> bool {
        self.under_way == 0 && self.queue.is_empty()
    }
}

// === impl Bucket ===

impl Bucket {
    fn full(rate: Rate) -> Self {
        Self { left: rate.at_once, at: Instant::now() }
    }

    fn refill(&mut self, rate: Rate) -> f64 {
        let now = Instant::now();
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * rate.a_second).min(rate.at_once);
        self.at = now;
        self.left
    }

    fn take(&mut self, rate: Rate) -> Result<(), Overloaded> {
        let left = self.refill(rate);
        if left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        let wait = Duration::try_from_secs_f64((1.0 - left) / rate.a_second).unwrap_or(SOON);
        Err(Overloaded { retry_after: wait.max(Duration::from_millis(1)) })
    }
}

// === impl Place ===

impl Drop for Place<'_> {
    /// Whoever was called has no place any more, and there is nothing to do.
    fn drop(&mut self) {
        let server = self.server.cloned();
        let mut state = self.gate.lock();
        let State { callers, servers, waiting, .. } = &mut *state;
        let Some(at) = servers.get_mut(&server) else { return };
        let Some(turn) = at.turns.get_mut(self.caller) else { return };
        let Some(place) = turn.queue.iter().position(|(ticket, _)| *ticket == self.ticket) else { return };
        turn.queue.remove(place);
        if turn.is_over() {
            at.turns.shift_remove(self.caller);
        }
        at.waiting -= 1;
        *waiting -= 1;
        if let Some(caller) = callers.get_mut(self.caller) {
            caller.waiting -= 1;
        }
    }
}

// === impl Pass ===

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.leave(&self.caller, self.server.as_ref());
    }
}

// === impl Overloaded ===

impl From<Overloaded> for RpcError {
    fn from(overloaded: Overloaded) -> Self {
        let wait = overloaded.retry_after.as_millis().try_into().unwrap_or(u64::MAX);
        let data = json!({ "kind": KIND, "retryable": true, "retryAfterMs": wait });
        let error = Self::new(code::INTERNAL, "too much is under way already; try again later");
        Self { data: Some(Json::of(&data)), ..error }
    }
}

/// When it may be worth asking again, and what HTTP calls it, if an error says that there is too much to do or that its
/// server is left alone.
pub(super) fn retry_after(error: &RpcError) -> Option<(StatusCode, Duration)> {
    let [kind, wait] = error.data.as_ref()?.pick(["kind", "retryAfterMs"]);
    let kind: String = kind?.to().ok()?;
    let status = match kind.as_str() {
        KIND => StatusCode::TOO_MANY_REQUESTS,
        UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
        _ => return None,
    };
    Some((status, Duration::from_millis(wait?.to().ok()?)))
}
