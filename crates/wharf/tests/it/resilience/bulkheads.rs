//! One server's trouble is its own: the others answer as if it were not there, and whoever asks too much is told at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wharf::config::BreakerSettings;
use wharf::{CallOptions, Host, Outcome};
use wharf_testkit::{Era, Puppet, Step};

use super::alone;
use crate::gateway::open;
use crate::support::{at, count, effects, error, folder, puppet, quick, received, soon, until};

const HEALTHY: usize = 9;
/// How many calls of the hostile server are under way where it lets them be.
const PILE: usize = 1000;
/// How many are added to them before each call of a healthy one, in place of those that have ended.
const MORE: usize = 20;
/// Calls to each healthy server: enough for a slowest of a hundred.
const ROUNDS: usize = 25;

/// The calls of the hostile server, and what became of them.
struct Pile<'a> {
    host: &'a Host,
    arguments: Value,
    calls: JoinSet<Outcome>,
    sent: usize,
    ended: BTreeMap<&'static str, usize>,
}

impl Pile<'_> {
    fn add(&mut self, most: usize) {
        while let Some(ended) = self.calls.try_join_next() {
            self.count(&ended.unwrap());
        }
        for _ in 0..most.min(PILE - self.calls.len()) {
            let (host, arguments) = (self.host.clone(), self.arguments.clone());
            self.calls.spawn(async move { host.call("hostile_echo", arguments).await });
            self.sent += 1;
        }
    }

    fn count(&mut self, outcome: &Outcome) {
        *self.ended.entry(error(outcome).kind()).or_default() += 1;
    }

    fn ends(&self) -> usize {
        self.ended.values().sum()
    }

    /// Leaves all that are still under way.
    async fn leave(&mut self) {
        self.calls.abort_all();
        let mut left = 0;
        while let Some(call) = self.calls.join_next().await {
            match call {
                Ok(outcome) => self.count(&outcome),
                Err(aborted) => {
                    assert!(aborted.is_cancelled());
                    left += 1;
                }
            }
        }
        assert_eq!(self.sent, self.ends() + left, "each has one end");
    }
}

/// Calls each healthy server in turn, and does something before each call. How long the slowest of a hundred took.
async fn rounds(host: &Host, mut before: impl FnMut()) -> Duration {
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        for server in 0..HEALTHY {
            before();
            let begun = Instant::now();
            let own = json!({ "message": format!("{server} in round {round}") });
            let outcome =
                soon("a call of a healthy server", host.call(&format!("s{server}_echo"), own.clone())).await;
            took.push(begun.elapsed());
            assert!(outcome.success, "server {server}: {outcome:?}");
            assert_eq!(outcome.to_text(), own.to_string(), "its own answer");
        }
    }
    took.sort();
    took[took.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_with_one_hostile_server_among_ten_every_call_to_the_others_succeeds() {
    let flood = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}";
    // Whether its calls end, or stay.
    let scripts = [
        ("stuck", false, Puppet::new().on("tool:echo", [Step::Hang])),
        ("deaf", false, Puppet::of(Era::Legacy).with(|s| s.deaf_after = Some(4))),
        ("flooding", true, Puppet::new().on("tool:echo", [Step::Flood { line: flood.into(), count: None }])),
        ("crashing", true, Puppet::new().on("tool:echo", [Step::Kill])),
        ("frozen", false, Puppet::new().on("tool:echo", [Step::Freeze])),
    ];
    for (kind, ends, script) in scripts {
        let begun = Instant::now();
        let echo = |n| puppet(&format!("s{n}"), &Puppet::of(Era::Modern).on("tool:echo", [Step::Echo]));
        let mut servers: Vec<_> = (0..HEALTHY).map(echo).collect();
        let mut hostile = puppet("hostile", &script);
        // It goes on for as long as the others are looked at.
        hostile.resilience.breaker = None;
        servers.push(hostile);
        let host = quick().servers(servers).start().await.unwrap();
        assert!(host.tools().await.failed.is_empty(), "{kind}");
        let quiet = rounds(&host, || ()).await;
        // Together more than any pipe holds.
        let arguments = if kind == "deaf" { json!({"x": "x".repeat(4_000)}) } else { json!({}) };
        let calls = JoinSet::new();
        let mut pile = Pile { host: &host, arguments, calls, sent: 0, ended: BTreeMap::new() };
        pile.add(PILE);
        until("they are under way, or the first has ended", || {
            pile.add(0);
            in_flight_at(&host, "hostile") >= PILE || pile.ends() > 0
        })
        .await;
        let before = pile.ends();
        let loud = rounds(&host, || pile.add(MORE)).await;
        match ends {
            true => assert!(pile.ends() > before, "{kind}: it went on"),
            false => assert!(in_flight_at(&host, "hostile") > 0, "{kind}: they stay"),
        }
        say(&format!(
            "{kind}: p99 of {} calls of the others {loud:.1?}, {:.1} times {quiet:.1?}",
            ROUNDS * HEALTHY,
            loud.as_secs_f64() / quiet.as_secs_f64()
        ));
        pile.leave().await;
        say(&format!("{kind}: of {} calls to it ended by then: {:?}", pile.sent, pile.ended));
        soon("the end", host.close()).await;
        say(&format!("{kind}: {:?} all in all", begun.elapsed()));
    }
}

fn in_flight_at(host: &Host, server: &str) -> usize {
    host.conditions().iter().find(|one| one.server.as_str() == server).unwrap().in_flight
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
