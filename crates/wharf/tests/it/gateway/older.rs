//! Servers that are remembered from an earlier run, and have changed since.

use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::{Value, json};
use wharf::Host;
use wharf::catalog::CatalogMemory;
use wharf::config::{CallerRules, CallerTable, ServerConfig};
use wharf::gateway::{Callers, Key};
use wharf::names::{CallerName, ServerName};
use wharf::policy::Policy;
use wharf_testkit::http::{honest_legacy, honest_modern};
use wharf_testkit::{HttpPuppet, Puppet, Reply, puppet_path};

use super::pipe::Caller;
use super::{Door, Stream, modern_body, open, open_with};
use crate::support::{at, count, effects, folder, puppet, quick, received, soon, until};

/// A server over HTTP, of either era, whose tools a test may change; or take it down.
struct Far {
    puppet: HttpPuppet,
    tools: Arc<Mutex<Option<Vec<&'static str>>>>,
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

impl Far {
    fn with(tools: &[&'static str]) -> Self {
        Self::of(true, tools)
    }

    fn of(modern: bool, tools: &[&'static str]) -> Self {
        let tools = Arc::new(Mutex::new(Some(tools.to_vec())));
        let now = Arc::clone(&tools);
        let puppet = HttpPuppet::start(move |request| {
            let tools = now.lock().unwrap().clone();
            async move {
                let tools = tools.map(|tools| tools.into_iter().map(tool).collect());
                match tools {
                    Some(tools) if modern => honest_modern(tools)(request).await,
                    Some(tools) => honest_legacy(tools, false)(request).await,
                    None => Reply::status(503),
                }
            }
        });
        Self { puppet, tools }
    }

    fn has(&self, tools: &[&'static str]) {
        *self.tools.lock().unwrap() = Some(tools.to_vec());
        self.puppet.forget();
    }

    fn is_down(&self) {
        *self.tools.lock().unwrap() = None;
        self.puppet.forget();
    }

    fn config(&self) -> ServerConfig {
        ServerConfig::http(ServerName::parse("far").unwrap(), &self.puppet.url()).unwrap()
    }

    fn asked(&self, method: &str) -> usize {
        self.puppet.requests().iter().filter(|request| request.rpc_method() == method).count()
    }
}

/// A host that keeps what it sees in this store.
async fn host(store: &Arc<CatalogMemory>, servers: Vec<ServerConfig>) -> Host {
    let policy = Policy::strict().with_sandbox(false).with_private_networks(true);
    let policy = policy.with_commands([puppet_path().display().to_string()]);
    quick().policy(policy).catalogs(Arc::clone(store) as _).servers(servers).start().await.unwrap()
}

/// A store in which an earlier run wrote down what these servers have.
async fn remembered(servers: Vec<ServerConfig>) -> Arc<CatalogMemory> {
    let store = Arc::new(CatalogMemory::default());
    let host = host(&store, servers).await;
    host.known_tools().await;
    host.close().await;
    store
}

async fn tools(door: &Door) -> Vec<String> {
    let listed = door.modern("tools/list", json!({})).await.json();
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn call(door: &Door, tool: &str) -> Value {
    door.modern("tools/call", json!({"name": tool, "arguments": {}})).await.json()
}

async fn listen(door: &Door) -> Stream {
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    let body = modern_body("subscriptions/listen", wanted).to_string();
    let mut stream = door.stream(Method::POST, "/mcp", &headers, body).await;
    assert_eq!(stream.message().await.1["method"], "notifications/subscriptions/acknowledged");
    stream
}

#[tokio::test]
async fn l40_a_list_from_memory_is_compared_with_a_server_that_need_not_be_started() {
    let far = Far::with(&["old"]);
    let store = remembered(vec![far.config()]).await;
    far.has(&["old", "new"]);
    let door = open(host(&store, vec![far.config()]).await).await;
    let mut listening = listen(&door).await;
    assert_eq!(tools(&door).await, ["far_old"], "what is known is told at once");
    let (_, heard) = soon("word of the change", listening.message()).await;
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    assert_eq!(tools(&door).await, ["far_old", "far_new"]);
    assert_eq!(far.asked("tools/list"), 1, "one look was enough");
    assert!(call(&door, "far_new").await["result"].is_object());
    door.host.close().await;
}

#[tokio::test]
async fn l40_a_caller_with_a_view_of_its_own_hears_what_is_new_since_an_earlier_run() {
    let far = Far::of(false, &["old"]);
    let store = Arc::new(CatalogMemory::default());
    let mut caller = None;
    for round in 0..2 {
        let host = host(&store, vec![far.config()]).await;
        let mut able = Caller::of(&host);
        able.greet(json!({"elicitation": {}})).await;
        able.ask(1, "tools/list", json!({})).await;
        let listed = able.next().await;
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 1, "round {round}: {listed}");
        caller = Some((host.clone(), able));
        if round == 0 {
            host.close().await;
            far.has(&["old", "new"]);
        }
    }
    let (host, mut able) = caller.unwrap();
    assert_eq!(able.next().await["method"], "notifications/tools/list_changed");
    able.ask(2, "tools/list", json!({})).await;
    let listed = able.next().await;
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 2, "{listed}");
    host.close().await;
}

#[tokio::test]
async fn l40_a_list_from_memory_starts_no_program_and_a_server_that_is_down_keeps_its_place() {
    let files = folder();
    let pid = at(&files, "pid");
    let far = Far::with(&["old"]);
    let servers = || vec![far.config(), puppet("pup", &Puppet::new().pid(&pid))];
    let store = remembered(servers()).await;
    std::fs::remove_file(&pid).unwrap();
    far.is_down();
    let door = open(host(&store, servers()).await).await;
    assert_eq!(tools(&door).await, ["far_old", "pup_echo"]);
    until("the other one is looked at", || !far.puppet.requests().is_empty()).await;
    until("that has failed", || door.host.berth("far").unwrap().state() == wharf::event::State::Disconnected)
        .await;
    let asked = far.puppet.requests().len();
    for _ in 0..3 {
        assert_eq!(tools(&door).await, ["far_old", "pup_echo"]);
    }
    assert_eq!(far.puppet.requests().len(), asked, "it is not asked again and again");
    assert!(!pid.exists(), "nothing was started");
    door.host.close().await;
}

#[tokio::test]
async fn l40_a_tool_that_is_new_since_an_earlier_run_can_be_called() {
    let files = folder();
    let (script, log) = (at(&files, "script"), at(&files, "log"));
    let write = |puppet: &Puppet| {
        std::fs::write(&script, serde_json::to_string(&puppet.script).unwrap()).unwrap();
    };
    let from_file = || {
        let path = puppet_path().display().to_string();
        ServerConfig::stdio(ServerName::parse("pup").unwrap(), path, ["--file", script.to_str().unwrap()])
    };
    write(&Puppet::new().plain_tool("old"));
    let far = Far::with(&["old"]);
    let store = remembered(vec![far.config(), from_file()]).await;
    write(&Puppet::new().plain_tool("old").plain_tool("new").log(&log));
    far.has(&["old", "new"]);
    let door = open(host(&store, vec![far.config(), from_file()]).await).await;
    for tool in ["far_new", "pup_new"] {
        let called = call(&door, tool).await;
        assert!(called["result"].is_object(), "{tool}: {called}");
    }
    for _ in 0..3 {
        assert_eq!(call(&door, "pup_nothing").await["error"]["message"], "unknown tool");
    }
    assert_eq!(count(&received(&log), "tools/list"), 1, "one look was enough");
    door.host.close().await;
}

#[tokio::test]
async fn l40_no_look_is_made_for_a_caller_that_is_not_given_what_it_names() {
    let files = folder();
    let starts = at(&files, "starts");
    let counts = || {
        let start = vec![wharf_testkit::Step::Count(starts.clone())];
        vec![puppet("pup", &Puppet::new().plain_tool("old").with(|s| s.start = start))]
    };
    let store = remembered(counts()).await;
    let before = effects(&starts);
    let mut table = CallerTable::default();
    table.insert("ann", CallerRules::new([], ["pup/*"]).unwrap());
    table.insert("bob", CallerRules::new([], ["pup/old"]).unwrap());
    let key = |who: &str| Key::new(CallerName::parse(who).unwrap(), Key::hash(who));
    let keys = [key("ann"), key("bob"), key("eve")];
    let host = host(&store, counts()).await;
    let door = open_with(host, |builder| builder.callers(Callers::default().keys(keys)).rules(table)).await;
    let call = async |who: &str| {
        let key = format!("Bearer {who}");
        let params = json!({"name": "pup_hidden", "arguments": {}});
        door.modern_with("tools/call", params, &[("authorization", &key)]).await.json()["error"].clone()
    };
    let (eve, bob) = (call("eve").await, call("bob").await);
    assert_eq!(effects(&starts), before, "nobody was asked for them");
    let ann = call("ann").await;
    assert_eq!(effects(&starts), before + 1, "it might have been there for this one");
    assert_eq!((&eve, &bob), (&ann, &ann), "the same words for all of them");
    door.host.close().await;
}

#[tokio::test]
async fn l65_a_name_that_may_be_one_of_a_server_that_is_down_is_not_said_to_be_unknown() {
    let far = Far::with(&["old"]);
    let store = remembered(vec![far.config()]).await;
    far.is_down();
    let mut table = CallerTable::default();
    table.insert("ann", CallerRules::new(["far"], []).unwrap());
    table.insert("bob", CallerRules::new([], ["far/old"]).unwrap());
    let key = |who: &str| Key::new(CallerName::parse(who).unwrap(), Key::hash(who));
    let keys = [key("ann"), key("bob"), key("eve")];
    // It is well again in the second round, and has no such thing.
    for is_down in [true, false] {
        if !is_down {
            far.has(&["old"]);
        }
        let host = host(&store, vec![far.config()]).await;
        let door =
            open_with(host, |b| b.callers(Callers::default().keys(keys.clone())).rules(table.clone())).await;
        let ask = async |who: &str, method: &str, name: &str| {
            let (key, params) = (format!("Bearer {who}"), json!({"name": name, "arguments": {}}));
            let more = [("authorization", key.as_str())];
            soon("an answer", door.modern_with(method, params, &more)).await.json()["error"].clone()
        };
        let told = ask("ann", "tools/call", "far_new").await;
        if is_down {
            assert!(
                told["message"].as_str().unwrap().contains("`far` (http): it cannot be reached"),
                "{told}"
            );
            assert_eq!(
                (&told["data"]["kind"], &told["data"]["retryable"]),
                (&json!("connection"), &json!(true))
            );
        } else {
            assert_eq!(told["message"], "unknown tool");
        }
        assert_eq!(ask("ann", "tools/call", "other_new").await["message"], "unknown tool");
        for who in ["bob", "eve"] {
            let told = ask(who, "tools/call", "far_new").await;
            assert_eq!(
                (&told["message"], &told["data"]["kind"]),
                (&json!("unknown tool"), &json!("unknown_tool"))
            );
        }
        door.host.close().await;
    }
}

#[tokio::test]
async fn l65_a_prompt_that_is_new_is_found_and_one_of_a_server_that_is_down_is_not_unknown() {
    let files = folder();
    let script = at(&files, "script");
    let with = |prompts: &[&str]| {
        let prompts: Vec<Value> = prompts.iter().map(|name| json!({"name": name})).collect();
        let capabilities = json!({"tools": {}, "prompts": {}});
        let text = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]});
        let puppet = Puppet::new()
            .with(|s| s.capabilities = Some(capabilities))
            .on("prompts/list", [wharf_testkit::Step::Reply(json!({ "prompts": prompts }))])
            .on("prompts/get", [wharf_testkit::Step::Reply(text)]);
        std::fs::write(&script, serde_json::to_string(&puppet.script).unwrap()).unwrap();
    };
    let config = || {
        let path = puppet_path().display().to_string();
        ServerConfig::stdio(ServerName::parse("pup").unwrap(), path, ["--file", script.to_str().unwrap()])
    };
    with(&["old"]);
    let store = Arc::new(CatalogMemory::default());
    let first = host(&store, vec![config()]).await;
    assert_eq!(first.known_prompts().await.offered.len(), 1);
    first.close().await;
    let get = async |door: &Door, name: &str| door.modern("prompts/get", json!({"name": name})).await.json();

    std::fs::remove_file(&script).unwrap();
    let door = open(host(&store, vec![config()]).await).await;
    let told = get(&door, "pup_new").await["error"].clone();
    assert_eq!(
        (&told["data"]["kind"], &told["data"]["retryable"]),
        (&json!("connection"), &json!(true)),
        "{told}"
    );
    assert_eq!(get(&door, "other_new").await["error"]["message"], "unknown prompt");
    door.host.close().await;

    with(&["old", "new"]);
    let door = open(host(&store, vec![config()]).await).await;
    let got = get(&door, "pup_new").await;
    assert!(got["result"]["messages"].is_array(), "{got}");
    assert_eq!(get(&door, "pup_newer").await["error"]["message"], "unknown prompt");
    door.host.close().await;
}
