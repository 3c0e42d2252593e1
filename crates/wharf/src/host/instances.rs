//! One server, however many instances it has.
//!
//! In: a server, and what is wanted of it. Out: the same from its one place or from those of its instances: whether it is
//! asked, a connection, a state. Which instance takes a call is decided in `host/fleet.rs`.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::sync::Semaphore;

use super::fleet::{Aboard, Fleet, more_telling};
use super::health::Instance;
use super::server::Server;
use crate::connect::{Berth, Connection};
use crate::error::{Error, Result};
use crate::event::{Event, State};

// === impl Server ===

impl Server {
    /// Its instances as they are for everybody, where there are several.
    pub(super) fn instances(&self) -> Option<&Arc<Fleet>> {
        self.view.as_ref().map_or(self, |view| &view.of).fleet.as_ref()
    }

    /// Every place of it.
    pub(super) fn berths(&self) -> Vec<Berth> {
        match &self.fleet {
            Some(fleet) => fleet.berths().cloned().collect(),
            None => vec![self.berth.clone()],
        }
    }

    /// An error if a call would be refused now.
    #[inline]
    pub(super) fn admits(&self) -> Result<()> {
        match &self.fleet {
            None => self.berth.admits(),
            Some(fleet) => {
                let mut refused = None;
                for berth in fleet.berths() {
                    match berth.admits() {
                        Ok(()) => return Ok(()),
                        Err(error) => refused = Some(more_telling(refused, error)),
                    }
                }
                refused.map_or(Ok(()), Err)
            }
        }
    }

    /// A connection for a call, to whichever instance takes it.
    pub(super) async fn board(&self, places: &Arc<Semaphore>) -> Result<(Connection, Option<Aboard>)> {
        self.board_at((&self.berth, self.fleet.as_ref()), places).await
    }

    /// The same where somebody has connections of its own.
    pub(super) async fn board_at(
        &self,
        (berth, fleet): (&Berth, Option<&Arc<Fleet>>),
        places: &Arc<Semaphore>,
    ) -> Result<(Connection, Option<Aboard>)> {
        match fleet {
            None => Ok((berth.connection().await?, None)),
            Some(fleet) => {
                let (connection, aboard) = fleet.board(self, places, None).boxed().await?;
                Ok((connection, Some(aboard)))
            }
        }
    }

    /// A connection for what is no call: the one that its tools were seen over, or that of the first instance that can be
    /// reached.
    pub(super) async fn any_connection(&self) -> Result<Connection> {
        let Some(fleet) = &self.fleet else { return self.berth.connection().await };
        let is_seen = |live: &Connection| !fleet.is_of_caller() && self.tools.is_of(live.number());
        if let Some(seen) = fleet.berths().filter_map(Berth::live).find(is_seen) {
            return Ok(seen);
        }
        let mut refused = None;
        for berth in fleet.seated() {
            match berth.connection().await {
                Ok(connection) => return Ok(connection),
                Err(error) => drop(refused.get_or_insert(error)),
            }
        }
        Err(refused.unwrap_or_else(|| Error::Internal("a server without instances".into())))
    }

    /// A connection for the same to another instance than those, each of which has failed; `None` if that were all.
    pub(super) async fn connection_but(&self, failed: &[u64]) -> Option<Connection> {
        let fleet = self.fleet.as_ref().filter(|fleet| failed.len() < fleet.berths().count())?;
        for berth in fleet.seated().filter(|berth| !failed.contains(&berth.number())) {
            if let Ok(connection) = berth.connection().await {
                return Some(connection);
            }
        }
        None
    }

    /// Whether its tools were seen over a connection that is still there.
    #[inline]
    pub(super) fn was_seen_here(&self) -> bool {
        match &self.fleet {
            None => self.tools.is_of(self.berth.number()),
            // What a caller sees is what there is where it is now.
            Some(fleet) => {
                let places = if fleet.is_of_caller() { 1 } else { fleet.berths().count() };
                fleet.seated().take(places).any(|berth| self.tools.is_of(berth.number()))
            }
        }
    }

    /// A live connection, if there is one.
    pub(super) fn live(&self) -> Option<Connection> {
        match &self.fleet {
            None => self.berth.live(),
            Some(fleet) => {
                let live = || fleet.seated().filter_map(Berth::live);
                live().find(|live| self.tools.is_of(live.number())).or_else(|| live().next())
            }
        }
    }

    /// What its connections are doing: the best of them.
    pub(super) fn state(&self) -> State {
        let Some(fleet) = &self.fleet else { return self.berth.state() };
        let has = |state: State| fleet.berths().any(|berth| berth.state() == state);
        [State::Connected, State::Reconnecting, State::Connecting]
            .into_iter()
            .find(|state| has(*state))
            .unwrap_or(State::Disconnected)
    }

    /// Closes every connection to it.
    pub(super) async fn disconnect(&self) {
        match &self.fleet {
            None => self.berth.disconnect().await,
            Some(fleet) => drop(futures_util::future::join_all(fleet.berths().map(Berth::disconnect)).await),
        }
    }

    /// How each of its instances is.
    pub(super) fn condition(&self) -> Vec<Instance> {
        match &self.fleet {
            Some(fleet) => fleet.conditions(),
            None => vec![Instance::of(&self.berth)],
        }
    }

    /// What is told of an instance that offers something else.
    pub(super) fn misfit(&self, number: usize) -> Event {
        let server = self.config.name.clone();
        let more = if self.is_locked() { "it is not used" } else { "calls go there all the same" };
        let message = format!(
            "instance {} of `{server}` offers other tools than the one that was looked at; {more}",
            number + 1
        );
        Event::Warning { server, message }
    }
}
