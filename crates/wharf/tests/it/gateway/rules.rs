//! What each caller sees and may call: in both eras, by every way in.

use http::Method;
use serde_json::{Value, json};
use wharf::Host;
use wharf::config::{CallerRules, CallerTable};
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf::policy::Permission;
use wharf_testkit::{Era, Puppet};

use super::{Answer, Door, open_with};
use crate::support::{at, count, folder, host, puppet, received};

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

fn table(entries: &[(&str, &[&str], &[&str])]) -> CallerTable {
    let mut table = CallerTable::default();
    for (caller, servers, tools) in entries {
        let rules = CallerRules::new(servers.iter().copied(), tools.iter().copied()).unwrap();
        table.insert(*caller, rules);
    }
    table
}

/// A gateway whose callers' keys are their names, twice.
async fn behind(host: Host, rules: CallerTable) -> Door {
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(&format!("{name}{name}")));
    let keys = ["ann", "bob", "eve"].map(key);
    open_with(host, |b| b.callers(Callers::default().keys(keys)).rules(rules)).await
}

async fn modern(door: &Door, caller: &str, method: &str, params: Value) -> Answer {
    let key = format!("Bearer {caller}{caller}");
    door.modern_with(method, params, &[("authorization", &key)]).await
}

async fn legacy(door: &Door, caller: &str, message: Value) -> Answer {
    let (name, key) = (door.name(), format!("Bearer {caller}{caller}"));
    let usual = [("host", name.as_str()), ("content-type", "application/json"), ("authorization", &key)];
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}});
    let opened = door.send(Method::POST, "/mcp", &usual, hello.to_string()).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let with: Vec<_> = usual.into_iter().chain([("mcp-session-id", session.as_str())]).collect();
    door.send(Method::POST, "/mcp", &with, message.to_string()).await
}

fn names(listed: &Answer) -> Vec<String> {
    let listed = listed.json();
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}")).clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn seen(door: &Door, caller: &str) -> Vec<String> {
    let now = names(&modern(door, caller, "tools/list", json!({})).await);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(now, names(&legacy(door, caller, list).await), "one view in both eras");
    now
}

fn git(log: &std::path::Path) -> Puppet {
    Puppet::of(Era::Legacy).tool(tool("git_log")).tool(tool("git_push")).log(log)
}

#[tokio::test]
async fn l92_a_caller_lists_and_calls_what_its_rules_give_it_in_both_eras() {
    let files = folder();
    let (git_log, time_log) = (at(&files, "git"), at(&files, "time"));
    let time = Puppet::of(Era::Modern).tool(tool("now")).log(&time_log);
    let host = host([puppet("git", &git(&git_log)), puppet("time", &time)]).await;
    let rules = table(&[
        ("ann", &["git", "time"], &["!git/git_push"]),
        ("bob", &[], &["git/git_l*"]),
        ("*", &["time"], &[]),
    ]);
    let door = behind(host, rules).await;
    assert_eq!(seen(&door, "ann").await, ["git_git_log", "time_now"]);
    assert_eq!(seen(&door, "bob").await, ["git_git_log"]);
    assert_eq!(seen(&door, "eve").await, ["time_now"]);

    let allowed = [("ann", "git_git_log"), ("ann", "time_now"), ("bob", "git_git_log"), ("eve", "time_now")];
    for (caller, tool) in allowed {
        let answer = modern(&door, caller, "tools/call", json!({"name": tool, "arguments": {}})).await;
        assert!(answer.json()["result"]["content"].is_array(), "{caller} {tool}: {answer:?}");
    }
    let calls = || count(&received(&git_log), "tools/call") + count(&received(&time_log), "tools/call");
    assert_eq!(calls(), 4);

    // What is not given reads like what never was, byte for byte, and its server hears nothing of it.
    let hidden =
        [("ann", "git_git_push"), ("bob", "git_git_push"), ("bob", "time_now"), ("eve", "git_git_log")];
    for (caller, tool) in hidden {
        let ask = async |name: &str| {
            let params = json!({"name": name, "arguments": {}});
            let modern = modern(&door, caller, "tools/call", params.clone()).await;
            let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
            let legacy = legacy(&door, caller, call).await;
            assert_eq!(modern.json()["error"]["code"], -32602, "{caller} {name}: {modern:?}");
            (modern.status, modern.body, legacy.status, legacy.body)
        };
        assert_eq!(ask(tool).await, ask("git_git_zzzz").await, "{caller} {tool}");
    }
    assert_eq!(calls(), 4, "no server was contacted");
    door.host.close().await;
}

#[tokio::test]
async fn l92_a_server_that_nobody_is_given_is_never_started() {
    let files = folder();
    let log = at(&files, "log");
    let door = behind(host([puppet("git", &git(&log))]).await, table(&[("ann", &["git"], &[])])).await;
    for caller in ["bob", "eve"] {
        assert!(seen(&door, caller).await.is_empty(), "no entry, and no `*`: nothing");
        let params = json!({"name": "git_git_log", "arguments": {}});
        let refused = modern(&door, caller, "tools/call", params).await;
        assert_eq!(refused.json()["error"]["message"], "unknown tool");
    }
    assert!(received(&log).is_empty(), "never started");
    assert_eq!(seen(&door, "ann").await, ["git_git_log", "git_git_push"]);
    door.host.close().await;
}

#[tokio::test]
async fn l92_a_hidden_tool_does_not_show_in_the_names_of_others() {
    // Without a prefix the two would clash, and the name of one would tell of the other.
    let bare = |name: &str| {
        let mut config = puppet(name, &Puppet::of(Era::Modern).tool(tool("search")));
        config.tool_prefix = Some(String::new());
        config
    };
    let rules = table(&[("ann", &["one"], &[]), ("bob", &["two"], &[]), ("eve", &["*"], &["!one/*"])]);
    let door = behind(host([bare("one"), bare("two")]).await, rules).await;
    for caller in ["ann", "bob", "eve"] {
        assert_eq!(seen(&door, caller).await, ["search"], "{caller}");
    }
    door.host.close().await;
}

#[tokio::test]
async fn l92_resources_and_prompts_obey_the_same_rules() {
    let files = folder();
    let log = at(&files, "log");
    let offers = json!({"tools": {}, "resources": {}, "prompts": {}});
    let script = Puppet::of(Era::Modern).with(|script| script.capabilities = Some(offers));
    let host = host([puppet("docs", &script.log(&log))]).await;
    let session = |rules: CallerRules| {
        host.session("ann").permission(Permission::Yolo).rules(rules.into()).start().unwrap()
    };
    let none = session(CallerRules::new([], ["other/*"]).unwrap());
    let tools_only = session(CallerRules::new([], ["docs/*"]).unwrap());
    for scope in [&none, &tools_only] {
        for (docs, never) in [
            (scope.resources("docs").await.unwrap_err(), scope.resources("dogs").await.unwrap_err()),
            (
                scope.read_resource("docs", "a:b").await.unwrap_err(),
                scope.read_resource("dogs", "a:b").await.unwrap_err(),
            ),
            (
                scope.prompt("docs", "p", &Default::default()).await.unwrap_err(),
                scope.prompt("dogs", "p", &Default::default()).await.unwrap_err(),
            ),
        ] {
            assert_eq!(docs.kind(), "unknown_server", "{docs}");
            assert_eq!(docs.kind(), never.kind());
        }
        let (resources, prompts) = (scope.all_resources().await, scope.all_prompts().await);
        assert!(resources.offered.is_empty() && resources.failed.is_empty(), "{resources:?}");
        assert!(prompts.offered.is_empty() && prompts.failed.is_empty(), "{prompts:?}");
    }
    assert!(none.tools().await.snapshot.tools().is_empty());
    assert!(received(&log).is_empty(), "never contacted");
    assert_eq!(tools_only.tools().await.snapshot.tools().len(), 1);

    let whole = session(CallerRules::new(["docs"], []).unwrap());
    let answer = whole.resources("docs").await;
    assert!(!matches!(&answer, Err(e) if e.kind() == "unknown_server"), "{answer:?}");
    // Who is made by a session is given no more than it.
    let child = tools_only.session("child").permission(Permission::Yolo);
    assert_eq!(child.start().unwrap().resources("docs").await.unwrap_err().kind(), "unknown_server");
    let wider = tools_only.session("child").permission(Permission::Yolo);
    let wider = wider.rules(CallerRules::new(["*"], []).unwrap().into()).start().unwrap_err();
    assert_eq!(wider.kind(), "denied");
    host.close().await;
}
