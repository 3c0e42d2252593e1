//! What is seen of servers and callers while they have too much to do, or give no sign of life.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tokio::sync::Notify;
use wharf::config::{BreakerSettings, CallLimits, HealthCheck, ServerConfig, Share};
use wharf::names::ServerName;
use wharf_testkit::{Era, HttpPuppet, Puppet, Reply, Step};

use super::exposition::Scrape;
use super::metrics::{call, get, scrape};
use super::{Door, open, open_with};
use crate::resilience::honest;
use crate::support::{
    at, count, folder, host, is_alive, later, pid_in, puppet, quick, received, soon, until,
};

fn of<'a>(scrape: &Scrape, name: &str, server: &'a str, reason: Option<&'a str>) -> Option<f64> {
    let labels = std::iter::once(("server", server)).chain(reason.map(|reason| ("reason", reason)));
    scrape.value(name, &labels.collect::<Vec<_>>())
}

/// Looks again and again until a value is this.
async fn reaches(door: &Door, name: &str, labels: &[(&str, &str)], value: f64) -> Scrape {
    let looking = async {
        loop {
            let now = scrape(door).await;
            if now.value(name, labels) == Some(value) {
                return now;
            }
        }
    };
    soon(&format!("{name} is {value}"), looking).await
}

#[tokio::test]
async fn l94_what_a_server_has_too_much_of_is_counted_at_that_server() {
    let files = folder();
    let (log, go) = (at(&files, "log"), at(&files, "go"));
    let slow = Puppet::of(Era::Modern).on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]).log(&log);
    // One is under way, and one waits.
    let limits = CallLimits { calls_per_server: 1, waiting: 8, ..CallLimits::default() };
    let host = host([puppet("slow", &slow), puppet("fine", &Puppet::of(Era::Modern))]).await;
    host.tools().await;
    let door = Arc::new(open_with(host, |b| b.limits(limits)).await);
    let spawn = || {
        let door = Arc::clone(&door);
        tokio::spawn(async move { call(&door, "slow_echo").await })
    };
    let first = spawn();
    until("it is under way", || count(&received(&log), "tools/call") == 1).await;
    let second = spawn();
    let now = reaches(&door, "wharf_caller_waiting", &[("caller", "local")], 1.0).await;
    assert_eq!(now.value("wharf_caller_calls", &[("caller", "local")]), Some(1.0));
    assert_eq!(now.value("wharf_gate_waiting", &[("server", "slow")]), Some(1.0));
    assert_eq!(of(&now, "wharf_server_refused_total", "slow", Some("queue")), Some(0.0));
    for _ in 0..3 {
        assert_eq!(call(&door, "slow_echo").await["error"]["data"]["kind"], "overloaded");
    }
    assert!(call(&door, "fine_echo").await["result"].is_object());
    assert!(call(&door, "made_up").await["error"].is_object());
    std::fs::write(&go, "").unwrap();
    for held in [first, second] {
        assert!(held.await.unwrap()["result"].is_object());
    }
    let now = scrape(&door).await;
    let refused = |server, reason| of(&now, "wharf_server_refused_total", server, Some(reason));
    assert_eq!((refused("slow", "queue"), refused("slow", "rate")), (Some(3.0), Some(0.0)));
    assert_eq!((refused("fine", "queue"), refused("fine", "rate")), (Some(0.0), Some(0.0)));
    assert_eq!(now.all("wharf_server_refused_total", &[]).len(), 4, "of servers that are configured");
    assert_eq!(now.value("wharf_requests_rejected_total", &[("reason", "queue")]), Some(3.0));
    assert_eq!(of(&now, "wharf_server_waits_total", "slow", None), Some(1.0));
    assert_eq!(of(&now, "wharf_server_waits_total", "fine", None), Some(0.0));
    assert!(of(&now, "wharf_server_wait_seconds_total", "slow", None) > Some(0.0));
    let status = get(&door, "/status", &[]).await.json();
    let row = status["servers"].as_array().unwrap().iter().find(|row| row["name"] == "slow").unwrap();
    assert_eq!(row["refused"], json!({"queue": 3, "rate": 0}));
    door.host.close().await;
}

#[tokio::test]
async fn l94_a_server_that_is_asked_too_often_is_known_by_name() {
    let limits = CallLimits { server_calls_per_second: Some(0.01), ..CallLimits::default() };
    let servers = [puppet("pup", &Puppet::of(Era::Modern)), puppet("fine", &Puppet::of(Era::Modern))];
    let host = host(servers).await;
    host.tools().await;
    let door = open_with(host, |b| b.limits(limits)).await;
    assert!(call(&door, "pup_echo").await["result"].is_object());
    let refused = call(&door, "pup_echo").await;
    assert_eq!(refused["error"]["data"]["kind"], "overloaded");
    let words = refused["error"]["message"].as_str().unwrap();
    assert!(words.contains("rate limit of calls to this server"), "nothing is under way: {words}");
    let now = scrape(&door).await;
    let refused = |server, reason| of(&now, "wharf_server_refused_total", server, Some(reason));
    assert_eq!((refused("pup", "rate"), refused("pup", "queue")), (Some(1.0), Some(0.0)));
    assert_eq!(refused("fine", "rate"), Some(0.0));
    door.host.close().await;
}

#[tokio::test]
async fn l96_a_program_counts_from_its_start_to_its_end_whatever_it_says() {
    let files = folder();
    let (pid, go) = (at(&files, "pid"), at(&files, "go"));
    let script = Puppet::of(Era::Modern).pid(&pid).with(|s| s.start = vec![Step::WaitFor(go.clone())]);
    let door = open(host([puppet("slow", &script)]).await).await;
    let programs = async || of(&scrape(&door).await, "wharf_server_processes", "slow", None);
    assert_eq!(programs().await, Some(0.0));
    let connecting = tokio::spawn({
        let host = door.host.clone();
        async move { host.tools().await.failed.len() }
    });
    let pid = pid_in(&pid).await;
    // It does not answer, and it is there.
    let now = reaches(&door, "wharf_server_processes", &[("server", "slow")], 1.0).await;
    assert_eq!(of(&now, "wharf_server_connections", "slow", None), Some(0.0));
    std::fs::write(&go, "").unwrap();
    assert_eq!(soon("it is connected", connecting).await.unwrap(), 0);
    assert_eq!(programs().await, Some(1.0), "the same one");
    door.host.berth("slow").unwrap().disconnect().await;
    assert!(!is_alive(pid));
    reaches(&door, "wharf_server_processes", &[("server", "slow")], 0.0).await;
    door.host.close().await;
}

#[tokio::test]
async fn l96_a_call_that_waits_too_long_is_counted_as_waited_and_as_refused() {
    let files = folder();
    let (log, go) = (at(&files, "log"), at(&files, "go"));
    let held = Puppet::of(Era::Modern).on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]).log(&log);
    let (mut slow, mut brief) = (puppet("slow", &held), puppet("brief", &Puppet::of(Era::Modern)));
    // A call of the one may take a day, and of the other twenty seconds, what it waits for counted.
    (slow.timeout, brief.timeout) = (Duration::from_secs(24 * 3600 / 20), Duration::from_secs(1));
    let limits = CallLimits { calls_per_caller: 1, waiting: 8, ..CallLimits::default() };
    let host = quick().servers([slow, brief]).start().await.unwrap();
    host.tools().await;
    let door = Arc::new(open_with(host, |b| b.limits(limits)).await);
    let spawn = |tool: &'static str| {
        let door = Arc::clone(&door);
        tokio::spawn(async move { call(&door, tool).await })
    };
    let first = spawn("slow_echo");
    until("it is under way", || count(&received(&log), "tools/call") == 1).await;
    let second = spawn("brief_echo");
    let now = reaches(&door, "wharf_gate_waiting", &[("server", "brief")], 1.0).await;
    assert_eq!(of(&now, "wharf_server_refused_total", "brief", Some("queue")), Some(0.0));
    later(Duration::from_secs(20)).await;
    let refused = soon("the refusal", second).await.unwrap();
    assert_eq!(refused["error"]["data"]["kind"], "overloaded", "{refused}");
    std::fs::write(&go, "").unwrap();
    assert!(soon("the first", first).await.unwrap()["result"].is_object());
    let now = scrape(&door).await;
    let waited = of(&now, "wharf_server_wait_seconds_total", "brief", None);
    assert_eq!(of(&now, "wharf_server_waits_total", "brief", None), Some(1.0));
    assert!(waited >= Some(20.0), "{waited:?}");
    assert_eq!(of(&now, "wharf_server_refused_total", "brief", Some("queue")), Some(1.0));
    assert_eq!(of(&now, "wharf_server_refused_total", "slow", Some("queue")), Some(0.0));
    door.host.close().await;
}

#[tokio::test]
async fn l96_calls_that_wait_and_are_given_up_are_counted_as_waits() {
    let files = folder();
    let log = at(&files, "log");
    let slow = Puppet::of(Era::Modern).on("tool:echo", [Step::Hang]).log(&log);
    let limits = CallLimits { calls_per_server: 1, waiting: 80, ..CallLimits::default() };
    let host = host([puppet("slow", &slow)]).await;
    host.tools().await;
    let door = Arc::new(open_with(host, |b| b.limits(limits)).await);
    let spawn = || {
        let door = Arc::clone(&door);
        tokio::spawn(async move { call(&door, "slow_echo").await })
    };
    let first = spawn();
    until("it is under way", || count(&received(&log), "tools/call") == 1).await;
    let waiting: Vec<_> = (0..10).map(|_| spawn()).collect();
    let now = reaches(&door, "wharf_gate_waiting", &[("server", "slow")], 10.0).await;
    assert_eq!(of(&now, "wharf_server_waits_total", "slow", None), Some(10.0), "counted when they begin");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    let now = reaches(&door, "wharf_gate_waiting", &[("server", "slow")], 0.0).await;
    assert_eq!(of(&now, "wharf_server_waits_total", "slow", None), Some(10.0));
    assert!(of(&now, "wharf_server_wait_seconds_total", "slow", None) > Some(0.0));
    assert_eq!(of(&now, "wharf_server_refused_total", "slow", Some("queue")), Some(0.0));
    first.abort();
    door.host.close().await;
}

#[tokio::test]
async fn l96_times_are_told_as_no_longer_than_they_were() {
    let mut late = puppet("late", &Puppet::of(Era::Modern).on("tool:echo", [Step::Hang]));
    late.timeout = Duration::from_millis(300);
    let host = quick().server(late).start().await.unwrap();
    host.tools().await;
    let door = open(host).await;
    let begun = std::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(call(&door, "late_echo").await["error"]["data"]["kind"], "timeout");
    }
    // Two of them took the least that they can.
    let most = begun.elapsed() - Duration::from_millis(600);
    let row = get(&door, "/status", &[]).await.json()["servers"][0].clone();
    for time in ["p50Us", "p99Us", "longestUs"] {
        let time = Duration::from_micros(row[time].as_u64().unwrap());
        assert!(time <= most && time > Duration::from_millis(260), "{time:?} of {most:?}: {row}");
    }
    door.host.close().await;
}

#[tokio::test]
async fn l36_what_nobody_waits_for_is_counted_by_server_over_all_its_connections() {
    let note = r#"{"jsonrpc":"2.0","method":"nobody/wants"}"#;
    let stray = r#"{"jsonrpc":"2.0","id":987654,"result":{}}"#;
    let steps = [
        Step::Flood { line: note.into(), count: Some(3) },
        Step::Flood { line: stray.into(), count: Some(2) },
        Step::Raw(r#"{"jsonrpc":"2.0","#.into()),
        Step::Honest,
    ];
    let noisy = puppet("noisy", &Puppet::of(Era::Legacy).on("tool:echo", steps));
    let door = open(host([noisy, puppet("fine", &Puppet::of(Era::Legacy))]).await).await;
    for round in [1.0, 2.0] {
        assert!(call(&door, "noisy_echo").await["result"].is_object());
        assert!(call(&door, "fine_echo").await["result"].is_object());
        let now = scrape(&door).await;
        for (kind, count) in [("notification", 3.0), ("answer", 2.0), ("malformed", 1.0)] {
            let of = |server| now.value("wharf_server_strays_total", &[("server", server), ("kind", kind)]);
            assert_eq!((of("noisy"), of("fine")), (Some(round * count), Some(0.0)), "{kind}");
        }
        door.host.berth("noisy").unwrap().disconnect().await;
    }
    door.host.close().await;
}

#[tokio::test]
async fn l38_missed_checks_are_told_of_until_the_server_gives_a_sign_again() {
    let files = folder();
    let (go, log) = (at(&files, "go"), at(&files, "log"));
    let (hangs, answers) = (|| vec![Step::Hang], vec![Step::Honest]);
    let turns = vec![hangs(), hangs(), answers];
    let script = Puppet::of(Era::Legacy)
        .log(&log)
        .on("ping", [Step::Turns(turns)])
        // One with a call under way is only marked.
        .on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]);
    let mut pup = puppet("pup", &script);
    pup.resilience.health_check = HealthCheck::Every(Duration::from_secs(30));
    // Longer than all checks together. A sign of life is waited for ten seconds.
    pup.timeout = Duration::from_secs(3600);
    let door = Arc::new(open(quick().server(pup).start().await.unwrap()).await);
    let labels = [("server", "pup"), ("instance", "1")];
    assert_eq!(scrape(&door).await.value("wharf_server_missed_checks", &labels), Some(0.0));
    let calling = tokio::spawn({
        let door = Arc::clone(&door);
        async move { call(&door, "pup_echo").await }
    });
    until("it is under way", || count(&received(&log), "tools/call") == 1).await;
    for (asked, missed) in [(1, 1.0), (2, 2.0), (3, 0.0)] {
        later(Duration::from_secs(34)).await;
        until("it is asked", || count(&received(&log), "ping") == asked).await;
        if missed > 0.0 {
            later(Duration::from_secs(10)).await;
        }
        reaches(&door, "wharf_server_missed_checks", &labels, missed).await;
    }
    std::fs::write(&go, "").unwrap();
    assert!(soon("the call", calling).await.unwrap()["result"].is_object());
    door.host.close().await;
}

#[tokio::test]
async fn l96_whether_it_is_ready_is_a_number_too() {
    let broken = Puppet::of(Era::Silent).with(|script| script.start = vec![Step::Exit(3)]);
    let required = [ServerName::parse("broken").unwrap()];
    let host = quick().server(puppet("broken", &broken)).start().await.unwrap();
    let door = open_with(host, |b| b.required(required)).await;
    assert_eq!(scrape(&door).await.value("wharf_ready", &[]), Some(1.0), "nothing is known of it yet");
    door.host.tools().await;
    assert_eq!(get(&door, "/readyz", &[]).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(scrape(&door).await.value("wharf_ready", &[]), Some(0.0));
    door.host.close().await;
}

#[tokio::test]
async fn l96_connections_are_counted_those_of_single_calls_too() {
    let files = folder();
    let (go, log) = (at(&files, "go"), at(&files, "log"));
    let script = Puppet::of(Era::Modern).on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]).log(&log);
    let mut own = puppet("own", &script);
    own.share = Some(Share::Never);
    let door = Arc::new(open(quick().server(own).start().await.unwrap()).await);
    let labels = [("server", "own")];
    assert_eq!(scrape(&door).await.value("wharf_server_connections", &labels), Some(0.0));
    door.host.tools().await;
    let before = scrape(&door).await.value("wharf_server_connections", &labels).unwrap();
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let door = Arc::clone(&door);
            tokio::spawn(async move { call(&door, "own_echo").await })
        })
        .collect();
    until("both are under way", || count(&received(&log), "tools/call") == 2).await;
    assert_eq!(scrape(&door).await.value("wharf_server_connections", &labels), Some(before + 2.0));
    std::fs::write(&go, "").unwrap();
    for answer in calls {
        assert!(answer.await.unwrap()["result"].is_object());
    }
    reaches(&door, "wharf_server_connections", &labels, before).await;
    door.host.close().await;
}

#[tokio::test]
async fn l96_a_retry_is_counted_and_a_circuit_that_is_tried_is_half_open() {
    let files = folder();
    let turns =
        Step::TurnsIn { file: at(&files, "turns"), turns: vec![vec![Step::Kill], vec![Step::Honest]] };
    let mut marked = puppet("marked", &Puppet::of(Era::Modern).on("tool:echo", [turns]));
    marked.resilience.idempotent = vec!["echo".into()];
    // Over HTTP, where nothing is started again by itself.
    let (calls, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, gone) = (Arc::clone(&calls), Arc::clone(&go));
    let failing_once = HttpPuppet::start(move |request| {
        let (calls, go) = (Arc::clone(&counted), Arc::clone(&gone));
        async move {
            if request.rpc_method() == "tools/call" {
                match calls.fetch_add(1, Ordering::SeqCst) {
                    0 => return Reply::status(503),
                    _ => go.notified().await,
                }
            }
            honest(request).await
        }
    });
    let mut left = ServerConfig::http(ServerName::parse("left").unwrap(), &failing_once.url()).unwrap();
    let cool_down = Duration::from_secs(600);
    left.resilience.breaker = Some(BreakerSettings { failures: 1, cool_down });
    let door = Arc::new(open(quick().servers([marked, left]).start().await.unwrap()).await);
    let retries = |now: &Scrape, server| now.value("wharf_retries_total", &[("server", server)]);
    let circuit = |now: &Scrape| {
        ["closed", "open", "half-open"].map(|word| {
            let labels = [("server", "left"), ("instance", "1"), ("circuit", word)];
            now.value("wharf_server_circuit", &labels).unwrap()
        })
    };
    let now = scrape(&door).await;
    assert_eq!((retries(&now, "marked"), circuit(&now)), (Some(0.0), [1.0, 0.0, 0.0]));
    assert!(call(&door, "marked_echo").await["result"].is_object());
    assert_eq!(call(&door, "left_echo").await["error"]["data"]["kind"], "unknown_outcome");
    let now = scrape(&door).await;
    assert_eq!((retries(&now, "marked"), retries(&now, "left")), (Some(1.0), Some(0.0)));
    assert_eq!(circuit(&now), [0.0, 1.0, 0.0]);

    later(2 * cool_down).await;
    let trying = tokio::spawn({
        let door = Arc::clone(&door);
        async move { call(&door, "left_echo").await }
    });
    until("one call tries it", || calls.load(Ordering::SeqCst) == 2).await;
    assert_eq!(circuit(&scrape(&door).await), [0.0, 0.0, 1.0]);
    go.notify_one();
    assert!(soon("it", trying).await.unwrap()["result"].is_object());
    let now = scrape(&door).await;
    assert_eq!((circuit(&now), retries(&now, "left")), ([1.0, 0.0, 0.0], Some(0.0)));
    door.host.close().await;
}
