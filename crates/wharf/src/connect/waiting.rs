//! The wait for one answer: until it comes, the connection ends, or the time is up.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::{Ended, Wire};
use super::life::{Answer, Life, Progress, Sign};
use super::link::{LinkFailure, Outgoing, Sent};
use super::reader::Turn;
use super::timekeeper;

/// The wait for one answer.
pub(super) struct Waiting<'a> {
    pub(super) wire: &'a Wire,
    pub(super) life: Arc<Life>,
    pub(super) timeout: Duration,
    pub(super) hard: Duration,
}

/// What came first.
enum First {
    Sign(Sign),
    Carried(Result<Sent, LinkFailure>),
    Step(Progress),
}

impl Waiting<'_> {
    pub(super) async fn run(
        &self,
        out: Outgoing<'_>,
        steps: &mut Option<mpsc::Receiver<Progress>>,
        listener: &mut Option<&mut (dyn FnMut(Progress) + Send)>,
    ) -> Ended {
        let mut tell = |step: Progress| {
            if let Some(listener) = listener.as_mut() {
                listener(step);
            }
        };
        let call = out.id;
        let carry = self.wire.link.carry(out);
        tokio::pin!(carry);
        // Over a pipe this is all there is to do.
        let (mut carried, mut sent) = match futures_util::poll!(&mut carry) {
            Poll::Ready(Ok(at)) => (true, at),
            Poll::Ready(Err(failure)) => return Ended::failed(failure, &self.life),
            Poll::Pending => (false, Sent(u64::MAX)),
        };
        // Most answers come at once: only a call that takes longer asks for a timer of its own, and leaves the reading
        // of the answer to others.
        let soon = self.timeout.min(self.hard) > 2 * timekeeper::TICK;
        if soon {
            let turn = self.wire.link.turn(call).filter(|_| self.life.standing.is_none());
            match self.first(turn, (!carried).then_some(carry.as_mut()), steps).await {
                First::Sign(Sign::Answer(answer)) => return self.end(answer, sent, steps, &mut tell),
                First::Sign(Sign::Late) => {}
                First::Carried(Ok(at)) => {
                    // Over HTTP the answer came with it.
                    if let Some(answer) = self.life.take_answer() {
                        return self.end(answer, at, steps, &mut tell);
                    }
                    (carried, sent) = (true, at);
                }
                First::Carried(Err(failure)) => return Ended::failed(failure, &self.life),
                First::Step(step) => tell(step),
            }
        }
        let deadline = tokio::time::sleep_until(self.deadline());
        tokio::pin!(deadline);
        let answer = loop {
            tokio::select! {
                biased;
                answer = poll_fn(|cx| self.life.poll_answer(cx)) => break answer,
                carried_to = &mut carry, if !carried => match carried_to {
                    Ok(at) => (carried, sent) = (true, at),
                    // The answer may have come in the same moment.
                    Err(failure) => match self.life.take_answer() {
                        Some(answer) => break answer,
                        None => return Ended::Failed(failure),
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
                    _ => return self.timed_out(),
                },
            }
        };
        self.end(answer, sent, steps, &mut tell)
    }

    /// Waits for whatever comes first. If it has a turn to read, it may be this call that reads its answer. What carries
    /// it was asked just now, and has to say when it is to be asked again.
    async fn first<C: Future<Output = Result<Sent, LinkFailure>>>(
        &self,
        mut turn: Option<Turn<'_>>,
        mut carry: Option<Pin<&mut C>>,
        steps: &mut Option<mpsc::Receiver<Progress>>,
    ) -> First {
        let mut just_asked = true;
        poll_fn(|cx| {
            if let Some(turn) = turn.as_mut().filter(|turn| turn.has_come()) {
                self.life.hush();
                turn.read(|| self.life.is_answered());
            }
            if let Some(carry) = &mut carry
                && !std::mem::take(&mut just_asked)
            {
                // It may bring the answer, which is looked for below.
                self.life.hush();
                if let Poll::Ready(carried) = carry.as_mut().poll(cx) {
                    return Poll::Ready(First::Carried(carried));
                }
            }
            if let Poll::Ready(sign) = self.life.poll_sign(cx) {
                return Poll::Ready(First::Sign(sign));
            }
            if let Some(steps) = steps
                && let Poll::Ready(Some(step)) = steps.poll_recv(cx)
            {
                return Poll::Ready(First::Step(step));
            }
            if let Some(turn) = &mut turn {
                turn.wait(cx.waker());
                if turn.may_linger() {
                    self.life.hush();
                    turn.linger(|| self.life.is_answered());
                    return self.life.poll_sign(cx).map(First::Sign);
                }
            }
            Poll::Pending
        })
        .await
    }

    fn end(
        &self,
        answer: Answer,
        sent: Sent,
        steps: &mut Option<mpsc::Receiver<Progress>>,
        tell: &mut dyn FnMut(Progress),
    ) -> Ended {
        // Steps that came before the answer are told before it.
        while let Some(Ok(step)) = steps.as_mut().map(mpsc::Receiver::try_recv) {
            tell(step);
        }
        Ended::of(answer, sent)
    }

    fn timed_out(&self) -> Ended {
        let silence = match self.wire.inbox.is_asking() {
            // It waits for us.
            true => Duration::ZERO,
            false => self.last_sign().elapsed(),
        };
        Ended::TimedOut { after: self.life.started().elapsed(), silence }
    }

    /// When to give up: the timeout after the last sign of life, and never after the hard limit.
    fn deadline(&self) -> Instant {
        later(self.last_sign(), self.timeout).min(self.last_moment())
    }

    /// When the server last gave a sign, or had its time anew because a question of its own was answered.
    fn last_sign(&self) -> Instant {
        let sign = self.life.last_sign();
        self.wire.inbox.last_answered().map_or(sign, |answered| sign.max(answered))
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
