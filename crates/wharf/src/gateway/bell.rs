//! A bell that is rung when something was taken back from somebody, or everything ends.
//!
//! In: whoever has something under way, as an [`Listener`]. Out: whether it is time to look. A listener stays at its place from one
//! request to the next, so that one that is answered has cost next to nothing; what there is to see is `ending`'s to say.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// What is rung.
#[derive(Debug, Default)]
pub(super) struct Bell {
    /// How often it was.
    rung: AtomicU64,
    list: Mutex<List>,
}

/// Somebody who listens.
#[derive(Debug)]
pub(super) struct Listener<'a> {
    bell: &'a Bell,
    place: Option<(usize, Waker)>,
    /// How often it had been rung at the last look.
    looked: Option<u64>,
}

#[derive(Debug, Default)]
struct List {
    places: Vec<Option<Waker>>,
    free: Vec<usize>,
}

// === impl Bell ===

impl Bell {
    /// Somebody who will listen.
    pub(super) fn listener(&self) -> Listener<'_> {
        Listener { bell: self, place: None, looked: None }
    }

    /// Wakes everybody who listens. What there is to see must be there already.
    pub(super) fn ring(&self) {
        self.rung.fetch_add(1, Ordering::AcqRel);
        let awake: Vec<Waker> = self.lock().places.iter().flatten().cloned().collect();
        awake.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Listener ===

impl Listener<'_> {
    /// Whether it is time to look: at first, and whenever it was rung since. Whoever asks is woken then.
    pub(super) fn hears(&mut self, cx: &Context<'_>) -> bool {
        // Before the look: what is rung after it wakes.
        if !self.place.as_ref().is_some_and(|(_, known)| known.will_wake(cx.waker())) {
            self.listen(cx.waker());
        }
        let rung = self.bell.rung.load(Ordering::Acquire);
        self.looked.replace(rung) != Some(rung)
    }

    fn listen(&mut self, waker: &Waker) {
        let (waker, known) = (waker.clone(), Some(waker.clone()));
        let mut list = self.bell.lock();
        let number = match self.place.as_ref().map(|(number, _)| *number).or_else(|| list.free.pop()) {
            Some(number) => number,
            None => {
                list.places.push(None);
                list.places.len() - 1
            }
        };
        let before = std::mem::replace(&mut list.places[number], known);
        drop(list);
        self.place = Some((number, waker));
        // A waker may run anything when it goes.
        drop(before);
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        if let Some((number, _)) = self.place {
            let mut list = self.bell.lock();
            let waker = list.places[number].take();
            list.free.push(number);
            drop(list);
            drop(waker);
        }
    }
}
