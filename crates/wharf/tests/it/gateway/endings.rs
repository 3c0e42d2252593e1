//! How requests end before their answer: each era has its own way to say so.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
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
    let answer = stopped(&files, Duration::from_millis(100), false).await;
    assert!(answer.is_none_or(|answer| answer["error"]["message"].is_string()), "no result, at most words");
    assert_eq!(effects(&at(&files, "effects")), 0);
    until("the server hears of it", || heard(&files, "notifications/cancelled") == 1).await;
}
