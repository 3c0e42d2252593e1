//! Callers that ask for more than they take, over transports that have no connection for each request.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio_tungstenite::tungstenite::Message;
use wharf::Host;
use wharf::config::CallLimits;
use wharf::gateway::{Gateway, UnixDoor};
use wharf_testkit::{Era, Puppet, Step};

use super::pipe::Caller;
use super::terms::websocket;
use super::{modern_body, open, open_with};
use crate::support::{at, count, folder, host, puppet, received, soon, until};

fn numbered(id: usize, method: &str) -> String {
    let mut body = modern_body(method, json!({}));
    body["id"] = json!(id);
    body.to_string()
}

fn is_overloaded(message: &Value) -> bool {
    let data = &message["error"]["data"];
    data["kind"] == "overloaded" && data["retryable"] == true && data["retryAfterMs"].as_u64() > Some(0)
}

/// Two requests are let through, and a third in a long time.
fn two_at_once() -> CallLimits {
    CallLimits { requests_per_second: Some(0.001), burst: Some(2), ..CallLimits::default() }
}

/// A gateway at a Unix socket, and a caller of it. Both go with the folder.
async fn at_socket(limits: CallLimits) -> (tempfile::TempDir, UnixStream) {
    let files = folder();
    let path = at(&files, "door").join("s");
    let gateway = Gateway::builder(Host::builder().start().await.unwrap()).limits(limits).build().unwrap();
    let door = UnixDoor::bind(&path).await.unwrap();
    tokio::spawn(async move { gateway.serve_unix(door, std::future::pending()).await });
    #[expect(clippy::disallowed_methods, reason = "a caller in a test")]
    let caller = UnixStream::connect(&path).await.unwrap();
    (files, caller)
}

#[tokio::test]
async fn l94_requests_over_a_websocket_are_counted_too() {
    let limits = CallLimits { burst: Some(3), ..two_at_once() };
    let door = open_with(Host::builder().start().await.unwrap(), |b| b.limits(limits)).await;
    // The first request becomes the socket.
    let mut socket = websocket(&door, None).await;
    let mut said = Vec::new();
    for id in 0..3 {
        let heard =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}});
        socket.send(Message::text(heard.to_string())).await.unwrap();
        socket.send(Message::text(numbered(id, "tools/list"))).await.unwrap();
        let Some(Ok(Message::Text(text))) = soon("an answer", socket.next()).await else {
            panic!("no answer")
        };
        said.push(serde_json::from_str::<Value>(&text).unwrap());
    }
    assert!(said[..2].iter().all(|said| said["result"]["tools"].is_array()), "{said:?}");
    assert!(is_overloaded(&said[2]) && said[2]["id"] == 2, "{said:?}");
}

#[tokio::test]
async fn l94_requests_over_a_unix_socket_are_counted_too_in_either_era() {
    let (_files, caller) = at_socket(two_at_once()).await;
    let (input, mut output) = caller.into_split();
    let mut lines = BufReader::new(input).lines();
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}}});
    let ping = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let mut said = Vec::new();
    for message in [hello.to_string(), ping(1).to_string(), ping(2).to_string(), numbered(3, "tools/list")] {
        output.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        let line = soon("an answer", lines.next_line()).await.unwrap().unwrap();
        said.push(serde_json::from_str::<Value>(&line).unwrap());
    }
    assert!(said[..2].iter().all(|said| said["result"].is_object()), "{said:?}");
    assert!(said[2..].iter().all(is_overloaded), "{said:?}");
}

#[tokio::test]
async fn exh_03_a_caller_that_takes_nothing_is_not_listened_to_and_then_given_up() {
    let (_files, caller) = at_socket(CallLimits::default()).await;
    let (_input, mut output) = caller.into_split();
    // From here on a minute passes when nothing else can happen.
    tokio::time::pause();
    let mut sent = 0;
    while output.write_all(format!("{}\n", numbered(sent, "tools/list")).as_bytes()).await.is_ok() {
        sent += 1;
        assert!(sent < 100_000, "nobody stops it");
    }
    assert!(sent > 100, "{sent}");
}

#[tokio::test]
async fn exh_03_a_caller_that_takes_what_it_asks_for_gets_all_of_it() {
    const ALL: usize = 5_000;
    let (_files, caller) = at_socket(CallLimits::default()).await;
    let (input, mut output) = caller.into_split();
    let asking = tokio::spawn(async move {
        for id in 0..ALL {
            output.write_all(format!("{}\n", numbered(id, "tools/list")).as_bytes()).await.unwrap();
        }
        output
    });
    let (mut lines, mut told) = (BufReader::new(input).lines(), HashSet::new());
    while told.len() < ALL {
        let line = soon("an answer", lines.next_line()).await.unwrap().unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        assert!(said["result"]["tools"].is_array(), "{said}");
        assert!(told.insert(said["id"].as_u64().unwrap()), "one answer each");
    }
    drop(asking.await.unwrap());
}

#[tokio::test]
async fn gwy_08_an_id_that_is_under_way_on_a_pipe_is_not_taken_again() {
    let files = folder();
    let log = at(&files, "log");
    let slow = Puppet::of(Era::Modern).on("tool:echo", [Step::Hang]).log(&log);
    let host = host([puppet("slow", &slow)]).await;
    host.tools().await;
    for legacy in [false, true] {
        let mut caller = Caller::of(&host);
        if legacy {
            caller.greet(json!({})).await;
        }
        let call = || match legacy {
            true => {
                json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "slow_echo", "arguments": {}}})
            }
            false => modern_body("tools/call", json!({"name": "slow_echo", "arguments": {}})),
        };
        let before =
            (count(&received(&log), "tools/call"), count(&received(&log), "notifications/cancelled"));
        caller.say(call()).await;
        until("it is under way", || count(&received(&log), "tools/call") == before.0 + 1).await;
        caller.say(call()).await;
        let refused = caller.next().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32600)), "{refused}");
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        caller.say(cancel).await;
        until("the first can still be cancelled", || {
            count(&received(&log), "notifications/cancelled") == before.1 + 1
        })
        .await;
        // Now the id is free.
        caller.say(call()).await;
        until("the next is under way", || count(&received(&log), "tools/call") == before.0 + 2).await;
    }
    host.close().await;
}

/// Capabilities that take so many bytes.
fn capabilities(bytes: usize) -> Value {
    let empty = json!({"experimental": {"x": {"y": ""}}}).to_string().len();
    json!({"experimental": {"x": {"y": "y".repeat(bytes - empty)}}})
}

#[tokio::test]
async fn exh_03_what_a_caller_says_of_itself_has_a_limit() {
    const LIMIT: usize = 16 * 1024;
    let door = open(Host::builder().start().await.unwrap()).await;
    for (bytes, is_taken) in [(LIMIT - 1, true), (LIMIT, true), (LIMIT + 1, false)] {
        let said = capabilities(bytes);
        assert_eq!(said.to_string().len(), bytes);
        let modern = json!({"_meta": {"io.modelcontextprotocol/clientCapabilities": said}});
        let modern = door.modern("tools/list", modern).await.json();
        assert_eq!(modern["result"]["tools"].is_array(), is_taken, "{bytes}: {modern}");
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": said});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let legacy = door.legacy(None, hello).await.json();
        assert_eq!(legacy["result"]["capabilities"].is_object(), is_taken, "{bytes}: {legacy}");
        if !is_taken {
            for refused in [modern, legacy] {
                assert_eq!(refused["error"]["code"], -32602, "{refused}");
            }
        }
    }
}

#[tokio::test]
async fn exh_03_a_caller_that_says_something_else_each_time_keeps_no_more_than_its_share() {
    let files = folder();
    let (log, go) = (at(&files, "log"), at(&files, "go"));
    let script = Puppet::of(Era::Modern).log(&log).on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]);
    let host = host([puppet("pup", &script)]).await;
    host.tools().await;
    let door = std::sync::Arc::new(open(host).await);
    let meta =
        |n: usize| json!({"io.modelcontextprotocol/clientCapabilities": {"experimental": {"n": {"n": n}}}});
    for n in 0..200 {
        let listed = door.modern("tools/list", json!({"_meta": meta(n)})).await.json();
        assert!(listed["result"]["tools"].is_array(), "{n}: {listed}");
    }
    // Those that are in use are not taken away: with as many as there may be, one more is told so.
    let held: Vec<_> = (0..64)
        .map(|n| {
            let door = std::sync::Arc::clone(&door);
            let call = json!({"name": "pup_echo", "arguments": {}, "_meta": meta(1000 + n)});
            tokio::spawn(async move { door.modern("tools/call", call).await.json() })
        })
        .collect();
    until("all are under way", || count(&received(&log), "tools/call") == 64).await;
    let refused = door.modern("tools/list", json!({"_meta": meta(2000)})).await.json();
    assert!(is_overloaded(&refused), "{refused}");
    std::fs::write(&go, "").unwrap();
    for call in held {
        let done = tokio::time::timeout(Duration::from_secs(60), call).await.unwrap().unwrap();
        assert!(done["result"]["content"].is_array(), "{done}");
    }
    let listed = door.modern("tools/list", json!({"_meta": meta(2000)})).await.json();
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    door.host.close().await;
}
