//! What a call costs: the library over stdio, against a bare round trip over a pipe to the same server.
//!
//! `cargo bench -p wharf --bench stdio`. Both run in the same minutes, in turns, and only their ratio is judged: at most
//! 2 for 100 bytes, at most 1.3 for 1 MiB, one call at a time, with policy, argument checks and events on. With `--judge`
//! it fails if even the best round of a case is over its bar; run it on one core (`taskset -c 1`) then.
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

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "--serve") {
        serve();
        return ExitCode::SUCCESS;
    }
    let judge = std::env::args().any(|arg| arg == "--judge");
    let profile = std::env::args().any(|arg| arg == "--profile");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if profile {
        // Only the library, a few calls: for a profiler that counts instructions.
        let case = &CASES[usize::from(std::env::args().any(|arg| arg == "--large"))];
        let case = Case { calls: case.calls, ..*case };
        let took = runtime
            .block_on(async { tokio::spawn(async move { through_library(&case).await }).await.unwrap() });
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
            let two = runtime.block_on(async { tokio::spawn(through_library(case)).await.unwrap() });
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

async fn through_library(case: &Case) -> Duration {
    let me = std::env::current_exe().unwrap().display().to_string();
    let server = ServerConfig::stdio(ServerName::parse("echo").unwrap(), me.clone(), ["--serve"]);
    let policy = Policy::strict().with_sandbox(false).with_commands([me]);
    let host =
        Host::builder().server(server).policy(policy).environment(std::env::vars()).start().await.unwrap();
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
