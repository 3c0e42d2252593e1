//! A value that may be replaced while others use it: rules that a person edits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

/// What holds now. Clones share it: whoever replaces it replaces it for all.
#[derive(Clone)]
pub struct Live<T>(Arc<Held<T>>);

struct Held<T> {
    value: ArcSwap<T>,
    /// How often it was replaced. To see that it was not costs less than to look at it again.
    times: AtomicU64,
}

/// The same for what is mostly not there. To see that it is not costs no more than to read a flag.
pub(crate) struct Rare<T> {
    is_there: AtomicBool,
    value: ArcSwapOption<T>,
}

impl<T> Live<T> {
    /// The value as it is now. It stays as it is for whoever holds it.
    pub fn now(&self) -> Arc<T> {
        self.0.value.load_full()
    }

    /// A longer look, for as long as nobody is waited for, and how often it has been replaced.
    pub(crate) fn look(&self) -> (Guard<Arc<T>>, u64) {
        // In this order: what is replaced in between is taken for replaced.
        let times = self.0.times.load(Ordering::Acquire);
        (self.0.value.load(), times)
    }

    /// Whether it was not replaced since then.
    pub(crate) fn is_as_of(&self, times: u64) -> bool {
        self.0.times.load(Ordering::Acquire) == times
    }

    /// A look at the value as it is now.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.0.value.load())
    }

    /// Puts another in its place.
    pub fn replace(&self, value: T) {
        self.0.value.store(Arc::new(value));
        self.0.times.fetch_add(1, Ordering::Release);
    }
}

impl<T> From<T> for Live<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(Held { value: ArcSwap::from_pointee(value), times: AtomicU64::new(0) }))
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.now().fmt(f)
    }
}

// === impl Rare ===

impl<T> Rare<T> {
    /// The value, if there is one.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        if self.is_there.load(Ordering::Acquire) { self.value.load_full() } else { None }
    }

    /// Puts it there.
    pub(crate) fn put(&self, value: Arc<T>) {
        self.value.store(Some(value));
        self.is_there.store(true, Ordering::Release);
    }

    /// Makes it of what is there. Of two at once neither is lost.
    pub(crate) fn change(&self, change: impl Fn(Option<&T>) -> T) {
        self.value.rcu(|now| Some(Arc::new(change(now.as_deref()))));
        self.is_there.store(true, Ordering::Release);
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self { is_there: AtomicBool::new(false), value: ArcSwapOption::empty() }
    }
}
