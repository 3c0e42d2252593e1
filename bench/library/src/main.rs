//! What a call costs: the library over stdio, against a bare round trip over a pipe to the same server.
//!
//! `cargo run --release -p wharf-bench-library`. Both run in the same minutes, in turns, and only their ratio is judged: at most
//! 2 for 100 bytes, at most 1.3 for 1 MiB, one call at a time, with policy, argument checks and events on. With `--judge`
//! it fails if even the best round of a case is over its bar; run it on one core (`taskset -c 1`) then.
//!
//! The last line is what the audit log adds to a call: at most 2.5 µs, a twentieth of the quickest call over HTTP.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark, not the product"
)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::store::{Audit, AuditOptions};
use wharf::wire::Json;
use wharf::{CallOptions, Host};

/// One size of answer, how often it is measured, and how much dearer than the bare pipe it may be.
struct Case {
    name: &'static str,
    bytes: usize,
    calls: usize,
    bar: f64,
}

const CASES: [Case; 2] = [
    Case { name: "100 B", bytes: 100, calls: 5_000, bar: 2.0 },
    Case { name: "1 MiB", bytes: 1 << 20, calls: 200, bar: 1.3 },
];
const ROUNDS: usize = 7;
/// The quickest echo over HTTP on the machines this was measured on, and how much of it the audit log may cost.
const HTTP_ECHO: Duration = Duration::from_micros(50);
const AUDIT_SHARE: f64 = 0.05;

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "--serve") {
        serve();
        return ExitCode::SUCCESS;
    }
    let judge = std::env::args().any(|arg| arg == "--judge");
    let profile = std::env::args().any(|arg| arg == "--profile");
    let runtime = if std::env::args().any(|arg| arg == "--threads") {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    } else {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    };
    if profile {
        // Only the library, a few calls or as many as are wanted: for a profiler that counts instructions.
        let case = &CASES[usize::from(std::env::args().any(|arg| arg == "--large"))];
        let calls = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(case.calls);
        let case = Case { calls, ..*case };
        let took = runtime.block_on(async {
            tokio::spawn(async move { through_library(&case, None).await }).await.unwrap()
        });
        println!("{took:.1?}");
        return ExitCode::SUCCESS;
    }
    let (mut within, mut best_within) = (true, true);
    println!("{:<8} {:>12} {:>12} {:>8} {:>8} {:>6}", "answer", "bare", "library", "ratio", "best", "bar");
    for case in &CASES {
        let mut ratios = Vec::new();
        let (mut bare, mut library) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            let one = bare_pipe(case);
            let two = runtime.block_on(async { tokio::spawn(through_library(case, None)).await.unwrap() });
            ratios.push(two.as_secs_f64() / one.as_secs_f64());
            (bare, library) = (bare.min(one), library.min(two));
        }
        ratios.sort_by(f64::total_cmp);
        let (ratio, best, bar) = (ratios[ROUNDS / 2], ratios[0], case.bar);
        within &= ratio <= bar;
        // Another program's work makes a round worse, hardly ever better: only a case without a good round has failed.
        best_within &= best <= bar;
        println!("{:<8} {bare:>12.1?} {library:>12.1?} {ratio:>8.2} {best:>8.2} {bar:>6.1}", case.name);
    }
    best_within &= audit(&runtime);
    println!("{}", if within { "within the bar" } else { "over the bar" });
    if judge && !best_within { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The median of bare round trips: write a line, read a line.
fn bare_pipe(case: &Case) -> Duration {
    let me = std::env::current_exe().unwrap();
    let mut child =
        Command::new(me).arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::with_capacity(64 * 1024, child.stdout.take().unwrap());
    let mut answer = Vec::new();
    let mut times = Vec::with_capacity(case.calls);
    for id in 1..=case.calls {
        let started = Instant::now();
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"blob\",\"arguments\":{{\"bytes\":{}}}}}}}\n",
            case.bytes
        );
        stdin.write_all(line.as_bytes()).unwrap();
        answer.clear();
        stdout.read_until(b'\n', &mut answer).unwrap();
        assert!(answer.len() > case.bytes);
        times.push(started.elapsed());
    }
    drop(stdin);
    child.wait().unwrap();
    median(times)
}

/// What the audit log adds to a call, and whether that is little enough.
fn audit(runtime: &tokio::runtime::Runtime) -> bool {
    let case = &CASES[0];
    let (mut plain, mut audited, mut added) = (Duration::MAX, Duration::MAX, Vec::new());
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path().join("audit.db"), AuditOptions::default()).unwrap();
        let without = runtime.block_on(async { tokio::spawn(through_library(case, None)).await.unwrap() });
        let with =
            runtime.block_on(async { tokio::spawn(through_library(case, Some(audit))).await.unwrap() });
        added.push(with.as_secs_f64() - without.as_secs_f64());
        (plain, audited) = (plain.min(without), audited.min(with));
    }
    added.sort_by(f64::total_cmp);
    let share = |seconds: f64| seconds / HTTP_ECHO.as_secs_f64();
    println!(
        "audit    {plain:>12.1?} {audited:>12.1?} adds {:.2} µs, {:.1} % of a call over HTTP (the best round {:.1} %, the bar {:.0} %)",
        added[ROUNDS / 2] * 1e6,
        share(added[ROUNDS / 2]) * 100.0,
        share(added[0]) * 100.0,
        AUDIT_SHARE * 100.0,
    );
    share(added[0]) <= AUDIT_SHARE
}

async fn through_library(case: &Case, audit: Option<Audit>) -> Duration {
    let me = std::env::current_exe().unwrap().display().to_string();
    let server = ServerConfig::stdio(ServerName::parse("echo").unwrap(), me.clone(), ["--serve"]);
    let policy = Policy::strict().with_sandbox(false).with_commands([me]);
    let mut builder = Host::builder().server(server).policy(policy).environment(std::env::vars());
    if let Some(audit) = &audit {
        builder = builder.audit(audit);
    }
    let host = builder.start().await.unwrap();
    let listener = host.events().subscribe();
    let arguments = Json::of(&serde_json::json!({ "bytes": case.bytes }));
    let mut times = Vec::with_capacity(case.calls);
    for _ in 0..case.calls {
        let started = Instant::now();
        let outcome = host.call_tool("echo", "blob", arguments.clone(), CallOptions::default()).await;
        times.push(started.elapsed());
        assert!(outcome.success && outcome.raw.bytes().len() > case.bytes, "{outcome:?}");
    }
    drop(listener);
    host.close().await;
    median(times)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The least a server can do: no JSON library, one thread, one write an answer.
fn serve() {
    let mut input = BufReader::new(std::io::stdin().lock());
    // Not `stdout()`, which searches every answer for line breaks.
    let mut output = std::fs::File::options().write(true).open("/dev/stdout").unwrap();
    let mut answer = Vec::new();
    let mut line = String::new();
    let mut blobs = HashMap::new();
    while input.by_ref().take(1 << 20).read_line(&mut line).is_ok_and(|n| n > 0) {
        if let Some(id) = number_after(&line, "\"id\":") {
            let result: &str = match number_after(&line, "\"bytes\":") {
                Some(bytes) => blobs.entry(bytes).or_insert_with(|| blob(bytes as usize)),
                None => other(&line),
            };
            answer.clear();
            answer.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
            answer.extend_from_slice(id.to_string().as_bytes());
            answer.extend_from_slice(b",\"result\":");
            answer.extend_from_slice(result.as_bytes());
            answer.extend_from_slice(b"}\n");
            output.write_all(&answer).unwrap();
        }
        line.clear();
    }
}

/// A tool result with a text of so many bytes, in lines of eighty, so with escapes.
fn blob(bytes: usize) -> String {
    let mut text = format!("{}\\n", "x".repeat(78)).repeat(bytes / 80);
    text.push_str(&"y".repeat(bytes - text.len()));
    format!("{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"resultType\":\"complete\"}}")
}

fn other(line: &str) -> &'static str {
    if line.contains("\"server/discover\"") {
        return r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}"#;
    }
    r#"{"tools":[{"name":"blob","inputSchema":{"type":"object","properties":{"bytes":{"type":"integer"}},"required":["bytes"]}}]}"#
}

fn number_after(line: &str, key: &str) -> Option<u64> {
    let rest = &line[line.find(key)? + key.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
