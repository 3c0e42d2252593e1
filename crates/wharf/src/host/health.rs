//! Whether the servers are still there.
//!
//! In: the servers that can be seen from here. Out: how each one that has a connection is. One that was lost is made
//! again. One that does not answer keeps its connection, since calls may be under way on it: whether to end them is not
//! decided here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::server::Server;
use super::{Host, STARTING};
use crate::config::Connect;
use crate::connect::Berth;
use crate::error::Result;
use crate::event::{Circuit, State};
use crate::names::ServerName;

/// How a server is that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// Its connection is the one that it had, and it answers.
    Alive,
    /// It was lost, and is connected again.
    Reconnected,
}

/// How a server is at the moment, as far as is known without asking it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Condition {
    /// The server.
    pub server: ServerName,
    /// How many calls are under way, those that wait for leave or for a connection too.
    pub in_flight: usize,
    /// Its instances: mostly one.
    pub instances: Vec<Instance>,
}

/// How one instance of a server is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Instance {
    /// What its connection is doing.
    pub state: State,
    /// Whether it is asked, or left alone because it fails.
    pub circuit: Circuit,
    /// How many times in a row it gave no sign of life.
    pub missed_checks: u32,
    /// It was lost too often to be connected again before somebody needs it.
    pub given_up: bool,
    /// Why it is left alone, or cannot be reached, if it is known to be so.
    pub trouble: Option<String>,
}

impl Host {
    /// How the servers that can be seen from here are. Nobody is asked.
    pub fn conditions(&self) -> Vec<Condition> {
        let of = |server: Arc<Server>| Condition {
            server: server.config.name.clone(),
            in_flight: server.duty().count(),
            instances: server.condition(),
        };
        self.scope.all_servers().into_iter().map(of).collect()
    }

    /// Asks every server that has a connection, or lost it, for a sign of life. What was lost is connected again; an
    /// error is a server that is gone, or silent for as long as a call may be. Nothing is started that nobody used yet or
    /// that was disconnected on purpose. A server with several instances stands there once for each of these.
    pub async fn check_connections(&self) -> Vec<(ServerName, Result<Health>)> {
        let enabled = self.scope.all_servers().into_iter().filter(|server| server.config.enabled);
        // By the server's own settings: its place may have been made under others.
        let berths = enabled.flat_map(|server| {
            let timeout = server.config.timeout;
            server.berths().into_iter().map(move |berth| (berth, timeout))
        });
        let asked = berths.filter(|(berth, _)| {
            matches!(berth.state(), State::Connected | State::Reconnecting) || berth.is_given_up()
        });
        let checks = asked.map(|(berth, timeout)| async move {
            (berth.config().name.clone(), check(&berth, timeout).await)
        });
        futures_util::stream::iter(checks).buffered(STARTING).collect().await
    }
}

impl Host {
    /// How long a server that stays away is left to itself after so many tries: longer than the last of those that are made by
    /// themselves, and twice as long each time.
    pub(crate) fn patience_with_lost(&self, tries: u32) -> Duration {
        let first = self.scope.pool.dock().retry_pause.saturating_mul(16);
        first.saturating_mul(2_u32.saturating_pow(tries))
    }

    /// Tries a server again that is known to be away, unless it is left alone. Whether it was away.
    pub(crate) async fn try_again(&self, server: &ServerName) -> bool {
        let Ok(server) = self.scope.server(server.as_str()) else { return false };
        let is_manual = server.config.connect == Connect::Manual;
        if is_manual || server.state() == State::Reconnecting || server.trouble().is_none() {
            return false;
        }
        if server.admits().is_ok() {
            // How it went is noted where everybody looks for it.
            let _ = server.connection().await;
        }
        true
    }
}

impl Instance {
    pub(super) fn of(berth: &Berth) -> Self {
        Self {
            state: berth.state(),
            circuit: berth.circuit(),
            missed_checks: berth.missed_checks(),
            given_up: berth.is_given_up(),
            trouble: berth.trouble(),
        }
    }
}

async fn check(berth: &Berth, timeout: Duration) -> Result<Health> {
    if let Some(connection) = berth.live() {
        match connection.sign_of_life(timeout).await {
            // Lost only now, or noticed only now.
            Err(error) if !connection.is_open() && error.is_retryable() => {}
            answered => return answered.map(|()| Health::Alive),
        }
    }
    let connection = berth.connection().await?;
    connection.sign_of_life(timeout).await.map(|()| Health::Reconnected)
}
