//! Tools through the gateway, in both eras.

use serde_json::{Value, json};
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, open};
use crate::support::{at, count, folder, host, puppet, received};

async fn behind(script: &Puppet) -> Door {
    open(host([puppet("pup", script)]).await).await
}

fn names(listed: &Value) -> Vec<&str> {
    listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn l31_a_modern_caller_discovers_lists_and_calls_whatever_the_servers_era() {
    for era in [Era::Legacy, Era::Modern] {
        let door = behind(&Puppet::of(era)).await;
        let found = door.modern("server/discover", json!({})).await.json();
        assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]), "{found}");
        assert_eq!(found["result"]["resultType"], "complete");
        let listed = door.modern("tools/list", json!({})).await.json();
        assert!(names(&listed).contains(&"pup_echo"), "{listed}");
        assert!(
            listed["result"]["ttlMs"].is_u64() && listed["result"]["cacheScope"] == "private",
            "{listed}"
        );
        let called =
            door.modern("tools/call", json!({"name": "pup_echo", "arguments": {"message": "hi"}})).await;
        let called = called.json();
        assert_eq!(called["id"], 7);
        assert_eq!(called["result"]["resultType"], "complete", "{called}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l31_a_legacy_caller_shakes_hands_lists_and_calls_whatever_the_servers_era() {
    for era in [Era::Legacy, Era::Modern] {
        let door = behind(&Puppet::of(era)).await;
        let session = door.greet().await;
        let list = json!({"jsonrpc": "2.0", "id": "a", "method": "tools/list"});
        let listed = door.legacy(Some(&session), list).await.json();
        assert!(names(&listed).contains(&"pup_echo"), "{listed}");
        assert_eq!(listed["id"], "a", "ids keep their type");
        assert!(listed["result"].get("ttlMs").is_none(), "no word of the other era: {listed}");
        let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "pup_echo", "arguments": {}}});
        let called = door.legacy(Some(&session), call).await.json();
        assert!(called["result"]["content"].is_array(), "{called}");
        assert!(called["result"].get("resultType").is_none(), "no word of the other era: {called}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l31_an_unknown_tool_and_wrong_arguments_never_reach_the_server() {
    let files = folder();
    let log = at(&files, "log");
    let door = behind(&Puppet::of(Era::Modern).log(&log)).await;
    let unknown = door.modern("tools/call", json!({"name": "pup_nothing", "arguments": {}})).await;
    assert_eq!(unknown.json()["error"]["code"], -32602, "{unknown:?}");
    let data = &unknown.json()["error"]["data"];
    assert_eq!((&data["kind"], &data["retryable"]), (&json!("unknown_tool"), &json!(false)));
    assert!(data["hint"].as_str().unwrap().contains("tools/list"), "{data}");
    let wrong = door.modern("tools/call", json!({"name": "pup_echo", "arguments": {"message": 5}})).await;
    assert_eq!(wrong.json()["result"]["isError"], true, "a model can mend its arguments: {wrong:?}");
    assert_eq!(count(&received(&log), "tools/call"), 0);
    let right = door.modern("tools/call", json!({"name": "pup_echo", "arguments": {"message": "5"}})).await;
    assert_ne!(right.json()["result"]["isError"], true, "{right:?}");
    assert_eq!(count(&received(&log), "tools/call"), 1);
    door.host.close().await;
}

#[tokio::test]
async fn l80_progress_reaches_the_caller_in_order_under_its_own_token() {
    let steps = [Step::Progress { count: Some(3), interval_ms: 5 }, Step::Honest];
    let door = behind(&Puppet::of(Era::Legacy).on("tool:echo", steps)).await;
    let params = json!({"name": "pup_echo", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let answer = door.modern("tools/call", params).await;
    let events = answer.events();
    let told: Vec<&Value> = events.iter().filter(|e| e["method"] == "notifications/progress").collect();
    assert!(told.iter().all(|e| e["params"]["progressToken"] == "mine"), "{events:?}");
    assert_eq!(told.len(), 3, "{answer:?}");
    assert!(told.is_sorted_by_key(|e| e["params"]["progress"].as_f64().unwrap() as i64));
    assert_eq!(events.last().unwrap()["id"], 7, "the answer comes last");
    door.host.close().await;
}
