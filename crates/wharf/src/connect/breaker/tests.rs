//! The breaker by itself, on a clock that stands still.

use std::sync::Barrier;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, advance};

use super::{Breaker, LONGEST, Passage};
use crate::config::{BreakerSettings, ServerConfig};
use crate::error::{Error, Result, StderrTail};
use crate::event::{Bus, Circuit, Event};
use crate::names::{ServerName, ToolName};
use crate::wire::RpcError;

const TIMEOUT: Duration = Duration::from_secs(30);

fn breaker(settings: Option<BreakerSettings>) -> (Breaker, tokio::sync::broadcast::Receiver<Event>) {
    let mut config = ServerConfig::stdio(name(), "x", [""; 0]);
    config.resilience.breaker = settings;
    let events = Bus::default();
    let heard = events.subscribe();
    (Breaker::new(&config, events), heard)
}

fn name() -> ServerName {
    ServerName::parse("pup").unwrap()
}

fn timeout(after: Duration) -> Error {
    Error::Timeout { server: name(), after, sent: true, stderr: StderrTail::default() }
}

fn lost() -> Error {
    let (method, reason) = ("tools/call".into(), "it exited".into());
    Error::UnknownOutcome { server: name(), method, reason, stderr: StderrTail::default() }
}

/// A call that ends so on a connection that stays open. What is told of it is silence from its beginning.
fn call(breaker: &Breaker, error: Option<Error>) -> Result<()> {
    let passage = breaker.enter()?;
    let was_silent = matches!(&error, Some(Error::Timeout { after, .. }) if *after >= TIMEOUT);
    let ended = error.map_or(Ok(()), |error| Err(Box::new(error)));
    passage.called((1, true), was_silent, &ended);
    ended.map_err(|error| *error)
}

fn pause_of(breaker: &Breaker) -> Duration {
    match breaker.admits() {
        Err(Error::Unavailable { retry_after, .. }) => retry_after,
        other => panic!("it should be open: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn l38_it_opens_after_five_failures_in_a_row_and_one_call_is_let_through_to_see() {
    let (breaker, mut heard) = breaker(Some(BreakerSettings::default()));
    for _ in 0..4 {
        call(&breaker, Some(timeout(TIMEOUT))).unwrap_err();
    }
    assert_eq!(breaker.circuit(), Circuit::Closed);
    call(&breaker, None).unwrap();
    for _ in 0..5 {
        assert_eq!(breaker.circuit(), Circuit::Closed, "a call that succeeds begins the count anew");
        call(&breaker, Some(timeout(TIMEOUT))).unwrap_err();
    }
    assert_eq!(breaker.circuit(), Circuit::Open);
    let refused = call(&breaker, None).unwrap_err();
    assert!(refused.kind() == "unavailable" && refused.is_retryable(), "{refused:?}");
    assert!(refused.to_string().contains("failed 5 times in a row"), "{refused}");
    let pause = pause_of(&breaker);
    assert!((2.0..=3.0).contains(&pause.as_secs_f64()), "{pause:?}");

    advance(pause).await;
    let probe = breaker.enter().unwrap();
    assert_eq!(breaker.circuit(), Circuit::HalfOpen);
    for _ in 0..100 {
        assert!(breaker.enter().is_err(), "exactly one is let through");
    }
    probe.called((1, true), false, &Ok(()));
    assert_eq!(breaker.circuit(), Circuit::Closed);
    call(&breaker, None).unwrap();
    let mut told = Vec::new();
    while let Ok(Event::Circuit { circuit, reason, .. }) = heard.try_recv() {
        assert_eq!(reason.is_some(), circuit == Circuit::Open);
        told.push(circuit);
    }
    assert_eq!(told, [Circuit::Open, Circuit::HalfOpen, Circuit::Closed]);
}

#[tokio::test(start_paused = true)]
async fn l38_each_probe_that_fails_makes_the_pause_longer_up_to_a_minute_and_a_half() {
    let (breaker, _heard) = breaker(Some(BreakerSettings { failures: 1, cool_down: Duration::from_secs(1) }));
    call(&breaker, Some(lost())).unwrap_err();
    for opened in 0..12 {
        let pause = pause_of(&breaker);
        let least = Duration::from_secs(1 << opened.min(10)).min(LONGEST);
        assert!(pause >= least && pause <= least.mul_f64(1.5), "{opened}: {pause:?}");
        advance(pause).await;
        call(&breaker, Some(lost())).unwrap_err();
    }
    advance(pause_of(&breaker)).await;
    call(&breaker, None).unwrap();
    call(&breaker, Some(lost())).unwrap_err();
    assert!(pause_of(&breaker) <= Duration::from_millis(1500), "what was is forgotten");
}

#[tokio::test(start_paused = true)]
async fn l38_a_probe_that_is_given_up_lets_the_next_one_through() {
    let (breaker, _heard) = breaker(Some(BreakerSettings { failures: 1, cool_down: Duration::from_secs(1) }));
    call(&breaker, Some(lost())).unwrap_err();
    advance(pause_of(&breaker)).await;
    let probe = breaker.enter().unwrap();
    assert!(breaker.enter().is_err());
    drop(probe);
    let begun = Instant::now();
    let probe = breaker.enter().unwrap();
    probe.connected(&Ok(()));
    let probe = breaker.enter().expect("that it was connected says nothing yet");
    probe.called((1, true), false, &Ok(()));
    assert_eq!((breaker.circuit(), begun.elapsed()), (Circuit::Closed, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn l38_a_living_server_never_opens_it_whatever_it_says() {
    let (breaker, mut heard) = breaker(Some(BreakerSettings { failures: 1, ..BreakerSettings::default() }));
    let (server, tool, rpc) = (name(), ToolName::parse("t").unwrap(), RpcError::new(-32000, "no"));
    let innocent = [
        Error::Tool { server: server.clone(), tool: tool.clone(), rpc: rpc.clone() },
        Error::Rpc { server: server.clone(), method: "resources/read".into(), rpc },
        Error::Arguments { server: server.clone(), tool, problems: Vec::new() },
        Error::Protocol {
            server: server.clone(),
            reason: "odd".into(),
            sent: true,
            stderr: StderrTail::default(),
        },
        Error::Cancelled { reason: "nobody waits".into(), sent: true },
        Error::Auth { server, reason: "401".into() },
        timeout(TIMEOUT - Duration::from_millis(1)),
    ];
    for error in innocent {
        for _ in 0..100 {
            call(&breaker, Some(error.clone())).unwrap_err();
        }
        assert_eq!(breaker.circuit(), Circuit::Closed, "{error:?}");
    }
    assert!(heard.try_recv().is_err());
    call(&breaker, Some(timeout(TIMEOUT))).unwrap_err();
    assert_eq!(breaker.circuit(), Circuit::Open, "the same wait as long as the server has");
}

#[tokio::test(start_paused = true)]
async fn l38_a_connection_that_is_lost_is_one_failure_however_many_calls_it_takes_along() {
    let (breaker, _heard) = breaker(Some(BreakerSettings { failures: 2, ..BreakerSettings::default() }));
    for _ in 0..100 {
        let passage = breaker.enter().unwrap();
        passage.called((7, false), false, &Err::<(), _>(lost().into()));
    }
    assert_eq!(breaker.circuit(), Circuit::Closed);
    breaker.enter().unwrap().called((8, false), false, &Err::<(), _>(lost().into()));
    assert_eq!(breaker.circuit(), Circuit::Open);
}

#[tokio::test(start_paused = true)]
async fn l38_without_settings_it_never_opens() {
    let (breaker, _heard) = breaker(None);
    for _ in 0..1000 {
        call(&breaker, Some(lost())).unwrap_err();
    }
    assert_eq!(breaker.circuit(), Circuit::Closed);
}

/// How many of so many that come at the same moment, each in a thread of its own, are let through. They stay inside.
fn crowd<'a>(breaker: &'a Breaker, inside: &mut Vec<Passage<'a>>) -> usize {
    let (runtime, gathered) = (Handle::current(), Barrier::new(16));
    let before = inside.len();
    std::thread::scope(|scope| {
        let come = || {
            // The clock is the runtime's.
            let _inside = runtime.enter();
            gathered.wait();
            breaker.enter().ok()
        };
        let all: Vec<_> = (0..16).map(|_| scope.spawn(come)).collect();
        inside.extend(all.into_iter().filter_map(|one| one.join().unwrap()));
    });
    inside.len() - before
}

#[tokio::test(start_paused = true)]
async fn l38_of_many_that_come_at_once_one_is_let_through_and_the_next_when_that_takes_too_long() {
    let (breaker, _heard) = breaker(Some(BreakerSettings { failures: 1, cool_down: Duration::from_secs(1) }));
    call(&breaker, Some(lost())).unwrap_err();
    let mut inside = Vec::new();
    assert_eq!(crowd(&breaker, &mut inside), 0, "it is open");
    let pause = pause_of(&breaker);
    advance(pause).await;
    assert_eq!(crowd(&breaker, &mut inside), 1);
    assert_eq!(crowd(&breaker, &mut inside), 0, "while it is out nobody else is");
    advance(pause).await;
    assert_eq!(crowd(&breaker, &mut inside), 1, "a probe that hangs keeps the next one back for a pause");
    drop(inside.remove(0));
    assert_eq!(
        crowd(&breaker, &mut inside),
        0,
        "the first that comes back does not open the door for a third"
    );
    inside.remove(0).called((1, true), false, &Ok(()));
    assert_eq!(breaker.circuit(), Circuit::Closed);
    assert_eq!(crowd(&breaker, &mut inside), 16, "and everybody is let through again");
}

#[tokio::test(start_paused = true)]
async fn l38_a_probe_that_fails_after_another_call_was_answered_is_one_failure_and_no_more() {
    let (breaker, _heard) = breaker(Some(BreakerSettings { failures: 3, cool_down: Duration::from_secs(1) }));
    let old = breaker.enter().unwrap();
    for _ in 0..3 {
        call(&breaker, Some(lost())).unwrap_err();
    }
    advance(pause_of(&breaker)).await;
    let probe = breaker.enter().unwrap();
    // What was sent before it opened is answered while the probe is out.
    old.called((1, true), false, &Ok(()));
    assert_eq!(breaker.circuit(), Circuit::Closed);
    probe.called((1, true), false, &Err::<(), _>(lost().into()));
    assert_eq!(breaker.circuit(), Circuit::Closed, "it is the first failure in a row");
    // The twin: of a probe that nobody came before, one failure is enough.
    for _ in 0..2 {
        call(&breaker, Some(lost())).unwrap_err();
    }
    advance(pause_of(&breaker)).await;
    call(&breaker, Some(lost())).unwrap_err();
    assert_eq!(breaker.circuit(), Circuit::Open);
}
