//! In: wake-ups of one connection. Out: a wake-up of whoever uses the connection, and of nobody while they are at it.
//! Sockets are not here; a connection is driven in `line.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Wake, Waker};

use futures_util::task::AtomicWaker;

/// What a connection wakes, for as long as it lives: what is behind it changes with every use.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// [`INSIDE`] while the connection is driven, [`STIRRED`] once something woke it since.
    state: AtomicU8,
    /// Whoever uses it, or keeps it.
    user: AtomicWaker,
    /// Whether to ask the system, and not only what is known, if the other side closed.
    look: AtomicBool,
}

const INSIDE: u8 = 1;
const STIRRED: u8 = 2;

// === impl Gate ===

impl Gate {
    /// Who is woken from now on.
    pub(super) fn belong_to(&self, user: &Waker) {
        self.user.register(user);
    }

    /// The connection is about to be driven: what stirs it now is seen by the one who drives it.
    pub(super) fn enter(&self) {
        self.state.store(INSIDE, Ordering::SeqCst);
    }

    /// It was driven. False if something stirred it meanwhile, which nobody was told.
    pub(super) fn leave(&self) -> bool {
        self.state.compare_exchange(INSIDE, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether something stirred it since it was driven last.
    pub(super) fn is_stirred(&self) -> bool {
        self.state.load(Ordering::SeqCst) & STIRRED != 0
    }

    /// The next read that finds nothing asks the system.
    pub(super) fn look_closely(&self) {
        self.look.store(true, Ordering::Relaxed);
    }

    /// Whether this read shall, once.
    pub(super) fn looks_closely(&self) -> bool {
        self.look.load(Ordering::Relaxed) && self.look.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(STIRRED, Ordering::SeqCst) & INSIDE == 0 {
            self.user.wake();
        }
    }
}
