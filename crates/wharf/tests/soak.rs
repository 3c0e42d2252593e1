//! Many calls: the memory of the caller must not grow with them, and every one has an end that is counted. A process of
//! its own, so that no other test's memory is measured with it. 2,000 calls as a rule; 100,000 and, with servers that die
//! all the while, a million with `WHARF_ALL=1`, which `./check --all` sets. `WHARF_SOAK_CALLS` says another number.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test may fail loudly and tell what it measured"
)]

#[path = "it/proofs/measure.rs"]
mod measure;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use measure::{Held, resident};
use serde_json::json;
use wharf::config::ServerConfig;
use wharf::host::HostBuilder;
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::wire::Json;
use wharf::{CallOptions, Host};
use wharf_testkit::{Crash, Puppet, Step, puppet_path};

/// One test at a time: each measures the whole process.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn all() -> bool {
    std::env::var_os("WHARF_ALL").is_some_and(|v| v == "1")
}

fn builder(script: &Puppet) -> HostBuilder {
    let path = puppet_path().display().to_string();
    let server = ServerConfig::stdio(ServerName::parse("pup").unwrap(), path.clone(), script.args());
    let policy = Policy::strict().with_sandbox(false).with_commands([path]);
    Host::builder().server(server).policy(policy).environment(std::env::vars())
}

/// The first tenth fills caches and pools; after it the memory stays where it is.
#[tokio::test]
async fn memory_is_flat_over_many_calls() {
    const SLACK: u64 = 1024;
    let _turn = TURN.lock().await;
    let calls = if all() { 100_000 } else { 2_000 };
    let host = builder(&Puppet::new()).start().await.unwrap();
    let arguments = Json::of(&json!({"message": "x".repeat(1000)}));
    let (mut settled, mut most) = (0, 0);
    for done in 1..=calls {
        let outcome = host.call_tool("pup", "echo", arguments.clone(), CallOptions::default()).await;
        assert!(outcome.success, "{outcome:?}");
        if done == calls / 10 {
            settled = resident();
        } else if done > calls / 10 && done % (calls / 20) == 0 {
            let now = resident();
            most = most.max(now);
            assert!(now < settled + SLACK, "after {done} calls: {now} KiB, after a tenth: {settled} KiB");
        }
    }
    println!("{calls} calls: {settled} KiB after a tenth, at most {most} KiB after that");
    host.close().await;
}

/// Callers that call at the same time.
const CALLERS: u64 = 16;
/// One call in so many kills the server, and another never gets an answer.
const KILLS: u64 = 100;
const SILENT: u64 = 97;

/// What callers share.
struct Soak {
    host: Host,
    next: AtomicU64,
    calls: u64,
    /// What is known of each call, a byte for each.
    ends: Vec<AtomicU8>,
}

/// A call was answered with success, so it has run; it was not sent, so it has not; the server wrote down that it ran.
const ANSWERED: u8 = 1;
const UNSENT: u8 = 2;
const RAN: u8 = 4;

impl Soak {
    /// Calls until all calls are made, and counts the ends by their kind.
    async fn work(self: Arc<Self>) -> BTreeMap<&'static str, u64> {
        let mut ends = BTreeMap::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.calls {
                return ends;
            }
            let (tool, time) = match number {
                n if n % KILLS == KILLS - 1 => ("die", 60_000),
                n if n % SILENT == SILENT - 1 => ("hang", 20),
                _ => ("echo", 60_000),
            };
            let options =
                CallOptions { timeout: Some(Duration::from_millis(time)), ..CallOptions::default() };
            let arguments = json!({ "number": number });
            let outcome = self.host.call_tool("pup", tool, arguments, options).await;
            let kind = outcome.error.as_deref().map_or("ok", wharf::Error::kind);
            let known = match kind {
                "ok" => ANSWERED,
                "connection" => UNSENT,
                _ => 0,
            };
            let before = self.ends[usize::try_from(number).unwrap()].fetch_or(known, Ordering::Relaxed);
            assert_eq!(before, 0, "call {number} ends once");
            match kind {
                "ok" => assert_eq!((tool, outcome.to_text()), ("echo", format!(r#"{{"number":{number}}}"#))),
                "timeout" => assert_eq!(tool, "hang", "{outcome:?}"),
                "unknown_outcome" | "connection" => {}
                _ => panic!("{tool}: {outcome:?}"),
            }
            *ends.entry(kind).or_default() += 1;
        }
    }
}

impl Soak {
    /// Looks through what the servers wrote down, call by call: nothing ran twice, or without being asked for; what was
    /// answered ran, and what was not sent did not. Gives how many ran that nobody got an answer of.
    fn judge(&self, effects: &Path) -> u64 {
        let mut unanswered = 0;
        for line in BufReader::new(std::fs::File::open(effects).unwrap()).lines() {
            let line = line.unwrap();
            let noted: BTreeMap<String, u64> = serde_json::from_str(&line).unwrap();
            let end = &self.ends[usize::try_from(noted["number"]).unwrap()];
            let known = end.fetch_or(RAN, Ordering::Relaxed);
            assert_eq!(known & RAN, 0, "it ran twice: {line}");
            assert_eq!(known & UNSENT, 0, "it ran, and is said not to have been sent: {line}");
            unanswered += u64::from(known & ANSWERED == 0);
        }
        for (number, end) in self.ends.iter().enumerate() {
            assert_ne!(end.load(Ordering::Relaxed), ANSWERED, "call {number} was answered and did not run");
        }
        unanswered
    }
}

fn size(file: &Path) -> u64 {
    file.metadata().map_or(0, |meta| meta.len())
}

/// Every call has one end, however often the server dies, and nothing is left of it all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_03_counters_add_up_over_many_calls_and_restarts() {
    const SLACK: u64 = 8 * 1024;
    let _turn = TURN.lock().await;
    let calls = match std::env::var("WHARF_SOAK_CALLS") {
        Ok(calls) => calls.parse().unwrap(),
        Err(_) if all() => 1_000_000,
        Err(_) => 2_000,
    };
    let (files, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (effects, starts) = (files.path().join("effects"), files.path().join("starts"));
    let script = Puppet::new()
        .plain_tool("echo")
        .plain_tool("die")
        .plain_tool("hang")
        .on("tool:echo", [Step::Note(effects.clone()), Step::Echo])
        .on("tool:die", [Step::Note(effects.clone()), Step::Kill])
        .on("tool:hang", [Step::Note(effects.clone()), Step::Hang])
        .with(|s| s.crash = Some(Crash { file: starts.clone(), times: 0, code: 0 }));
    let before = {
        // Once before, so that what a process needs for all of them is there.
        let first = builder(&Puppet::new()).start().await.unwrap();
        first.tools().await;
        first.close().await;
        Held::now()
    };
    let builder = builder(&script).scratch(scratch.path()).retry_pause(Duration::from_millis(5));
    let host = builder.grace(Duration::from_millis(500)).start().await.unwrap();
    host.tools().await;
    let since = Instant::now();
    let ends = (0..calls).map(|_| AtomicU8::new(0)).collect();
    let soak = Arc::new(Soak { host: host.clone(), next: AtomicU64::new(0), calls, ends });
    let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(Arc::clone(&soak).work())).collect();
    let watched = tokio::spawn({
        let soak = Arc::clone(&soak);
        async move {
            // Memory after a tenth, and at the end.
            while soak.next.load(Ordering::Relaxed) < soak.calls / 10 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            resident()
        }
    });
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for caller in callers {
        for (kind, times) in caller.await.unwrap() {
            *ends.entry(kind).or_default() += times;
        }
    }
    let (settled, now) = (watched.await.unwrap(), resident());
    let took = since.elapsed();
    let of = |kind: &str| ends.get(kind).copied().unwrap_or_default();
    assert_eq!(ends.values().sum::<u64>(), calls, "sent = the sum of all ends: {ends:?}");
    let counts = host.counts();
    assert_eq!(counts.iter().map(|reading| reading.started).sum::<u64>(), calls, "as the host counted them");
    for (place, kind) in wharf::event::OUTCOMES.iter().enumerate() {
        let counted: u64 = counts.iter().map(|reading| reading.outcomes[place]).sum();
        assert_eq!(counted, of(kind), "{kind}, counted by the host and seen by the callers");
    }
    // A kill takes along what is under way just then, and no more than that: nearly all are answered.
    let (kills, hung) = (calls / KILLS, calls / SILENT + 1);
    let lost = calls - of("ok");
    assert!(lost <= hung + kills * CALLERS, "{kills} kills, and {lost} calls without an answer: {ends:?}");
    let unanswered = soak.judge(&effects);
    assert!(
        unanswered <= of("unknown_outcome") + of("timeout"),
        "{unanswered} ran and had no answer: {ends:?}"
    );
    assert!(size(&starts) > calls / KILLS / 2, "it died all the while: {} starts", size(&starts));
    assert!(now < settled + SLACK, "{now} KiB at the end, {settled} KiB after a tenth");
    host.close().await;
    for _ in 0..2000 {
        if std::fs::read_dir(scratch.path()).unwrap().count() == 0 && Held::now().is_within(before) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (left, folders) = (Held::now(), std::fs::read_dir(scratch.path()).unwrap().count());
    assert!(left.is_within(before) && folders == 0, "{left:?}, {folders} folders; before: {before:?}");
    println!(
        "R-03 {calls} calls, {} starts in {took:?}: sent {calls} = {ends:?}; ran: {} answered + {unanswered} not; \
         memory {settled} -> {now} KiB; left: {left:?}, {folders} folders",
        size(&starts),
        of("ok")
    );
}
