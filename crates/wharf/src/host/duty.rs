//! Who uses a server at the moment, so that it can go when nobody does.
//!
//! Every call comes and goes here, so that costs an addition each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// The users of one server.
#[derive(Default)]
pub(super) struct Duty {
    /// How many use it, times [`USER`], and the flags.
    using: AtomicUsize,
    /// Rung when the last user left and somebody waits for that.
    empty: Notify,
}

/// One user, as long as it lives.
pub(super) struct User<'a>(&'a Duty);

/// Nobody new may come.
const OVER: usize = 1;
/// Somebody waits, or did, until nobody uses it.
const AWAITED: usize = 2;
const USER: usize = 4;

// === impl Duty ===

impl Duty {
    /// Uses the server; `None` if it is on its way out.
    pub(super) fn enter(&self) -> Option<User<'_>> {
        let one_more = |using: usize| (using & OVER == 0).then_some(using + USER);
        let came = self.using.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        came.is_ok().then_some(User(self))
    }

    /// How many use it now.
    pub(super) fn count(&self) -> usize {
        self.using.load(Ordering::Relaxed) / USER
    }

    /// Nobody new may use it.
    pub(super) fn end(&self) {
        self.using.fetch_or(OVER, Ordering::AcqRel);
    }

    /// Waits until nobody uses it, but no longer than this.
    pub(super) async fn idle(&self, deadline: Duration) {
        let empty = async {
            loop {
                // Before the look: whoever leaves after it is heard.
                let rung = self.empty.notified();
                if self.using.fetch_or(AWAITED, Ordering::AcqRel) < USER {
                    return;
                }
                rung.await;
            }
        };
        let _ = tokio::time::timeout(deadline, empty).await;
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let before = self.0.using.fetch_sub(USER, Ordering::AcqRel);
        if before & AWAITED != 0 && before < 2 * USER {
            self.0.empty.notify_waiters();
        }
    }
}
