//! How requests end before their answer: each era has its own way to say so.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wharf::Host;
use wharf::gateway::Gateway;
use wharf_testkit::{Era, Puppet, Step};

use super::pipe::Caller;
use super::{Door, modern_body, open};
use crate::support::{at, count, effects, folder, puppet, quick, received, soon, until};

/// A server that has an effect once a file is there.
fn waits(era: Era, files: &tempfile::TempDir) -> Puppet {
    let steps = [Step::WaitFor(at(files, "gate")), Step::Count(at(files, "effects")), Step::Honest];
    Puppet::of(era).log(at(files, "log")).on("tool:echo", steps)
}

async fn behind(script: &Puppet) -> Door {
    open(quick().server(puppet("pup", script)).start().await.unwrap()).await
}

fn call() -> Value {
    json!({"name": "pup_echo", "arguments": {}})
}

fn heard(files: &tempfile::TempDir, method: &str) -> usize {
    count(&received(&at(files, "log")), method)
}

#[tokio::test]
async fn gwy_13_a_modern_caller_that_hangs_up_cancels_its_call() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let door = behind(&waits(era, &files)).await;
        tokio::select! {
            answer = door.modern("tools/call", call()) => panic!("{answer:?}"),
            () = until("the call is at the server", || heard(&files, "tools/call") == 1) => {}
        }
        until("the server hears of it", || heard(&files, "notifications/cancelled") == 1).await;
        door.host.close().await;
    }
}

#[tokio::test]
async fn gwy_13_a_legacy_caller_that_hangs_up_does_not_cancel_its_call() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let door = behind(&waits(era, &files)).await;
        let session = door.greet().await;
        let request = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call()});
        tokio::select! {
            answer = door.legacy(Some(&session), request) => panic!("{answer:?}"),
            () = until("the call is at the server", || heard(&files, "tools/call") == 1) => {}
        }
        std::fs::write(at(&files, "gate"), "").unwrap();
        until("the call goes on", || effects(&at(&files, "effects")) == 1).await;
        assert_eq!(heard(&files, "notifications/cancelled"), 0);
        door.host.close().await;
    }
}

#[tokio::test]
async fn l31_a_legacy_caller_cancels_by_a_notification() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let door = behind(&waits(era, &files)).await;
        let session = door.greet().await;
        let request = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call()});
        let cancel = async {
            until("the call is at the server", || heard(&files, "tools/call") == 1).await;
            let gone =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
            door.legacy(Some(&session), gone).await
        };
        let (answer, told) = tokio::join!(door.legacy(Some(&session), request), cancel);
        assert_eq!((answer.status.as_u16(), told.status.as_u16()), (202, 202), "{answer:?}");
        assert!(answer.body.is_empty(), "what is cancelled has no answer: {answer:?}");
        until("the server hears of it", || heard(&files, "notifications/cancelled") == 1).await;
        door.host.close().await;
    }
}

#[tokio::test]
async fn l31_a_legacy_caller_cancels_what_goes_on_without_it() {
    let files = folder();
    let door = behind(&waits(Era::Modern, &files)).await;
    let session = door.greet().await;
    let request = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call()});
    tokio::select! {
        answer = door.legacy(Some(&session), request) => panic!("{answer:?}"),
        () = until("the call is at the server", || heard(&files, "tools/call") == 1) => {}
    }
    // It is under way until it is cancelled, though its caller hung up.
    let ping = json!({"jsonrpc": "2.0", "id": 6, "method": "ping"});
    assert_eq!(door.legacy(Some(&session), ping).await.json()["id"], 6);
    assert_eq!(heard(&files, "notifications/cancelled"), 0);
    let gone = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    door.legacy(Some(&session), gone).await;
    until("the server hears of it", || heard(&files, "notifications/cancelled") == 1).await;
    assert_eq!(effects(&at(&files, "effects")), 0);
    door.host.close().await;
}

#[tokio::test]
async fn l31_over_a_pipe_both_eras_cancel_by_a_notification() {
    for modern in [false, true] {
        let files = folder();
        let host = quick().server(puppet("pup", &waits(Era::Both, &files))).start().await.unwrap();
        let mut caller = Caller::of(&host);
        if modern {
            caller.say(modern_body("tools/call", call())).await;
        } else {
            caller.greet(json!({})).await;
            caller.ask(7, "tools/call", call()).await;
        }
        until("the call is at the server", || heard(&files, "tools/call") == 1).await;
        caller
            .say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}))
            .await;
        until("the server hears of it", || heard(&files, "notifications/cancelled") == 1).await;
        caller
            .ask(
                8,
                if modern { "server/discover" } else { "ping" },
                modern_body("", json!({}))["params"].clone(),
            )
            .await;
        assert_eq!(caller.next().await["id"], 8, "the cancelled one is not answered");
        host.close().await;
    }
}

/// A gateway that is told to stop while a call is under way. The call's answer, and when serving ended.
async fn stopped(files: &tempfile::TempDir, drain: Duration, let_go: bool) -> Option<Value> {
    let host = quick().server(puppet("pup", &waits(Era::Modern, files))).start().await.unwrap();
    let gateway = Gateway::builder(host.clone()).drain(drain).build().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at_address = listener.local_addr().unwrap();
    let (stop, told) = oneshot::channel::<()>();
    let kept = gateway.clone();
    let serving =
        tokio::spawn(async move { gateway.serve_http(listener, async move { drop(told.await) }).await });
    let (idle, _) = oneshot::channel::<()>();
    let door = Door { at: at_address, host: host.clone(), gateway: kept, stop: Some(idle) };
    let call = async {
        let body = modern_body("tools/call", call()).to_string();
        let name = door.name();
        let headers = [
            ("host", name.as_str()),
            ("content-type", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "pup_echo"),
        ];
        door.try_send(http::Method::POST, "/mcp", &headers, body).await.map(|answer| answer.json())
    };
    let stop = async {
        until("the call is at the server", || heard(files, "tools/call") == 1).await;
        stop.send(()).unwrap();
        if let_go {
            std::fs::write(at(files, "gate"), "").unwrap();
        }
        soon("serving ends", serving).await.unwrap().unwrap();
    };
    let (answer, ()) = tokio::join!(call, stop);
    host.close().await;
    answer
}

#[tokio::test]
async fn l90_at_the_stop_calls_under_way_may_end_and_the_rest_are_cancelled() {
    let files = folder();
    let answer = stopped(&files, Duration::from_secs(30), true).await.unwrap();
    assert!(answer["result"]["content"].is_array(), "{answer}");
    assert_eq!(heard(&files, "notifications/cancelled"), 0);
    let files = folder();
    let answer = stopped(&files, Duration::from_millis(100), false).await.expect("it is told so");
    assert_eq!(answer["error"]["data"]["kind"], "cancelled", "{answer}");
    assert_eq!(effects(&at(&files, "effects")), 0);
    until("the server hears of it", || heard(&files, "notifications/cancelled") == 1).await;
}

/// Serves at a door of its own, in a task.
async fn serving(gateway: &Gateway, host: &Host) -> (Door, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, told) = oneshot::channel::<()>();
    let served = gateway.clone();
    let task = tokio::spawn(async move {
        served.serve_http(listener, async move { drop(told.await) }).await.unwrap();
    });
    (Door { at, host: host.clone(), gateway: gateway.clone(), stop: Some(stop) }, task)
}

#[tokio::test]
async fn p6_when_nobody_waits_for_the_end_everything_that_was_let_in_ends() {
    let files = folder();
    let script = Puppet::of(Era::Both).log(at(&files, "log")).on("tool:echo", [Step::Hang]);
    let host = quick().server(puppet("pup", &script)).start().await.unwrap();
    let gateway = Gateway::builder(host.clone()).build().unwrap();
    let (door, task) = serving(&gateway, &host).await;
    let session = door.greet().await;
    let events = ("accept", "text/event-stream");
    let mut always =
        door.stream(Method::GET, "/mcp", &[events, ("mcp-session-id", session.as_str())], "").await;
    let mut oldest = door.stream(Method::GET, "/sse", &[events], "").await;
    let modern = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let listen = modern_body("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let mut listens = door.stream(Method::POST, "/mcp", &modern, listen.to_string()).await;
    assert_eq!(always.status, 200);
    assert_eq!(oldest.event().await.unwrap().name.as_deref(), Some("endpoint"));
    assert_eq!(listens.message().await.1["method"], "notifications/subscriptions/acknowledged");
    #[expect(clippy::disallowed_methods, reason = "a caller in a test")]
    let mut idle = TcpStream::connect(door.at).await.unwrap();
    idle.write_all(format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", door.name()).as_bytes())
        .await
        .unwrap();
    assert!(soon("an answer", idle.read(&mut [0; 1024])).await.unwrap() > 0);
    let old = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call()});
    let abort = async {
        until("both are at the server", || heard(&files, "tools/call") == 2).await;
        task.abort();
    };
    let (new, old, ()) =
        tokio::join!(door.modern("tools/call", call()), door.legacy(Some(&session), old), abort);
    for answer in [new, old] {
        assert_eq!(answer.json()["error"]["data"]["kind"], "cancelled", "{answer:?}");
    }
    until("the server hears of it", || heard(&files, "notifications/cancelled") == 2).await;
    while always.event().await.is_some() {}
    assert_eq!(oldest.event().await, None);
    assert_eq!(listens.message().await.1["result"]["resultType"], "complete");
    while soon("the idle one is let go", idle.read(&mut [0; 1024])).await.unwrap_or(0) > 0 {}
    host.close().await;
}

#[tokio::test]
async fn p6_each_door_has_its_own_end_and_another_can_be_opened() {
    let host = quick().server(puppet("pup", &Puppet::new())).start().await.unwrap();
    let gateway = Gateway::builder(host.clone()).build().unwrap();
    let (mut first, task) = serving(&gateway, &host).await;
    let (second, _task) = serving(&gateway, &host).await;
    let mut pipe = Caller::at(gateway.clone(), std::future::pending());
    first.stop();
    soon("the first door closes", task).await.unwrap();
    let name = second.name();
    let ready = second.send(Method::GET, "/readyz", &[("host", &name)], "").await;
    assert_eq!(ready.status, 200, "{ready:?}");
    let (third, _task) = serving(&gateway, &host).await;
    for door in [&second, &third] {
        let answer = door.modern("tools/call", call()).await;
        assert!(answer.json()["result"]["content"].is_array(), "{answer:?}");
    }
    pipe.say(modern_body("tools/call", call())).await;
    assert!(pipe.next().await["result"]["content"].is_array());
    host.close().await;
}
