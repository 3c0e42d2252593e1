//! How much is let through at a time: what was configured, and what part of it one caller may have.

use super::overloaded::Why;
use super::rate::Rate;
use crate::config::CallLimits;

/// How much is let through, until somebody says otherwise.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) limits: CallLimits,
    /// Whether there is more than one caller for whom something must be left.
    pub(super) is_shared: bool,
    /// Of one server's calls, how many may be one caller's.
    pub(super) share: usize,
    /// Of one server's queue, how much may be one caller's.
    pub(super) patience: usize,
}

// === impl Bounds ===

impl Bounds {
    pub(super) fn of(limits: CallLimits, is_shared: bool) -> Self {
        let all = limits.calls_per_server;
        // The queue is for all servers: also where there is one caller, one of them must not fill it.
        let (share, patience) = (if is_shared { (all / 2).max(1) } else { all }, (limits.waiting / 8).max(1));
        Self { limits, is_shared, share, patience }
    }

    /// Whether a caller with so many calls under way at a server, and so many in all, may have one more there. A server
    /// never has more of them than are left for the others: however many servers hang, the next one is reached.
    pub(super) fn has_room(&self, at_server: usize, in_all: usize) -> bool {
        at_server < self.share && at_server < self.limits.calls_per_caller.saturating_sub(in_all)
    }

    /// Whether one more call may wait at a server, where so many of its caller wait, and so many of all; `in_all` wait at
    /// all servers. As with calls, a server leaves as many places as it has.
    pub(super) fn may_wait(&self, (of_caller, at_server): (usize, usize), in_all: usize) -> bool {
        of_caller < self.patience && at_server < self.limits.waiting.saturating_sub(in_all)
    }

    /// How often one caller may ask.
    pub(super) fn rate(&self) -> Option<Rate> {
        let a_second = self.limits.requests_per_second?;
        let at_once = self.limits.burst.map_or(a_second * 2.0, |burst| burst as f64).max(1.0);
        Some(Rate { of: Why::Requests, a_second, at_once })
    }
}
