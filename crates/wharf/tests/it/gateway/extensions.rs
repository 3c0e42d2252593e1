//! Extensions through the gateway: tasks of either era, and tools that are for user interfaces.

use http::Method;
use serde_json::{Value, json};
use wharf::Host;
use wharf::config::{Origin, ServerConfig};
use wharf::gateway::{Callers, Key, Terms};
use wharf::names::{CallerName, ServerName};
use wharf::policy::Policy;
use wharf_testkit::{Era, Fixture, Kind, Place, Puppet, Step, fixture_path};

use super::{Door, Stream, modern_body, open, open_with};
use crate::support::{at, count, folder, host, puppet, received};

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The fixture as a program, under no prefix.
async fn fixture(kind: Kind) -> Host {
    fixture_of(kind).await.0
}

/// The same, of any kind, with what must not go before it.
async fn fixture_of(kind: Kind) -> (Host, Fixture) {
    let fixture = Fixture::start(kind);
    let name = ServerName::parse("fix").unwrap();
    let mut server = match fixture.place() {
        Place::Command { program, args } => ServerConfig::stdio(name, program.display().to_string(), args),
        Place::Url(url) => ServerConfig::http(name, &url).unwrap(),
    };
    server.origin = Origin::Given;
    server.tool_prefix = Some(String::new());
    let policy = Policy::strict().with_sandbox(false).with_commands([fixture_path().display().to_string()]);
    let host = Host::builder().policy(policy).environment(std::env::vars()).server(server).start().await;
    (host.unwrap(), fixture)
}

async fn ask(door: &Door, who: &str, method: &str, mut params: Value, capabilities: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let who = format!("Bearer {who}");
    let name = params["taskId"].as_str().unwrap_or_default().to_owned();
    let mut headers = vec![("authorization", who.as_str())];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    door.modern_with(method, params, &headers).await.json()
}

#[tokio::test]
async fn l80_a_task_is_asked_for_by_its_own_caller_only() {
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    let keys = Callers::default().keys([key("ann"), key("bob")]);
    let door = open_with(fixture(Kind::ModernStdio).await, |b| b.callers(keys)).await;
    let able = json!({"extensions": {TASKS: {}}});
    let found = ask(&door, "ann", "server/discover", json!({}), json!({})).await;
    assert!(found["result"]["capabilities"]["extensions"][TASKS].is_object(), "{found}");
    let call = json!({"name": "slow_compute", "arguments": {"seconds": 0}});
    let begun = ask(&door, "ann", "tools/call", call, able.clone()).await;
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    let id = begun["result"]["taskId"].as_str().unwrap().to_owned();
    let get = json!({"taskId": id});
    let other = ask(&door, "bob", "tasks/get", get.clone(), able.clone()).await;
    assert_eq!(other["error"]["code"], -32602, "{other}");
    let undeclared = ask(&door, "ann", "tasks/get", get.clone(), json!({})).await;
    assert_eq!(undeclared["error"]["code"], -32021, "{undeclared}");
    let unknown = ask(&door, "ann", "tasks/get", json!({"taskId": format!("{id}x")}), able.clone()).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let state = ask(&door, "ann", "tasks/get", get, able).await;
    assert_eq!(state["result"]["taskId"], json!(id), "the id is the one that the caller knows: {state}");
    assert!(state["result"]["status"].is_string(), "{state}");
    door.host.close().await;
}

#[tokio::test]
async fn l80_a_task_is_nothing_to_a_caller_that_does_not_know_of_tasks() {
    let task = json!({"resultType": "task", "taskId": "t1", "status": "working", "ttlMs": null,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"});
    let call = json!({"name": "pup_echo", "arguments": {}});
    for (era, sound) in [(Era::Modern, true), (Era::Legacy, false)] {
        let script = Puppet::of(era).on("tool:echo", [Step::Reply(task.clone())]);
        let door = open(host([puppet("pup", &script)]).await).await;
        let session = door.greet().await;
        let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
        let legacy = door.legacy(Some(&session), asked).await.json();
        for able in [json!({}), json!({"elicitation": {}}), json!({"extensions": {"other/one": {}}})] {
            let said = ask(&door, "ann", "tools/call", call.clone(), able.clone()).await;
            assert_eq!(said["error"]["data"]["kind"], "protocol", "{era:?} {able}: {said}");
            assert_eq!(said["error"], legacy["error"], "callers of both eras are told the same");
        }
        // The twin: who knows of them gets it, from a server whose era has them.
        let knows = json!({"extensions": {TASKS: {}}});
        let said = ask(&door, "ann", "tools/call", call.clone(), knows).await;
        assert_eq!(said["result"]["resultType"] == "task", sound, "{era:?}: {said}");
        assert_eq!(said["error"]["data"]["kind"] == "protocol", !sound, "{era:?}: {said}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_a_legacy_server_asks_by_requests_and_not_by_results() {
    let asks = json!({"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create",
        "params": {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}}}});
    let call = json!({"name": "pup_echo", "arguments": {}});
    for (era, sound) in [(Era::Modern, true), (Era::Legacy, false)] {
        let script = Puppet::of(era).on("tool:echo", [Step::Reply(asks.clone())]);
        let door = open(host([puppet("pup", &script)]).await).await;
        let said = ask(&door, "ann", "tools/call", call.clone(), json!({"elicitation": {}})).await;
        assert_eq!(said["result"]["resultType"] == "input_required", sound, "{era:?}: {said}");
        assert_eq!(said["error"]["data"]["kind"] == "protocol", !sound, "{era:?}: {said}");
        door.host.close().await;
    }
}

/// Listens for word of tasks; what it is given, and the stream.
async fn listen(door: &Door, who: &str, ids: &[&str], capabilities: Value) -> (Value, Stream) {
    let mut params = json!({"notifications": {"taskIds": ids}});
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let who = format!("Bearer {who}");
    let headers = [
        ("authorization", who.as_str()),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    let body = modern_body("subscriptions/listen", params).to_string();
    let mut stream = door.stream(Method::POST, "/mcp", &headers, body).await;
    let acknowledged = stream.message().await.1;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
    (acknowledged["params"]["notifications"].clone(), stream)
}

#[tokio::test]
async fn l80_a_modern_caller_hears_of_its_own_tasks_and_of_nobody_elses() {
    for kind in [Kind::ModernStdio, Kind::ModernHttp] {
        let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
        let keys = Callers::default().keys([key("ann"), key("bob")]);
        let (host, _fixture) = fixture_of(kind).await;
        let door = open_with(host, |b| b.callers(keys)).await;
        let able = json!({"elicitation": {}, "extensions": {TASKS: {}}});
        let call = json!({"name": "confirm_delete", "arguments": {"filename": "a.txt"}});
        let begun = ask(&door, "ann", "tools/call", call, able.clone()).await;
        let id = begun["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
        let (given, mut heard) = listen(&door, "ann", &[&id, "never"], able.clone()).await;
        assert_eq!(given, json!({"taskIds": [id]}), "what is not a task of hers is left out");
        let (given, mut other) = listen(&door, "bob", &[&id], able.clone()).await;
        assert_eq!(given, json!({"taskIds": []}), "another caller's task reads like none");
        let (given, _deaf) = listen(&door, "ann", &[&id], json!({})).await;
        assert_eq!(given, json!({}), "who does not know of tasks is told of none");

        let mut state = ask(&door, "ann", "tasks/get", json!({"taskId": id}), able.clone()).await;
        while state["result"]["status"] != "input_required" {
            state = ask(&door, "ann", "tasks/get", json!({"taskId": id}), able.clone()).await;
        }
        let question = state["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        let accept = json!({question: {"action": "accept", "content": {"confirm": true}}});
        let update = json!({"taskId": id, "inputResponses": accept});
        ask(&door, "ann", "tasks/update", update, able.clone()).await;
        let last = loop {
            let told = heard.message().await.1;
            assert_eq!(told["method"], "notifications/tasks", "{told}");
            assert_eq!(
                told["params"]["taskId"],
                json!(id),
                "the id is the one that the caller knows: {told}"
            );
            assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7, "{told}");
            if told["params"]["status"] == "completed" {
                break told;
            }
        };
        let got = ask(&door, "ann", "tasks/get", json!({"taskId": id}), able).await;
        assert_eq!(last["params"]["result"], got["result"]["result"], "it says all that it says when asked");
        assert!(last["params"]["result"].is_object(), "{last}");

        // The other hears nothing before the end of its stream.
        door.gateway.adopt(Terms::default()).unwrap();
        let end = other.next_message().await.unwrap();
        assert!(end["error"].is_object(), "{end}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_a_tool_that_a_legacy_server_runs_only_as_a_task_is_called_like_any_other() {
    let door = open(fixture(Kind::LegacyStdio).await).await;
    let able = json!({"elicitation": {}});
    let call = json!({"name": "test_tool_with_task", "arguments": {}});
    let asked = ask(&door, "", "tools/call", call.clone(), able.clone()).await;
    let requests = asked["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}"));
    let name = requests.keys().next().unwrap();
    let mut retry = call;
    retry["requestState"] = asked["result"]["requestState"].clone();
    retry["inputResponses"] = json!({name: {"action": "accept", "content": {"name": "Ada"}}});
    let done = ask(&door, "", "tools/call", retry, able).await;
    assert_eq!(done["result"]["resultType"], "complete", "{done}");
    assert_eq!(done["result"]["content"][0]["text"], "Hello, Ada!", "{done}");
    door.host.close().await;
}

/// A server with a user interface, a tool for models, and one for the interface.
fn with_app(log: &std::path::Path) -> Puppet {
    let tool = |name: &str, visibility: Value| {
        let ui = json!({"resourceUri": "ui://board", "visibility": visibility});
        json!({"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": ui, "ui/resourceUri": "ui://board"}})
    };
    let contents =
        json!({"contents": [{"uri": "ui://board", "mimeType": "text/html;profile=mcp-app", "text": "<p>"}]});
    let listed = json!({"resources": [{"uri": "ui://board", "name": "board"}]});
    Puppet::of(Era::Modern)
        .tool(tool("show", json!(["model", "app"])))
        .tool(tool("refresh", json!(["app"])))
        .with(|script| script.capabilities = Some(json!({"tools": {}, "resources": {}})))
        .on("resources/list", [Step::Reply(listed)])
        .on("resources/read", [Step::Reply(contents)])
        .log(log)
}

#[tokio::test]
async fn l80_a_tool_for_user_interfaces_is_for_those_who_have_one_of_its_own_server() {
    let files = folder();
    let (log, other) = (at(&files, "log"), at(&files, "other"));
    let bare = Puppet::of(Era::Modern).log(&other).tool(
        json!({"name": "wipe", "inputSchema": {"type": "object"}, "_meta": {"ui": {"visibility": ["app"]}}}),
    );
    let door = open(host([puppet("board", &with_app(&log)), puppet("other", &bare)]).await).await;
    let able =
        json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}});
    let names = |listed: &Value| -> Vec<String> {
        let all = listed["result"]["tools"].as_array().unwrap();
        all.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let plain = names(&ask(&door, "", "tools/list", json!({}), json!({})).await);
    assert!(plain.contains(&"board_show".into()) && !plain.contains(&"board_refresh".into()), "{plain:?}");
    let shown = ask(&door, "", "tools/list", json!({}), able.clone()).await;
    assert!(names(&shown).contains(&"board_refresh".into()), "{shown}");
    assert!(shown.to_string().contains(r#""ui/resourceUri":"ui://board""#), "what it says of apps is kept");

    let call = |name: &str| json!({"name": name, "arguments": {}});
    for name in ["board_refresh", "refresh", "other_wipe"] {
        for can in [json!({}), able.clone()] {
            let refused = ask(&door, "", "tools/call", call(name), can).await;
            assert_eq!(refused["error"]["code"], -32602, "{name}: {refused}");
        }
    }
    assert_eq!(count(&received(&log), "tools/call") + count(&received(&other), "tools/call"), 0);

    let read = ask(&door, "", "resources/read", json!({"uri": "ui://board"}), able.clone()).await;
    assert_eq!(read["result"]["contents"][0]["text"], "<p>", "{read}");
    for name in ["board_refresh", "refresh"] {
        let done = ask(&door, "", "tools/call", call(name), able.clone()).await;
        assert!(done["result"]["content"].is_array(), "{name}: {done}");
    }
    let refused = ask(&door, "", "tools/call", call("other_wipe"), able).await;
    assert_eq!(refused["error"]["code"], -32602, "the app of one server has no way to another: {refused}");
    assert_eq!(count(&received(&other), "tools/call"), 0);
    door.host.close().await;
}

/// A server with a tool that has a user interface, and answers that lead to it.
fn with_interface(era: Era, own: &str, address: &str) -> Puppet {
    let list = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"result":{{"tools":[{}],"resultType":"complete","ttlMs":0,"cacheScope":"public"}}}}"#,
        definition("show", address)
    );
    let listed =
        json!({"resources": [{"uri": address, "name": own}, {"uri": format!("x://{own}"), "name": own}]});
    let link = json!({"type": "resource_link", "uri": address, "name": own, "size": 1.0});
    let other = json!({"type": "resource_link", "uri": format!("x://{own}"), "name": own});
    let embedded = json!({"type": "resource", "resource": {"uri": address, "text": own}});
    let said = json!({"odd": 1.0, "content": [link, other, embedded.clone(), {"type": "text", "text": address}], "x": 2});
    let prompt = json!({"messages": [{"role": "user", "content": embedded}]});
    let capabilities = json!({"tools": {}, "resources": {}, "prompts": {}});
    Puppet::of(era)
        .with(|s| s.capabilities = Some(capabilities))
        .on("tools/list", [Step::Raw(list)])
        .on("resources/list", [Step::Reply(listed)])
        .on("resources/read", [Step::Reply(json!({"contents": [{"uri": address, "text": own}]}))])
        .on("prompts/list", [Step::Reply(json!({"prompts": [{"name": "p"}]}))])
        .on("prompts/get", [Step::Reply(prompt)])
        .on("tool:show", [Step::Reply(said)])
}

fn definition(name: &str, address: &str) -> String {
    format!(
        r#"{{"zz":1.50,"name":"{name}","inputSchema":{{"type":"object","x":1e2}},"_meta":{{"a/b":[1.0],"ui":{{"more":-0,"resourceUri":"{address}","z":1.0}},"ui/resourceUri":"{address}"}}}}"#
    )
}

#[tokio::test]
async fn l81_where_two_servers_have_one_interface_each_tool_leads_to_its_own() {
    for era in [Era::Legacy, Era::Modern] {
        let servers = [("a", "ui://app"), ("b", "ui://app"), ("c", "ui://c")];
        let servers = servers.map(|(name, address)| puppet(name, &with_interface(era, name, address)));
        let door = open(host(servers).await).await;
        let listed = door.modern("tools/list", json!({})).await;
        for (name, address) in [("a_show", "ui://app"), ("b_show", "wharf+b:ui://app"), ("c_show", "ui://c")]
        {
            assert!(listed.body.contains(&definition(name, address)), "{name}: {listed:?}");
        }
        assert_eq!(door.modern("tools/list", json!({})).await.body, listed.body);
        let session = door.greet().await;
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let legacy = door.legacy(Some(&session), list).await;
        assert!(legacy.body.contains(&definition("b_show", "wharf+b:ui://app")), "{legacy:?}");
        // What is named there is what is read.
        for (uri, text) in [("ui://app", "a"), ("wharf+b:ui://app", "b"), ("ui://c", "c")] {
            let read = door.modern("resources/read", json!({"uri": uri})).await.json();
            assert_eq!(read["result"]["contents"][0]["text"], text, "{uri}: {read}");
        }
        // So is what a result leads to, and nothing else of it is another.
        for (own, address) in [("a", "ui://app"), ("b", "wharf+b:ui://app"), ("c", "ui://c")] {
            let call = json!({"name": format!("{own}_show"), "arguments": {}});
            let answer = door.modern("tools/call", call).await;
            let result = &answer.json()["result"];
            let content = &result["content"];
            assert_eq!(
                (&content[0]["uri"], &content[2]["resource"]["uri"]),
                (&json!(address), &json!(address))
            );
            assert_eq!(content[1]["uri"], format!("x://{own}"), "nobody else has it");
            assert!(!content[3]["text"].as_str().unwrap().starts_with("wharf+"), "words are words");
            assert!(
                answer.body.contains(r#""odd":1.0,"content":[{"#) && answer.body.contains(r#""size":1.0"#),
                "{answer:?}"
            );
            let got = door.modern("prompts/get", json!({"name": format!("{own}_p")})).await.json();
            assert_eq!(got["result"]["messages"][0]["content"]["resource"]["uri"], address, "{got}");
        }
        door.host.close().await;
    }
}

/// A server whose tool becomes a task that is over, and has a result which leads to its own resources.
fn with_task(own: &str) -> Puppet {
    let capabilities = json!({"tools": {}, "resources": {}, "extensions": {TASKS: {}}});
    let task = json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": null,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"});
    let link = |uri: &str| json!({"type": "resource_link", "uri": uri, "name": own});
    let embedded = json!({"type": "resource", "resource": {"uri": "ui://app", "text": own}});
    let content = json!([link("ui://app"), link(&format!("x://{own}")), embedded, {"type": "text", "text": "ui://app"}]);
    let mut state = task.clone();
    state["resultType"] = json!("complete");
    state["status"] = json!("completed");
    state["result"] = json!({"odd": 1.0, "content": content, "x": 2});
    // What looks like a link beside the result is none.
    state["uri"] = json!("ui://app");
    let said = format!(r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{state}}}"#);
    let resources =
        json!({"resources": [{"uri": "ui://app", "name": own}, {"uri": format!("x://{own}"), "name": own}]});
    Puppet::of(Era::Modern)
        .with(|s| s.capabilities = Some(capabilities))
        .on("resources/list", [Step::Reply(resources)])
        .on("resources/templates/list", [Step::Reply(json!({"resourceTemplates": []}))])
        .on("tool:echo", [Step::Reply(task)])
        .on("tasks/get", [Step::Reply(state)])
        .on("subscriptions/listen", [Step::Raw(ACKNOWLEDGED.into()), Step::Raw(said), Step::Hang])
}

const ACKNOWLEDGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":$ID},"notifications":{"taskIds":["t"]}}}"#;

#[tokio::test]
async fn l81_the_result_of_a_task_leads_to_its_own_server() {
    let servers = ["a", "b"].map(|name| puppet(name, &with_task(name)));
    let door = open(host(servers).await).await;
    let able = json!({"extensions": {TASKS: {}}});
    door.modern("resources/list", json!({})).await;
    for (own, address) in [("a", "ui://app"), ("b", "wharf+b:ui://app")] {
        let call = json!({"name": format!("{own}_echo"), "arguments": {}});
        let begun = ask(&door, "", "tools/call", call, able.clone()).await;
        let id = begun["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
        let state = ask(&door, "", "tasks/get", json!({"taskId": id}), able.clone()).await["result"].clone();
        let content = &state["result"]["content"];
        assert_eq!(
            (&content[0]["uri"], &content[2]["resource"]["uri"]),
            (&json!(address), &json!(address)),
            "{state}"
        );
        assert_eq!(content[1]["uri"], format!("x://{own}"), "nobody else has it");
        assert_eq!(
            (&content[3]["text"], &state["uri"]),
            (&json!("ui://app"), &json!("ui://app")),
            "words are words"
        );
        assert!(state["result"].to_string().starts_with(r#"{"odd":1.0,"content":[{"#), "{state}");
        let (_, mut heard) = listen(&door, "", &[&id], able.clone()).await;
        let told = heard.message().await.1;
        assert_eq!(told["params"]["result"], state["result"], "it says all that it says when asked: {told}");
        // What is named there is what is read.
        let read = door.modern("resources/list", json!({})).await;
        assert!(read.body.contains(&format!(r#""uri":"{address}","name":"{own}""#)), "{read:?}");
    }
    door.host.close().await;
}
