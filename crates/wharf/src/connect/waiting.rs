//! The wait for one answer: until it comes, the connection ends, or the time is up.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::connection::{Ended, Wire};
use super::inbox::{Closed, Failure};
use super::life::{Life, Progress};
use super::link::{Outgoing, Sent};
use super::timekeeper;
use crate::wire::Json;

/// The wait for one answer.
pub(super) struct Waiting<'a> {
    pub(super) wire: &'a Wire,
    pub(super) life: Arc<Life>,
    pub(super) timeout: Duration,
    pub(super) hard: Duration,
}

impl Waiting<'_> {
    pub(super) async fn run(
        &self,
        out: Outgoing<'_>,
        mut answer: oneshot::Receiver<Result<Json, Failure>>,
        steps: &mut Option<mpsc::Receiver<Progress>>,
        listener: &mut Option<&mut (dyn FnMut(Progress) + Send)>,
    ) -> Ended {
        let mut tell = |step: Progress| {
            if let Some(listener) = listener.as_mut() {
                listener(step);
            }
        };
        let carry = self.wire.link.carry(out);
        tokio::pin!(carry);
        // Over a pipe this is all there is to do.
        let (mut carried, mut sent) = match futures_util::poll!(&mut carry) {
            Poll::Ready(Ok(at)) => (true, at),
            Poll::Ready(Err(failure)) => return Ended::failed(failure, &mut answer),
            Poll::Pending => (false, Sent(u64::MAX)),
        };
        // Most answers come at once: only a call that takes longer asks for a timer of its own.
        let soon = self.timeout.min(self.hard) > 2 * timekeeper::TICK;
        if soon {
            let late = self.life.until_late();
            tokio::pin!(late);
            tokio::select! {
                biased;
                ended = &mut answer => return self.end(ended, sent, steps, &mut tell),
                carried_to = &mut carry, if !carried => match carried_to {
                    Ok(at) => (carried, sent) = (true, at),
                    Err(failure) => return Ended::failed(failure, &mut answer),
                },
                Some(step) = next(steps) => tell(step),
                () = late => {}
            }
        }
        let deadline = tokio::time::sleep_until(self.deadline());
        tokio::pin!(deadline);
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut answer => break ended,
                carried_to = &mut carry, if !carried => match carried_to {
                    Ok(at) => (carried, sent) = (true, at),
                    // The answer may have come in the same moment.
                    Err(failure) => match answer.try_recv() {
                        Ok(ended) => break Ok(ended),
                        Err(_) => return Ended::Failed(failure),
                    },
                },
                Some(step) = next(steps) => tell(step),
                () = &mut deadline => match self.deadline() {
                    moment if moment > Instant::now() => deadline.as_mut().reset(moment),
                    // People take longer to answer than machines. The hard limit is theirs too.
                    _ if self.wire.inbox.is_asking() && self.last_moment() > Instant::now() => {
                        let moment = later(Instant::now(), self.timeout).min(self.last_moment());
                        deadline.as_mut().reset(moment);
                    }
                    _ => return Ended::TimedOut(self.life.started().elapsed()),
                },
            }
        };
        self.end(ended, sent, steps, &mut tell)
    }

    fn end(
        &self,
        ended: Result<Result<Json, Failure>, oneshot::error::RecvError>,
        sent: Sent,
        steps: &mut Option<mpsc::Receiver<Progress>>,
        tell: &mut dyn FnMut(Progress),
    ) -> Ended {
        // Steps that came before the answer are told before it.
        while let Some(Ok(step)) = steps.as_mut().map(mpsc::Receiver::try_recv) {
            tell(step);
        }
        match ended {
            Ok(ended) => Ended::of(ended, sent),
            Err(_) => Ended::Gone(Closed::by_us(), sent),
        }
    }

    /// When to give up: the timeout after the last sign of life, and never after the hard limit.
    fn deadline(&self) -> Instant {
        let sign = self.life.last_sign();
        let sign = self.wire.inbox.last_answered().map_or(sign, |answered| sign.max(answered));
        later(sign, self.timeout).min(self.last_moment())
    }

    fn last_moment(&self) -> Instant {
        later(self.life.started(), self.hard)
    }
}

/// A moment after another. "For ever" is thirty years: a moment cannot be any later than the clock can tell.
pub(super) fn later(moment: Instant, by: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    moment + by.min(FOR_EVER)
}

async fn next(steps: &mut Option<mpsc::Receiver<Progress>>) -> Option<Progress> {
    match steps {
        Some(steps) => steps.recv().await,
        None => std::future::pending().await,
    }
}
