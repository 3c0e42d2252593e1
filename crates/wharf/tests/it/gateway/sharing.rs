//! Who shares a server with whom.

use serde_json::{Value, json};
use wharf::config::Share;
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, open_with};
use crate::support::{at, count, folder, is_alive, pid_in, puppet, quick, received, until};

/// A door with two keys.
async fn keyed(script: &Puppet, share: Option<Share>) -> Door {
    let mut config = puppet("pup", script);
    config.share = share;
    let host = quick().server(config).start().await.unwrap();
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    let keys = Callers::default().keys([key("ann"), key("bob")]);
    open_with(host, |builder| builder.callers(keys)).await
}

async fn call(door: &Door, who: &str, capabilities: Value) -> Value {
    let mut params = json!({"name": "pup_echo", "arguments": {}});
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let who = format!("Bearer {who}");
    door.modern_with("tools/call", params, &[("authorization", &who)]).await.json()
}

#[tokio::test]
async fn l33_the_sharing_contract_is_kept_in_both_eras() {
    let files = folder();
    let able = json!({"elicitation": {}});
    for (era, share, starts) in [
        // After ann and bob who can be asked nothing, then ann and bob who can, twice each.
        (Era::Modern, None, [1, 1, 1, 1, 1, 1]),
        (Era::Legacy, None, [1, 1, 2, 3, 3, 3]),
        (Era::Legacy, Some(Share::All), [1, 1, 1, 1, 1, 1]),
        (Era::Modern, Some(Share::PerCaller), [1, 2, 3, 4, 4, 4]),
        (Era::Legacy, Some(Share::PerCaller), [1, 2, 3, 4, 4, 4]),
        (Era::Modern, Some(Share::Never), [2, 3, 4, 5, 6, 7]),
    ] {
        let pids = at(&files, &format!("{era:?}{share:?}"));
        let hello = if era == Era::Modern { "server/discover" } else { "initialize" };
        let door = keyed(&Puppet::of(era).log(&pids), share).await;
        let mut seen = Vec::new();
        for (who, can) in [
            ("ann", &json!({})),
            ("bob", &json!({})),
            ("ann", &able),
            ("bob", &able),
            ("ann", &able),
            ("bob", &able),
        ] {
            let done = call(&door, who, can.clone()).await;
            assert!(done["result"]["content"].is_array(), "{done}");
            seen.push(count(&received(&pids), hello));
        }
        assert_eq!(seen, starts, "{era:?} {share:?}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l33_a_shared_legacy_server_that_asks_all_the_same_is_told_no() {
    let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}});
    let steps = [Step::Ask { method: "elicitation/create".into(), params: form }, Step::ReplyWithAnswer];
    let script = Puppet::of(Era::Legacy).on("tool:echo", steps);
    let door = keyed(&script, Some(Share::All)).await;
    let done = call(&door, "ann", json!({"elicitation": {}})).await;
    assert_eq!(done["result"]["resultType"], "complete", "whose question it is cannot be told: {done}");
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("-32601"), "{done}");
    door.host.close().await;
    let door = keyed(&script, None).await;
    let asked = call(&door, "ann", json!({"elicitation": {}})).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    door.host.close().await;
}

#[tokio::test]
async fn l33_calls_of_one_caller_that_may_be_asked_go_side_by_side() {
    let files = folder();
    let (log, gate) = (at(&files, "log"), at(&files, "gate"));
    let script =
        Puppet::of(Era::Legacy).log(&log).on("tool:echo", [Step::WaitFor(gate.clone()), Step::Honest]);
    let door = keyed(&script, None).await;
    let able = json!({"elicitation": {}});
    let calls = futures_util::future::join_all((0..3).map(|_| call(&door, "ann", able.clone())));
    let opened = async {
        until("all three are at the server", || count(&received(&log), "tools/call") == 3).await;
        std::fs::write(&gate, "").unwrap();
    };
    let (done, ()) = tokio::join!(calls, opened);
    assert!(done.iter().all(|done| done["result"]["content"].is_array()), "{done:?}");
    door.host.close().await;
}

#[tokio::test]
async fn l33_a_connection_of_ones_own_that_is_not_used_is_closed_and_made_again() {
    let files = folder();
    let (log, pid) = (at(&files, "log"), at(&files, "pid"));
    let door = keyed(&Puppet::of(Era::Legacy).log(&log).pid(&pid), None).await;
    let able = json!({"elicitation": {}});
    call(&door, "ann", able.clone()).await;
    let before = count(&received(&log), "initialize");
    let pid = pid_in(&pid).await;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(301)).await;
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    tokio::time::resume();
    until("it is closed", || !is_alive(pid)).await;
    let done = call(&door, "ann", able).await;
    assert!(done["result"]["content"].is_array(), "{done}");
    assert_eq!(count(&received(&log), "initialize"), before + 1);
    door.host.close().await;
}

#[tokio::test]
async fn l33_a_legacy_callers_own_connection_that_is_not_used_is_closed_and_made_again() {
    let files = folder();
    let (log, pid) = (at(&files, "log"), at(&files, "pid"));
    let script = Puppet::of(Era::Legacy).log(&log).pid(&pid);
    let door = super::open(crate::support::pup(&script).await).await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let opened = door.legacy(None, hello).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let call = async || {
        let params = json!({"name": "pup_echo", "arguments": {}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let done = door.legacy(Some(&session), call).await.json();
        assert!(done["result"]["content"].is_array(), "{done}");
    };
    call().await;
    let before = count(&received(&log), "initialize");
    let pid = pid_in(&pid).await;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(301)).await;
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    tokio::time::resume();
    until("it is closed", || !is_alive(pid)).await;
    call().await;
    assert_eq!(count(&received(&log), "initialize"), before + 1);
    door.host.close().await;
}

/// What a caller says of itself, in so many ways.
fn set(number: usize) -> Value {
    json!({"sampling": {}, "experimental": {format!("x{number}"): {}}})
}

#[tokio::test]
async fn l34_a_caller_that_says_ever_something_else_takes_no_connection_from_others() {
    let files = folder();
    let log = at(&files, "log");
    let door = keyed(&Puppet::of(Era::Legacy).log(&log), None).await;
    let able = json!({"sampling": {}});
    assert!(call(&door, "ann", able.clone()).await["result"]["content"].is_array());
    for number in 0..40 {
        let done = call(&door, "bob", set(number)).await;
        assert!(done["result"]["content"].is_array(), "{number}: {done}");
    }
    // Each was told to the server as it is, and never more.
    let told: Vec<Value> = received(&log)
        .into_iter()
        .filter(|message| message["method"] == "initialize")
        .map(|message| message["params"]["capabilities"].clone())
        .collect();
    assert!((0..40).all(|number| told.contains(&set(number))), "{told:?}");
    let servers = door.host.status()[0].connections;
    assert!(servers <= 34, "32 of bob's, one of ann's, everybody's: {servers}");
    let before = told.len();
    assert!(call(&door, "ann", able).await["result"]["content"].is_array());
    assert_eq!(count(&received(&log), "initialize"), before, "ann's own was left alone");
    let done = call(&door, "ann", json!({"elicitation": {}})).await;
    assert!(done["result"]["content"].is_array(), "{done}");
    door.host.close().await;
}

#[tokio::test]
async fn l34_connections_in_use_are_not_taken_and_who_has_its_share_is_told_to_come_again() {
    let files = folder();
    let (log, gate) = (at(&files, "log"), at(&files, "gate"));
    let script =
        Puppet::of(Era::Legacy).log(&log).on("tool:echo", [Step::WaitFor(gate.clone()), Step::Honest]);
    let door = keyed(&script, None).await;
    let first = futures_util::future::join_all((0..32).map(|number| call(&door, "bob", set(number))));
    let others = async {
        until("all are at the server", || count(&received(&log), "tools/call") == 32).await;
        let mut params = json!({"name": "pup_echo", "arguments": {}});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = set(99);
        let refused = door.modern_with("tools/call", params, &[("authorization", "Bearer bob")]).await;
        assert_eq!(refused.status, 429, "{refused:?}");
        assert_eq!(refused.headers["retry-after"], "1");
        let data = &refused.json()["error"]["data"];
        assert!(data["kind"] == "overloaded" && data["retryable"] == true, "{data}");
        assert!(data["retryAfterMs"].as_u64() > Some(0), "{data}");
        let ann = call(&door, "ann", set(0));
        let opened = async {
            until("ann is served beside them", || count(&received(&log), "tools/call") == 33).await;
            std::fs::write(&gate, "").unwrap();
        };
        tokio::join!(ann, opened).0
    };
    let (first, ann) = tokio::join!(first, others);
    assert!(first.iter().chain([&ann]).all(|done| done["result"]["content"].is_array()), "{first:?} {ann}");
    let again = call(&door, "bob", set(99)).await;
    assert!(again["result"]["content"].is_array(), "one of them is idle now: {again}");
    door.host.close().await;
}
