//! How many connections callers may have to themselves.
//!
//! In: a lane that is to be used. Out: one of the places that there are, taken from whatever nobody uses where none is
//! free; or the word that there is none. A caller has its share of them and no more, whatever it says of itself.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lanes::Lane;
use crate::error::{Error, Result};
use crate::names::{CallerName, ServerName};

/// The places of one host.
#[derive(Debug)]
pub(super) struct Places {
    /// Those that nobody has. Further instances of a server take some, too.
    pub(super) free: Arc<Semaphore>,
    /// The lanes that have one, and some that had.
    taken: Mutex<Vec<Weak<Lane>>>,
    /// How many lanes may close at a time whose places have others already.
    closing: Arc<Semaphore>,
}

/// How many connections callers may have to themselves, all together.
pub(super) const LANES: usize = 128;
/// How many of them one caller may have.
pub(super) const SHARE: usize = LANES / 4;
/// Programs may take their time to leave, and are no more than this beside the others.
const CLOSING: usize = LANES / 8;
/// When it may be worth asking again: what is under way ends, and nobody knows when.
const SOON: Duration = Duration::from_secs(1);

// === impl Places ===

impl Places {
    /// A place for a lane that has none, and one user more for it.
    pub(super) fn seat(&self, lane: &Arc<Lane>) -> Result<()> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have been quicker.
        if lane.is_used_again() {
            return Ok(());
        }
        let mut lanes: Vec<Arc<Lane>> = taken.iter().filter_map(Weak::upgrade).collect();
        lanes.retain(|lane| lane.has_place());
        // Whoever comes without a key is not told from others who do, and has no share.
        let own = lanes.iter().filter(|other| other.caller == lane.caller).count();
        let place = if own >= SHARE && lane.caller != CallerName::local() {
            lanes.retain(|other| other.caller == lane.caller);
            self.take_over(lanes)
        } else {
            Arc::clone(&self.free).try_acquire_owned().ok().or_else(|| self.take_over(lanes))
        };
        taken.retain(|lane| lane.upgrade().is_some_and(|lane| lane.has_place()));
        lane.sit(place.ok_or_else(|| crowded(lane))?);
        taken.push(Arc::downgrade(lane));
        Ok(())
    }

    /// The place of the lane that was not used for longest, which closes. None of those that somebody uses.
    fn take_over(&self, mut lanes: Vec<Arc<Lane>>) -> Option<OwnedSemaphorePermit> {
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let room = Arc::clone(&self.closing).try_acquire_owned().ok()?;
        lanes.sort_by_key(|lane| lane.used());
        let (place, closing) = lanes.iter().find_map(|lane| lane.rest(Duration::ZERO))?;
        if let Some(closing) = closing {
            runtime.spawn(async move {
                closing.await;
                drop(room);
            });
        }
        Some(place)
    }
}

impl Default for Places {
    fn default() -> Self {
        let (free, closing) = (Arc::new(Semaphore::new(LANES)), Arc::new(Semaphore::new(CLOSING)));
        Self { free, taken: Mutex::default(), closing }
    }
}

fn crowded(lane: &Lane) -> Error {
    Error::Overloaded {
        server: lane.berth.config().name.clone(),
        reason: "too many connections that callers have to themselves are in use".into(),
        retry_after: SOON,
    }
}

/// The refusal among what failed, if there is one: then nobody knows what else there is.
pub(super) fn refused(failed: &[(ServerName, Error)]) -> Option<Error> {
    failed.iter().map(|(_, error)| error).find(|error| matches!(error, Error::Overloaded { .. })).cloned()
}
