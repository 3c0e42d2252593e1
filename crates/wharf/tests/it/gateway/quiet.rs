//! When nothing goes on at a gateway: whoever runs it may want to know.

use std::time::Duration;

use http::Method;
use serde_json::json;
use wharf::gateway::Pace;
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, modern_body, open};
use crate::support::{at, folder, host, puppet, soon};

/// Long enough for a call to get to its server.
const A_MOMENT: Duration = Duration::from_millis(100);

/// Waits until nothing goes on.
async fn still(door: &Door) -> u64 {
    let looking = async {
        loop {
            match door.gateway.pace() {
                Pace { calls: 0, moves } => return moves,
                _ => tokio::time::sleep(A_MOMENT).await,
            }
        }
    };
    soon("nothing goes on", looking).await
}

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
    let before = still(&door).await;
    assert_eq!(door.gateway.pace(), Pace { calls: 0, moves: before }, "nothing goes on still");

    let during = async {
        let begun = async {
            while door.gateway.pace().calls == 0 {
                tokio::time::sleep(A_MOMENT).await;
            }
        };
        soon("a call is under way", begun).await;
        tokio::time::sleep(A_MOMENT).await;
        let pace = door.gateway.pace();
        std::fs::write(&gate, "").unwrap();
        assert_eq!(pace.calls, 1, "a call was under way");
    };
    tokio::join!(call(&door, "pup_waits"), during);
    let after = still(&door).await;
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
    let before = still(&door).await;
    tokio::time::sleep(A_MOMENT).await;
    assert_eq!(door.gateway.pace(), Pace { calls: 0, moves: before }, "nothing is asked");
    drop(listening);
    door.host.close().await;
}
