//! A moment in which a thread stays awake, where what it waits for is likely to come in that moment.
//!
//! In: how often whoever runs the thread allows it. Out: what has come, read without a detour through the runtime and
//! the system's list of events. Nobody lingers on a thread that nobody allowed it on, and no thread that has others beside it
//! should be: they would sleep meanwhile (`docs/decisions/0025-a-moment-before-sleep.md`).

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::fd::AsFd;
use tokio::task::coop;

#[cfg(test)]
mod tests;

/// Whom a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A caller that may ask something.
    Caller,
    /// A server that was asked.
    Server,
}

/// How often waits of either kind may linger before the thread comes by the runtime again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// For callers.
    pub caller: u8,
    /// For servers.
    pub server: u8,
}

/// Whoever has the core for so long when it is given away wants more of it than to answer.
const LONG: Duration = Duration::from_millis(1);
/// So much is read at once; of more, the rest is left for whoever reads in the ordinary way.
const ROOM: usize = 8 * 1024;

thread_local! {
    static ALLOWED: Cell<Allowance> = const { Cell::new(Allowance { caller: 0, server: 0 }) };
    static CROWDED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<[u8; ROOM]> = const { RefCell::new([0; ROOM]) };
}

/// Says how often waits on this thread may linger from now on. Each time uses one up, so that everything else on the thread
/// has its turn.
pub fn allow(allowance: Allowance) {
    ALLOWED.set(allowance);
}

/// What is left of it.
pub fn allowed() -> Allowance {
    ALLOWED.get()
}

/// Lets whoever else has something to do on this core do it first. False if that took so long that others need the core:
/// then nobody lingers on this thread until it is allowed anew.
pub fn give_way() -> bool {
    let since = Instant::now();
    std::thread::yield_now();
    let has_room = since.elapsed() < LONG;
    if !has_room {
        CROWDED.set(true);
        ALLOWED.take();
    }
    has_room
}

/// Whether others needed the core since this was asked last.
pub fn was_crowded() -> bool {
    CROWDED.take()
}

/// Lingers, if that is allowed, and reads what has come by then. `None`: nothing, or something that is better seen in the
/// ordinary way, such as the end.
pub(crate) fn read(whom: For, from: impl AsFd, into: &mut BytesMut) -> Option<usize> {
    let mut allowed = ALLOWED.get();
    let left = match whom {
        For::Caller => &mut allowed.caller,
        For::Server => &mut allowed.server,
    };
    // A task that has had its share says that nothing has come, so that others have theirs.
    *left = left.checked_sub(1).filter(|_| coop::has_budget_remaining())?;
    ALLOWED.set(allowed);
    give_way();
    PLACE.with_borrow_mut(|place| {
        let more = rustix::io::read(from, &mut place[..]).ok().filter(|more| *more > 0)?;
        into.extend_from_slice(&place[..more]);
        Some(more)
    })
}
