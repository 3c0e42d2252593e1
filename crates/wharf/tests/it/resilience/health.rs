//! Connections that are asked now and then: a dead one is made again, a busy one is left alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use wharf::config::HealthCheck;
use wharf::event::{Event, State};
use wharf_testkit::{Era, HttpPuppet, Puppet, Step};

use super::{alone, honest};
use crate::support::{
    at, count, echo, effects, error, folder, later, pid_in, puppet, received, soon, until, within,
};

const EVERY: Duration = Duration::from_secs(30);
/// By then it was asked once: not all are at the same moment.
const DUE: Duration = Duration::from_secs(34);

/// A server that is asked every half minute.
fn checked(script: &Puppet) -> wharf::config::ServerConfig {
    let mut config = puppet("pup", script);
    config.resilience.health_check = HealthCheck::Every(EVERY);
    config
}

fn question(era: Era) -> &'static str {
    if era == Era::Legacy { "ping" } else { "server/discover" }
}

#[tokio::test]
async fn l38_a_connection_that_gives_no_sign_of_life_is_made_again_in_both_eras() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let (pid, turns) = (at(&files, "pid"), at(&files, "turns"));
        // The question that finds the era out is the same as the sign of life in the modern era.
        let known = usize::from(era == Era::Modern);
        let mut answers = vec![vec![Step::Honest]; known];
        answers.extend(vec![vec![Step::Hang]; 3]);
        answers.push(vec![Step::Honest]);
        let steps = [Step::TurnsIn { file: turns, turns: answers }];
        let host = alone(checked(&Puppet::of(era).pid(&pid).on(question(era), steps))).await;
        assert!(echo(&host).await.success);
        let first = pid_in(&pid).await;
        let mut events = host.events().subscribe_but_calls();
        tokio::time::pause();
        let (mut missed, mut states) = (Vec::new(), Vec::new());
        while states != [State::Reconnecting, State::Connected] {
            match events.recv().await.unwrap() {
                Event::Health { missed: now, .. } => missed.push(now),
                Event::State { state, reason, .. } => {
                    if state == State::Reconnecting && states.is_empty() {
                        assert!(reason.unwrap().contains("no sign of life, 3 times in a row"));
                        // What follows is done by real processes.
                        tokio::time::resume();
                    }
                    if states.last() != Some(&state) {
                        states.push(state);
                    }
                }
                _ => {}
            }
        }
        assert_eq!(missed, [1, 2, 3], "{era:?}");
        assert!(echo(&host).await.success);
        assert_ne!(pid_in(&pid).await, first);
        assert_eq!(host.berth("pup").unwrap().missed_checks(), 0);
        host.close().await;
    }
}

#[tokio::test]
async fn l38_a_connection_with_calls_under_way_is_only_marked() {
    let files = folder();
    let (go, pid, log) = (at(&files, "go"), at(&files, "pid"), at(&files, "log"));
    let script = Puppet::of(Era::Legacy)
        .pid(&pid)
        .log(&log)
        .on("ping", [Step::Hang])
        .on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]);
    let mut config = puppet("pup", &script);
    // A sign of life is waited for just as long, and never comes.
    config.resilience.health_check = HealthCheck::Every(Duration::from_millis(20));
    let host = alone(config).await;
    host.tools().await;
    let mut events = host.events().subscribe_but_calls();
    let calling = tokio::spawn({
        let host = host.clone();
        let options = within(Duration::from_secs(3600), None);
        async move { host.call_with("pup_echo", json!({}).into(), options).await }
    });
    until("it is under way", || count(&received(&log), "tools/call") == 1).await;
    let mut last = 0;
    while last < 4 {
        match soon("a check", events.recv()).await.unwrap() {
            Event::Health { missed, .. } => last = missed,
            Event::State { state, reason, .. } => panic!("nothing happens to it: {state:?} {reason:?}"),
            _ => {}
        }
    }
    assert!(host.berth("pup").unwrap().missed_checks() >= 4);
    let first = pid_in(&pid).await;
    std::fs::write(&go, "").unwrap();
    let outcome = soon("the call", calling).await.unwrap();
    assert!(outcome.success, "{outcome:?}");
    // Now that nothing is under way, it goes.
    until("another process", || std::fs::read_to_string(&pid).is_ok_and(|p| p.trim() != first.to_string()))
        .await;
    host.close().await;
}

#[tokio::test]
async fn l38_a_server_that_answers_is_never_made_again_and_a_refusal_is_an_answer() {
    for steps in
        [vec![Step::Honest], vec![Step::ReplyError { code: -32601, message: "what?".into(), data: None }]]
    {
        let files = folder();
        let answered = at(&files, "answered");
        let steps = [steps, vec![Step::Count(answered.clone())]].concat();
        let host = alone(checked(&Puppet::of(Era::Legacy).on("ping", steps))).await;
        assert!(echo(&host).await.success);
        let mut events = host.events().subscribe_but_calls();
        for times in 1..=5 {
            later(DUE).await;
            until("it has answered", || effects(&answered) == times).await;
            // This answer comes after that one, in the same pipe.
            assert!(echo(&host).await.success);
        }
        while let Ok(event) = events.try_recv() {
            assert!(!matches!(event, Event::State { .. } | Event::Health { .. }), "{event:?}");
        }
        host.close().await;
    }
}

#[tokio::test]
async fn l38_a_program_is_not_asked_unless_somebody_says_so() {
    let files = folder();
    let log = at(&files, "log");
    let host = alone(puppet("pup", &Puppet::of(Era::Legacy).log(&log))).await;
    assert!(echo(&host).await.success);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    tokio::time::resume();
    assert!(echo(&host).await.success);
    assert_eq!(count(&received(&log), "ping"), 0);
    assert!(matches!(host.check_connections().await[..], [(_, Ok(wharf::host::Health::Alive))]));
    assert_eq!(count(&received(&log), "ping"), 1);
    assert_eq!(error(&host.call("pup_nothing", json!({})).await).kind(), "unknown_tool");
    host.close().await;
}

#[tokio::test(start_paused = true)]
async fn l38_a_sign_of_life_has_time_of_its_own_and_one_that_is_asked_for_what_the_last_reload_says() {
    // It takes five seconds, after the first question, which is asked to find its era out.
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let puppet = HttpPuppet::start(move |request| {
        let is_check =
            request.rpc_method() == "server/discover" && counted.fetch_add(1, Ordering::Relaxed) > 0;
        async move {
            if is_check {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            honest(request).await
        }
    });
    let timed = |seconds| {
        let name = wharf::names::ServerName::parse("pup").unwrap();
        let mut config = wharf::config::ServerConfig::http(name, &puppet.url()).unwrap();
        config.resilience.health_check = HealthCheck::Every(EVERY);
        config.timeout = Duration::from_secs(seconds);
        config
    };
    let host = alone(timed(1)).await;
    assert!(echo(&host).await.success);
    let mut events = host.events().subscribe_but_calls();
    tokio::time::sleep(10 * EVERY).await;
    assert!(asked.load(Ordering::Relaxed) > 5);
    while let Ok(event) = events.try_recv() {
        assert!(!matches!(event, Event::Health { .. }), "{event:?}");
    }
    let [(_, checked)] = &host.check_connections().await[..] else { panic!("one server") };
    assert!(checked.is_err(), "it is waited for as long as a call may be silent: {checked:?}");
    host.reconcile([timed(60)]).await.unwrap();
    let [(_, checked)] = &host.check_connections().await[..] else { panic!("one server") };
    assert!(checked.is_ok(), "{checked:?}");
    host.close().await;
}
