//! The calls that wait for an answer.
//!
//! Ids count up from 1 and are never used again, and the low bits of an id are the slot its call waits in: an answer
//! finds its call without a search, and an answer to a call that is over never meets the next call in the same slot.
//! Ids stay small, because some servers keep them in 32 bits.

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
    /// Always a power of two, at least twice as many as calls wait. A call waits in slot `id % slots.len()`.
    slots: Vec<Option<(u64, T)>>,
    waiting: usize,
    /// The id given last.
    last: u64,
    /// Set when the connection is over: nothing may wait any more.
    closed: bool,
}

/// As many calls may wait on one connection; more is overload, not load.
const MOST: usize = 1 << 16;
const FIRST_SLOTS: usize = 16;

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { slots: Mutex::new(Slots { slots: Vec::new(), waiting: 0, last: 0, closed: false }) }
    }
}

impl<T> Pending<T> {
    /// Lets a call wait. Gives it back if too many wait already, or if the connection is over.
    pub fn insert(&self, call: T) -> Result<Ticket, T> {
        self.insert_counted(call).map(|(ticket, _)| ticket)
    }

    /// The same, and how many wait now.
    pub fn insert_counted(&self, call: T) -> Result<(Ticket, usize), T> {
        let mut slots = self.lock();
        if slots.closed || slots.waiting == MOST {
            return Err(call);
        }
        slots.make_room();
        // An id whose slot is taken is passed over. Half of the slots are free, so one comes soon.
        let index = loop {
            slots.last += 1;
            let index = slots.index(slots.last);
            if slots.slots[index].is_none() {
                break index;
            }
        };
        let id = slots.last;
        slots.slots[index] = Some((id, call));
        slots.waiting += 1;
        Ok((Ticket(id), slots.waiting))
    }

    /// Ends the wait of a call and gives back what it left here. `None` for an id that nobody waits for.
    pub fn take(&self, id: u64) -> Option<T> {
        let mut slots = self.lock();
        let (_, call) = slots.find(id)?.take()?;
        slots.waiting -= 1;
        Some(call)
    }

    /// Looks at a waiting call. `look` must not come back here: the calls are locked meanwhile.
    pub fn with<R>(&self, id: u64, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slots = self.lock();
        slots.find(id)?.as_mut().map(|(_, call)| look(call))
    }

    /// Looks at every waiting call. `look` must not come back here: the calls are locked meanwhile.
    pub fn each(&self, mut look: impl FnMut(&T)) {
        self.lock().slots.iter().flatten().for_each(|(_, call)| look(call));
    }

    /// The only waiting call, if exactly one waits.
    pub fn only(&self) -> Option<u64> {
        let slots = self.lock();
        if slots.waiting != 1 {
            return None;
        }
        slots.slots.iter().flatten().map(|(id, _)| *id).next()
    }

    /// The last number that a call went out under; zero before the first.
    pub fn last(&self) -> u64 {
        self.lock().last
    }

    /// How many calls wait.
    pub fn len(&self) -> usize {
        self.lock().waiting
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the wait of every call, and lets none wait from now on.
    pub fn close(&self) -> Vec<T> {
        let mut slots = self.lock();
        slots.closed = true;
        slots.waiting = 0;
        std::mem::take(&mut slots.slots).into_iter().flatten().map(|(_, call)| call).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        // Nothing here panics half way; a poisoned lock is as good as a clean one.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Slots<T> {
    /// The slot in which the call of that id waits.
    fn find(&mut self, id: u64) -> Option<&mut Option<(u64, T)>> {
        let index = self.index(id);
        self.slots.get_mut(index).filter(|slot| slot.as_ref().is_some_and(|(own, _)| *own == id))
    }

    fn index(&self, id: u64) -> usize {
        // The length is a power of two, so its predecessor is a mask; the cast keeps the bits that the mask keeps.
        (id as usize) & self.slots.len().wrapping_sub(1)
    }

    /// Doubles the slots before more than half of them are taken. Two ids that differ below the old mask differ below
    /// the new one, so every call finds a slot of its own.
    fn make_room(&mut self) {
        if self.waiting * 2 < self.slots.len() {
            return;
        }
        let wider = (self.slots.len() * 2).max(FIRST_SLOTS);
        let old = std::mem::replace(&mut self.slots, std::iter::repeat_with(|| None).take(wider).collect());
        for entry in old.into_iter().flatten() {
            let index = self.index(entry.0);
            self.slots[index] = Some(entry);
        }
    }
}
