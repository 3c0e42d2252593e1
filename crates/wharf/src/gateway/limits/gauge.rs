//! The queue as others may see it: how much is under way and waits, by server and by caller, and what was refused.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Gate, Inner, Server, Why, metrics};
use crate::names::{CallerName, ServerName};

/// What goes on at the gate.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Gauge {
    /// By server; `None` are calls of what is not there.
    pub(in crate::gateway) servers: Vec<(Option<ServerName>, Load)>,
    /// By caller, the busiest first. Those that do nothing are not told of; `None` are all for whom there is no name left.
    pub(in crate::gateway) callers: Vec<(Option<CallerName>, Load)>,
    /// How much more there was to do than could be, by server; those where it never was are left out.
    crushes: HashMap<ServerName, Crush>,
    /// Refused because one caller asked too often.
    pub(in crate::gateway) too_often: u64,
    /// Refused because too many waited already.
    pub(in crate::gateway) too_many: u64,
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) struct Load {
    pub(in crate::gateway) under_way: usize,
    pub(in crate::gateway) waiting: usize,
}

/// How much more there was to do at a server than could be at once, since the gateway started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) struct Crush {
    /// Refused because it was asked too often.
    pub(in crate::gateway) too_often: u64,
    /// Refused because too many waited, or it waited too long.
    pub(in crate::gateway) too_many: u64,
    /// Had to wait, in vain or not, and how long all of those did that wait no more.
    pub(in crate::gateway) waits: u64,
    pub(in crate::gateway) waited: Duration,
}

/// So many callers are ever told of by name, however many come: whoever keeps what it is told keeps each name for good.
const CALLERS: usize = 100;

impl Gate {
    /// How many calls are under way or wait.
    pub(in crate::gateway) fn calls(&self) -> usize {
        let state = self.0.lock();
        state.under_way + state.waiting
    }

    /// Looks at the queue.
    pub(in crate::gateway) fn gauge(&self) -> Gauge {
        let state = self.0.lock();
        let of = |at: &Server| Load { under_way: at.under_way, waiting: at.waiting };
        let servers = state.servers.iter().map(|(name, at)| (Some(name.clone()), of(at)));
        let crushes = state.servers.iter().filter(|(_, at)| at.crush != Crush::default());
        let crushes = crushes.map(|(name, at)| (name.clone(), at.crush)).collect();
        let nowhere = state.nowhere.turns.keys().next().map(|_| (None, of(&state.nowhere)));
        let mut servers: Vec<_> = servers.chain(nowhere).collect();
        let callers = state.callers.iter().map(|(name, caller)| {
            let load = Load { under_way: caller.under_way, waiting: caller.waiting };
            (name.clone(), load)
        });
        let mut callers: Vec<_> = callers.filter(|(_, load)| *load != Load::default()).collect();
        drop(state);
        servers.sort_by(|a, b| a.0.cmp(&b.0));
        callers.sort_by(|a, b| b.1.total().cmp(&a.1.total()).then_with(|| a.0.cmp(&b.0)));
        let callers = self.by_name(callers);
        let (too_often, too_many) = (self.0.too_often.load(Relaxed), self.0.too_many.load(Relaxed));
        Gauge { servers, callers, crushes, too_often, too_many }
    }
}

impl Gate {
    /// Those who have a name here, or get one of those that are left; the others together, at the end.
    fn by_name(&self, callers: Vec<(CallerName, Load)>) -> Vec<(Option<CallerName>, Load)> {
        let mut named = self.0.named.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut told, mut others) = (Vec::new(), Load::default());
        for (caller, load) in callers {
            if named.len() < CALLERS || named.contains(&caller) {
                named.insert(caller.clone());
                told.push((Some(caller), load));
            } else {
                others.under_way += load.under_way;
                others.waiting += load.waiting;
            }
        }
        told.extend((others != Load::default()).then_some((None, others)));
        told
    }
}

impl Gauge {
    /// How much more there was to do at a server than could be.
    pub(in crate::gateway) fn crush(&self, server: &ServerName) -> Crush {
        self.crushes.get(server).copied().unwrap_or_default()
    }
}

impl Inner {
    /// Somebody was refused what it wanted of a server.
    pub(super) fn refused(&self, server: Option<&ServerName>, why: Why) {
        let mut state = self.lock();
        let mut nothing = Crush::default();
        let crush = state.at(server).map_or(&mut nothing, |at| &mut at.crush);
        let (here, all) = match why {
            Why::Requests | Why::Calls => (&mut crush.too_often, &self.too_often),
            Why::Much => (&mut crush.too_many, &self.too_many),
        };
        *here += 1;
        metrics::count(all);
    }
}

impl Load {
    fn total(self) -> usize {
        self.under_way + self.waiting
    }
}
