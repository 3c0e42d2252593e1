//! Several instances of one server: who takes a call, and who takes it when that one is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use wharf::Host;
use wharf::catalog::{LockEntry, Lockfile};
use wharf::config::{Balance, BreakerSettings, ServerConfig};
use wharf::event::{Circuit, Event, State};
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::secret::SecretUrl;
use wharf_testkit::http::honest_modern;
use wharf_testkit::{HttpPuppet, Puppet, Recorded, Reply, Step, puppet_path};

use super::alone;
use crate::support::{at, echo, effects, error, folder, is_alive, puppet, quick, soon, until};

/// A program that there is so often. What it says is how often its process was called.
fn several(count: usize, balance: Balance) -> ServerConfig {
    let turns = (1..=9).map(|n| vec![says(&n.to_string())]).collect();
    let mut config = puppet("pup", &Puppet::new().on("tool:echo", [Step::Turns(turns)]));
    (config.resilience.instances, config.resilience.balance) = (count, balance);
    config
}

fn says(text: &str) -> Step {
    Step::Reply(json!({"content": [{"type": "text", "text": text}]}))
}

async fn said(host: &Host) -> String {
    let outcome = echo(host).await;
    assert!(outcome.success, "{outcome:?}");
    outcome.to_text()
}

/// An instance over HTTP: whether it is up, how many calls it ran, and what its tool is like.
pub(super) struct Replica {
    pub(super) puppet: HttpPuppet,
    ran: Arc<AtomicUsize>,
    /// It runs a call and closes the connection.
    pub(super) mute: Arc<AtomicBool>,
    /// It runs a call and never answers.
    pub(super) stuck: Arc<AtomicBool>,
    /// It never says which tools it has.
    pub(super) deaf: Arc<AtomicBool>,
}

pub(super) fn replica(description: &'static str) -> Replica {
    replica_at(0, description)
}

pub(super) fn replica_at(port: u16, description: &'static str) -> Replica {
    let ran = Arc::new(AtomicUsize::new(0));
    let (mute, stuck) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let deaf = Arc::new(AtomicBool::new(false));
    let (counted, muted, hangs) = (Arc::clone(&ran), Arc::clone(&mute), Arc::clone(&stuck));
    let silent = Arc::clone(&deaf);
    let play = move |request: Recorded| {
        let (ran, mute, stuck) = (Arc::clone(&counted), Arc::clone(&muted), Arc::clone(&hangs));
        let deaf = Arc::clone(&silent);
        async move {
            if request.rpc_method() == "tools/list" && deaf.load(Ordering::SeqCst) {
                return Reply::Hang;
            }
            if request.rpc_method() == "tools/call" {
                ran.fetch_add(1, Ordering::SeqCst);
                if mute.load(Ordering::SeqCst) {
                    return Reply::Drop;
                }
                if stuck.load(Ordering::SeqCst) {
                    return Reply::Hang;
                }
            }
            let tool = json!({"name": "echo", "description": description, "inputSchema": {"type": "object"}});
            // Nothing is sent over a connection that was used before: it may be gone.
            honest_modern(vec![tool])(request).await.with("connection", "close")
        }
    };
    Replica { puppet: HttpPuppet::start_at(port, play), ran, mute, stuck, deaf }
}

impl Replica {
    pub(super) fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }
}

/// Ends an instance, and waits until nobody is let in any more.
pub(super) async fn down(replica: Replica) {
    let at = replica.puppet.addr();
    drop(replica);
    until("it is down", || std::net::TcpStream::connect(at).is_err()).await;
}

fn url(replica: &Replica) -> SecretUrl {
    SecretUrl::new(replica.puppet.url().parse().unwrap())
}

pub(super) fn reached(first: &Replica, others: &[&Replica]) -> ServerConfig {
    let name = ServerName::parse("pup").unwrap();
    let mut config = ServerConfig::http(name, &first.puppet.url()).unwrap();
    config.resilience.replicas = others.iter().map(|other| url(other)).collect();
    config.resilience.breaker = Some(BreakerSettings { failures: 2, cool_down: Duration::from_millis(40) });
    config
}

#[tokio::test]
async fn l39_calls_go_round_all_instances_or_to_the_one_with_the_least_to_do() {
    let host = alone(several(3, Balance::RoundRobin)).await;
    let mut all = Vec::new();
    for _ in 0..9 {
        all.push(said(&host).await);
    }
    assert_eq!(all, ["1", "1", "1", "2", "2", "2", "3", "3", "3"]);
    let condition = &host.conditions()[0];
    assert_eq!((condition.instances.len(), condition.in_flight), (3, 0));
    for instance in &condition.instances {
        assert_eq!((instance.state, instance.circuit), (State::Connected, Circuit::Closed));
    }
    assert_eq!(host.check_connections().await.len(), 3);
    host.close().await;

    let host = alone(several(3, Balance::LeastInFlight)).await;
    for n in 1..=4 {
        assert_eq!(said(&host).await, n.to_string(), "one after the other is never too much for one");
    }
    let up = |host: &Host| {
        host.conditions()[0].instances.iter().filter(|one| one.state == State::Connected).count()
    };
    assert_eq!(up(&host), 1, "the others were not needed");
    let at_once: Vec<_> = (0..3).map(|_| host.call("pup_echo", json!({}))).collect();
    let outcomes = futures_util::future::join_all(at_once).await;
    let mut texts: Vec<_> = outcomes.iter().map(wharf::outcome::Outcome::to_text).collect();
    texts.sort();
    assert_eq!(texts, ["1", "1", "5"], "calls at the same time go to different instances");
    host.close().await;
}

#[tokio::test]
async fn l39_with_one_instance_of_three_killed_every_call_succeeds() {
    let files = folder();
    let log = at(&files, "pids");
    let script = Puppet::new().plain_tool("echo").plain_tool("die").on("tool:die", [Step::Kill]).with(|s| {
        s.start = vec![Step::Count(log.clone())];
    });
    let mut config = puppet("pup", &script);
    config.resilience.instances = 3;
    let host = quick().retry_pause(Duration::from_secs(600)).server(config).start().await.unwrap();
    for _ in 0..3 {
        assert!(echo(&host).await.success);
    }
    let started = effects(&log);
    assert_eq!(
        error(&host.call("pup_die", json!({})).await).kind(),
        "unknown_outcome",
        "it is not run twice"
    );
    let outcomes = futures_util::future::join_all((0..30).map(|_| echo(&host))).await;
    assert!(outcomes.iter().all(|outcome| outcome.success));
    assert!(effects(&log) > started, "the one that died was started again when its turn came");
    host.close().await;
}

#[tokio::test]
async fn l39_an_instance_that_is_down_is_passed_over_and_taken_again_when_it_is_back() {
    let (first, second) = (replica(""), replica(""));
    let port = first.puppet.addr().port();
    let host = alone(reached(&first, &[&second])).await;
    for _ in 0..4 {
        assert!(echo(&host).await.success);
    }
    assert_eq!((first.ran(), second.ran()), (2, 2));
    down(first).await;
    for n in 0..10 {
        let outcome = echo(&host).await;
        assert!(outcome.success, "call {n}: {outcome:?}");
    }
    assert_eq!(second.ran(), 12, "every call ran once");
    assert_ne!(host.conditions()[0].instances[0].circuit, Circuit::Closed);
    let first = replica_at(port, "");
    soon("it is asked again", async {
        while first.ran() == 0 {
            assert!(echo(&host).await.success);
        }
    })
    .await;
    assert_eq!(host.conditions()[0].instances[0].circuit, Circuit::Closed);
    // With none left, the error says why.
    down(first).await;
    down(second).await;
    let outcome = echo(&host).await;
    assert_eq!(error(&outcome).kind(), "connection", "{outcome:?}");
    host.close().await;
}

/// Instances that are left alone for long after one failure.
pub(super) fn delicate(first: &Replica, others: &[&Replica]) -> ServerConfig {
    let mut config = reached(first, others);
    config.resilience.breaker = Some(BreakerSettings { failures: 1, cool_down: Duration::from_secs(100) });
    config
}

#[tokio::test]
async fn l39_the_calls_of_one_that_is_left_alone_are_shared_by_all_others() {
    let (first, second, third) = (replica(""), replica(""), replica(""));
    let host = alone(delicate(&first, &[&second, &third])).await;
    host.tools().await;
    first.mute.store(true, Ordering::SeqCst);
    while first.ran() == 0 {
        echo(&host).await;
    }
    let (before, others) = (second.ran(), third.ran());
    for _ in 0..6 {
        assert!(echo(&host).await.success);
    }
    assert_eq!((second.ran() - before, third.ran() - others), (3, 3));
    host.close().await;
}

#[tokio::test]
async fn l39_where_all_are_left_alone_the_first_to_be_asked_again_says_when() {
    let (first, second) = (replica(""), replica(""));
    let host = alone(delicate(&first, &[&second])).await;
    host.tools().await;
    second.mute.store(true, Ordering::SeqCst);
    while second.ran() == 0 {
        echo(&host).await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    first.mute.store(true, Ordering::SeqCst);
    assert_eq!(error(&echo(&host).await).kind(), "unknown_outcome");
    let outcome = echo(&host).await;
    let wharf::Error::Unavailable { retry_after, .. } = error(&outcome) else { panic!("{outcome:?}") };
    assert!(*retry_after < Duration::from_secs(91), "not when the first is: {retry_after:?}");
    host.close().await;
}

#[tokio::test]
async fn l39_what_may_have_run_goes_to_another_instance_only_if_the_tool_is_marked() {
    for marked in [false, true] {
        let (first, second) = (replica(""), replica(""));
        let mut config = reached(&first, &[&second]);
        config.resilience.idempotent = marked.then(|| "echo".to_owned()).into_iter().collect();
        let host = alone(config).await;
        host.tools().await;
        first.mute.store(true, Ordering::SeqCst);
        let outcome = echo(&host).await;
        assert_eq!(outcome.success, marked, "{outcome:?}");
        assert_eq!((first.ran(), second.ran()), (1, usize::from(marked)));
        if !marked {
            assert_eq!(error(&outcome).kind(), "unknown_outcome");
        }
        host.close().await;
    }
}

#[tokio::test]
async fn l39_an_instance_that_offers_something_else_is_told_of_and_not_used_under_a_lock() {
    let policy = || Policy::strict().with_sandbox(false).with_commands([puppet_path().display().to_string()]);
    for (locked, fits) in [(false, true), (false, false), (true, true), (true, false)] {
        let (first, second) =
            (replica("what it does"), replica(if fits { "what it does" } else { "another" }));
        let config = reached(&first, &[&second]);
        let mut host = quick().server(config.clone());
        if locked {
            let look = alone(config.clone()).await;
            let connection = look.berth("pup").unwrap().connection().await.unwrap();
            let mut file = Lockfile::default();
            let entry = LockEntry::ask(&config, &connection, None).await.unwrap();
            file.servers.insert(config.name.clone(), entry);
            host = host.policy(policy().with_lock(Some(Arc::new(file.lock()))));
            look.close().await;
        }
        let host = host.start().await.unwrap();
        let mut events = host.events().subscribe_but_calls();
        for _ in 0..6 {
            let outcome = echo(&host).await;
            assert!(outcome.success, "{locked} {fits}: {outcome:?}");
        }
        let used = if locked && !fits { 0 } else { 3 };
        assert_eq!((first.ran(), second.ran()), (6 - used, used), "{locked} {fits}");
        let mut told = 0;
        while let Ok(event) = events.try_recv() {
            if let Event::Warning { message, .. } = event {
                assert!(message.contains("instance 2 of `pup` offers other tools"), "{message}");
                told += 1;
            }
        }
        assert_eq!(told, usize::from(!fits), "{locked} {fits}");
        host.close().await;
    }
}

#[tokio::test]
async fn l39_every_instance_ends_with_its_server() {
    let files = folder();
    let described = at(&files, "d");
    let turns = Step::TurnsIn { file: at(&files, "n"), turns: vec![vec![Step::Honest]] };
    let script = Puppet::new().on("tool:echo", [turns]).with(|s| s.describe_file = Some(described.clone()));
    let mut config = puppet("pup", &script);
    config.resilience.instances = 4;
    let host = alone(config).await;
    let mut pids = BTreeSet::new();
    for _ in 0..4 {
        assert!(echo(&host).await.success);
        let text = std::fs::read_to_string(&described).unwrap();
        pids.insert(
            u32::try_from(serde_json::from_str::<Value>(&text).unwrap()["pid"].as_u64().unwrap()).unwrap(),
        );
    }
    assert_eq!(pids.len(), 4);
    assert!(host.remove_server("pup").await);
    until("they are gone", || pids.iter().all(|pid| !is_alive(*pid))).await;
    host.close().await;
}

#[tokio::test]
async fn l39_events_and_conditions_say_which_instance_it_is() {
    let (first, second) = (replica("a"), replica("a"));
    let mut config = reached(&first, &[&second]);
    config.resilience.breaker = Some(BreakerSettings { failures: 1, cool_down: Duration::from_secs(600) });
    let at = second.puppet.addr().to_string();
    down(second).await;
    let host = alone(config).await;
    let mut events = host.events().subscribe_but_calls();
    for _ in 0..4 {
        assert!(echo(&host).await.success);
    }
    let (mut states, mut circuits) = (BTreeSet::new(), Vec::new());
    while let Ok(event) = events.try_recv() {
        match event {
            Event::State { instance, state, .. } => drop(states.insert((instance, state.as_str()))),
            Event::Circuit { instance, circuit, .. } => circuits.push((instance, circuit)),
            _ => {}
        }
    }
    assert!(
        states.contains(&(Some(1), "connected")) && states.contains(&(Some(2), "disconnected")),
        "{states:?}"
    );
    assert!(!states.contains(&(Some(2), "connected")), "{states:?}");
    assert_eq!(circuits, [(Some(2), Circuit::Open)]);
    let instances = &host.conditions()[0].instances;
    assert_eq!(instances[0].trouble, None);
    let trouble = instances[1].trouble.as_deref().unwrap();
    assert!(trouble.contains(&format!("could not connect to `{at}`")), "with its port: {trouble}");
    host.close().await;

    // One that is alone has no number.
    let host = alone(several(1, Balance::RoundRobin)).await;
    let mut events = host.events().subscribe_but_calls();
    assert_eq!(said(&host).await, "1");
    while let Ok(event) = events.try_recv() {
        assert!(!matches!(event, Event::State { instance: Some(_), .. }), "{event:?}");
    }
    host.close().await;
}
