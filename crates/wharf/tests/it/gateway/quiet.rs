//! When nothing goes on at a gateway: whoever runs it may want to know.

use std::time::Duration;

use http::Method;
use serde_json::json;
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, modern_body, open};
use crate::support::{at, folder, host, puppet, soon};

/// Much shorter than the looks by which it is measured.
const QUIET: Duration = Duration::from_millis(50);
/// Some of those looks.
const A_WHILE: Duration = Duration::from_millis(1500);

async fn call(door: &Door, tool: &str) {
    let called = door.modern("tools/call", json!({"name": tool, "arguments": {}})).await.json();
    assert!(called["result"].is_object(), "{called}");
}

#[tokio::test]
async fn l96_a_gateway_is_not_quiet_while_a_call_is_under_way_and_is_after_it() {
    let files = folder();
    let gate = at(&files, "gate");
    let script = Puppet::of(Era::Modern).plain_tool("echo").plain_tool("waits");
    let script = script.on("tool:waits", [Step::WaitFor(gate.clone()), Step::Honest]);
    let door = open(host([puppet("pup", &script)]).await).await;
    call(&door, "pup_echo").await;
    let before = soon("nothing goes on", door.gateway.quiet_for(QUIET)).await;
    assert_eq!(soon("nothing goes on still", door.gateway.quiet_for(QUIET)).await, before);

    let during = async {
        let quiet = tokio::time::timeout(A_WHILE, door.gateway.quiet_for(QUIET)).await;
        std::fs::write(&gate, "").unwrap();
        assert!(quiet.is_err(), "a call was under way");
    };
    tokio::join!(call(&door, "pup_waits"), during);
    let after = soon("nothing goes on any more", door.gateway.quiet_for(QUIET)).await;
    assert_ne!(after, before, "something was asked in between");
    door.host.close().await;
}

#[tokio::test]
async fn l96_whoever_only_listens_leaves_a_gateway_quiet() {
    let script = Puppet::of(Era::Modern).plain_tool("echo");
    let door = open(host([puppet("pup", &script)]).await).await;
    let body = modern_body("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    let mut listening = door.stream(Method::POST, "/mcp", &headers, body.to_string()).await;
    let (_, first) = listening.message().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    soon("nothing is asked", door.gateway.quiet_for(QUIET)).await;
    drop(listening);
    door.host.close().await;
}
