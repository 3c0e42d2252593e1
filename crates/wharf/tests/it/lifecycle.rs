//! The life of connections and of calls on them: made when needed, kept, lost, made again; ended in time, exactly once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use wharf::config::Connect;
use wharf::event::State;
use wharf::wire::Json;
use wharf::{CallOptions, Error, Host};
use wharf_testkit::{Crash, Era, Puppet, Step};

use crate::support::{
    at, count, echo, effects, error, folder, host, is_alive, next_state, pid_in, pup, puppet, quick,
    received, soon, until, within,
};

fn nothing() -> Json {
    Json::from(json!({}))
}

#[tokio::test]
async fn l34_a_server_is_started_at_its_first_use_and_closing_twice_is_closing_once() {
    let files = folder();
    let pid = at(&files, "pid");
    let host = pup(&Puppet::new().pid(&pid)).await;
    let berth = host.berth("pup").unwrap();
    assert!(!pid.exists() && !berth.connected() && berth.state() == State::Disconnected);
    assert!(echo(&host).await.success);
    let process = pid_in(&pid).await;
    assert!(is_alive(process) && berth.connected() && berth.state() == State::Connected);
    host.close().await;
    assert!(!is_alive(process) && !berth.connected() && berth.state() == State::Disconnected);
    host.close().await;
    berth.disconnect().await;
    assert!(echo(&host).await.success, "it is made again when it is needed");
    assert_ne!(pid_in(&pid).await, process);
    host.close().await;
}

#[tokio::test]
async fn l34_an_eager_server_is_started_with_the_host() {
    let files = folder();
    let pid = at(&files, "pid");
    let mut config = puppet("pup", &Puppet::new().pid(&pid));
    config.connect = Connect::Eager;
    let host = host([config]).await;
    assert!(pid.exists() && host.berth("pup").unwrap().connected());
    host.close().await;
}

#[tokio::test]
async fn l34_a_manual_server_is_used_only_after_it_was_connected() {
    let mut config = puppet("pup", &Puppet::new());
    config.connect = Connect::Manual;
    let host = host([config]).await;
    let outcome = host.call_tool("pup", "echo", json!({}), CallOptions::default()).await;
    let Error::NotConnected { .. } = error(&outcome) else { panic!("{outcome:?}") };
    assert!(error(&outcome).hint().unwrap().contains("connect `pup` first"));
    assert!(matches!(host.tools().await.failed[0].1, Error::NotConnected { .. }));
    let berth = host.berth("pup").unwrap();
    berth.connect().await.unwrap();
    assert!(echo(&host).await.success);
    berth.disconnect().await;
    assert_eq!(error(&echo(&host).await).kind(), "not_connected");
    host.close().await;
}

#[tokio::test]
async fn l34_connecting_twice_at_once_is_one_process() {
    let files = folder();
    let starts = at(&files, "starts");
    let crash = Crash { file: starts.clone(), times: 0, code: 0 };
    let host = pup(&Puppet::new().with(|s| s.crash = Some(crash))).await;
    let berth = host.berth("pup").unwrap();
    let all = futures_util::future::join_all((0..20).map(|_| berth.connect())).await;
    let first = all[0].as_ref().unwrap().number();
    assert!(all.iter().all(|c| c.as_ref().unwrap().number() == first));
    assert_eq!(effects(&starts), 1);
    host.close().await;
}

#[tokio::test]
async fn l34_dropping_the_host_ends_its_processes() {
    let files = folder();
    let pid = at(&files, "pid");
    let host = pup(&Puppet::new().pid(&pid).with(|s| s.ignore_eof = true)).await;
    assert!(echo(&host).await.success);
    let process = pid_in(&pid).await;
    drop(host);
    until("the process is gone", || !is_alive(process)).await;
}

#[test]
fn l34_a_runtime_that_goes_takes_the_processes_along() {
    let files = folder();
    let (pid, below) = (at(&files, "pid"), at(&files, "below"));
    let script = Puppet::new().pid(&pid).with(|s| {
        s.ignore_eof = true;
        s.ignore_term = true;
        s.spawn_grandchild = Some(wharf_testkit::Grandchild { pid_file: below.clone(), setsid: true });
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (host, process, grandchild) = runtime.block_on(async {
        let host = pup(&script).await;
        assert!(echo(&host).await.success);
        (host, pid_in(&pid).await, pid_in(&below).await)
    });
    assert!(is_alive(process) && is_alive(grandchild));
    drop(host);
    runtime.shutdown_background();
    let other = tokio::runtime::Runtime::new().unwrap();
    other.block_on(until("nothing is left", || !is_alive(process) && !is_alive(grandchild)));
}

#[tokio::test]
async fn l34_disconnecting_gives_up_a_connection_that_is_being_made() {
    let files = folder();
    let pid = at(&files, "pid");
    let host = pup(&Puppet::of(Era::Silent).pid(&pid)).await;
    let berth = host.berth("pup").unwrap();
    let making = tokio::spawn({
        let berth = berth.clone();
        async move { berth.connect().await }
    });
    let process = pid_in(&pid).await;
    assert_eq!(berth.state(), State::Connecting);
    tokio::time::timeout(Duration::from_secs(20), host.close())
        .await
        .expect("it does not wait for the server");
    assert_eq!(soon("the attempt", making).await.unwrap().unwrap_err().kind(), "cancelled");
    assert!(!is_alive(process), "closing waits for what was given up too");
    assert_eq!(berth.state(), State::Disconnected);
}

/// Wants a connection, and does not wait for it.
async fn want(berth: &wharf::connect::Berth) {
    let given_up = tokio::time::timeout(Duration::from_millis(100), berth.connection()).await;
    assert!(given_up.is_err());
}

#[tokio::test]
async fn prc_10_a_start_goes_on_without_whoever_wanted_it_first_until_the_server_is_disconnected() {
    let files = folder();
    let pid = at(&files, "pid");
    let host = pup(&Puppet::of(Era::Silent).pid(&pid)).await;
    let berth = host.berth("pup").unwrap();
    want(&berth).await;
    let process = pid_in(&pid).await;
    want(&berth).await;
    assert!(is_alive(process) && berth.state() == State::Connecting, "{berth:?}");
    assert_eq!(pid_in(&pid).await, process, "it was started once");
    soon("the end", berth.disconnect()).await;
    assert_eq!(berth.state(), State::Disconnected);
    until("its process is gone", || !is_alive(process)).await;
}

#[tokio::test]
async fn prc_10_a_start_that_nobody_waits_for_ends_with_the_host() {
    for lists in [false, true] {
        let files = folder();
        let pid = at(&files, "pid");
        let host = pup(&Puppet::of(Era::Silent).pid(&pid)).await;
        let process = tokio::select! {
            _ = host.known_tools(), if lists => panic!("it never tells them"),
            _ = echo(&host), if !lists => panic!("it never gets ready"),
            process = pid_in(&pid) => process,
        };
        assert!(is_alive(process));
        drop(host);
        until("its process is gone", || !is_alive(process)).await;
    }
}

#[tokio::test]
async fn prc_10_callers_without_patience_find_the_server_started_by_the_first_of_them() {
    let files = folder();
    let (gate, starts) = (at(&files, "gate"), at(&files, "starts"));
    let start = vec![Step::Count(starts.clone()), Step::WaitFor(gate.clone())];
    let host = pup(&Puppet::of(Era::Modern).with(|s| s.start = start)).await;
    let short = Duration::from_millis(100);
    for _ in 0..3 {
        assert!(tokio::time::timeout(short, host.call("pup_echo", json!({}))).await.is_err());
        assert!(tokio::time::timeout(short, host.known_tools()).await.is_err());
        assert!(tokio::time::timeout(short, host.tools()).await.is_err());
    }
    std::fs::write(&gate, "").unwrap();
    assert!(echo(&host).await.success);
    assert_eq!(effects(&starts), 1, "one start for all of them");
    host.close().await;
}

#[tokio::test]
async fn l35_every_change_of_state_is_an_event() {
    let files = folder();
    let die = at(&files, "die");
    let steps = [Step::TurnsIn { file: die, turns: vec![vec![Step::Exit(3)], vec![Step::Honest]] }];
    let host = pup(&Puppet::new().on("tool:echo", steps)).await;
    let mut events = host.events().subscribe();
    host.tools().await;
    assert_eq!(next_state(&mut events).await.0, State::Connecting);
    assert_eq!(next_state(&mut events).await.0, State::Connected);
    assert_eq!(error(&echo(&host).await).kind(), "unknown_outcome");
    let (state, reason) = next_state(&mut events).await;
    assert_eq!(state, State::Reconnecting);
    assert!(reason.contains("exit status 3"), "{reason}");
    assert_eq!(next_state(&mut events).await.0, State::Connected, "it is made again by itself");
    assert!(echo(&host).await.success);
    host.close().await;
    assert_eq!(next_state(&mut events).await.0, State::Disconnected);
}

#[tokio::test]
async fn prc_08_a_crash_loop_is_tried_three_times_and_ends_with_a_reason() {
    for (step, word) in
        [(Step::Exit(0), "exit status 0"), (Step::Exit(1), "exit status 1"), (Step::Kill, "signal 9")]
    {
        let files = folder();
        let starts = at(&files, "starts");
        let crash = Crash { file: starts.clone(), times: 0, code: 0 };
        // It shakes hands and leaves.
        let script = Puppet::of(Era::Legacy)
            .with(|s| s.crash = Some(crash))
            .on("notifications/initialized", [Step::Sleep(30), step]);
        let host = pup(&script).await;
        let mut events = host.events().subscribe();
        let _ = host.berth("pup").unwrap().connect().await;
        let mut lost = 0;
        loop {
            match next_state(&mut events).await {
                (State::Reconnecting, reason) if !reason.is_empty() => {
                    assert!(reason.contains(word), "{reason}");
                    lost += 1;
                }
                (State::Disconnected, reason) => {
                    assert!(reason.contains("lost too often"), "{reason}");
                    break;
                }
                _ => {}
            }
        }
        assert_eq!(lost, 4, "lost once, and after each of three more attempts");
        assert_eq!(effects(&starts), 4);
        let _ = host.berth("pup").unwrap().connect().await;
        assert_eq!(effects(&starts), 5, "whoever needs it tries again");
        host.close().await;
    }
}

#[tokio::test]
async fn prc_08_a_server_that_does_not_come_back_is_tried_three_times() {
    let files = folder();
    let starts = at(&files, "starts");
    let steps = [Step::TurnsIn { file: starts.clone(), turns: vec![vec![], vec![Step::Exit(7)]] }];
    let script = Puppet::of(Era::Legacy).with(|s| s.start = steps.into()).on("tool:echo", [Step::Exit(6)]);
    let host = pup(&script).await;
    let mut events = host.events().subscribe();
    assert_eq!(error(&echo(&host).await).kind(), "unknown_outcome");
    let reason = loop {
        match next_state(&mut events).await {
            (State::Disconnected, reason) => break reason,
            (state, _) => assert_ne!(state, State::Disconnected),
        }
    };
    assert!(reason.contains("exit status 7"), "{reason}");
    // Its era is known from the first time, so each attempt is one start.
    assert_eq!(effects(&starts), 4);
    let outcome = echo(&host).await;
    assert!(outcome.reason.unwrap().contains("exit status 7"), "a call tries again, and says why not");
    host.close().await;
}

#[tokio::test]
async fn l35_a_connection_that_was_closed_on_purpose_is_not_made_again() {
    let files = folder();
    let starts = at(&files, "starts");
    let crash = Crash { file: starts.clone(), times: 0, code: 0 };
    let host = pup(&Puppet::new().with(|s| s.crash = Some(crash))).await;
    let berth = host.berth("pup").unwrap();
    let mut events = host.events().subscribe();
    let connection = berth.connect().await.unwrap();
    connection.close().await;
    loop {
        match next_state(&mut events).await.0 {
            State::Disconnected => break,
            State::Reconnecting => panic!("nobody lost it"),
            _ => {}
        }
    }
    berth.connect().await.unwrap();
    for _ in 0..20 {
        berth.disconnect().await;
        assert!(!berth.connected());
        berth.connect().await.unwrap();
    }
    assert_eq!(effects(&starts), 22, "one process for each time it was asked for");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l35_a_connection_that_somebody_made_anew_is_not_put_away_for_the_lost_one() {
    let files = folder();
    let (starts, pid) = (at(&files, "starts"), at(&files, "pid"));
    let crash = Crash { file: starts.clone(), times: 0, code: 0 };
    let host = pup(&Puppet::new().pid(&pid).with(|s| s.crash = Some(crash))).await;
    let berth = host.berth("pup").unwrap();
    // Some cannot wait: they ask for the connection all the time.
    let impatient: Vec<_> = (0..4)
        .map(|_| {
            let berth = berth.clone();
            tokio::spawn(async move {
                loop {
                    let _ = berth.connect().await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for kills in 1..=10_u64 {
        let lost = berth.connect().await.unwrap();
        let process = rustix::process::Pid::from_raw(pid_in(&pid).await.cast_signed()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        until("it is lost", || !lost.is_open()).await;
        let found = berth.connect().await.unwrap();
        // Long enough for the watcher of the lost one, which was woken before this one was made.
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(found.is_open(), "nobody closed it");
        }
        assert_eq!(effects(&starts), 1 + kills, "one more process for each that was killed");
    }
    impatient.iter().for_each(tokio::task::JoinHandle::abort);
    host.close().await;
}

#[tokio::test]
async fn l37_a_call_ends_with_its_timeout_and_progress_keeps_it_alive() {
    let slow = |n| [Step::Progress { count: Some(n), interval_ms: 50 }, Step::Honest];
    let script = Puppet::of(Era::Legacy)
        .plain_tool("quiet")
        .plain_tool("busy")
        .on("tool:quiet", [Step::Hang])
        .on("tool:busy", slow(40));
    let host = pup(&script).await;
    host.tools().await;
    let short = Duration::from_millis(700);
    let outcome = soon("it", host.call_with("pup_quiet", nothing(), within(short, None))).await;
    let Error::Timeout { after, .. } = error(&outcome) else { panic!("{outcome:?}") };
    assert!(*after >= short && *after < 20 * short, "{after:?}");
    assert!(error(&outcome).hint().unwrap().contains("timeout"));
    let outcome = soon("it", host.call_with("pup_busy", nothing(), within(short, None))).await;
    assert!(outcome.success && outcome.took > short, "{outcome:?}");
    let never = CallOptions { timeout: Some(Duration::MAX), ..CallOptions::default() };
    assert!(soon("it", host.call_with("pup_busy", nothing(), never)).await.success);
    host.close().await;
}

#[tokio::test]
async fn l37_progress_is_told_in_order_and_before_the_outcome() {
    for era in [Era::Legacy, Era::Modern] {
        let steps = [Step::Progress { count: Some(300), interval_ms: 0 }, Step::Honest];
        let host = pup(&Puppet::of(era).on("tool:echo", steps)).await;
        host.tools().await;
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let mut listen =
            move |step: wharf::connect::Progress| heard.lock().unwrap().push(step.progress as u64);
        let options = CallOptions { on_progress: Some(&mut listen), ..CallOptions::default() };
        assert!(host.call_with("pup_echo", nothing(), options).await.success);
        assert_eq!(*told.lock().unwrap(), (1..=300).collect::<Vec<u64>>());
        host.close().await;
    }
}

/// The places of a request and its cancellation in what a server received.
fn cancellation(messages: &[Value]) -> Option<(usize, usize)> {
    let at = messages.iter().position(|m| m["method"] == "notifications/cancelled")?;
    let id = &messages[at]["params"]["requestId"];
    Some((messages.iter().position(|m| m["id"] == *id).expect("only what was sent is cancelled"), at))
}

#[tokio::test]
async fn l37_a_cancellation_reaches_the_server_when_time_is_up_and_when_the_caller_leaves() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let log = at(&files, "log");
        let host = pup(&Puppet::of(era).on("tool:echo", [Step::Hang]).log(&log)).await;
        host.tools().await;
        let time = Duration::from_millis(50);
        host.call_with("pup_echo", nothing(), within(time, None)).await;
        until("the first is cancelled", || cancellation(&received(&log)).is_some_and(|(a, b)| a < b)).await;
        let dropped = tokio::time::timeout(time, host.call("pup_echo", json!({}))).await;
        assert!(dropped.is_err());
        until("the second is cancelled", || count(&received(&log), "notifications/cancelled") == 2).await;
        host.close().await;
    }
}

#[tokio::test]
async fn l37_a_call_that_is_over_is_not_cancelled() {
    let files = folder();
    let log = at(&files, "log");
    let host = pup(&Puppet::new().log(&log)).await;
    for _ in 0..20 {
        assert!(echo(&host).await.success);
    }
    host.close().await;
    assert_eq!(count(&received(&log), "tools/call"), 20);
    assert_eq!(count(&received(&log), "notifications/cancelled"), 0);
}

#[tokio::test]
async fn r_10_no_cancellation_comes_before_its_request_and_requests_leave_in_order() {
    let files = folder();
    let log = at(&files, "log");
    let host = pup(&Puppet::new().on("tool:echo", [Step::Sleep(1), Step::Honest]).log(&log)).await;
    assert!(
        echo(&host).await.success,
        "its schema is read now, so that later calls are sent at their first poll"
    );
    for round in 0..200_u64 {
        let mut call = Box::pin(host.call("pup_echo", json!({"message": round.to_string()})));
        // Polled a few times and dropped: before it is sent, after, or when the answer is there.
        for _ in 0..round % 4 {
            if futures_util::poll!(&mut call).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    assert!(echo(&host).await.success, "the connection works after the storm");
    host.close().await;
    let messages = received(&log);
    let mut sent = std::collections::HashSet::new();
    let mut last = 0;
    for message in &messages {
        match (message["method"].as_str(), message["id"].as_u64()) {
            (Some("notifications/cancelled"), _) => {
                let id = message["params"]["requestId"].as_u64().unwrap();
                assert!(sent.contains(&id), "{id} is cancelled before it is sent");
            }
            (Some(_), Some(id)) => {
                assert!(id > last, "{id} comes after {last}");
                last = id;
                sent.insert(id);
            }
            _ => {}
        }
    }
    let calls = count(&messages, "tools/call");
    let cancelled = count(&messages, "notifications/cancelled");
    assert!(calls > 100 && cancelled > 50, "the storm was one: {calls} calls, {cancelled} cancelled");
}

#[tokio::test]
async fn r_05_many_writers_at_once_never_mix_their_frames() {
    let files = folder();
    let log = at(&files, "log");
    let host = pup(&Puppet::new().log(&log)).await;
    host.tools().await;
    let large = "x".repeat(90_000);
    let calls = (0..64).map(|n| {
        let (host, large) = (host.clone(), large.clone());
        tokio::spawn(async move {
            let message = format!("{n}:{}", if n % 2 == 0 { &large[..] } else { "" });
            let outcome = host.call("pup_echo", json!({ "message": message })).await;
            assert!(outcome.to_text().contains(&format!("\"{n}:")), "the answer is this call's own");
        })
    });
    for call in calls.collect::<Vec<_>>() {
        soon("a call", call).await.unwrap();
    }
    host.close().await;
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert_eq!(count(&received(&log), "tools/call"), 64);
}

#[tokio::test]
async fn r_06_a_server_that_was_stopped_and_goes_on_answers_nobody_and_works() {
    let files = folder();
    let pid = at(&files, "pid");
    let script = Puppet::new().pid(&pid).on(
        "tool:echo",
        // The signal may take a moment to arrive.
        [Step::Turns(vec![vec![Step::Freeze, Step::Sleep(50), Step::Honest], vec![Step::Honest]])],
    );
    let host = pup(&script).await;
    host.tools().await;
    let connection = host.berth("pup").unwrap().connection().await.unwrap();
    let outcome = host.call_with("pup_echo", nothing(), within(Duration::from_millis(300), None)).await;
    assert_eq!(error(&outcome).kind(), "timeout");
    let process = rustix::process::Pid::from_raw(pid_in(&pid).await.cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    until("the late answer is counted", || connection.strays().answers == 1).await;
    assert!(echo(&host).await.success && connection.is_open());
    host.close().await;
}

#[tokio::test]
async fn r_01_a_server_killed_in_the_middle_of_a_call_leaves_one_effect_and_an_unknown_outcome() {
    let half = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"ty"#;
    for (case, steps, most) in [
        ("before it ran", vec![Step::Kill], 0),
        ("after the effect", vec![Step::Count("EFFECT".into()), Step::Kill], 1),
        ("half a line", vec![Step::Count("EFFECT".into()), Step::RawNoNewline(half.into()), Step::Kill], 1),
    ] {
        let files = folder();
        let (effect, turn, log) = (at(&files, "effect"), at(&files, "turn"), at(&files, "log"));
        let steps = steps.into_iter().map(|step| match step {
            Step::Count(_) => Step::Count(effect.clone()),
            step => step,
        });
        let turns = vec![steps.collect(), vec![Step::Honest]];
        let script = Puppet::new().on("tool:echo", [Step::TurnsIn { file: turn, turns }]).log(&log);
        let host = pup(&script).await;
        let outcome = echo(&host).await;
        let Error::UnknownOutcome { reason, .. } = error(&outcome) else { panic!("{case}: {outcome:?}") };
        assert!(reason.contains("signal 9"), "{case}: {reason}");
        assert!(!error(&outcome).is_retryable(), "{case}");
        assert!(error(&outcome).hint().unwrap().contains("may have run"));
        assert_eq!(effects(&effect), most, "{case}");
        assert_eq!(count(&received(&log), "tools/call"), 1, "{case}: it was sent once");
        assert!(echo(&host).await.success, "{case}: the next call finds a new server");
        assert_eq!(count(&received(&log), "tools/call"), 2, "{case}: and nothing was sent again");
        host.close().await;
    }
}

#[tokio::test]
async fn r_01_calls_that_wait_together_all_end_when_the_server_dies() {
    let files = folder();
    let (go, log) = (at(&files, "go"), at(&files, "log"));
    let script = Puppet::new()
        .log(&log)
        .plain_tool("wait")
        .plain_tool("die")
        .on("tool:wait", [Step::Hang])
        .on("tool:die", [Step::WaitFor(go.clone()), Step::Kill]);
    let host = pup(&script).await;
    host.tools().await;
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let host = host.clone();
            tokio::spawn(async move { host.call("pup_wait", json!({})).await })
        })
        .collect();
    let dying = tokio::spawn({
        let host = host.clone();
        async move { host.call("pup_die", json!({})).await }
    });
    until("all are there", || count(&received(&log), "tools/call") == 51).await;
    std::fs::write(&go, "").unwrap();
    for call in calls.into_iter().chain([dying]) {
        let outcome = soon("a call", call).await.unwrap();
        assert_eq!(error(&outcome).kind(), "unknown_outcome", "{outcome:?}");
    }
    host.close().await;
}

#[tokio::test]
async fn l32_the_same_configuration_is_the_same_connection_and_hosts_share_nothing() {
    let files = folder();
    let starts = at(&files, "starts");
    let crash = Crash { file: starts.clone(), times: 0, code: 0 };
    let script = Puppet::new().with(|s| s.crash = Some(crash));
    let config = puppet("pup", &script);
    let one = host([config.clone()]).await;
    let inline = one.berth(config.clone()).unwrap();
    let named = one.berth("pup").unwrap();
    let (a, b) = (inline.connection().await.unwrap(), named.connection().await.unwrap());
    assert_eq!(a.number(), b.number());
    assert_eq!(effects(&starts), 1);

    let mut other = config.clone();
    if let wharf::config::Transport::Stdio(stdio) = &mut other.transport {
        stdio.env.insert("LANG".into(), wharf::secret::Secret::new("C"));
    }
    let c = one.berth(other).unwrap().connection().await.unwrap();
    assert_ne!(a.number(), c.number(), "another environment is another connection");

    let two = host([config]).await;
    let d = two.berth("pup").unwrap().connection().await.unwrap();
    assert_ne!(a.number(), d.number(), "another host is another connection");
    assert_eq!(effects(&starts), 3);
    one.close().await;
    assert!(!a.is_open() && !c.is_open() && d.is_open());
    two.close().await;
}

#[tokio::test]
async fn l50_a_server_put_in_the_place_of_another_takes_its_process_along() {
    let files = folder();
    let (old, new) = (at(&files, "old"), at(&files, "new"));
    let host: Host = pup(&Puppet::new().pid(&old)).await;
    assert!(echo(&host).await.success);
    host.add_server(puppet("pup", &Puppet::new().pid(&new)));
    let before = pid_in(&old).await;
    until("the old one is gone", || !is_alive(before)).await;
    assert!(echo(&host).await.success);
    assert!(is_alive(pid_in(&new).await));
    host.close().await;
}

#[tokio::test]
async fn l58_a_server_and_a_tool_are_values() {
    let script = Puppet::new().plain_tool("echo").plain_tool("other").with(|s| {
        s.instructions = Some("be kind".into());
    });
    let host = quick().server(puppet("pup", &script)).start().await.unwrap();
    let ensemble = host.ensemble("pup").await.unwrap();
    assert_eq!(ensemble.tools().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["echo", "other"]);
    assert_eq!(ensemble.config().name.as_str(), "pup");
    assert_eq!(ensemble.info().implementation.name.raw(), "puppet");
    assert_eq!(ensemble.info().instructions.as_ref().unwrap().raw(), "be kind");
    assert!(ensemble.connection().is_open());
    assert!(ensemble.call("other", json!({"a": 1})).await.success);
    let callable = ensemble.tool("echo").unwrap();
    assert_eq!((callable.public_name(), callable.tool().name.as_str()), ("pup_echo", "echo"));
    assert!(callable.call(json!({"message": "x"})).await.to_text().contains('x'));
    assert!(ensemble.tool("none").is_none());
    assert_eq!(error(&ensemble.call("none", json!({})).await).kind(), "unknown_tool");
    ensemble.disconnect().await.unwrap();
    assert!(!ensemble.connection().is_open());
    assert!(callable.call(json!({})).await.success, "a value outlives the connection it was made over");
    host.close().await;
}

#[tokio::test]
async fn l65_one_server_that_fails_is_reported_and_the_others_work() {
    let broken = Puppet::of(Era::Legacy).with(|s| {
        s.stderr = vec!["cannot find its database".into()];
        s.start = vec![Step::Exit(9)];
    });
    let servers = [puppet("one", &Puppet::new()), puppet("two", &broken), puppet("three", &Puppet::new())];
    let host = quick().servers(servers).start().await.unwrap();
    let listing = host.tools().await;
    let names: Vec<_> = listing.snapshot.tools().iter().map(|route| route.public.to_string()).collect();
    assert_eq!(names, ["one_echo", "three_echo"]);
    let (name, failure) = &listing.failed[0];
    let said = failure.to_string();
    assert_eq!((listing.failed.len(), name.as_str()), (1, "two"));
    assert!(said.contains("exit status 9") && said.contains("cannot find its database"), "{said}");
    for name in ["one_echo", "three_echo"] {
        assert!(host.call(name, json!({})).await.success);
    }
    let outcome = host.call("two_echo", json!({})).await;
    assert!(error(&outcome).hint().unwrap().contains("`two`"), "{outcome:?}");
    host.close().await;
}
