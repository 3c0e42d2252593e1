//! How the servers are, as far as is known without asking any of them.
//!
//! In: places of servers, in all scopes. Out: states, connections and programs by server, for whoever watches.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::Host;
use super::health::Instance;
use crate::connect::Strays;
use crate::error::Error;
use crate::event::{Label, Meter, Reading, State};
use crate::names::ServerName;

/// How a server is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its name.
    pub name: ServerName,
    /// How it is reached: `stdio`, `http`.
    pub transport: &'static str,
    /// Whether it may be used.
    pub enabled: bool,
    /// What the connection is doing that all share; of several instances, the best of them.
    pub state: State,
    /// Its instances, mostly one: how the connection of each is, and whether it is asked.
    pub instances: Vec<Instance>,
    /// How many calls were sent again.
    pub retries: u64,
    /// What it has sent that nobody waited for, over all its connections since the start.
    pub strays: Strays,
    /// How many connections live, those that callers have to themselves with them.
    pub connections: usize,
    /// How many programs run that Wharf started for it, those that are not connected yet or on their way out too.
    pub processes: usize,
    /// Why it cannot be reached or is not asked at the moment, if it is known to be so.
    pub trouble: Option<Error>,
}

impl Host {
    /// How calls went, by tool. An agent hears of the tools that it sees.
    pub fn counts(&self) -> Vec<Reading> {
        let mut counts = self.core.meter.read();
        if self.scope.agent.is_some() {
            let snapshot = self.scope.snapshot();
            counts.retain(|reading| match &reading.of {
                Label::Tool(server, tool) => snapshot.find(server.as_str(), tool.as_str()).is_some(),
                _ => false,
            });
        }
        counts
    }

    /// Counts every call of every scope.
    pub(crate) fn meter(&self) -> &Meter {
        &self.core.meter
    }

    /// Every server that can be seen from here, in the order of the configuration. Nobody is asked.
    pub fn status(&self) -> Vec<ServerStatus> {
        let mut live: HashMap<ServerName, usize> = HashMap::new();
        let sessions = if self.scope.agent.is_none() { self.core.scopes() } else { Vec::new() };
        for scope in std::iter::once(&self.scope).chain(&sessions) {
            for berth in scope.pool.berths().iter().filter(|berth| berth.connected()) {
                *live.entry(berth.config().name.clone()).or_default() += 1;
            }
        }
        let running = |name: &ServerName| {
            let scopes = std::iter::once(&self.scope).chain(&sessions);
            scopes.map(|scope| scope.pool.dock().leaving.running(name)).sum()
        };
        let status = self.scope.all_servers().into_iter().map(|server| {
            let name = server.config.name.clone();
            ServerStatus {
                transport: server.config.transport_name(),
                enabled: server.config.enabled,
                state: server.state(),
                instances: server.condition(),
                retries: server.retries.load(Ordering::Relaxed),
                strays: self.scope.pool.dock().strays.of(&name),
                connections: live.get(&name).copied().unwrap_or_default(),
                processes: running(&name),
                // A connection that lives is no help while nobody is let through to it.
                trouble: server.trouble().or_else(|| server.admits().err()).filter(|_| server.config.enabled),
                name,
            }
        });
        status.collect()
    }
}
