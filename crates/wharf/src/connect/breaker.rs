//! Whether a server is worth asking at the moment.
//!
//! In: how each call and each attempt to connect ended. Out: leave to try, or a refusal at once once it failed so often
//! in a row. After a pause one call is let through to see; if it fails too, the next pause is longer. A server that
//! answers is well, whatever it says: errors of tools and of arguments do not count.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::config::{BreakerSettings, ServerConfig};
use crate::error::{Error, Light, Result};
use crate::event::{Bus, Circuit, Event};
use crate::names::ServerName;

/// The breaker of one place.
pub(crate) struct Breaker {
    server: ServerName,
    /// Which of its instances, where there are several.
    instance: Option<usize>,
    /// `None`: it never opens.
    settings: Option<BreakerSettings>,
    events: Bus,
    /// [`WELL`], [`AILING`] or [`OPEN`]: all that a call of a server that is well looks at.
    level: AtomicU8,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    /// How often it failed in a row.
    failures: u32,
    /// The connection whose loss was counted last: all calls on it fail with it, and it is one failure.
    lost: Option<u64>,
    /// How often it opened in a row.
    opened: u32,
    /// When the pause is over; `None` while it is closed.
    until: Option<Instant>,
    /// Who was let through to see, if it has not come back: its number, and when that was.
    probing: Option<(NonZeroU64, Instant)>,
    /// How many were let through to see.
    probes: u64,
    /// How long the last pause was. A probe that takes longer does not keep the next one back.
    pause: Duration,
    /// How it failed the last time.
    last: String,
}

/// Leave to try. Given back without a word, it never was.
pub(super) struct Passage<'a> {
    breaker: &'a Breaker,
    /// Its number, if it was let through to see. Only the last one to go has a say of its own.
    probe: Option<NonZeroU64>,
}

/// What the end of a call says of the server.
enum Verdict {
    Well,
    Failed,
    Nothing,
}

const WELL: u8 = 0;
/// It failed lately, not often enough.
const AILING: u8 = 1;
const OPEN: u8 = 2;
/// The longest pause, unless the first is longer.
const LONGEST: Duration = Duration::from_secs(60);
/// How soon whoever looks whether it is well again may have come back.
const SOON: Duration = Duration::from_secs(1);

// === impl Breaker ===

impl Breaker {
    pub(super) fn new(config: &ServerConfig, events: Bus) -> Self {
        Self {
            server: config.name.clone(),
            instance: config.instance(),
            settings: config.resilience.breaker,
            events,
            level: AtomicU8::new(WELL),
            record: Mutex::default(),
        }
    }

    /// Whether the server is asked.
    pub(crate) fn circuit(&self) -> Circuit {
        if self.level.load(Ordering::Relaxed) < OPEN {
            return Circuit::Closed;
        }
        let record = self.lock();
        match record.until {
            None => Circuit::Closed,
            // When the pause is over, the next call is let through to see.
            Some(until) if record.probing.is_some() || until <= Instant::now() => Circuit::HalfOpen,
            Some(_) => Circuit::Open,
        }
    }

    /// An error if a call would be refused now. Takes no leave.
    #[inline]
    pub(crate) fn admits(&self) -> Result<()> {
        if self.level.load(Ordering::Relaxed) < OPEN {
            return Ok(());
        }
        self.refusal(&self.lock()).map_or(Ok(()), Err)
    }

    /// How the server failed, as long as that is not over: after a pause too, until somebody got through.
    pub(super) fn ailment(&self) -> Option<String> {
        if self.level.load(Ordering::Relaxed) < OPEN {
            return None;
        }
        let record = self.lock();
        record.until.map(|_| record.in_words())
    }

    /// Leave to call, or to connect for a call.
    #[inline]
    pub(super) fn enter(&self) -> Result<Passage<'_>> {
        if self.level.load(Ordering::Relaxed) < OPEN {
            return Ok(Passage { breaker: self, probe: None });
        }
        self.enter_to_see()
    }

    #[cold]
    fn enter_to_see(&self) -> Result<Passage<'_>> {
        let mut record = self.lock();
        if let Some(refusal) = self.refusal(&record) {
            return Err(refusal);
        }
        let probe = record.until.and_then(|_| {
            record.probes += 1;
            NonZeroU64::new(record.probes)
        });
        let before = record.probing;
        record.probing = probe.map(|number| (number, Instant::now()));
        drop(record);
        if probe.is_some() && before.is_none() {
            self.tell(Circuit::HalfOpen, None);
        }
        Ok(Passage { breaker: self, probe })
    }

    /// Why nobody is let through now.
    fn refusal(&self, record: &Record) -> Option<Error> {
        let until = record.until?;
        let now = Instant::now();
        let left = until.saturating_duration_since(now);
        let retry_after = match record.probing {
            // It may take as long as its call does: nobody else need wait for that.
            Some((_, since)) if now.duration_since(since) >= record.pause => return None,
            Some(_) => left.max(SOON),
            None if left.is_zero() => return None,
            None => left.max(Duration::from_millis(1)),
        };
        let reason = record.in_words();
        Some(Error::Unavailable { server: self.server.clone(), reason, retry_after })
    }

    /// It answered.
    #[inline]
    fn well(&self) {
        if self.level.load(Ordering::Relaxed) != WELL {
            self.recover();
        }
    }

    #[cold]
    fn recover(&self) {
        let mut record = self.lock();
        let was_open = record.until.is_some();
        *record = Record { lost: record.lost, probes: record.probes, ..Record::default() };
        self.level.store(WELL, Ordering::Relaxed);
        drop(record);
        if was_open {
            self.tell(Circuit::Closed, None);
        }
    }

    /// It failed. `lost` is the connection that was lost by it.
    #[cold]
    fn fail(&self, error: &Error, lost: Option<u64>, probe: Option<NonZeroU64>) {
        let Some(settings) = self.settings else { return };
        let mut record = self.lock();
        let probe = record.is_last(probe);
        if probe {
            record.probing = None;
        } else if lost.is_some() && record.lost == lost {
            return;
        }
        record.lost = lost.or(record.lost);
        record.failures = record.failures.saturating_add(1);
        record.last = error.to_string().lines().next().unwrap_or_default().to_owned();
        // What was under way when it opened says nothing new.
        let opens = probe || (record.until.is_none() && record.failures >= settings.failures);
        if !opens {
            self.level.fetch_max(AILING, Ordering::Relaxed);
            return;
        }
        let pause = settings.pause(record.opened);
        record.opened = record.opened.saturating_add(1);
        record.pause = pause;
        record.until = Some(Instant::now() + pause);
        self.level.store(OPEN, Ordering::Relaxed);
        let reason = record.in_words();
        drop(record);
        self.tell(Circuit::Open, Some(reason));
    }

    /// What the end of a call says of the server. `was_silent`: for as long as it may be. Whoever waited for less learned
    /// nothing, and one that was heard until the end is there.
    fn verdict(error: &Error, is_open: bool, was_silent: bool) -> Verdict {
        match error {
            Error::Tool { .. } | Error::Rpc { .. } => Verdict::Well,
            Error::UnknownOutcome { .. } | Error::Busy { .. } | Error::Connection { retryable: true, .. } => {
                Verdict::Failed
            }
            Error::Timeout { .. } if was_silent => Verdict::Failed,
            Error::Protocol { .. } if !is_open => Verdict::Failed,
            _ => Verdict::Nothing,
        }
    }

    fn tell(&self, circuit: Circuit, reason: Option<String>) {
        let (server, instance) = (self.server.clone(), self.instance);
        self.events.publish(|| Event::Circuit { server, instance, circuit, reason });
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Record ===

impl Record {
    fn in_words(&self) -> String {
        format!("it failed {} times in a row, the last time: {}", self.failures, self.last)
    }

    /// Whether it is the probe that is looked at, and not one that others have gone after, or that came back too late.
    fn is_last(&self, probe: Option<NonZeroU64>) -> bool {
        probe.is_some() && self.probing.map(|(number, _)| number) == probe
    }
}

// === impl BreakerSettings ===

impl BreakerSettings {
    /// The first pause, twice as long, four times as long, each up to half as long again, so that not all come back at
    /// once.
    fn pause(self, opened: u32) -> Duration {
        let longest = LONGEST.max(self.cool_down);
        let base = self.cool_down.saturating_mul(2_u32.saturating_pow(opened)).min(longest);
        base + base.mul_f64(fastrand::f64() / 2.0)
    }
}

// === impl Passage ===

impl Passage<'_> {
    /// A call ended on a connection, by its number, which is open or not; the server was silent for as long as it may be,
    /// or not.
    #[inline]
    pub(super) fn called<T>(self, (number, is_open): (u64, bool), was_silent: bool, ended: &Light<T>) {
        match ended {
            Ok(_) => self.breaker.well(),
            Err(error) => match Breaker::verdict(error, is_open, was_silent) {
                Verdict::Well => self.breaker.well(),
                Verdict::Failed => self.failed(error, (!is_open).then_some(number)),
                Verdict::Nothing => {}
            },
        }
    }

    /// An attempt to connect ended. That a server starts does not say that it works.
    pub(super) fn connected<T>(self, ended: &Result<T>) {
        if let Err(error @ (Error::Connection { .. } | Error::Timeout { .. } | Error::Protocol { .. })) =
            ended
        {
            self.failed(error, None);
        }
    }

    #[cold]
    fn failed(mut self, error: &Error, lost: Option<u64>) {
        self.breaker.fail(error, lost, std::mem::take(&mut self.probe));
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if self.probe.is_some() {
            let mut record = self.breaker.lock();
            if record.is_last(self.probe) {
                record.probing = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
