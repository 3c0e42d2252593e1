//! A program that serves functions of its own: callers of either era find them beside the tools of servers.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use wharf::LocalTool;
use wharf_testkit::Puppet;

use super::pipe::Caller;
use super::{modern_body, open};
use crate::support::{host, puppet};

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

fn add() -> LocalTool {
    LocalTool::new("add", "Adds two numbers", async |add: Add, _| {
        Ok::<_, String>((add.a + add.b).to_string())
    })
}

fn names(listed: &Value) -> Vec<&str> {
    listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn l91_a_local_tool_is_listed_called_and_checked_in_both_eras_over_http_and_a_pipe() {
    let host = host([puppet("pup", &Puppet::new())]).await;
    host.register(add()).unwrap();
    let door = open(host.clone()).await;
    let session = door.greet().await;
    let (mut modern, mut legacy) = (Caller::of(&host), Caller::of(&host));
    legacy.greet(json!({})).await;
    let cases = [
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "add", "arguments": {"a": 20, "b": 22}})),
        ("tools/call", json!({"name": "add", "arguments": {"a": "twenty"}})),
        ("tools/call", json!({"name": "subtract", "arguments": {}})),
    ];
    for (number, (method, params)) in cases.into_iter().enumerate() {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        modern.say(modern_body(method, params.clone())).await;
        legacy.say(request.clone()).await;
        let answers = [
            door.modern(method, params).await.json(),
            door.legacy(Some(&session), request).await.json(),
            modern.next().await,
            legacy.next().await,
        ];
        for answer in &answers {
            let result = &answer["result"];
            match number {
                0 => {
                    assert_eq!(names(answer), ["pup_echo", "add"]);
                    let schema = &result["tools"][1]["inputSchema"];
                    assert_eq!(schema["required"], json!(["a", "b"]), "{answer}");
                }
                1 => assert_eq!(result["content"], json!([{"type": "text", "text": "42"}]), "{answer}"),
                2 => {
                    assert_eq!(result["isError"], true, "{answer}");
                    let words = result["content"][0]["text"].as_str().unwrap();
                    assert!(words.contains("`a`") && words.contains("`b`"), "{words}");
                }
                _ => assert_eq!(answer["error"]["code"], -32602, "{answer}"),
            }
        }
    }
    host.close().await;
}
