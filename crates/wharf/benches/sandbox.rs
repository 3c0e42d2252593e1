//! What the sandbox costs: a start with each engine, with and without a way to the network, and a call, against the same
//! server without a sandbox.
//!
//! `cargo bench -p wharf --bench sandbox`. All ways run in the same minutes, in turns, and only their ratios say something. A start
//! ends when the server has shaken hands. A call goes through the very same pipes: with `--judge` it fails if even the best
//! round of calls costs a tenth more in a sandbox. `--quick` runs each way once or twice, to see that it runs.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark, not the product"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use wharf::config::{Profile, SandboxSetting, ServerConfig};
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::sandbox::{Engine, Sandbox};
use wharf::wire::Json;
use wharf::{CallOptions, Host};

/// One way to run the server.
struct Way {
    name: &'static str,
    /// `None`: without a sandbox.
    engine: Option<Engine>,
    /// Whether it has a way to the network.
    domains: bool,
    starts: Vec<Duration>,
    calls: Vec<Duration>,
}

/// How much dearer a call may be in the best round: what remains is the noise of the machine.
const CALL_BAR: f64 = 1.1;

fn main() -> ExitCode {
    if let Some(code) = wharf::sandbox::stage(std::env::args_os()) {
        return code;
    }
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    if has("--serve") {
        serve();
        return ExitCode::SUCCESS;
    }
    let (rounds, starts, calls) = if has("--quick") { (1, 2, 50) } else { (7, 20, 5_000) };
    let mut ways = ways();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for _ in 0..rounds {
        for way in &mut ways {
            let (start, call) = runtime.block_on(measure(way.engine.clone(), way.domains, (starts, calls)));
            way.starts.push(start);
            way.calls.push(call);
        }
    }
    println!("{:<24} {:>10} {:>7} {:>10} {:>7} {:>7}", "way", "start", "ratio", "call", "ratio", "best");
    let mut within = true;
    for way in &ways {
        let (start, _) = ratio(&way.starts, &ways[0].starts);
        let (call, best) = ratio(&way.calls, &ways[0].calls);
        within &= best <= CALL_BAR;
        let (one, other) = (median(way.starts.clone()), median(way.calls.clone()));
        println!("{:<24} {one:>10.1?} {start:>7.2} {other:>10.1?} {call:>7.2} {best:>7.2}", way.name);
    }
    println!("{}", if within { "a call costs nothing more" } else { "a call costs more in a sandbox" });
    if has("--judge") && !within { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Every way that this machine has.
fn ways() -> Vec<Way> {
    let way = |name, engine, domains| Way { name, engine, domains, starts: Vec::new(), calls: Vec::new() };
    let mut ways = vec![way("no sandbox", None, false)];
    if let found @ Engine::Bubblewrap(_) = Engine::find() {
        ways.push(way("bubblewrap", Some(found.clone()), false));
        ways.push(way("bubblewrap, domains", Some(found), true));
    }
    ways.push(way("own engine", Some(Engine::Own), false));
    ways.push(way("own engine, domains", Some(Engine::Own), true));
    ways
}

/// The medians of starts and of calls.
async fn measure(
    engine: Option<Engine>,
    domains: bool,
    (starts, calls): (usize, usize),
) -> (Duration, Duration) {
    let me = std::env::current_exe().unwrap();
    let program = me.display().to_string();
    let mut server = ServerConfig::stdio(ServerName::parse("echo").unwrap(), program.clone(), ["--serve"]);
    let mut builder = Host::builder().environment(std::env::vars());
    server.sandbox = Some(match engine {
        Some(engine) => {
            builder = builder.sandbox(Sandbox::new(me).engine(engine));
            let domains = if domains { vec!["example.com".to_owned()] } else { Vec::new() };
            SandboxSetting::On(Box::new(Profile { domains, ..Profile::default() }))
        }
        None => SandboxSetting::Off,
    });
    let policy = Policy::strict().with_commands([program]);
    let host = builder.server(server).policy(policy).start().await.unwrap();
    let berth = host.berth("echo").unwrap();
    let mut times = Vec::with_capacity(starts);
    for _ in 0..starts {
        let started = Instant::now();
        berth.connect().await.unwrap();
        times.push(started.elapsed());
        berth.disconnect().await;
    }
    let start = median(times);
    let arguments = Json::of(&serde_json::json!({}));
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let started = Instant::now();
        let outcome = host.call_tool("echo", "echo", arguments.clone(), CallOptions::default()).await;
        times.push(started.elapsed());
        assert!(outcome.success, "{outcome:?}");
    }
    host.close().await;
    (start, median(times))
}

/// The median of the ratios of rounds that ran side by side, and the best.
fn ratio(some: &[Duration], others: &[Duration]) -> (f64, f64) {
    let mut ratios: Vec<f64> =
        some.iter().zip(others).map(|(a, b)| a.as_secs_f64() / b.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    (ratios[ratios.len() / 2], ratios[0])
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The least a server can do: no JSON library, one thread, one write an answer.
fn serve() {
    let mut input = BufReader::new(std::io::stdin().lock());
    let output = std::io::stdout().as_fd().try_clone_to_owned().unwrap();
    // Not `stdout()`, which searches every answer for line breaks.
    let mut output = std::fs::File::from(output);
    let mut line = String::new();
    while input.by_ref().take(1 << 20).read_line(&mut line).is_ok_and(|n| n > 0) {
        if let Some(id) = number_after(&line, "\"id\":") {
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{}}}\n", result(&line));
            output.write_all(answer.as_bytes()).unwrap();
        }
        line.clear();
    }
}

fn result(line: &str) -> &'static str {
    if line.contains("\"server/discover\"") {
        return r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}"#;
    }
    if line.contains("\"tools/call\"") {
        return r#"{"content":[{"type":"text","text":"echo"}],"resultType":"complete"}"#;
    }
    r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#
}

fn number_after(line: &str, key: &str) -> Option<u64> {
    let rest = &line[line.find(key)? + key.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
