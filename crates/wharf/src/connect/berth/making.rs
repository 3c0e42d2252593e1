//! How the connection of a place is made.
//!
//! In: a place without one, and why it is wanted. Out: one connection for everybody who wants it. It is made by a task of
//! its own, so it does not end with whoever wanted it first: the next one finds it made, or waits for the same. What ends
//! it is its time, a disconnection, or that nobody has the place any more.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::Instant;

use super::{Berth, Dock, Place, health, remake};
use crate::config::{Connect, ServerConfig};
use crate::connect::Connection;
use crate::connect::breaker::Breaker;
use crate::error::{Error, Result};
use crate::event::State;

/// What is known of the connections that were made.
#[derive(Default)]
pub(super) struct Making {
    /// Somebody connected it by hand, which a manual server needs.
    pub(super) by_hand: bool,
    /// Losses since the connection last proved stable.
    pub(super) losses: u32,
    /// When making it failed the last time, and why: whoever waited for that need not try the same again.
    failed: Option<(Instant, Error)>,
}

/// Why a connection is made.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Why {
    /// Somebody needs it.
    Use,
    /// Somebody said so.
    ByHand,
    /// It was lost.
    Lost,
}

/// The making of a connection. Dropped before its end, it leaves a state behind that is true.
struct Attempt {
    /// Not kept by it: a place that nobody has any more needs no connection.
    place: Weak<Place>,
    config: Arc<ServerConfig>,
    dock: Arc<Dock>,
    breaker: Arc<Breaker>,
    stop: watch::Receiver<u64>,
    /// Held to the end, so that whoever disconnects the place waits for it.
    making: OwnedMutexGuard<Making>,
    /// The state to go back to, once it has begun and until it is over.
    back: Option<State>,
}

// === impl Berth ===

impl Berth {
    pub(super) async fn make(&self, why: Why) -> Result<Connection> {
        let stop = self.0.stop.subscribe();
        let asked = Instant::now();
        let mut making = Arc::clone(&self.0.making).lock_owned().await;
        making.by_hand |= why == Why::ByHand;
        if let Some(connection) = self.live() {
            return Ok(connection);
        }
        let not_connected = || Err(Error::NotConnected { server: self.0.config.name.clone() });
        // Asked here, where nobody else changes it: it may have been closed by hand since.
        if why == Why::Lost && self.state() != State::Reconnecting {
            return not_connected();
        }
        if self.0.config.connect == Connect::Manual && !making.by_hand {
            return not_connected();
        }
        if let (Why::Use, Some((at, error))) = (why, &making.failed)
            && *at > asked
        {
            return Err(error.clone());
        }
        let attempt = Attempt {
            place: Arc::downgrade(&self.0),
            config: Arc::clone(&self.0.config),
            dock: Arc::clone(&self.0.dock),
            breaker: Arc::clone(&self.0.breaker),
            stop,
            making,
            back: None,
        };
        match tokio::spawn(attempt.run(why)).await {
            Ok(made) => made,
            Err(e) => Err(Error::Internal(format!("a connection was not made to its end: {e}"))),
        }
    }
}

// === impl Attempt ===

impl Attempt {
    async fn run(mut self, why: Why) -> Result<Connection> {
        let breaker = Arc::clone(&self.breaker);
        // Whoever says so by hand is not refused, and what was lost is tried again by a clock of its own.
        let passage = breaker.enter();
        let passage = if why == Why::Use { Some(passage?) } else { passage.ok() };
        self.begin();
        let opened = tokio::select! {
            biased;
            _ = self.stop.changed() => Err(self.stopped()),
            opened = self.dock.open(&self.config) => opened,
        };
        if let Some(passage) = passage {
            passage.connected(&opened);
        }
        let opened = opened.and_then(|connection| self.settle(connection));
        self.making.failed = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        if let (Err(error), Some(back)) = (&opened, self.back) {
            self.end(back, Some(error.to_string()));
        }
        opened
    }

    /// A connection that was lost is made again; any other is made for the first time.
    fn begin(&mut self) {
        let Some(place) = self.place.upgrade() else { return };
        let was = *place.state.borrow();
        let lost = matches!(was, State::Connected | State::Reconnecting);
        place.tell(if lost { State::Reconnecting } else { State::Connecting }, None);
        // While somebody else tries again, the failure of this attempt is not the end.
        self.back = Some(if was == State::Reconnecting { was } else { State::Disconnected });
    }

    /// Puts a connection into its place.
    fn settle(&mut self, connection: Connection) -> Result<Connection> {
        let place = self.place.upgrade().ok_or_else(|| self.stopped())?;
        connection.guard(&place.breaker);
        place.put(Some(&connection));
        place.given_up.store(false, Ordering::Release);
        self.end(State::Connected, None);
        connection.follow_changes();
        place.dock.peer.connected(&connection);
        if let Some(every) = self.config.resilience.health_check.every(&self.config.transport) {
            tokio::spawn(health::look_after(Weak::clone(&self.place), connection.downgrade(), every));
        }
        let ended = (connection.number(), connection.ended());
        tokio::spawn(remake::watch_over(Weak::clone(&self.place), ended, Instant::now()));
        Ok(connection)
    }

    fn end(&mut self, state: State, reason: Option<String>) {
        self.back = None;
        if let Some(place) = self.place.upgrade() {
            place.tell(state, reason);
        }
    }

    fn stopped(&self) -> Error {
        let name = &self.config.name;
        Error::Cancelled { reason: format!("server `{name}` was disconnected meanwhile"), sent: false }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(back) = self.back {
            self.end(back, Some("it was broken off with the program that it ran in".into()));
        }
    }
}
