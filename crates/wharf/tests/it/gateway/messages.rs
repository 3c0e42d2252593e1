//! Messages that cannot be taken, and several in one: what is said of them, and under which id.

use http::Method;
use serde_json::{Value, json};
use wharf::gateway::Gateway;
use wharf::{Host, LocalTool};

use super::pipe::Caller;
use super::{Answer, Door, modern_body, open};

async fn host() -> Host {
    Host::builder().start().await.unwrap()
}

async fn post(door: &Door, more: &[(&str, &str)], body: &str) -> Answer {
    let name = door.name();
    let mut headers = vec![("host", name.as_str()), ("content-type", "application/json")];
    headers.extend(more);
    door.send(Method::POST, "/mcp", &headers, body.to_owned()).await
}

#[tokio::test]
async fn l30_what_is_no_request_is_refused_under_its_id_and_only_what_is_no_json_as_such() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":10,"method":"ping","params":{}{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let cases = [
        (r#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#, -32600, json!(5)),
        (r#"{"id":"a-b","method":"ping"}"#, -32600, json!("a-b")),
        (r#"{"jsonrpc":"2.0","id":6}"#, -32600, json!(6)),
        (r#"{"jsonrpc":"2.0","id":7,"method":3}"#, -32600, json!(7)),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":8,"id":9,"method":"ping"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":8,"method":"ping","method":"ping"}"#, -32600, json!(8)),
        // An answer has an id of ours, which says nothing to its sender.
        (r#"{"jsonrpc":"2.0","id":9,"result":{},"error":{"code":1,"message":""}}"#, -32600, Value::Null),
        (&deep, -32600, json!(10)),
        ("5", -32600, Value::Null),
        ("{nonsense", -32700, Value::Null),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping""#, -32700, Value::Null),
    ];
    let door = open(host().await).await;
    let mut caller = Caller::of(&door.host);
    for (text, code, id) in cases {
        caller.write(format!("{text}\n").as_bytes()).await;
        let over_http = post(&door, &[], text).await;
        assert_eq!(over_http.status, 400, "{text}");
        for told in [caller.next().await, over_http.json()] {
            assert_eq!((&told["error"]["code"], &told["id"]), (&json!(code), &id), "{text}: {told}");
        }
    }
    caller.ask(1, "ping", json!({})).await;
    assert_eq!(caller.next().await["id"], 1, "the conversation goes on");
}

#[tokio::test]
async fn l31_what_is_said_of_a_session_is_said_under_the_id_of_the_request() {
    let door = open(host().await).await;
    let list = json!({"jsonrpc": "2.0", "id": "x", "method": "tools/list"});
    for (session, status) in [(None, 400), (Some("lost"), 404)] {
        let told = door.legacy(session, list.clone()).await;
        assert_eq!((told.status.as_u16(), &told.json()["id"]), (status, &json!("x")), "{told:?}");
    }
    let session = door.greet().await;
    let other = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-06-18")];
    let told = post(&door, &other, &list.to_string()).await;
    assert_eq!((told.status.as_u16(), &told.json()["id"]), (400, &json!("x")), "{told:?}");
}

#[tokio::test]
async fn gwy_07_a_revision_that_is_not_spoken_is_told_before_what_else_is_missing() {
    let door = open(host().await).await;
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {}}).to_string();
    let mut old = modern_body("tools/list", json!({}));
    old["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2020-01-01");
    for body in [ping, old.to_string()] {
        let told = post(&door, &[("mcp-protocol-version", "2020-01-01")], &body).await;
        let error = &told.json()["error"];
        assert_eq!((told.status.as_u16(), &error["code"]), (400, &json!(-32022)), "{told:?}");
        let data = json!({"supported": ["2026-07-28"], "requested": "2020-01-01"});
        assert_eq!(error["data"], data, "{told:?}");
    }
    // The twin: a revision that is spoken needs its headers.
    let told = post(
        &door,
        &[("mcp-protocol-version", "2026-07-28")],
        &modern_body("tools/list", json!({})).to_string(),
    )
    .await;
    assert_eq!(told.json()["error"]["code"], -32020, "{told:?}");
}

#[tokio::test]
async fn exh_03_a_message_over_the_limit_is_skipped_and_the_next_one_is_heard() {
    let limit = 50_000;
    let gateway = Gateway::builder(host().await).largest_request(limit).build().unwrap();
    let mut caller = Caller::at(gateway, std::future::pending());
    let padded = |bytes: usize, id: Value| {
        let empty = json!({"id": id, "jsonrpc": "2.0", "method": "ping", "params": {"pad": ""}}).to_string();
        let pad = "x".repeat(bytes - empty.len());
        json!({"id": id, "jsonrpc": "2.0", "method": "ping", "params": {"pad": pad}}).to_string()
    };
    for (bytes, fits) in
        [(limit - 1, true), (limit, true), (limit + 1, false), (limit + 2, false), (40 * limit, false)]
    {
        for (id, end) in [(json!(1), "\n"), (json!("0b92b1a2-53f5-4c8b-9bd8-6a1d0c6b2f11"), "\r\n")] {
            let message = padded(bytes, id.clone());
            assert_eq!(message.len(), bytes);
            caller.write(format!("{message}{end}").as_bytes()).await;
            let told = caller.next().await;
            assert_eq!(told["id"], id, "{bytes}: {told}");
            assert_eq!(told["result"].is_object(), fits, "{bytes}: {told}");
            if !fits {
                assert_eq!(told["error"]["code"], -32600, "{told}");
                assert!(told["error"]["message"].as_str().unwrap().contains("50000 bytes"), "{told}");
            }
        }
    }
    // What was no request has no id, and neither has what cannot be read.
    for text in [format!(r#"{{"id":1,"result":"{}"}}"#, "x".repeat(limit)), "x".repeat(3 * limit)] {
        caller.write(format!("{text}\n").as_bytes()).await;
        let told = caller.next().await;
        assert_eq!((&told["error"]["code"], &told["id"]), (&json!(-32600), &Value::Null), "{told}");
    }
    // At its end, too.
    caller.write(padded(2 * limit, json!(2)).as_bytes()).await;
    caller.hush().await;
    assert_eq!(caller.next().await["id"], 2);
    assert_eq!(caller.last().await, None);
}

#[tokio::test]
async fn exh_03_a_body_over_the_limit_is_told_what_the_limit_is() {
    let limit = 5_000;
    let door = super::open_with(host().await, |builder| builder.largest_request(limit)).await;
    let empty = r#"{"jsonrpc":"1.0","id":5,"pad":""}"#.len();
    for (bytes, status) in [(limit - 1, 400), (limit, 400), (limit + 1, 413)] {
        let body = format!(r#"{{"jsonrpc":"1.0","id":5,"pad":"{}"}}"#, "x".repeat(bytes - empty));
        let told = post(&door, &[], &body).await;
        assert_eq!(told.status.as_u16(), status, "{told:?}");
        assert_eq!(told.body.contains("5000 bytes"), status == 413, "{told:?}");
    }
}

const BATCHES: &str = "2025-03-26";

async fn greeted(host: &Host, revision: &str) -> Caller {
    let mut caller = Caller::of(host);
    caller.ask(0, "initialize", json!({"protocolVersion": revision, "capabilities": {}})).await;
    assert_eq!(caller.next().await["result"]["protocolVersion"], revision);
    caller.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    caller
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A host with a tool that never answers.
async fn with_hanging_tool() -> Host {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let host = host().await;
    let hang = LocalTool::new("hang", "Hangs", async |_: Nothing, _| {
        std::future::pending::<()>().await;
        Ok::<_, String>("")
    });
    host.register(hang).unwrap();
    host
}

/// The answers of a batch, by their ids.
fn sorted(answers: &[Value]) -> Vec<(Value, Value)> {
    let mut all: Vec<_> = answers.iter().map(|a| (a["id"].clone(), a["error"]["code"].clone())).collect();
    all.sort_by_key(|(id, _)| id.as_u64());
    all
}

fn mixed() -> Value {
    json!([
        request(1, "ping", json!({})),
        {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
        request(2, "tools/list", json!({})),
        request(3, "tools/call", json!({"name": "none", "arguments": {}})),
        request(4, "initialize", json!({"protocolVersion": BATCHES, "capabilities": {}})),
        modern_body("tools/list", json!({})),
        5,
    ])
}

fn mixed_answers() -> Vec<(Value, Value)> {
    [
        (Value::Null, json!(-32600)),
        (json!(1), Value::Null),
        (json!(2), Value::Null),
        (json!(3), json!(-32602)),
        (json!(4), json!(-32600)),
        (json!(7), json!(-32600)),
    ]
    .into()
}

#[tokio::test]
async fn l31_a_batch_is_answered_together_where_the_revision_has_batches() {
    let host = with_hanging_tool().await;
    let mut caller = greeted(&host, BATCHES).await;
    caller.say(mixed()).await;
    let answer = caller.next().await;
    assert_eq!(sorted(answer.as_array().unwrap()), mixed_answers());
    // What wants no answer has none, and what is cancelled neither.
    caller.say(json!([{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}])).await;
    let hang = request(1, "tools/call", json!({"name": "hang", "arguments": {}}));
    caller.say(json!([hang, request(2, "ping", json!({}))])).await;
    caller
        .say(json!([{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}]))
        .await;
    let answer = caller.next().await;
    assert_eq!(sorted(answer.as_array().unwrap()), [(json!(2), Value::Null)]);
    // It is answered after the end of the input, too.
    caller.say(json!([request(1, "tools/list", json!({}))])).await;
    caller.hush().await;
    assert_eq!(caller.next().await[0]["id"], 1);
    assert_eq!(caller.last().await, None);
}

#[tokio::test]
async fn l31_a_batch_has_bounds_of_its_own() {
    let mut caller = greeted(&host().await, BATCHES).await;
    for (count, fits) in [(99, true), (100, true), (101, false)] {
        let pings: Vec<_> = (0..count).map(|id| request(id, "ping", json!({}))).collect();
        caller.say(json!(pings)).await;
        let answer = caller.next().await;
        match fits {
            true => assert_eq!(answer.as_array().map(Vec::len), Some(pings.len())),
            false => assert_eq!(answer["error"]["code"], -32600, "{answer}"),
        }
    }
    for (text, code) in [("[]", -32600), ("[ ]", -32600), ("[{]", -32700), ("[", -32700)] {
        caller.write(format!("{text}\n").as_bytes()).await;
        let told = caller.next().await;
        assert_eq!((&told["error"]["code"], &told["id"]), (&json!(code), &Value::Null), "{text}: {told}");
    }
}

#[tokio::test]
async fn l31_a_batch_is_refused_everywhere_else() {
    let door = open(host().await).await;
    let batch = json!([request(1, "ping", json!({}))]);
    let is_refused = |told: &Value| {
        let (code, words) = (&told["error"]["code"], told["error"]["message"].as_str().unwrap_or_default());
        assert!(*code == -32600 && words.starts_with("batches are not taken here"), "{told}");
    };
    let mut nobody = Caller::of(&door.host);
    let mut newer = greeted(&door.host, "2025-11-25").await;
    for caller in [&mut nobody, &mut newer] {
        caller.say(batch.clone()).await;
        is_refused(&caller.next().await);
    }
    let session = door.greet().await;
    let headers: [&[(&str, &str)]; 3] =
        [&[], &[("mcp-session-id", &session)], &[("mcp-protocol-version", "2026-07-28")]];
    for headers in headers {
        let told = post(&door, headers, &batch.to_string()).await;
        assert_eq!(told.status, 400, "{told:?}");
        is_refused(&told.json());
    }
}

#[tokio::test]
async fn l31_a_batch_over_http_is_answered_on_one_stream() {
    let door = open(host().await).await;
    let hello = request(0, "initialize", json!({"protocolVersion": BATCHES, "capabilities": {}}));
    let answer = door.legacy(None, hello).await;
    let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let session = [("mcp-session-id", session.as_str())];
    let answer = post(&door, &session, &mixed().to_string()).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["content-type"]),
        (200, &"text/event-stream".parse().unwrap())
    );
    assert_eq!(sorted(&answer.events()), mixed_answers());
    let told = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    let answer = post(&door, &session, &told.to_string()).await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (202, ""));
    let answer = post(&door, &session, "[]").await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (400, &json!(-32600)));
    let lost = post(&door, &[("mcp-session-id", "lost")], &mixed().to_string()).await;
    assert_eq!(lost.status, 404);
}
