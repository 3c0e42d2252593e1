//! whatever happens to a call on its way, its effect happens at most once, and the error says whether it can
//! have happened. The server counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf_testkit::{Puppet, Step};

use crate::http::server::{Exchange, Server};
use crate::http::{discovered, done};
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

/// What goes wrong at a server over HTTP, and what the caller is told.
const FAULTS: [(&str, &str); 13] = [
    ("reset before headers", "unknown_outcome"),
    ("close before headers", "unknown_outcome"),
    ("half the headers", "unknown_outcome"),
    ("half a body", "unknown_outcome"),
    ("reset in the stream", "unknown_outcome"),
    ("half an event", "unknown_outcome"),
    ("502", "unknown_outcome"),
    ("503", "unknown_outcome"),
    ("429", "connection"),
    ("a page", "protocol"),
    ("an answer of another call", "protocol"),
    ("twice the answer", "ok"),
    ("nothing wrong", "ok"),
];

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

#[tokio::test]
async fn r_07_a_remote_call_is_never_sent_again_whatever_goes_wrong() {
    for (fault, expected) in FAULTS {
        let effects = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&effects);
        let server = Server::start(move |x| {
            let counter = Arc::clone(&counter);
            async move {
                let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
                match x.seen.method() {
                    "server/discover" => x.result(discovered()).await,
                    "tools/list" => x.result(json!({"tools": [tool], "resultType": "complete"})).await,
                    "tools/call" if counter.fetch_add(1, Ordering::SeqCst) == 0 => misbehave(x, fault).await,
                    "tools/call" => x.result(done()).await,
                    "subscriptions/listen" => x.events("").await.closed().await,
                    _ => x.accepted().await,
                }
            }
        })
        .await;
        let config = ServerConfig::http(ServerName::parse("far").unwrap(), &server.url()).unwrap();
        let host = quick().server(config).start().await.unwrap();
        host.tools().await;
        let since = Instant::now();
        let outcome = soon(fault, host.call("far_t", json!({}))).await;
        let kind = outcome.error.as_deref().map_or("ok", wharf::Error::kind);
        assert_eq!(kind, expected, "{fault}: {outcome:?}");
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "{fault}: nobody waits as long as the server says"
        );
        assert_eq!(effects.load(Ordering::SeqCst), 1, "{fault}: it was sent once");
        // The legitimate twin: the next call is a call of its own, and finds the server.
        let next = soon(fault, host.call("far_t", json!({}))).await;
        assert!(next.success, "{fault}: {next:?}");
        assert_eq!(effects.load(Ordering::SeqCst), 2, "{fault}");
        host.close().await;
    }
}
