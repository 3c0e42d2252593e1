//! Whether the servers are still there.
//!
//! In: the servers that can be seen from here. Out: how each one that has a connection is. One that was lost is made
//! again. One that does not answer keeps its connection, since calls may be under way on it: whether to end them is not
//! decided here.

use std::sync::Arc;

use futures_util::StreamExt;

use super::server::Server;
use super::{Host, STARTING};
use crate::connect::{Connection, Request};
use crate::error::{Error, Result};
use crate::event::State;
use crate::mcp::{Era, method};
use crate::names::ServerName;
use crate::wire::Members;

/// How a server is that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// Its connection is the one that it had, and it answers.
    Alive,
    /// It was lost, and is connected again.
    Reconnected,
}

impl Host {
    /// How many calls are under way at a server that can be seen from here, those that wait for leave or for its
    /// connection too.
    pub fn in_flight(&self, server: &str) -> usize {
        self.scope.server(server).map_or(0, |server| server.duty().count())
    }

    /// Asks every server that has a connection, or lost it, for a sign of life. What was lost is connected again; an
    /// error is a server that is gone, or silent for as long as a call may be. Nothing is started that nobody used yet or
    /// that was disconnected on purpose.
    pub async fn check_connections(&self) -> Vec<(ServerName, Result<Health>)> {
        let asked = self.scope.all_servers().into_iter().filter(|server| {
            server.config.enabled
                && (matches!(server.berth.state(), State::Connected | State::Reconnecting)
                    || server.berth.is_given_up())
        });
        let checks = asked.map(|server| async move { (server.config.name.clone(), check(&server).await) });
        futures_util::stream::iter(checks).buffered(STARTING).collect().await
    }
}

async fn check(server: &Arc<Server>) -> Result<Health> {
    if let Some(connection) = server.berth.live() {
        match sign_of_life(&connection, server).await {
            // Lost only now, or noticed only now.
            Err(error) if !connection.is_open() && error.is_retryable() => {}
            answered => return answered.map(|()| Health::Alive),
        }
    }
    let connection = server.berth.connection().await?;
    sign_of_life(&connection, server).await.map(|()| Health::Reconnected)
}

/// The smallest question of its era. A server that refuses it has answered.
async fn sign_of_life(connection: &Connection, server: &Server) -> Result<()> {
    let method = match connection.info().revision.era() {
        Era::Legacy => method::PING,
        Era::Modern => method::DISCOVER,
    };
    match connection.request(Request::new(method, Members::new(), server.config.timeout)).await {
        Ok(_) | Err(Error::Rpc { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
