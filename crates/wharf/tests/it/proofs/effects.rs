//! R-01 and R-07: whatever happens to a call on its way, its effect happens at most once, and the error says whether it can
//! have happened. The server counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf_testkit::{Era, Puppet, Step};

use crate::http::server::{Exchange, Server};
use crate::http::{discovered, done, initialized};
use crate::support::{at, count, echo, effects, error, folder, pid_in, pup, quick, received, soon};

#[tokio::test]
async fn r_01_a_server_killed_from_outside_before_it_reads_has_an_unknown_outcome() {
    let files = folder();
    let (pid, log, effect) = (at(&files, "pid"), at(&files, "log"), at(&files, "effect"));
    let script =
        Puppet::new().pid(&pid).log(&log).on("tool:echo", [Step::Count(effect.clone()), Step::Honest]);
    let host = pup(&script).await;
    // Its schema is read now, so that the next call is sent at its first poll.
    assert!(echo(&host).await.success);
    let process = Pid::from_raw(pid_in(&pid).await.cast_signed()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    let mut call = Box::pin(host.call("pup_echo", json!({})));
    // It is written at its first polls; nobody reads it.
    for _ in 0..20 {
        assert!(futures_util::poll!(&mut call).is_pending());
        tokio::task::yield_now().await;
    }
    kill_process(process, Signal::KILL).unwrap();
    let outcome = soon("the call", call).await;
    assert_eq!(error(&outcome).kind(), "unknown_outcome", "{outcome:?}");
    assert!(error(&outcome).to_string().contains("outcome is unknown"));
    assert_eq!(effects(&effect), 1, "only that of the first call");
    assert!(echo(&host).await.success);
    assert_eq!(
        (effects(&effect), count(&received(&log), "tools/call")),
        (2, 2),
        "and what was asked for anew"
    );
    host.close().await;
}

/// A task was begun, or a question asked back, and then the server goes: what comes next was not sent, and the call was.
#[tokio::test]
async fn r_01_a_call_that_has_begun_is_not_begun_anew_when_its_server_goes() {
    let files = folder();
    let (log, effect) = (at(&files, "log"), at(&files, "effect"));
    let begun = json!({"task": {"taskId": "t", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "ttl": null}});
    let tool =
        json!({"name": "echo", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}});
    let task = Puppet::of(Era::Legacy)
        .tool(tool)
        .with(|s| s.capabilities = Some(json!({"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}})))
        .on("tool:echo", [Step::Count(effect.clone()), Step::Reply(begun)])
        .on("tasks/result", [Step::Kill]);
    let asks = Step::InputRequired { requests: None, state: Some("s".into()), forever: false };
    let question = Puppet::of(Era::Modern)
        .plain_tool("echo")
        .on("tool:echo", [Step::Count(effect.clone()), asks, Step::Kill]);
    for (script, sent) in [(task, 1), (question, 3)] {
        let host = pup(&script.log(&log)).await;
        host.tools().await;
        let outcome = soon("the call", echo(&host)).await;
        assert_eq!(error(&outcome).kind(), "unknown_outcome", "{outcome:?}");
        assert!(error(&outcome).may_have_run() && !error(&outcome).is_retryable());
        assert_eq!(count(&received(&log), "tools/call"), sent, "one, then two rounds of another");
        host.close().await;
    }
}

/// What goes wrong at a server over HTTP, and what the caller is told in the modern era and in the legacy one.
const FAULTS: [(&str, [&str; 2]); 17] = [
    ("reset before headers", ["unknown_outcome"; 2]),
    ("close before headers", ["unknown_outcome"; 2]),
    ("half the headers", ["unknown_outcome"; 2]),
    ("half a body", ["unknown_outcome"; 2]),
    ("reset in the stream", ["unknown_outcome"; 2]),
    ("half an event", ["unknown_outcome"; 2]),
    ("502", ["unknown_outcome"; 2]),
    ("503", ["unknown_outcome"; 2]),
    ("429", ["busy"; 2]),
    ("401", ["auth"; 2]),
    ("a page", ["protocol"; 2]),
    ("an answer of another call", ["protocol"; 2]),
    ("words about sessions", ["tool"; 2]),
    // A session that is not known was not run in: only there it is sent again.
    ("404", ["connection", "ok"]),
    ("no valid session", ["tool", "ok"]),
    ("twice the answer", ["ok"; 2]),
    ("nothing wrong", ["ok"; 2]),
];
/// What refuses a call for certain before it is run.
const REFUSALS: [&str; 5] = ["429", "401", "404", "no valid session", "words about sessions"];
const NO_SESSION: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
const OF_SESSIONS: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"row 7: No valid session ID in the table"}}"#;

async fn misbehave(x: Exchange, fault: &str) {
    let answer = x.seen.answer(done());
    match fault {
        "reset before headers" => x.take(b"").await.set_zero_linger().unwrap(),
        "close before headers" => drop(x),
        "half the headers" => drop(x.take(b"HTTP/1.1 200 OK\r\ncontent-ty").await),
        "half a body" => {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{\"jsonr";
            drop(x.take(head.as_bytes()).await);
        }
        "reset in the stream" => {
            let mut events = x.events("").await;
            events.text(": hello\n\n").await;
            events.reset();
        }
        "half an event" => {
            let mut events = x.events("").await;
            events.text(&format!("data: {answer}\n")).await;
            events.end().await;
        }
        "502" => x.reply(502, "retry-after: 99999999999999999999\r\n", "").await,
        "503" => x.reply(503, "retry-after: -1\r\n", "").await,
        "429" => x.reply(429, "retry-after: 31536000\r\n", "").await,
        "401" => x.reply(401, "", "").await,
        "404" => x.reply(404, "", "").await,
        "no valid session" => x.reply(400, "content-type: application/json\r\n", NO_SESSION).await,
        "words about sessions" => x.reply(400, "content-type: application/json\r\n", OF_SESSIONS).await,
        "a page" => x.reply(200, "content-type: text/html\r\n", "<h1>Welcome</h1>").await,
        "an answer of another call" => {
            x.json("", json!({"jsonrpc": "2.0", "id": 987_654, "result": done()})).await;
        }
        "twice the answer" => {
            let mut events = x.events("").await;
            events.message(&answer).await;
            events.message(&answer).await;
            events.end().await;
        }
        _ => x.json("", answer).await,
    }
}

/// A server that plays a fault at its first call and is honest then, and how often it ran the tool.
async fn faulty(fault: &'static str, legacy: bool) -> (Server, Arc<AtomicUsize>) {
    let (effects, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&effects);
    let server = Server::start(move |x| {
        let (effects, calls) = (Arc::clone(&counter), Arc::clone(&calls));
        async move {
            let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
            match x.seen.line().as_str() {
                "POST server/discover" if legacy => x.reply(400, "", "no").await,
                "POST server/discover" => x.result(discovered()).await,
                "POST initialize" => {
                    let answer = x.seen.answer(initialized());
                    x.json("mcp-session-id: s\r\n", answer).await;
                }
                "POST tools/list" => x.result(json!({"tools": [tool], "resultType": "complete"})).await,
                "POST tools/call" => {
                    let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
                    if !(first && REFUSALS.contains(&fault)) {
                        effects.fetch_add(1, Ordering::SeqCst);
                    }
                    if first { misbehave(x, fault).await } else { x.result(done()).await }
                }
                "POST subscriptions/listen" => x.events("").await.closed().await,
                "GET" => x.reply(405, "", "").await,
                _ => x.accepted().await,
            }
        }
    })
    .await;
    (server, effects)
}

#[tokio::test]
async fn r_07_a_remote_call_runs_once_at_most_whatever_goes_wrong() {
    for (legacy, (fault, expected)) in
        [false, true].into_iter().flat_map(|era| FAULTS.map(|fault| (era, fault)))
    {
        let (expected, what) = (expected[usize::from(legacy)], format!("{fault}, legacy: {legacy}"));
        let (server, effects) = faulty(fault, legacy).await;
        let config = ServerConfig::http(ServerName::parse("far").unwrap(), &server.url()).unwrap();
        let host = quick().server(config).start().await.unwrap();
        host.tools().await;
        let since = Instant::now();
        let outcome = soon(fault, host.call("far_t", json!({}))).await;
        let kind = outcome.error.as_deref().map_or("ok", wharf::Error::kind);
        assert_eq!(kind, expected, "{what}: {outcome:?}");
        assert!(since.elapsed() < Duration::from_secs(20), "{what}: nobody waits as long as the server says");
        let refused = REFUSALS.contains(&fault);
        let again = refused && expected == "ok";
        assert_eq!(server.count("POST tools/call"), 1 + usize::from(again), "{what}: how often it was sent");
        let ran = usize::from(!refused || again);
        assert_eq!(effects.load(Ordering::SeqCst), ran, "{what}: how often it ran");
        // What has run is never said not to have; what an answer in JSON-RPC says of it is the server's own.
        let may_have_run = outcome.error.as_deref().is_some_and(wharf::Error::may_have_run);
        assert_eq!(may_have_run, kind != "ok" && (ran == 1 || kind == "tool"), "{what}: {outcome:?}");
        // The legitimate twin: the next call is a call of its own, and finds the server.
        let next = soon(fault, host.call("far_t", json!({}))).await;
        assert!(next.success, "{what}: {next:?}");
        assert_eq!(effects.load(Ordering::SeqCst), ran + 1, "{what}");
        host.close().await;
    }
}
