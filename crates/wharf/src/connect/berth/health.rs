//! A connection that is asked now and then whether there is anybody at its other end.
//!
//! In: a connection, and how often. Out: nothing while it answers. One that misses too many checks in a row while no call
//! is under way is given up as lost, and made again like any other; one with calls under way is only marked, because
//! their deadlines are theirs, and a server may be too busy with them to answer anything else.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Place;
use crate::connect::{Connection, Request, WeakConnection};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::mcp::{Era, method};
use crate::wire::Members;

/// How many checks in a row may be missed.
const MISSES: u32 = 3;
/// The longest that is waited for a sign of life. How long a call may be silent is another matter.
const PATIENCE: Duration = Duration::from_secs(10);

impl Connection {
    /// How many checks in a row it missed.
    pub(super) fn missed_checks(&self) -> u32 {
        self.live().missed.load(Ordering::Relaxed)
    }

    /// Asks the smallest question of its era. A server that refuses it has answered.
    pub(crate) async fn sign_of_life(&self, timeout: Duration) -> Result<()> {
        let method = match self.info().revision.era() {
            Era::Legacy => method::PING,
            Era::Modern => method::DISCOVER,
        };
        match self.request(Request::new(method, Members::new(), timeout)).await {
            Ok(_) | Err(Error::Rpc { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Looks after a connection until it ends, or nobody keeps it.
pub(super) async fn look_after(place: Weak<Place>, connection: WeakConnection, every: Duration) {
    let mut missed = 0;
    loop {
        // Not all at the same moment.
        tokio::time::sleep(every.mul_f64(1.0 + fastrand::f64() / 10.0)).await;
        let Some(connection) = connection.upgrade().filter(Connection::is_open) else { return };
        // One that is looked after every second is not waited for ten times as long.
        let answered = connection.sign_of_life(PATIENCE.min(every)).await;
        if !connection.is_open() {
            return;
        }
        let before = missed;
        missed = match answered {
            Err(Error::Timeout { .. } | Error::Connection { .. } | Error::Protocol { .. }) => missed + 1,
            _ => 0,
        };
        let Some(place) = place.upgrade() else { return };
        if missed != before {
            connection.live().missed.store(missed, Ordering::Relaxed);
            let (server, instance) = (place.config.name.clone(), place.config.instance());
            place.dock.events.publish(|| Event::Health { server, instance, missed });
        }
        if missed >= MISSES && connection.is_idle() {
            connection.lose(format!("it gave no sign of life, {missed} times in a row"));
            return;
        }
    }
}
