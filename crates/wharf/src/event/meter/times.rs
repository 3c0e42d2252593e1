//! How long calls took.
//!
//! In: the time of each call. Out: how many took how long, told apart so finely that half of them, or all but one in a
//! hundred, are known to within an eighth, and never as slower than the slowest was. What is shown is `gateway`'s.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::BOUNDS;

/// The times of one tool's calls, as they come.
#[derive(Debug)]
pub(super) struct Times {
    parts: [AtomicU64; PARTS],
    nanos: AtomicU64,
    longest: AtomicU64,
}

/// How many calls took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// By the most that they took, in nanoseconds: one of the parts that times are told apart by.
    counts: BTreeMap<u64, u64>,
    longest: Option<Duration>,
}

/// Where the parts get wider: at the bounds, so that what is told by those is exact, and a few times beyond the last.
const ENDS: [u64; BOUNDS.len() + BEYOND] = {
    let (mut ends, mut n) = ([0; BOUNDS.len() + BEYOND], 0);
    while n < ends.len() {
        ends[n] = if n < BOUNDS.len() { BOUNDS[n] } else { ends[n - 1] * 2 };
        n += 1;
    }
    ends
};
/// A call may take twenty times its server's `timeout`: up to 80 minutes are told apart.
const BEYOND: usize = 4;
/// How wide a part is before each end: an eighth of its time at most, and a microsecond before the first.
const STEPS: [u64; ENDS.len()] = {
    let (mut steps, mut n) = ([1_000; ENDS.len()], 1);
    while n < steps.len() {
        steps[n] = ENDS[n - 1] / 8;
        n += 1;
    }
    steps
};
/// Which part is the first before each end, and behind the last.
const FIRST: [usize; ENDS.len() + 1] = {
    let (mut first, mut n) = ([0; ENDS.len() + 1], 0);
    while n < ENDS.len() {
        first[n + 1] = first[n] + ((ENDS[n] - beginning(n)) / STEPS[n]) as usize;
        n += 1;
    }
    first
};
/// The last are those that took longer than all that is told apart.
const PARTS: usize = FIRST[ENDS.len()] + 1;

const fn beginning(n: usize) -> u64 {
    if n == 0 { 0 } else { ENDS[n - 1] }
}

/// Before which end a time lies.
fn before(nanos: u64) -> usize {
    ENDS.partition_point(|end| *end < nanos)
}

/// The most that calls of a part took.
fn end_of(part: usize) -> u64 {
    match FIRST.partition_point(|first| *first <= part) - 1 {
        n if n == ENDS.len() => u64::MAX,
        n => beginning(n) + (part - FIRST[n] + 1) as u64 * STEPS[n],
    }
}

// === impl Times ===

impl Times {
    pub(super) fn add(&self, nanos: u64) {
        let part = match before(nanos) {
            n if n == ENDS.len() => PARTS - 1,
            n => FIRST[n] + ((nanos.saturating_sub(1) - beginning(n)) / STEPS[n]) as usize,
        };
        // It hardly ever is one.
        if nanos > self.longest.load(Relaxed) {
            self.longest.fetch_max(nanos, Relaxed);
        }
        self.parts[part].fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// By the bounds, and as finely as it is known.
    pub(super) fn read(&self) -> ([u64; BOUNDS.len() + 1], Durations) {
        let (mut buckets, mut counts) = ([0; BOUNDS.len() + 1], BTreeMap::new());
        for (part, count) in self.parts.iter().map(|count| count.load(Relaxed)).enumerate() {
            if count > 0 {
                let bound = FIRST[..=BOUNDS.len()].partition_point(|first| *first <= part) - 1;
                buckets[bound] += count;
                counts.insert(end_of(part), count);
            }
        }
        let longest = (!counts.is_empty()).then(|| Duration::from_nanos(self.longest.load(Relaxed)));
        (buckets, Durations { counts, longest })
    }

    pub(super) fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }
}

impl Default for Times {
    fn default() -> Self {
        let parts = [const { AtomicU64::new(0) }; PARTS];
        Self { parts, nanos: AtomicU64::new(0), longest: AtomicU64::new(0) }
    }
}

// === impl Durations ===

impl Durations {
    /// What [`Durations::counts`] has told, and how long the longest took at most, if that is known.
    pub fn of(counts: impl IntoIterator<Item = (Option<u64>, u64)>, longest: Option<Duration>) -> Self {
        let counts = counts.into_iter().map(|(end, count)| (end.unwrap_or(u64::MAX), count));
        Self { counts: counts.collect(), longest }
    }

    /// How many took at most so many nanoseconds, and longer than the ones before; `None`: longer than is told apart.
    pub fn counts(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.counts.iter().map(|(end, count)| ((*end != u64::MAX).then_some(*end), *count))
    }

    /// How long the longest took.
    pub fn longest(&self) -> Option<Duration> {
        self.longest
    }

    /// Adds those of others.
    pub fn add(&mut self, others: &Self) {
        others.counts.iter().for_each(|(end, count)| *self.counts.entry(*end).or_default() += count);
        self.longest = self.longest.max(others.longest);
    }

    /// Those that came after these. Which of them took longest is not known, only that none took longer than any ever did.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let new = |(end, count): (&u64, &u64)| {
            let known = earlier.counts.get(end).copied().unwrap_or_default();
            (*end, count.saturating_sub(known))
        };
        let counts = self.counts.iter().map(new).filter(|(_, count)| *count > 0).collect();
        Self { counts, longest: self.longest }
    }

    /// In how much time so many of a hundred calls ended, to within an eighth; `None` of none.
    pub fn within(&self, hundredths: u64) -> Option<Duration> {
        let all: u64 = self.counts.values().sum();
        let rank = (all as f64 * hundredths as f64 / 100.0).max(1.0);
        let mut below = 0_u64;
        for (end, count) in &self.counts {
            if (below + count) as f64 >= rank {
                let longest = self.longest.unwrap_or(Duration::MAX);
                let n = before(*end);
                let Some(step) = STEPS.get(n) else {
                    return Some(self.longest.unwrap_or(Duration::from_nanos(ENDS[ENDS.len() - 1])));
                };
                // As if they were spread evenly over their part, as far as the longest of all.
                let share = (rank - below as f64) / *count as f64;
                let nanos = end.saturating_sub(*step) + (*step as f64 * share) as u64;
                return Some(Duration::from_nanos(nanos).min(longest));
            }
            below += count;
        }
        None
    }
}
