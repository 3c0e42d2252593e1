//! Servers as they show themselves to callers who can be asked something: lists, changes and watched resources come
//! over the connections that such callers have to themselves.

use std::path::Path;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use wharf::Host;
use wharf::catalog::CatalogMemory;
use wharf::config::{CallerRules, CallerTable, Share};
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::pipe::Caller;
use super::{Door, Stream, modern_body, open, open_with};
use crate::support::{at, count, folder, is_alive, pid_in, puppet, quick, received, until};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// What a caller says of itself if it can be asked for a form.
fn able() -> Value {
    json!({"elicitation": {}})
}

/// A legacy server that shows `echo` to everybody, and `ask` to those who can be asked.
fn shy() -> Puppet {
    let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}});
    let asks = [Step::Ask { method: "elicitation/create".into(), params: form }, Step::ReplyWithAnswer];
    Puppet::of(Era::Legacy).plain_tool("echo").tool_for("elicitation", "ask").on("tool:ask", asks)
}

fn with(mut params: Value, capabilities: &Value) -> Value {
    params["_meta"][CAPABILITIES] = capabilities.clone();
    params
}

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn listed(door: &Door, who: &str, capabilities: &Value) -> Value {
    let key = format!("Bearer {who}");
    let params = with(json!({}), capabilities);
    door.modern_with("tools/list", params, &[("authorization", &key)]).await.json()
}

async fn called(door: &Door, (who, capabilities): (&str, &Value), tool: &str) -> Value {
    let key = format!("Bearer {who}");
    let params = with(json!({"name": tool, "arguments": {}}), capabilities);
    door.modern_with("tools/call", params, &[("authorization", &key)]).await.json()
}

/// A door with two keys.
async fn keyed(host: Host) -> Door {
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    open_with(host, |builder| builder.callers(Callers::default().keys([key("ann"), key("bob")]))).await
}

async fn pipe(host: &Host, capabilities: Value) -> Caller {
    let mut caller = Caller::of(host);
    caller.greet(capabilities).await;
    caller
}

/// Asks, and gives the answer; what is said before it is left.
async fn answer(caller: &mut Caller, method: &str, params: Value) -> Value {
    caller.ask(99, method, params).await;
    loop {
        let message = caller.next().await;
        if message["id"] == 99 && message.get("method").is_none() {
            return message;
        }
    }
}

async fn hears(caller: &mut Caller, method: &str) -> Value {
    loop {
        let message = caller.next().await;
        if message["method"] == method {
            return message;
        }
    }
}

async fn listen(door: &Door, who: &str, capabilities: &Value, wanted: Value) -> Stream {
    let body = modern_body("subscriptions/listen", with(json!({"notifications": wanted}), capabilities));
    let key = format!("Bearer {who}");
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
        ("authorization", &key),
    ];
    let mut stream = door.stream(Method::POST, "/mcp", &headers, body.to_string()).await;
    let (_, first) = stream.message().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    stream
}

/// What was said at the handshakes, by the capabilities that the server was told.
fn greeted(log: &Path) -> Vec<Value> {
    let hellos = received(log).into_iter().filter(|message| message["method"] == "initialize");
    hellos.map(|hello| hello["params"]["capabilities"].clone()).collect()
}

#[tokio::test]
async fn l31_a_tool_for_those_who_can_be_asked_is_listed_and_called_by_them_and_by_nobody_else() {
    let files = folder();
    let log = at(&files, "log");
    let host = quick().server(puppet("pup", &shy().log(&log))).start().await.unwrap();
    let door = open(host.clone()).await;
    // Modern callers.
    assert_eq!(names(&listed(&door, "-", &able()).await), ["pup_echo", "pup_ask"]);
    assert_eq!(names(&listed(&door, "-", &json!({})).await), ["pup_echo"]);
    let asked = called(&door, ("-", &able()), "pup_ask").await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let refused = called(&door, ("-", &json!({})), "pup_ask").await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(refused["error"]["message"], "unknown tool");
    // Other questions are other capabilities.
    assert_eq!(names(&listed(&door, "-", &json!({"sampling": {}})).await), ["pup_echo"]);
    // Legacy callers.
    let (mut can, mut cannot) = (pipe(&host, able()).await, pipe(&host, json!({})).await);
    assert_eq!(names(&answer(&mut can, "tools/list", json!({})).await), ["pup_echo", "pup_ask"]);
    assert_eq!(names(&answer(&mut cannot, "tools/list", json!({})).await), ["pup_echo"]);
    can.ask(1, "tools/call", json!({"name": "pup_ask", "arguments": {}})).await;
    let question = hears(&mut can, "elicitation/create").await;
    can.say(json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})).await;
    let done = can.next().await;
    assert_eq!(done["result"]["content"][0]["text"], r#"{"action":"decline"}"#, "{done}");
    let refused = answer(&mut cannot, "tools/call", json!({"name": "pup_ask", "arguments": {}})).await;
    assert_eq!(refused["error"]["message"], "unknown tool", "{refused}");
    // Never more than the caller said.
    let said = greeted(&log);
    assert!(said.iter().all(|c| [json!({}), able(), json!({"sampling": {}})].contains(c)), "{said:?}");
    host.close().await;
}

#[tokio::test]
async fn l31_a_tool_for_those_who_can_be_asked_can_be_called_before_anybody_lists_it() {
    let host = quick().server(puppet("pup", &shy())).start().await.unwrap();
    let door = open(host.clone()).await;
    let asked = called(&door, ("-", &able()), "pup_ask").await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let refused = called(&door, ("-", &json!({})), "pup_ask").await;
    assert_eq!(refused["error"]["message"], "unknown tool", "{refused}");
    host.close().await;
}

#[tokio::test]
async fn l40_what_was_seen_with_the_same_capabilities_is_listed_without_a_start() {
    let (files, store) = (folder(), Arc::new(CatalogMemory::default()));
    let log = at(&files, "log");
    let fresh = || quick().catalogs(Arc::clone(&store) as _).server(puppet("pup", &shy().log(&log)));
    let first = fresh().start().await.unwrap();
    assert_eq!(names(&listed(&open(first.clone()).await, "-", &able()).await), ["pup_echo", "pup_ask"]);
    first.close().await;
    let before = greeted(&log).len();

    let host = fresh().start().await.unwrap();
    let door = open(host.clone()).await;
    assert_eq!(names(&listed(&door, "-", &able()).await), ["pup_echo", "pup_ask"]);
    let mut caller = pipe(&host, able()).await;
    assert_eq!(names(&answer(&mut caller, "tools/list", json!({})).await), ["pup_echo", "pup_ask"]);
    assert_eq!(greeted(&log).len(), before, "nothing was started");
    // Nothing is known of what others are shown, so for them it is.
    assert_eq!(names(&listed(&door, "-", &json!({})).await), ["pup_echo"]);
    assert_eq!(greeted(&log).len(), before + 1);
    host.close().await;
}

#[tokio::test]
async fn l40_a_second_conversation_that_says_the_same_is_listed_without_a_start() {
    let files = folder();
    let log = at(&files, "log");
    let host = quick().server(puppet("pup", &shy().log(&log))).start().await.unwrap();
    let mut one = pipe(&host, able()).await;
    assert_eq!(names(&answer(&mut one, "tools/list", json!({})).await), ["pup_echo", "pup_ask"]);
    let before = greeted(&log).len();
    let mut two = pipe(&host, able()).await;
    assert_eq!(names(&answer(&mut two, "tools/list", json!({})).await), ["pup_echo", "pup_ask"]);
    assert_eq!(greeted(&log).len(), before, "nothing was started");
    host.close().await;
}

/// A server with a tool that adds another, and one that changes a watched resource.
fn growing() -> Puppet {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let tools = ["grow", "touch", "grown"].map(tool).to_vec();
    let notify = |method: &str, params| Step::Notify { method: method.into(), params };
    let changed = notify("notifications/tools/list_changed", None);
    let updated = notify("notifications/resources/updated", Some(json!({"uri": "x://a"})));
    let capabilities = json!({
        "tools": {"listChanged": true},
        "prompts": {"listChanged": true},
        "resources": {"subscribe": true},
    });
    let listed = json!({"resources": [{"uri": "x://a", "name": "a"}]});
    Puppet::of(Era::Legacy)
        .plain_tool("grow")
        .plain_tool("touch")
        .with(|s| s.capabilities = Some(capabilities))
        .on("tool:grow", [Step::SetTools(tools), changed, Step::Echo])
        .on("tool:touch", [updated, Step::Echo])
        .on("resources/list", [Step::Reply(listed)])
        .on("resources/templates/list", [Step::Reply(json!({"resourceTemplates": []}))])
        .on("prompts/list", [Step::Reply(json!({"prompts": []}))])
        .on("resources/subscribe", [Step::Reply(json!({}))])
        .on("resources/unsubscribe", [Step::Reply(json!({}))])
}

#[tokio::test]
async fn l80_a_tool_that_a_callers_own_call_adds_is_told_to_it_and_shown_to_nobody_else() {
    let host = quick().server(puppet("pup", &growing())).start().await.unwrap();
    let door = keyed(host.clone()).await;
    let wanted = json!({"toolsListChanged": true, "promptsListChanged": true});
    // Whoever listens first is told first: when ann has heard it, bob would have.
    let mut bob = listen(&door, "bob", &able(), wanted.clone()).await;
    let mut ann = listen(&door, "ann", &able(), wanted).await;
    for who in ["ann", "bob"] {
        assert_eq!(names(&listed(&door, who, &able()).await), ["pup_grow", "pup_touch"]);
    }
    let done = called(&door, ("ann", &able()), "pup_grow").await;
    assert!(done["result"]["content"].is_array(), "{done}");
    let (_, told) = ann.message().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(names(&listed(&door, "ann", &able()).await), ["pup_grow", "pup_touch", "pup_grown"]);
    let done = called(&door, ("ann", &able()), "pup_grown").await;
    assert!(done["result"]["content"].is_array(), "{done}");
    assert_eq!(names(&listed(&door, "bob", &able()).await), ["pup_grow", "pup_touch"]);
    let refused = called(&door, ("bob", &able()), "pup_grown").await;
    assert_eq!(refused["error"]["message"], "unknown tool", "{refused}");
    // Neither does whoever comes later and says the same.
    let mut eve = pipe(&host, able()).await;
    assert_eq!(names(&answer(&mut eve, "tools/list", json!({})).await), ["pup_grow", "pup_touch"]);
    // Of what concerns everybody, everybody hears: and bob of nothing before.
    host.reconcile([puppet("pup", &growing()), puppet("more", &Puppet::of(Era::Modern))]).await.unwrap();
    let mut heard = Vec::new();
    while heard.last().is_none_or(|method| method != "notifications/prompts/list_changed") {
        heard.push(bob.message().await.1["method"].as_str().unwrap().to_owned());
    }
    assert_eq!(heard, ["notifications/tools/list_changed", "notifications/prompts/list_changed"]);
    host.close().await;
}

#[tokio::test]
async fn l80_a_legacy_caller_hears_of_what_its_own_calls_change() {
    let host = quick().server(puppet("pup", &growing())).start().await.unwrap();
    let mut caller = pipe(&host, able()).await;
    assert_eq!(names(&answer(&mut caller, "tools/list", json!({})).await), ["pup_grow", "pup_touch"]);
    let agreed = answer(&mut caller, "resources/subscribe", json!({"uri": "x://a"})).await;
    assert_eq!(agreed["result"], json!({}), "{agreed}");
    caller.ask(1, "tools/call", json!({"name": "pup_touch", "arguments": {}})).await;
    let told = hears(&mut caller, "notifications/resources/updated").await;
    assert_eq!(told["params"]["uri"], "x://a");
    caller.ask(2, "tools/call", json!({"name": "pup_grow", "arguments": {}})).await;
    hears(&mut caller, "notifications/tools/list_changed").await;
    let now = answer(&mut caller, "tools/list", json!({})).await;
    assert_eq!(names(&now), ["pup_grow", "pup_touch", "pup_grown"]);
    host.close().await;
}

#[tokio::test]
async fn l80_a_modern_caller_hears_of_a_resource_that_its_own_call_changes_however_long_it_waits() {
    let files = folder();
    let (log, pid) = (at(&files, "log"), at(&files, "pid"));
    let host = quick().server(puppet("pup", &growing().log(&log).pid(&pid))).start().await.unwrap();
    let door = keyed(host.clone()).await;
    let watched = json!({"resourceSubscriptions": ["x://a"]});
    let mut ann = listen(&door, "ann", &able(), watched).await;
    let (pid, starts) = (pid_in(&pid).await, greeted(&log).len());
    // A connection that nobody uses would be closed by now; and so would a scope.
    tokio::time::pause();
    for _ in 0..40 {
        tokio::time::advance(std::time::Duration::from_secs(31)).await;
    }
    tokio::time::resume();
    let done = called(&door, ("ann", &able()), "pup_touch").await;
    assert!(done["result"]["content"].is_array(), "{done}");
    let (_, told) = ann.message().await;
    assert_eq!(told["method"], "notifications/resources/updated", "{told}");
    assert_eq!(told["params"]["uri"], "x://a");
    assert!(is_alive(pid), "it is the process that was subscribed to");
    assert_eq!(greeted(&log).len(), starts);
    drop(ann);
    until("the server is told", || count(&received(&log), "resources/unsubscribe") == 1).await;
    host.close().await;
}

#[tokio::test]
async fn l93_a_server_that_is_taken_away_is_gone_for_callers_who_can_be_asked_too() {
    let files = folder();
    let pid = at(&files, "pid");
    let host = quick().server(puppet("pup", &shy().pid(&pid))).start().await.unwrap();
    let door = open(host.clone()).await;
    let mut legacy = pipe(&host, able()).await;
    assert_eq!(names(&listed(&door, "-", &able()).await), ["pup_echo", "pup_ask"]);
    assert_eq!(names(&answer(&mut legacy, "tools/list", json!({})).await), ["pup_echo", "pup_ask"]);
    let done = called(&door, ("-", &able()), "pup_echo").await;
    assert!(done["result"]["content"].is_array(), "{done}");
    let pid = pid_in(&pid).await;
    host.reconcile([]).await.unwrap();
    assert!(names(&listed(&door, "-", &able()).await).is_empty());
    assert!(names(&answer(&mut legacy, "tools/list", json!({})).await).is_empty());
    for tool in ["pup_echo", "pup_ask"] {
        let refused = called(&door, ("-", &able()), tool).await;
        assert_eq!(refused["error"]["message"], "unknown tool", "{refused}");
        let params = json!({"name": tool, "arguments": {}});
        assert_eq!(answer(&mut legacy, "tools/call", params).await["error"]["message"], "unknown tool");
    }
    until("its process has left", || !is_alive(pid)).await;
    host.close().await;
}

#[tokio::test]
async fn l93_a_server_that_is_shown_in_another_way_keeps_the_connections_of_its_callers() {
    let files = folder();
    let log = at(&files, "log");
    let config = |prefix: Option<&str>| {
        let mut config = puppet("pup", &shy().log(&log));
        config.tool_prefix = prefix.map(str::to_owned);
        config
    };
    let host = quick().server(config(None)).start().await.unwrap();
    let door = open(host.clone()).await;
    assert_eq!(names(&listed(&door, "-", &able()).await), ["pup_echo", "pup_ask"]);
    called(&door, ("-", &able()), "pup_echo").await;
    let starts = greeted(&log).len();
    host.reconcile([config(Some("new"))]).await.unwrap();
    assert_eq!(names(&listed(&door, "-", &able()).await), ["new_echo", "new_ask"]);
    let done = called(&door, ("-", &able()), "new_echo").await;
    assert!(done["result"]["content"].is_array(), "{done}");
    assert_eq!(greeted(&log).len(), starts, "over the same connections");
    // Another command is another server: what was seen of the first is not shown.
    host.reconcile([puppet("pup", &Puppet::of(Era::Legacy).plain_tool("other"))]).await.unwrap();
    assert_eq!(names(&listed(&door, "-", &able()).await), ["pup_other"]);
    host.close().await;
}

#[tokio::test]
async fn l92_rules_hold_for_what_only_those_see_who_can_be_asked() {
    let host = quick().server(puppet("pup", &shy())).start().await.unwrap();
    let mut table = CallerTable::default();
    table.insert("ann", CallerRules::new(["pup"], []).unwrap());
    table.insert("bob", CallerRules::new([], ["pup/echo"]).unwrap());
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    let keys = Callers::default().keys([key("ann"), key("bob")]);
    let door = open_with(host.clone(), |builder| builder.callers(keys).rules(table)).await;
    assert_eq!(names(&listed(&door, "ann", &able()).await), ["pup_echo", "pup_ask"]);
    assert_eq!(names(&listed(&door, "bob", &able()).await), ["pup_echo"]);
    let asked = called(&door, ("ann", &able()), "pup_ask").await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let refused = called(&door, ("bob", &able()), "pup_ask").await;
    assert_eq!(refused["error"]["message"], "unknown tool", "{refused}");
    host.close().await;
}

#[tokio::test]
async fn l33_views_keep_the_order_and_the_names_that_others_see() {
    let plain = |name: &str| puppet(name, &Puppet::of(Era::Legacy).plain_tool("echo"));
    let mut middle = puppet("pup", &shy());
    middle.tool_prefix = Some(String::new());
    let mut last = plain("zoo");
    last.tool_prefix = Some(String::new());
    let host = quick().servers([plain("ant"), middle, last]).start().await.unwrap();
    let door = open(host.clone()).await;
    let others = listed(&door, "-", &json!({})).await;
    let own = listed(&door, "-", &able()).await;
    let own = names(&own).into_iter().filter(|name| !name.ends_with("ask")).collect::<Vec<_>>();
    assert_eq!(own, names(&others));
    host.close().await;
}

#[tokio::test]
async fn l33_one_connection_serves_lists_and_calls_where_everything_is_shared() {
    let files = folder();
    for (era, share) in [(Era::Legacy, Some(Share::All)), (Era::Modern, None)] {
        let log = at(&files, &format!("{era:?}"));
        let mut config = puppet("pup", &Puppet::of(era).log(&log));
        config.share = share;
        let host = quick().server(config).start().await.unwrap();
        let door = open(host.clone()).await;
        for capabilities in [able(), json!({}), json!({"sampling": {}, "roots": {}})] {
            assert_eq!(names(&listed(&door, "-", &capabilities).await), ["pup_echo"]);
            called(&door, ("-", &capabilities), "pup_echo").await;
        }
        let hello = if era == Era::Modern { "server/discover" } else { "initialize" };
        assert_eq!(count(&received(&log), hello), 1, "{era:?}");
        host.close().await;
    }
}
