//! A server that fails again and again is left alone for a while; one that answers never is, whatever it answers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use wharf::ask::{Answered, Asker, Offers, Question};
use wharf::config::{BreakerSettings, ServerConfig};
use wharf::error::Side;
use wharf::event::{Circuit, State};
use wharf::names::ServerName;
use wharf::{CallOptions, Error};
use wharf_testkit::{Crash, Era, HttpPuppet, Puppet, Recorded, Reply, SseStep, Step};

use super::{PAUSE, alone, circuits, guarded, honest, in_flight};
use crate::support::{at, echo, effects, error, folder, puppet, quick, soon, until, within};

#[tokio::test]
async fn l38_a_server_that_cannot_start_is_not_started_for_every_call() {
    let files = folder();
    let starts = at(&files, "starts");
    // Twice for each call: the first start ends at the question which era it speaks.
    let crash = Crash { file: starts.clone(), times: 6, code: 3 };
    let host = alone(guarded(&Puppet::of(Era::Legacy).with(|s| s.crash = Some(crash)))).await;
    let mut events = host.events().subscribe();
    let berth = host.berth("pup").unwrap();
    for _ in 0..3 {
        let outcome = host.call_tool("pup", "echo", json!({}), CallOptions::default()).await;
        assert_eq!(error(&outcome).kind(), "connection", "{outcome:?}");
    }
    assert_eq!(berth.circuit(), Circuit::Open);
    let before = effects(&starts);
    let outcome = host.call_tool("pup", "echo", json!({}), CallOptions::default()).await;
    let refused = error(&outcome);
    let Error::Unavailable { server, retry_after, .. } = refused else { panic!("{refused:?}") };
    assert!(server.as_str() == "pup" && (PAUSE / 2..=2 * PAUSE).contains(retry_after), "{refused:?}");
    assert!(refused.side() == Side::Server && refused.is_retryable() && refused.kind() == "unavailable");
    assert!(refused.to_string().contains("failed 3 times in a row, the last time: "), "{refused}");
    assert!(refused.hint().unwrap().contains("nothing was sent"), "{refused:?}");
    assert_eq!(effects(&starts), before, "nothing was started for it");

    // In its own time it is tried again, and when it is well it is asked by everyone.
    tokio::time::pause();
    tokio::time::advance(2 * PAUSE).await;
    tokio::time::resume();
    let outcome = soon("a call", host.call_tool("pup", "echo", json!({}), CallOptions::default())).await;
    assert!(outcome.success, "{outcome:?}");
    assert_eq!(berth.circuit(), Circuit::Closed);
    let told = circuits(&mut events);
    // Once to start it, once to call it.
    assert_eq!(told, [Circuit::Open, Circuit::HalfOpen, Circuit::HalfOpen, Circuit::Closed]);
    host.close().await;
}

#[tokio::test]
async fn prc_10_a_start_that_nobody_waits_for_any_more_counts_once_like_any_other() {
    let mut config = guarded(&Puppet::of(Era::Silent));
    config.start_timeout = Duration::from_millis(600);
    let host = alone(config).await;
    let berth = host.berth("pup").unwrap();
    for failures in 1..=3 {
        assert_eq!(berth.circuit(), Circuit::Closed, "before the failure {failures}");
        for _ in 0..2 {
            let wanted = tokio::time::timeout(Duration::from_millis(50), berth.connection()).await;
            assert!(wanted.is_err(), "{wanted:?}");
        }
        until("it is given up", || berth.state() == State::Disconnected).await;
    }
    until("it is left alone", || berth.circuit() == Circuit::Open).await;
    let refused = berth.connection().await.unwrap_err().to_string();
    assert!(refused.contains("failed 3 times in a row, the last time: "), "{refused}");
    host.close().await;
}

#[tokio::test]
async fn l38_a_server_that_answers_nothing_is_left_alone_and_one_call_finds_out_that_it_is_well_again() {
    let script = Puppet::new().plain_tool("echo").plain_tool("stuck").on("tool:stuck", [Step::Hang]);
    let mut config = puppet("pup", &script);
    config.timeout = Duration::from_secs(3);
    let host = alone(config).await;
    assert!(echo(&host).await.success);
    tokio::time::pause();
    for _ in 0..BreakerSettings::default().failures {
        let outcome = host.call("pup_stuck", json!({})).await;
        assert_eq!(error(&outcome).kind(), "timeout", "{outcome:?}");
    }
    let begun = tokio::time::Instant::now();
    for _ in 0..50 {
        let outcome = host.call("pup_echo", json!({})).await;
        assert_eq!(error(&outcome).kind(), "unavailable", "{outcome:?}");
    }
    assert_eq!(begun.elapsed(), Duration::ZERO, "nobody waits for a refusal");
    assert_eq!(host.berth("pup").unwrap().circuit(), Circuit::Open);
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(host.berth("pup").unwrap().circuit(), Circuit::HalfOpen, "the next call may see");
    tokio::time::resume();
    assert!(echo(&host).await.success);
    assert_eq!(host.berth("pup").unwrap().circuit(), Circuit::Closed);
    host.close().await;
}

#[tokio::test]
async fn l38_a_healthy_server_with_nothing_but_tool_errors_is_never_left_alone() {
    let script = Puppet::new()
        .plain_tool("says_no")
        .plain_tool("refuses")
        .tool(json!({"name": "picky", "inputSchema": {"type": "object", "required": ["x"]}}))
        .on("tool:says_no", [Step::Reply(json!({"content": [], "isError": true}))])
        .on("tool:refuses", [Step::ReplyError { code: -32000, message: "no".into(), data: None }]);
    let host = alone(guarded(&script)).await;
    let mut events = host.events().subscribe_but_calls();
    for _ in 0..50 {
        let outcome = host.call("pup_says_no", json!({})).await;
        assert!(!outcome.success && outcome.error.is_none(), "{outcome:?}");
        assert_eq!(error(&host.call("pup_refuses", json!({})).await).kind(), "tool");
        assert_eq!(error(&host.call("pup_picky", json!({})).await).kind(), "arguments");
    }
    assert_eq!(circuits(&mut events), []);
    assert!(host.call("pup_picky", json!({"x": 1})).await.success);
    host.close().await;
}

#[tokio::test]
async fn l38_one_crash_is_one_failure_however_many_calls_it_takes_along() {
    let files = folder();
    let go = at(&files, "go");
    let script = Puppet::new()
        .plain_tool("echo")
        .plain_tool("wait")
        .plain_tool("die")
        .on("tool:wait", [Step::WaitFor(go), Step::Honest])
        .on("tool:die", [Step::Kill]);
    let host = alone(guarded(&script)).await;
    let mut events = host.events().subscribe_but_calls();
    assert!(echo(&host).await.success);
    let waiting = (0..20).map(|_| {
        let host = host.clone();
        tokio::spawn(async move { host.call("pup_wait", json!({})).await })
    });
    let waiting: Vec<_> = waiting.collect();
    until("they are under way", || in_flight(&host) == 20).await;
    let died = host.call("pup_die", json!({})).await;
    assert_eq!(error(&died).kind(), "unknown_outcome");
    for outcome in futures_util::future::join_all(waiting).await {
        assert_eq!(error(&outcome.unwrap()).kind(), "unknown_outcome");
    }
    assert!(echo(&host).await.success, "twenty-one calls were lost, and it is asked again at once");
    assert_eq!(circuits(&mut events), []);
    // Its twin: a server that dies at every call is left alone.
    for _ in 0..3 {
        assert_eq!(error(&host.call("pup_die", json!({})).await).kind(), "unknown_outcome");
    }
    assert_eq!(error(&host.call("pup_die", json!({})).await).kind(), "unavailable");
    host.close().await;
}

#[tokio::test]
async fn l38_a_breaker_that_is_turned_off_lets_everything_through() {
    let mut config = puppet("pup", &Puppet::new().on("tool:echo", [Step::Exit(1)]));
    config.resilience.breaker = None;
    let host = alone(config).await;
    for _ in 0..8 {
        assert_eq!(error(&echo(&host).await).kind(), "unknown_outcome");
    }
    host.close().await;
}

#[tokio::test]
async fn l38_over_http_an_outage_opens_it_and_a_refused_request_does_not() {
    let puppet = HttpPuppet::start(|request| async move {
        match request.json()["params"]["arguments"]["status"].as_u64() {
            Some(status) => Reply::status(u16::try_from(status).unwrap()),
            None => honest(request).await,
        }
    });
    let mut config = ServerConfig::http(ServerName::parse("pup").unwrap(), &puppet.url()).unwrap();
    config.resilience.breaker = Some(BreakerSettings { failures: 3, cool_down: Duration::from_secs(600) });
    let host = quick().server(config).start().await.unwrap();
    for status in [400, 403, 404, 413] {
        for _ in 0..5 {
            let outcome = host.call("pup_echo", json!({"status": status})).await;
            assert_ne!(error(&outcome).kind(), "unavailable", "{status}: {outcome:?}");
        }
    }
    for _ in 0..3 {
        assert_eq!(error(&host.call("pup_echo", json!({"status": 502})).await).kind(), "unknown_outcome");
    }
    let before = puppet.requests().len();
    assert_eq!(error(&echo(&host).await).kind(), "unavailable");
    assert_eq!(puppet.requests().len(), before);
    host.close().await;
}

#[tokio::test]
async fn l38_how_long_a_server_may_be_silent_is_what_the_last_reload_says() {
    let script = Puppet::new().plain_tool("echo").plain_tool("stuck").on("tool:stuck", [Step::Hang]);
    let timed = |seconds| {
        let mut config = guarded(&script);
        config.timeout = Duration::from_secs(seconds);
        config
    };
    for (before, after, opens) in [(60, 5, true), (5, 60, false)] {
        let host = alone(timed(before)).await;
        assert!(echo(&host).await.success);
        assert_eq!(host.reconcile([timed(after)]).await.unwrap().changed.len(), 1);
        tokio::time::pause();
        for _ in 0..3 {
            // Where it may be silent for longer, the callers are impatient.
            let outcome = match opens {
                true => host.call("pup_stuck", json!({})).await,
                false => {
                    host.call_with("pup_stuck", json!({}).into(), within(Duration::from_secs(10), None)).await
                }
            };
            assert_eq!(error(&outcome).kind(), "timeout", "{outcome:?}");
        }
        tokio::time::resume();
        let expected = if opens { Circuit::Open } else { Circuit::Closed };
        assert_eq!(host.berth("pup").unwrap().circuit(), expected, "{before} s, then {after} s");
        host.close().await;
    }
}

/// A modern server over HTTP that tells for so many seconds how far it is, every other second, and then hangs.
async fn tells_and_hangs(request: Recorded, seconds: u64) -> Reply {
    let asked = request.json();
    if asked["method"] != "tools/call" {
        return honest(request).await;
    }
    let token = &asked["params"]["_meta"]["progressToken"];
    let step = |n: u64| {
        let params = json!({"progressToken": token, "progress": n});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        [SseStep::message(&told), SseStep::Delay(2000)]
    };
    let steps = (1..=seconds / 2).flat_map(step);
    Reply::Sse(steps.chain([SseStep::Hang]).collect())
}

#[tokio::test(start_paused = true)]
async fn l38_only_a_silence_as_long_as_the_server_may_be_silent_counts_however_long_the_call_took() {
    let (soft, long) = (Duration::from_secs(60), Duration::from_secs(3600));
    for (told, options, counts) in [
        (0, within(soft, None), true),
        (120, within(soft, None), true),
        (120, within(Duration::from_secs(5), Some(long)), false),
        // It was heard until the end.
        (600, within(soft, Some(Duration::from_secs(90))), false),
        // The limit of the whole ended it, and it was silent for long enough all the same.
        (0, within(long, Some(Duration::from_secs(90))), true),
        (0, within(long, Some(Duration::from_secs(30))), false),
    ] {
        let puppet = HttpPuppet::start(move |request| tells_and_hangs(request, told));
        let name = ServerName::parse("pup").unwrap();
        let mut config = ServerConfig::http(name, &puppet.url()).unwrap();
        config.timeout = soft;
        config.resilience.breaker = Some(BreakerSettings { failures: 1, cool_down: PAUSE });
        let host = quick().server(config).start().await.unwrap();
        host.tools().await;
        let case = format!("{told} s of progress, {options:?}");
        let outcome = host.call_with("pup_echo", json!({}).into(), options).await;
        assert_eq!(error(&outcome).kind(), "timeout", "{case}: {outcome:?}");
        let expected = if counts { Circuit::Open } else { Circuit::Closed };
        assert_eq!(host.berth("pup").unwrap().circuit(), expected, "{case}: {outcome:?}");
        host.close().await;
    }
}

/// Is asked, and never answers.
struct Absent(Arc<Notify>);

impl Asker for Absent {
    fn offers(&self) -> Offers {
        Offers { forms: true, ..Offers::default() }
    }

    fn ask(&self, _: &ServerName, _: Question) -> Answered {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn l38_a_server_that_waits_for_somebodys_answer_is_not_silent() {
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let steps = [Step::Ask { method: "elicitation/create".into(), params: form }, Step::ReplyWithAnswer];
    let mut config = puppet("pup", &Puppet::of(Era::Legacy).on("tool:echo", steps));
    config.timeout = Duration::from_secs(1);
    config.resilience.breaker = Some(BreakerSettings { failures: 1, cool_down: PAUSE });
    let asked = Arc::new(Notify::new());
    let host = quick().asker(Absent(Arc::clone(&asked))).server(config).start().await.unwrap();
    host.tools().await;
    let call = tokio::spawn({
        let host = host.clone();
        async move { host.call("pup_echo", json!({})).await }
    });
    soon("the question", asked.notified()).await;
    tokio::time::pause();
    let outcome = call.await.unwrap();
    tokio::time::resume();
    assert_eq!(error(&outcome).kind(), "timeout", "{outcome:?}");
    assert_eq!(host.berth("pup").unwrap().circuit(), Circuit::Closed, "{outcome:?}");
    host.close().await;
}
