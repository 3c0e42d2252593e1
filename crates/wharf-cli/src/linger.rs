//! A moment in which whoever serves stays awake, where what it waits for is likely to come in that moment.
//!
//! In: a gateway, and a thread that is about to sleep. Out: whether it looks once more instead, and how often waits may linger by themselves
//! (`wharf::linger`). To wake a core that sleeps takes longer than a quick server takes to answer, and everything that was at
//! hand there has to be fetched again (`docs/decisions/0025-a-moment-before-sleep.md`).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wharf::gateway::{Gateway, Pace};
use wharf::linger::{self, Allowance};

/// As long as it lives, this thread lingers before it sleeps. Nothing comes of it on a thread other than that of
/// [`before_sleep`].
pub(crate) struct Lingering(AbortHandle);

/// What goes on, who can be kept awake, and when that was good for something.
struct Post {
    gateway: Gateway,
    /// Told, there is something to do for the thread: it looks for what has happened, and does not sleep.
    awake: Arc<Notify>,
    habit: Habit,
}

/// How long waits were that ended.
#[derive(Debug)]
struct Habit {
    /// With more calls under way than there are other cores, one of them needs this one.
    cores: usize,
    pace: Pace,
    since: Instant,
    /// Whether the last wait of either kind was short: for somebody to call, and for the end of calls.
    short: [bool; 2],
    lingers: bool,
    /// Others need this core: it does not linger before then.
    crowded_until: Instant,
    /// How long that is, or was the last time.
    pause: Duration,
}

/// So long it lingers at the most, and only if the last wait of this kind was no longer.
const MOMENT: Duration = Duration::from_micros(100);
/// So often a wait lingers by itself before the thread looks for everything else.
const TURNS: u8 = 16;
/// How long nobody lingers where others needed the core: this, as it may have been once, twice as long each time that it is tried in vain, and no longer than
/// that. Once the core was given away it comes back only in its turn, while one that sleeps is let in first: so there it is better to sleep.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(10));

thread_local! {
    static POST: RefCell<Option<Post>> = const { RefCell::new(None) };
}

/// What a thread of one runtime alone does before it sleeps.
pub(crate) fn before_sleep() {
    POST.with_borrow_mut(|post| {
        let Some(post) = post else { return };
        let stays = post.habit.stays(post.gateway.pace(), Instant::now(), linger::was_crowded());
        linger::allow(post.habit.allowance());
        // Whoever else has something to do on this core does it first.
        if stays && linger::give_way() {
            post.awake.notify_one();
        }
    });
}

/// Which kind of wait it is.
fn kind(pace: Pace) -> usize {
    usize::from(pace.calls > 0)
}

// === impl Lingering ===

impl Lingering {
    pub(crate) fn begin(gateway: Gateway) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let awake = Arc::new(Notify::new());
        let habit = Habit::new(cores, gateway.pace(), Instant::now());
        POST.set(Some(Post { gateway, awake: Arc::clone(&awake), habit }));
        let looking = tokio::spawn(async move {
            loop {
                awake.notified().await;
            }
        });
        Self(looking.abort_handle())
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.0.abort();
        POST.take();
        linger::allow(Allowance::default());
    }
}

// === impl Habit ===

impl Habit {
    fn new(cores: usize, pace: Pace, now: Instant) -> Self {
        Self {
            cores,
            pace,
            since: now,
            short: [false; 2],
            lingers: false,
            crowded_until: now,
            pause: Duration::ZERO,
        }
    }

    /// Whether to stay awake. Where there is only one core, whoever is waited for needs that one.
    fn stays(&mut self, pace: Pace, now: Instant, was_crowded: bool) -> bool {
        // Waits that lingered by themselves were not seen one by one.
        let waits = u32::try_from(pace.moves.wrapping_sub(self.pace.moves)).unwrap_or(u32::MAX).max(1);
        let is_short = now.saturating_duration_since(self.since) / waits <= MOMENT;
        if was_crowded {
            self.pause(now);
        }
        if pace == self.pace {
            self.lingers &= is_short && !was_crowded;
        } else {
            self.short[kind(self.pace)] = is_short;
            (self.pace, self.since) = (pace, now);
            self.lingers = self.cores > 1 && self.short[kind(pace)] && self.has_room(now);
        }
        self.lingers
    }

    /// How often waits may linger by themselves.
    fn allowance(&self) -> Allowance {
        let [caller, server] =
            self.short.map(|short| if short && self.has_room(self.since) { TURNS } else { 0 });
        Allowance { caller, server }
    }

    fn has_room(&self, now: Instant) -> bool {
        self.pace.calls < self.cores.max(2) && now >= self.crowded_until
    }

    /// Others need this core.
    fn pause(&mut self, now: Instant) {
        let is_again = now.saturating_duration_since(self.crowded_until) < self.pause;
        self.pause = if is_again { PAUSES.1.min(self.pause * 2) } else { PAUSES.0 };
        self.crowded_until = now + self.pause;
    }
}

#[cfg(test)]
mod tests;
