//! How often something may be done: so many times a second, and a few more at once.

use std::time::Duration;

use tokio::time::Instant;

use super::{Overloaded, Why};

/// What is left of a rate.
#[derive(Debug)]
pub(super) struct Bucket {
    left: f64,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) of: Why,
    pub(super) a_second: f64,
    pub(super) at_once: f64,
}

// === impl Bucket ===

impl Bucket {
    pub(super) fn full(rate: Rate) -> Self {
        Self { left: rate.at_once, at: Instant::now() }
    }

    pub(super) fn refill(&mut self, rate: Rate) -> f64 {
        let now = Instant::now();
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * rate.a_second).min(rate.at_once);
        self.at = now;
        self.left
    }

    pub(super) fn take(&mut self, rate: Rate) -> Result<(), Overloaded> {
        let left = self.refill(rate);
        if left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        let wait = Duration::try_from_secs_f64((1.0 - left) / rate.a_second);
        Err(Overloaded::often(rate.of, wait.ok()))
    }
}
