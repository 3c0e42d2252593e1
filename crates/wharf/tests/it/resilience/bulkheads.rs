//! One server's trouble is its own: the others answer as if it were not there, and whoever asks too much is told at once.

use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use wharf::config::BreakerSettings;
use wharf::{CallOptions, Host};
use wharf_testkit::{Era, Puppet, Step};

use super::alone;
use crate::gateway::open;
use crate::support::{at, count, effects, error, folder, puppet, quick, received, soon, until};

const HEALTHY: usize = 9;
const PILE: usize = 1000;
/// Calls to each healthy server.
const ROUNDS: usize = 5;

/// Calls each healthy server in turn. How long the slowest of a hundred took.
async fn rounds(host: &Host) -> Duration {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        for server in 0..HEALTHY {
            let begun = Instant::now();
            let outcome =
                soon("a call of a healthy server", host.call(&format!("s{server}_echo"), json!({}))).await;
            assert!(outcome.success, "server {server}: {outcome:?}");
            took.push(begun.elapsed());
        }
    }
    took.sort();
    took[took.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_with_one_hostile_server_among_ten_every_call_to_the_others_succeeds() {
    let flood = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}";
    let scripts = [
        ("stuck", Puppet::new().on("tool:echo", [Step::Hang])),
        ("deaf", Puppet::of(Era::Legacy).with(|s| s.deaf_after = Some(4))),
        ("flooding", Puppet::new().on("tool:echo", [Step::Flood { line: flood.into(), count: None }])),
        ("crashing", Puppet::new().on("tool:echo", [Step::Kill])),
        ("frozen", Puppet::new().on("tool:echo", [Step::Freeze])),
    ];
    for (kind, script) in scripts {
        let begun = Instant::now();
        let mut servers: Vec<_> =
            (0..HEALTHY).map(|n| puppet(&format!("s{n}"), &Puppet::of(Era::Modern))).collect();
        servers.push(puppet("hostile", &script));
        let host = quick().servers(servers).start().await.unwrap();
        assert!(host.tools().await.failed.is_empty(), "{kind}");
        let quiet = rounds(&host).await;
        // Together more than any pipe holds.
        let arguments = if kind == "deaf" { json!({"x": "x".repeat(4_000)}) } else { json!({}) };
        let pile: Vec<_> = (0..PILE)
            .map(|_| {
                let (host, arguments) = (host.clone(), arguments.clone());
                tokio::spawn(async move { host.call("hostile_echo", arguments).await })
            })
            .collect();
        until("the pile is there", || {
            let conditions = host.conditions();
            let busy = conditions.iter().find(|one| one.server.as_str() == "hostile").unwrap().in_flight;
            busy >= PILE || pile.iter().any(tokio::task::JoinHandle::is_finished)
        })
        .await;
        let loud = rounds(&host).await;
        say(&format!(
            "{kind}: p99 of the others {loud:.1?}, {:.1} times {quiet:.1?}",
            loud.as_secs_f64() / quiet.as_secs_f64()
        ));
        // What it took along ends with it, and each in one way.
        let mut ended = 0;
        for call in &pile {
            call.abort();
        }
        for call in pile {
            match call.await {
                Ok(outcome) => {
                    assert!(!outcome.success, "{kind}");
                    ended += 1;
                }
                Err(aborted) => assert!(aborted.is_cancelled()),
            }
        }
        say(&format!("{kind}: {ended} of {PILE} calls to it had ended by then"));
        soon("the end", host.close()).await;
        say(&format!("{kind}: {:?} all in all", begun.elapsed()));
    }
}

#[tokio::test]
async fn l94_a_server_that_never_gets_ready_costs_everyone_who_waits_one_attempt() {
    let files = folder();
    let starts = at(&files, "starts");
    let mut config =
        puppet("pup", &Puppet::of(Era::Silent).with(|s| s.start = vec![Step::Count(starts.clone())]));
    config.start_timeout = Duration::from_millis(400);
    let host = alone(config).await;
    let calls = (0..200).map(|_| host.call_tool("pup", "echo", json!({}), CallOptions::default()));
    for outcome in soon("all calls", futures_util::future::join_all(calls)).await {
        assert!(error(&outcome).to_string().contains("not ready within 400ms"), "{outcome:?}");
    }
    assert!(effects(&starts) <= 2, "{} starts", effects(&starts));
    // Whoever comes later tries again.
    let before = effects(&starts);
    let outcome = host.call_tool("pup", "echo", json!({}), CallOptions::default()).await;
    assert!(error(&outcome).kind() == "connection" && effects(&starts) > before, "{outcome:?}");
    host.close().await;
}

#[tokio::test]
async fn l94_a_server_that_is_left_alone_is_503_in_the_modern_era_and_an_error_in_the_legacy_one() {
    let files = folder();
    let log = at(&files, "log");
    let mut config = puppet("pup", &Puppet::new().log(&log).on("tool:echo", [Step::Kill]));
    config.resilience.breaker = Some(BreakerSettings { failures: 1, cool_down: Duration::from_secs(600) });
    let host = quick().servers([config, puppet("fine", &Puppet::new())]).start().await.unwrap();
    host.tools().await;
    let door = open(host).await;
    let call = |tool: &str| json!({"name": tool, "arguments": {}});
    let lost = door.modern("tools/call", call("pup_echo")).await;
    assert_eq!(
        (lost.status, &lost.json()["error"]["data"]["kind"]),
        (StatusCode::OK, &json!("unknown_outcome"))
    );
    let refused = door.modern("tools/call", call("pup_echo")).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused:?}");
    let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((500..=900).contains(&wait), "{wait}");
    let session = door.greet().await;
    let message = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": call("pup_echo")});
    let legacy = door.legacy(Some(&session), message).await;
    for body in [refused.json(), legacy.json()] {
        let data = &body["error"]["data"];
        assert!(data["kind"] == "unavailable" && data["retryable"] == true, "{body}");
        assert!(data["retryAfterMs"].as_u64() > Some(500_000), "{body}");
        assert!(
            body["error"]["message"].as_str().unwrap().contains("`pup` is not asked at the moment"),
            "{body}"
        );
    }
    assert_eq!(count(&received(&log), "tools/call"), 1);
    assert_eq!(door.modern("tools/call", call("fine_echo")).await.status, StatusCode::OK);
    door.host.close().await;
}

#[expect(clippy::print_stdout, reason = "the figures of a proof are for whoever runs it")]
fn say(figures: &str) {
    println!("{figures}");
}
