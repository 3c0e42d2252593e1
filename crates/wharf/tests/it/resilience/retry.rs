//! A call is made again only where nothing was sent, or where the operator says that its tool may be run twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use wharf::config::ServerConfig;
use wharf::event::Event;
use wharf::names::ServerName;
use wharf::secret::SecretUrl;
use wharf::{CallOptions, Host};
use wharf_testkit::{HttpPuppet, Puppet, Recorded, Reply, Step};

use super::{alone, honest};
use crate::gateway::open;
use crate::support::{at, echo, effects, error, folder, puppet, quick, soon};

/// A tool that says of itself that it may be run twice.
fn boaster(name: &str) -> serde_json::Value {
    json!({
        "name": name,
        "inputSchema": {"type": "object"},
        "annotations": {"idempotentHint": true, "readOnlyHint": true},
    })
}

#[tokio::test]
async fn l38_a_tool_that_nobody_marked_runs_once_whatever_its_server_says_of_it() {
    let files = folder();
    let ran = at(&files, "ran");
    let script = Puppet::new().tool(boaster("echo")).on("tool:echo", [Step::Count(ran.clone()), Step::Kill]);
    let mut config = puppet("pup", &script);
    config.resilience.idempotent = vec!["other".into(), "ech".into()];
    let host = alone(config).await;
    let outcome = echo(&host).await;
    assert_eq!(error(&outcome).kind(), "unknown_outcome", "{outcome:?}");
    assert_eq!(effects(&ran), 1);
    host.close().await;
}

#[tokio::test]
async fn l38_a_marked_tool_runs_at_most_once_more_than_it_may_be_retried() {
    for (retries, mark) in [(0, "echo"), (1, "ech*"), (2, "*"), (3, "echo")] {
        let files = folder();
        let ran = at(&files, "ran");
        let script = Puppet::new().on("tool:echo", [Step::Count(ran.clone()), Step::Kill]);
        let mut config = puppet("pup", &script);
        config.resilience.idempotent = vec![mark.into()];
        config.resilience.retries = retries;
        let host = alone(config).await;
        let outcome = echo(&host).await;
        assert_eq!(error(&outcome).kind(), "unknown_outcome", "{outcome:?}");
        assert_eq!(effects(&ran), u64::from(retries) + 1);
        host.close().await;
    }
}

#[tokio::test]
async fn l38_a_marked_tool_that_is_lost_once_succeeds_and_the_retry_is_told() {
    let files = folder();
    let (ran, turns) = (at(&files, "ran"), at(&files, "turns"));
    let steps = Step::TurnsIn { file: turns, turns: vec![vec![Step::Kill], vec![Step::Honest]] };
    let script = Puppet::new().on("tool:echo", [Step::Count(ran.clone()), steps]);
    let mut config = puppet("pup", &script);
    config.resilience.idempotent = vec!["echo".into()];
    let host = alone(config).await;
    let mut events = host.events().subscribe_but_calls();
    let outcome = echo(&host).await;
    assert!(outcome.success, "{outcome:?}");
    assert_eq!(effects(&ran), 2);
    let mut told = 0;
    while let Ok(event) = events.try_recv() {
        if let Event::Retried { tool, reason, .. } = event {
            assert!(tool.as_str() == "echo" && reason.contains("outcome is unknown"), "{reason}");
            told += 1;
        }
    }
    assert_eq!((told, host.status()[0].retries), (1, 1));
    host.close().await;
}

#[tokio::test]
async fn l38_what_may_have_run_is_still_said_to_have_when_the_retry_cannot_be_sent() {
    let files = folder();
    let (ran, starts) = (at(&files, "ran"), at(&files, "starts"));
    // It starts once, is lost in the call, and never starts again.
    let gone = Step::TurnsIn { file: starts, turns: vec![vec![], vec![Step::Exit(1)]] };
    let script = Puppet::new()
        .on("tool:echo", [Step::Count(ran.clone()), Step::Kill])
        .with(|s| (s.era, s.start) = (wharf_testkit::Era::Modern, vec![gone]));
    let mut config = puppet("pup", &script);
    config.resilience.idempotent = vec!["echo".into()];
    let host = alone(config).await;
    let outcome = echo(&host).await;
    assert_eq!(error(&outcome).kind(), "unknown_outcome", "{outcome:?}");
    assert!(!error(&outcome).is_retryable());
    assert_eq!(effects(&ran), 1);
    assert_eq!(host.status()[0].retries, 0, "what could not be sent was not sent again");
    host.close().await;
}

#[tokio::test]
async fn l38_a_timeout_is_not_tried_again_even_if_the_tool_is_marked() {
    let files = folder();
    let ran = at(&files, "ran");
    let script = Puppet::new().on("tool:echo", [Step::Count(ran.clone()), Step::Hang]);
    let mut config = puppet("pup", &script);
    config.resilience.idempotent = vec!["*".into()];
    let host = alone(config).await;
    host.tools().await;
    let options = CallOptions { timeout: Some(Duration::from_millis(200)), ..CallOptions::default() };
    let outcome = host.call_with("pup_echo", json!({}).into(), options).await;
    assert_eq!((error(&outcome).kind(), effects(&ran)), ("timeout", 1));
    host.close().await;
}

/// An HTTP server whose first calls are answered with a status, and how many calls it got.
fn failing(times: usize, status: u16, retry_after: Option<&'static str>) -> (HttpPuppet, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let puppet = HttpPuppet::start(move |request| {
        let calls = Arc::clone(&counted);
        async move {
            if request.rpc_method() != "tools/call" || calls.fetch_add(1, Ordering::SeqCst) >= times {
                return honest(request).await;
            }
            let reply = Reply::status(status);
            retry_after.map_or(reply, |wait| Reply::status(status).with("retry-after", wait))
        }
    });
    (puppet, calls)
}

async fn far(puppet: &HttpPuppet, marked: bool) -> Host {
    let mut config = ServerConfig::http(ServerName::parse("pup").unwrap(), &puppet.url()).unwrap();
    config.resilience.idempotent = marked.then(|| "echo".to_owned()).into_iter().collect();
    let host = quick().server(config).start().await.unwrap();
    host.tools().await;
    host
}

#[tokio::test]
async fn l38_over_http_outages_are_retried_for_marked_tools_and_refusals_never() {
    for (status, again) in [(429, true), (502, true), (503, true), (400, false), (401, false), (404, false)] {
        for marked in [true, false] {
            let (puppet, calls) = failing(1, status, None);
            let host = far(&puppet, marked).await;
            let outcome = echo(&host).await;
            assert_eq!(outcome.success, again && marked, "{status} {marked}: {outcome:?}");
            let sent = calls.load(Ordering::SeqCst);
            assert_eq!(sent, if again && marked { 2 } else { 1 }, "{status} {marked}");
            host.close().await;
        }
    }
}

#[tokio::test]
async fn l38_a_call_that_one_of_several_is_too_busy_for_is_not_sent_to_the_next_unless_it_is_marked() {
    for marked in [false, true] {
        let ((first, at_first), (second, at_second)) = (failing(9, 429, None), failing(9, 429, None));
        let mut config = ServerConfig::http(ServerName::parse("pup").unwrap(), &first.url()).unwrap();
        config.resilience.replicas = vec![SecretUrl::new(second.url().parse().unwrap())];
        config.resilience.idempotent = marked.then(|| "echo".to_owned()).into_iter().collect();
        config.resilience.retries = 1;
        let host = alone(config).await;
        host.tools().await;
        let outcome = echo(&host).await;
        assert_eq!(error(&outcome).kind(), "busy", "{outcome:?}");
        let sent = at_first.load(Ordering::SeqCst) + at_second.load(Ordering::SeqCst);
        assert_eq!(sent, 1 + usize::from(marked), "marked: {marked}");
        host.close().await;
    }
}

#[tokio::test]
async fn l38_a_server_that_says_when_to_come_back_is_obeyed_within_reason() {
    // What it says, and how long is waited at least; `None`: it is not asked again.
    let table = [
        ("1", Some(1_000)),
        ("-99999999999", Some(0)),
        ("Wed, 21 Oct 2099 07:28:00 GMT", Some(0)),
        ("", Some(0)),
        ("31", None),
        ("99999999999999999999999999", None),
    ];
    for (said, waited) in table {
        let (puppet, calls) = failing(1, 503, Some(said));
        let host = far(&puppet, true).await;
        let begun = Instant::now();
        let outcome = soon("a call", host.call("pup_echo", json!({}))).await;
        assert_eq!(outcome.success, waited.is_some(), "{said}: {outcome:?}");
        assert_eq!(calls.load(Ordering::SeqCst), 1 + usize::from(waited.is_some()), "{said}");
        let least = Duration::from_millis(waited.unwrap_or(0));
        assert!(begun.elapsed() >= least && begun.elapsed() < least + Duration::from_secs(20), "{said}");
        host.close().await;
    }
}

#[tokio::test]
async fn l38_retries_end_with_the_time_of_the_call() {
    let (puppet, calls) = failing(usize::MAX, 503, Some("25"));
    let host = far(&puppet, true).await;
    let hard = Duration::from_secs(20);
    let options = CallOptions { hard_timeout: Some(hard), ..CallOptions::default() };
    // Whoever waits now makes the clock jump: it tells whether the time was waited out, and not how long anything took.
    tokio::time::pause();
    let begun = Instant::now();
    let outcome = host.call_with("pup_echo", json!({}).into(), options).await;
    assert!(begun.elapsed() < hard, "there was nothing to wait for: {:?}", begun.elapsed());
    tokio::time::resume();
    assert_eq!((error(&outcome).kind(), calls.load(Ordering::SeqCst)), ("unknown_outcome", 1));
    host.close().await;
}

/// An HTTP server that answers its first call with this, and wants to know who calls from then on.
fn then_barred(first: fn(&Recorded) -> Reply) -> HttpPuppet {
    let calls = AtomicUsize::new(0);
    HttpPuppet::start(move |request| {
        let call = (request.rpc_method() == "tools/call").then(|| calls.fetch_add(1, Ordering::SeqCst));
        async move {
            match call {
                None => honest(request).await,
                Some(0) => first(&request),
                Some(_) => Reply::status(401),
            }
        }
    })
}

fn asks_back(request: &Recorded) -> Reply {
    let asks = json!({"resultType": "input_required", "requestState": "s"});
    Reply::ok(json!({"jsonrpc": "2.0", "id": request.json()["id"], "result": asks}))
}

#[tokio::test]
async fn l38_what_was_sent_before_may_have_run_whatever_the_next_attempt_or_round_ends_with() {
    let outage = |_: &Recorded| Reply::status(503);
    for (marked, puppet) in [(true, then_barred(outage)), (false, then_barred(asks_back))] {
        let host = far(&puppet, marked).await;
        let outcome = echo(&host).await;
        let failed = error(&outcome);
        assert_eq!((failed.kind(), failed.may_have_run()), ("auth", true), "{outcome:?}");
        assert!(!failed.is_retryable());
        let hint = failed.hint().unwrap();
        assert!(hint.contains("may have run") && hint.contains("wharf login pup"), "{hint}");
        host.close().await;
    }
    // The legitimate twin: where nothing else was sent, a refusal says that nothing was run.
    let puppet = then_barred(|_| Reply::status(401));
    let host = far(&puppet, true).await;
    let outcome = echo(&host).await;
    assert_eq!((error(&outcome).kind(), error(&outcome).may_have_run()), ("auth", false), "{outcome:?}");
    assert!(!error(&outcome).hint().unwrap().contains("may have run"));
    host.close().await;
}

#[tokio::test]
async fn l38_a_caller_that_goes_on_with_a_call_is_told_that_it_may_have_run() {
    let puppet = then_barred(asks_back);
    let door = open(far(&puppet, false).await).await;
    let mut params = json!({"name": "pup_echo", "arguments": {}});
    let asked = door.modern("tools/call", params.clone()).await.json();
    params["requestState"] = asked["result"]["requestState"].clone();
    assert!(params["requestState"].is_string(), "{asked}");
    let refused = door.modern("tools/call", params).await.json();
    let data = &refused["error"]["data"];
    assert_eq!((&data["kind"], &data["mayHaveRun"]), (&json!("auth"), &json!(true)), "{refused}");
    assert_eq!(data["retryable"], false, "{refused}");
    door.host.close().await;
}
