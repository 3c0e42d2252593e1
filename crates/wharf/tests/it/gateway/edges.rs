//! What one era has and the other has not, as each kind of caller sees it; and what is bound to one list or one server.

use serde_json::{Value, json};
use wharf_testkit::{Era, Puppet, Step};

use super::pipe::Caller;
use super::{Door, modern_body, open};
use crate::support::{at, count, folder, host, puppet, received};

/// A server whose tools keep their names.
fn plain(name: &str, script: &Puppet) -> wharf::config::ServerConfig {
    let mut config = puppet(name, script);
    config.tool_prefix = Some(String::new());
    config
}

fn lists(era: Era, tools: &Value) -> Puppet {
    Puppet::of(era).on("tools/list", [Step::Reply(json!({"tools": tools}))])
}

async fn legacy(door: &Door, method: &str, params: Value) -> Value {
    let session = door.greet().await;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    door.legacy(Some(&session), request).await.json()
}

fn names(listed: &Value) -> Vec<&str> {
    listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn echo() -> Value {
    json!({"name": "echo", "arguments": {}})
}

#[tokio::test]
async fn l90_pages_to_visit_first_are_told_in_the_words_of_each_era() {
    let page = json!({"mode": "url", "elicitationId": "e", "url": "https://pay.example/", "message": "pay"});
    let data = Some(json!({"elicitations": [page]}));
    let step = Step::ReplyError { code: -32042, message: "pay first".into(), data };
    let door = open(host([plain("pup", &Puppet::of(Era::Legacy).on("tool:echo", [step]))]).await).await;
    let answer = door.modern("tools/call", echo()).await;
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status.as_u16(), &error["code"]), (400, &json!(-32021)), "{answer:?}");
    assert_eq!(error["data"]["requiredCapabilities"], json!({"elicitation": {"url": {}}}));
    assert!(error["message"].as_str().unwrap().contains("pay first"), "{error}");
    let mut able = echo();
    able["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {"url": {}}});
    let asked = door.modern("tools/call", able).await.json();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let legacy = legacy(&door, "tools/call", echo()).await;
    assert_eq!(legacy["error"]["code"], -32042, "{legacy}");
    assert_eq!(legacy["error"]["data"]["elicitations"][0]["elicitationId"], "e", "{legacy}");
    door.host.close().await;
}

#[tokio::test]
async fn l90_legacy_callers_see_structured_results_that_are_objects_and_no_others() {
    let schema = json!({"type": "object"});
    let tools = json!([
        {"name": "echo", "inputSchema": schema, "outputSchema": {"type": "array"}},
        {"name": "other", "inputSchema": schema, "outputSchema": {"type": "object"}},
    ]);
    let said = |content: Value, value: Value| {
        [Step::Reply(json!({"resultType": "complete", "content": content, "structuredContent": value}))]
    };
    let words = json!([{"type": "text", "text": "w"}]);
    let script = lists(Era::Modern, &tools)
        .on(
            "tool:echo",
            [Step::Turns(vec![
                said(json!([]), json!([1, 2])).into(),
                said(json!([]), json!([1, 2])).into(),
                said(words.clone(), json!([1, 2])).into(),
            ])],
        )
        .on("tool:other", said(words.clone(), json!({"a": 1})));
    let door = open(host([plain("pup", &script)]).await).await;
    let listed = door.modern("tools/list", json!({})).await.json();
    assert_eq!(listed["result"]["tools"], tools, "modern callers see it as it is");
    let listed = legacy(&door, "tools/list", json!({})).await;
    assert_eq!(names(&listed), ["echo", "other"]);
    assert!(listed["result"]["tools"][0].get("outputSchema").is_none(), "{listed}");
    assert_eq!(listed["result"]["tools"][1], tools[1]);
    let modern = door.modern("tools/call", echo()).await.json();
    assert_eq!(modern["result"]["structuredContent"], json!([1, 2]), "{modern}");
    for text in ["[1,2]", "w"] {
        let old = legacy(&door, "tools/call", echo()).await;
        assert!(old["result"].get("structuredContent").is_none(), "{old}");
        assert_eq!(old["result"]["content"], json!([{"type": "text", "text": text}]), "{old}");
    }
    let old = legacy(&door, "tools/call", json!({"name": "other", "arguments": {}})).await;
    assert_eq!(old["result"]["structuredContent"], json!({"a": 1}), "{old}");
    door.host.close().await;
}

#[tokio::test]
async fn l93_a_tool_whose_headers_cannot_be_sent_is_not_published_where_there_are_headers() {
    let tool = |name: &str, kind: &str| {
        let properties = json!({"n": {"type": kind, "x-mcp-header": "N"}});
        json!({"name": name, "inputSchema": {"type": "object", "properties": properties}})
    };
    let script = lists(Era::Legacy, &json!([tool("bad", "number"), tool("good", "integer")]));
    let host = host([plain("pup", &script)]).await;
    let door = open(host.clone()).await;
    let listed = door.modern("tools/list", json!({})).await.json();
    assert_eq!(names(&listed), ["good"]);
    assert_eq!(names(&legacy(&door, "tools/list", json!({})).await), ["bad", "good"]);
    let mut pipe = Caller::of(&host);
    pipe.say(modern_body("tools/list", json!({}))).await;
    assert_eq!(names(&pipe.next().await), ["bad", "good"]);
    host.close().await;
}

#[tokio::test]
async fn l90_a_cursor_is_of_one_list() {
    let many = |count: usize| {
        let tool = |n| json!({"name": format!("t{n}"), "inputSchema": {"type": "object"}});
        json!((0..count).map(tool).collect::<Vec<_>>())
    };
    let one = open(host([plain("pup", &lists(Era::Modern, &many(1001)))]).await).await;
    let other = open(host([plain("pup", &lists(Era::Modern, &many(1002)))]).await).await;
    let first = one.modern("tools/list", json!({})).await.json();
    let cursor = json!({"cursor": first["result"]["nextCursor"]});
    assert_eq!(names(&one.modern("tools/list", cursor.clone()).await.json()), ["t1000"]);
    let error = other.modern("tools/list", cursor).await.json()["error"].clone();
    assert_eq!(error["code"], -32602, "{error}");
    assert!(error["message"].as_str().unwrap().contains("begin again"), "{error}");
    one.host.close().await;
    other.host.close().await;
}

#[tokio::test]
async fn l90_a_state_goes_back_to_the_server_that_gave_it_and_to_no_other() {
    let files = folder();
    let asks = json!({"resultType": "input_required", "requestState": "mine"});
    let server = |name: &str| {
        let turns = vec![vec![Step::Reply(asks.clone())], vec![Step::Honest]];
        plain(name, &Puppet::of(Era::Modern).log(at(&files, name)).on("tool:echo", [Step::Turns(turns)]))
    };
    for moved in [false, true] {
        let (before, after) = if moved { ("old", "new") } else { ("same", "same") };
        let host = host([server(before)]).await;
        let door = open(host.clone()).await;
        let asked = door.modern("tools/call", echo()).await.json();
        let mut again = echo();
        again["requestState"] = asked["result"]["requestState"].clone();
        assert!(again["requestState"].is_string(), "{asked}");
        if moved {
            host.reconcile([server(after)]).await.unwrap();
            host.tools().await;
        }
        let answer = door.modern("tools/call", again).await.json();
        let got = received(&at(&files, after));
        if moved {
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            assert_eq!(count(&got, "tools/call"), 0, "nothing of it reached the other");
        } else {
            assert!(answer["result"]["content"].is_array(), "{answer}");
            assert_eq!(got.last().unwrap()["params"]["requestState"], "mine");
        }
        host.close().await;
    }
}
