//! One clock for all calls of a connection.
//!
//! A timer of its own costs a call more than most calls take to be answered. So a call has none at first: one task for
//! the connection looks now and then who still waits, and only those watch their deadlines from then on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::inbox::Inbox;

/// How often somebody looks. Calls with less time than two of these watch their deadlines from the beginning.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// How many looks in a row may find nobody before the task ends.
const IDLE_TICKS: u32 = 20;

/// Sees to it that somebody looks. Call it when a call has begun to wait.
pub(super) fn keep(inbox: &Arc<Inbox>) {
    if !inbox.start_clock() {
        return;
    }
    tokio::spawn(look(Arc::downgrade(inbox)));
}

async fn look(inbox: Weak<Inbox>) {
    let mut idle = 0;
    loop {
        tokio::time::sleep(TICK).await;
        let Some(inbox) = inbox.upgrade() else { return };
        if inbox.is_closed() {
            return;
        }
        idle = if inbox.mark_late() { 0 } else { idle + 1 };
        if idle > IDLE_TICKS && inbox.stop_clock() {
            return;
        }
    }
}
