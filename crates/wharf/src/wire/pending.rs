//! The calls that wait for an answer.
//!
//! A slab: the id of a call holds its slot and the slot's generation, so an answer finds its call without a search, and
//! an answer to a call that is over never meets the next call in the same slot.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls in flight, each with a value of its own.
#[derive(Debug)]
pub struct Pending<T> {
    slots: Mutex<Slots<T>>,
}

/// The number a call goes out under. Ids are whole numbers above zero and are never used twice on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    /// Set when the connection is over: nothing may wait any more.
    closed: bool,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u64,
    call: Option<T>,
}

/// As many calls may wait on one connection; more is overload, not load.
const SLOTS: u64 = 1 << 16;

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { slots: Mutex::new(Slots { slots: Vec::new(), free: Vec::new(), closed: false }) }
    }
}

impl<T> Pending<T> {
    /// Lets a call wait. Gives it back if too many wait already, or if the connection is over.
    pub fn insert(&self, call: T) -> Result<Ticket, T> {
        let mut slots = self.lock();
        if slots.closed {
            return Err(call);
        }
        let index = match slots.free.pop() {
            Some(index) => index,
            None if slots.slots.len() as u64 == SLOTS => return Err(call),
            None => {
                slots.slots.push(Slot { generation: 0, call: None });
                slots.slots.len() - 1
            }
        };
        let slot = &mut slots.slots[index];
        slot.call = Some(call);
        Ok(Ticket(slot.generation * SLOTS + index as u64 + 1))
    }

    /// Ends the wait of a call and gives back what it left here. `None` for an id that nobody waits for.
    pub fn take(&self, id: u64) -> Option<T> {
        let mut slots = self.lock();
        let index = slots.find(id)?;
        let slot = &mut slots.slots[index];
        slot.generation += 1;
        let call = slot.call.take();
        slots.free.push(index);
        call
    }

    /// Looks at a waiting call.
    pub fn with<R>(&self, id: u64, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slots = self.lock();
        let index = slots.find(id)?;
        slots.slots[index].call.as_mut().map(look)
    }

    /// The only waiting call, if exactly one waits.
    pub fn only(&self) -> Option<u64> {
        let slots = self.lock();
        let mut waiting = slots.slots.iter().enumerate().filter(|(_, slot)| slot.call.is_some());
        let (index, slot) = waiting.next()?;
        waiting.next().is_none().then_some(slot.generation * SLOTS + index as u64 + 1)
    }

    /// How many calls wait.
    pub fn len(&self) -> usize {
        let slots = self.lock();
        slots.slots.len() - slots.free.len()
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the wait of every call, and lets none wait from now on.
    pub fn close(&self) -> Vec<T> {
        let mut slots = self.lock();
        slots.closed = true;
        slots.free.clear();
        slots.slots.drain(..).filter_map(|slot| slot.call).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        // Nothing here panics while the lock is held; a poisoned lock is as good as a clean one.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Slots<T> {
    fn find(&self, id: u64) -> Option<usize> {
        let number = id.checked_sub(1)?;
        let index = usize::try_from(number % SLOTS).ok()?;
        let slot = self.slots.get(index)?;
        (slot.generation == number / SLOTS && slot.call.is_some()).then_some(index)
    }
}
