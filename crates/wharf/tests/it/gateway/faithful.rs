//! What passes through the gateway passes as it is, but for what the hop itself owns.

use serde_json::{Value, json};
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, open};
use crate::support::{at, count, folder, host, puppet, received};

/// A server whose tools keep their names.
async fn plainly(script: &Puppet) -> Door {
    let mut config = puppet("pup", script);
    config.tool_prefix = Some(String::new());
    open(host([config]).await).await
}

fn answers(era: Era, result: &str) -> Puppet {
    Puppet::of(era).on("tool:echo", [Step::Raw(format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{result}}}"#))])
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn l90_a_definition_is_published_byte_for_byte() {
    let definition = r#"{"inputSchema":{"type":"object","$defs":{"b":{"const":1e400},"a":{"$anchor":"x"}},"properties":{"n":{"type":"integer","maximum":9007199254740993}}},"name":"big","x-more":[1.0,1.10,{"z":1,"a":2}],"_meta":{"ui":{"resourceUri":"ui://a"}},"description":"\u00e9 \/"}"#;
    let list = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"result":{{"tools":[{definition}],"resultType":"complete","ttlMs":0,"cacheScope":"public"}}}}"#
    );
    for era in [Era::Legacy, Era::Modern] {
        let door = plainly(&Puppet::of(era).on("tools/list", [Step::Raw(list.clone())])).await;
        let listed = door.modern("tools/list", json!({})).await;
        assert!(listed.body.contains(definition), "{listed:?}");
        let session = door.greet().await;
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let listed = door.legacy(Some(&session), list).await;
        assert!(listed.body.contains(definition), "{listed:?}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l90_a_result_is_passed_on_byte_for_byte() {
    let inner = r#""content":[{"type":"text","text":"\u00e9\/"},{"type":"new","n":1.10}],"structuredContent":{"z":12345678901234567890123,"a":1.0e3},"x-more":{"b":1,"a":[]}"#;
    for (era, own) in [
        (Era::Legacy, String::new()),
        (Era::Modern, r#","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"behind","version":"1"},"vendor/x":1.50}"#.to_owned()),
    ] {
        let door = plainly(&answers(era, &format!("{{{inner}{own}}}"))).await;
        let call = json!({"name": "echo", "arguments": {}});
        let modern = door.modern("tools/call", call.clone()).await;
        assert!(modern.body.contains(inner), "{modern:?}");
        let told = &modern.json()["result"]["_meta"];
        assert_eq!(told["io.modelcontextprotocol/serverInfo"]["name"], "wharf", "who answers is this hop");
        let session = door.greet().await;
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
        let legacy = door.legacy(Some(&session), call).await;
        assert!(legacy.body.contains(inner), "{legacy:?}");
        assert!(!legacy.body.contains("resultType") && !legacy.body.contains("behind"), "{legacy:?}");
        for answer in [&modern, &legacy] {
            assert_eq!(answer.body.contains(r#""vendor/x":1.50"#), era == Era::Modern, "{answer:?}");
        }
        door.host.close().await;
    }
}

#[tokio::test]
async fn l90_what_a_caller_says_beside_the_matter_reaches_the_server() {
    let files = folder();
    for era in [Era::Legacy, Era::Modern] {
        let log = at(&files, &format!("{era:?}"));
        let door = plainly(&Puppet::of(era).log(&log)).await;
        let told = json!({"traceparent": TRACE, "vendor.example/k": {"b": 1, "a": 2}, "progressToken": "mine",
            "io.modelcontextprotocol/clientInfo": {"name": "caller", "version": "9"}});
        let params = json!({"name": "echo", "arguments": {"message": "m"}, "x-more": [1], "_meta": told});
        door.modern("tools/call", params).await;
        let calls: Vec<Value> = received(&log).into_iter().filter(|m| m["method"] == "tools/call").collect();
        let got = &calls[0]["params"];
        assert_eq!(got["x-more"], json!([1]), "{got}");
        assert_eq!(got["_meta"]["traceparent"], TRACE);
        assert_eq!(got["_meta"]["vendor.example/k"].to_string(), r#"{"b":1,"a":2}"#);
        assert_ne!(got["_meta"]["progressToken"], "mine", "the token is this hop's: {got}");
        let info = &got["_meta"]["io.modelcontextprotocol/clientInfo"];
        assert_eq!(info.is_null(), era == Era::Legacy, "{got}");
        assert_ne!(info["name"], "caller", "who calls is this hop: {got}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l90_codes_of_one_hop_do_not_leak_to_the_other() {
    let data = json!({"requiredCapabilities": {"sampling": {}}});
    for (code, seen, status) in [
        (-32022, -32603, 200),
        (-32020, -32603, 200),
        (-32021, -32021, 400),
        (-32601, -32603, 200),
        (-32600, -32603, 200),
        (-32700, -32603, 200),
        (-32602, -32602, 200),
        (-5, -5, 200),
    ] {
        let step = Step::ReplyError { code, message: "no".into(), data: Some(data.clone()) };
        let door = plainly(&Puppet::of(Era::Modern).on("tool:echo", [step])).await;
        let call = json!({"name": "echo", "arguments": {}});
        let answer = door.modern("tools/call", call.clone()).await;
        assert_eq!(answer.json()["error"]["code"], seen, "{answer:?}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("no"), "{answer:?}");
        assert_eq!(answer.status.as_u16(), status, "{answer:?}");
        let session = door.greet().await;
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
        let legacy = door.legacy(Some(&session), call).await.json();
        let seen = if seen == -32021 { -32600 } else { seen };
        assert_eq!(legacy["error"]["code"], seen, "{legacy}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l93_arguments_that_are_repeated_in_headers_must_be_the_same() {
    let files = folder();
    let log = at(&files, "log");
    let tool = json!({"name": "echo", "inputSchema": {"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}, "n": {"type": "integer", "x-mcp-header": "N"}}}});
    let script = Puppet::of(Era::Legacy).tool(tool).log(&log);
    let door = plainly(&script).await;
    let call = json!({"name": "echo", "arguments": {"region": "é", "n": 42}});
    let region = ("mcp-param-region", "=?base64?w6k=?=");
    for bad in [
        vec![],
        vec![region],
        vec![("mcp-param-n", "42")],
        vec![region, ("mcp-param-n", "43")],
        vec![("mcp-param-region", "e"), ("mcp-param-n", "42")],
        vec![("mcp-param-region", "=?base64?w6k?="), ("mcp-param-n", "42")],
        vec![region, region, ("mcp-param-n", "42")],
    ] {
        let answer = door.modern_with("tools/call", call.clone(), &bad).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["error"]["code"]),
            (400, &json!(-32020)),
            "{bad:?}"
        );
    }
    assert_eq!(count(&received(&log), "tools/call"), 0, "nothing reached the server");
    for good in [
        vec![region, ("Mcp-Param-N", " 42 ")],
        vec![region, ("mcp-param-n", "42.0"), ("mcp-param-other", "x")],
    ] {
        let answer = door.modern_with("tools/call", call.clone(), &good).await;
        assert!(answer.json()["result"]["content"].is_array(), "{answer:?}");
    }
    let none = door.modern("tools/call", json!({"name": "echo", "arguments": {"region": null}})).await;
    assert_ne!(none.status.as_u16(), 400, "what is not there is not repeated: {none:?}");
    door.host.close().await;
}

#[tokio::test]
async fn l93_what_a_tool_does_not_know_of_is_passed_on_in_headers_and_nothing_else_is() {
    let tool = json!({"name": "t", "inputSchema": {"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}}}});
    let listed = json!({"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "public"});
    let server = crate::http::modern(move |x| {
        let listed = listed.clone();
        async move {
            match x.seen.method() {
                "tools/list" => x.result(listed).await,
                _ => x.result(crate::http::done()).await,
            }
        }
    })
    .await;
    let door = open(host([crate::http::server::http(&server.url())]).await).await;
    let call = json!({"name": "far_t", "arguments": {"region": "eu"}});
    let long = "x".repeat(9 * 1024);
    let more = [
        ("mcp-param-region", "eu"),
        ("mcp-param-tenant", "t1"),
        ("Mcp-Param-City", "=?base64?w6k=?="),
        ("mcp-param-two", "a"),
        ("mcp-param-two", "b"),
        ("mcp-param-bad", "=?base64?!?="),
        ("authorization", "Bearer key-of-this-hop"),
        ("cookie", "a=b"),
        ("x-param-other", "o"),
        ("mcp-param-long", &long),
    ];
    for able in [json!({}), json!({"elicitation": {}})] {
        let mut call = call.clone();
        call["_meta"]["io.modelcontextprotocol/clientCapabilities"] = able;
        let answer = door.modern_with("tools/call", call, &more).await;
        assert!(answer.json()["result"]["content"].is_array(), "{answer:?}");
    }
    let calls: Vec<_> = server.log().into_iter().filter(|seen| seen.method() == "tools/call").collect();
    assert_eq!(calls.len(), 2);
    for seen in calls {
        let all = |name: &str| seen.headers.iter().filter(|(key, _)| key == name).count();
        assert_eq!((seen.header("mcp-param-region"), all("mcp-param-region")), (Some("eu"), 1));
        assert_eq!(seen.header("mcp-param-tenant"), Some("t1"));
        assert_eq!(seen.header("mcp-param-city"), Some("=?base64?w6k=?="));
        let others =
            ["mcp-param-two", "mcp-param-bad", "mcp-param-long", "authorization", "cookie", "x-param-other"];
        assert!(others.iter().all(|name| seen.header(name).is_none()), "{:?}", seen.headers);
    }
    door.host.close().await;
}

#[tokio::test]
async fn l93_a_tool_that_is_left_out_for_its_headers_is_told_of_once() {
    let bad = json!({"name": "bad", "inputSchema": {"type": "object", "properties": {
        "list": {"type": "array", "x-mcp-header": "List"}}}});
    let good = json!({"name": "good", "inputSchema": {"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}}}});
    let listed = json!({"resultType": "complete", "tools": [bad, good], "ttlMs": 0, "cacheScope": "public"});
    let server = crate::http::modern(move |x| {
        let listed = listed.clone();
        async move { x.result(listed).await }
    })
    .await;
    let script = Puppet::of(Era::Modern).with(|s| s.tools = vec![bad.clone(), good.clone()]);
    let servers = [crate::http::server::http(&server.url()), puppet("pup", &script)];
    let door = open(host(servers).await).await;
    let mut events = door.host.events().subscribe();
    for more in [json!({}), json!({"elicitation": {}}), json!({})] {
        let params = json!({"_meta": {"io.modelcontextprotocol/clientCapabilities": more}});
        let listed = door.modern("tools/list", params).await.json();
        let names = listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone());
        assert_eq!(names.collect::<Vec<_>>(), ["far_good", "pup_good"], "{listed}");
    }
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let wharf::event::Event::Warning { server, message } = event {
            told.push((server.to_string(), message));
        }
    }
    told.sort();
    assert_eq!(told.len(), 2, "{told:?}");
    for ((server, message), name) in told.iter().zip(["far", "pup"]) {
        assert_eq!(server, name);
        assert!(message.contains("`bad`") && message.contains("x-mcp-header"), "{message}");
    }
    door.host.close().await;
}
