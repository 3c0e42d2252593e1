//! List changes, watched resources and logs through the gateway, in both eras each way.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use wharf_testkit::{Era, Puppet, Step};

use super::pipe::Caller;
use super::{Door, Stream, modern_body, open};
use crate::support::{at, count, folder, host, puppet, received, soon, until};

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
const LISTS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    ("resourcesListChanged", "notifications/resources/list_changed"),
];

fn able(era: Era) -> Puppet {
    let capabilities = json!({
        "tools": {"listChanged": true},
        "prompts": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "logging": {},
    });
    let none = [
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ];
    let script = Puppet::of(era).with(|s| s.capabilities = Some(capabilities));
    none.into_iter().fold(script, |script, (method, key)| script.on(method, [Step::Reply(json!({key: []}))]))
}

fn notify(method: &str, params: Option<Value>) -> Step {
    Step::Notify { method: method.into(), params }
}

/// A server whose tool makes every list change, many times over.
fn changing(era: Era) -> Puppet {
    let flood = (0..20).flat_map(|_| LISTS.map(|(_, method)| notify(method, None)));
    let steps: Vec<Step> = flood.chain([Step::Echo]).collect();
    let listened = Step::Raw(acknowledged("{}"));
    able(era).on("tool:echo", steps).on("subscriptions/listen", [listened, Step::Hang])
}

fn acknowledged(honoured: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":$ID}},"notifications":{honoured}}}}}"#
    )
}

/// A server that tells of changes of `x://a` when a file appears.
fn watched(era: Era, log: &Path, go: &Path) -> Puppet {
    let update = |uri: &str| notify("notifications/resources/updated", Some(json!({"uri": uri})));
    let changes: Vec<Step> = (0..30).map(|_| update("x://a")).chain([update("x://a/below")]).collect();
    let mut steps = match era {
        Era::Legacy => vec![Step::Reply(json!({}))],
        _ => vec![Step::Raw(acknowledged(r#"{"resourceSubscriptions":["x://a"]}"#))],
    };
    steps.push(Step::WaitFor(go.to_owned()));
    steps.extend(changes);
    steps.push(Step::Hang);
    let script = able(era).log(log);
    match era {
        Era::Legacy => {
            script.on("resources/subscribe", steps).on("resources/unsubscribe", [Step::Reply(json!({}))])
        }
        _ => script.on("subscriptions/listen", steps),
    }
}

async fn listen(door: &Door, id: Value, wanted: Value) -> Stream {
    let mut body = modern_body("subscriptions/listen", json!({"notifications": wanted}));
    body["id"] = id;
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    door.stream(Method::POST, "/mcp", &headers, body.to_string()).await
}

fn subscription(message: &Value) -> &Value {
    &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
}

async fn call(door: &Door) {
    let called = door.modern("tools/call", json!({"name": "pup_echo", "arguments": {}})).await;
    assert_eq!(called.json()["id"], 7, "{called:?}");
}

#[tokio::test]
async fn l80_modern_callers_hear_of_lists_that_changed_each_under_its_own_id() {
    for era in ERAS {
        let mut door = open(host([puppet("pup", &changing(era))]).await).await;
        let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
        let mut one = listen(&door, json!("7"), all.clone()).await;
        let mut two = listen(&door, json!(7), json!({"promptsListChanged": true, "taskIds": ["t"]})).await;
        let (_, first) = one.message().await;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(first["params"]["notifications"], all);
        assert_eq!(subscription(&first), &json!("7"), "the type of the id stays");
        let (_, second) = two.message().await;
        assert_eq!(second["params"]["notifications"], json!({"promptsListChanged": true}));
        assert_eq!(subscription(&second), &json!(7));
        call(&door).await;
        let mut heard = Vec::new();
        for _ in LISTS {
            let (_, told) = one.message().await;
            assert_eq!(subscription(&told), &json!("7"), "{told}");
            heard.push(told["method"].as_str().unwrap().to_owned());
        }
        heard.sort();
        let mut methods = LISTS.map(|(_, method)| method.to_owned());
        methods.sort();
        assert_eq!(heard, methods, "a flood is told as one");
        let (_, told) = two.message().await;
        assert_eq!((&told["method"], subscription(&told)), (&json!(LISTS[1].1), &json!(7)));
        door.stop();
        for (mut stream, id) in [(one, json!("7")), (two, json!(7))] {
            let end = loop {
                let (_, message) = stream.message().await;
                if message.get("method").is_none() {
                    break message;
                }
            };
            assert_eq!((&end["id"], &end["result"]["resultType"]), (&id, &json!("complete")));
            assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
            assert_eq!(soon("the end", stream.event()).await, None);
        }
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_what_nobody_can_tell_of_is_not_promised() {
    for era in ERAS {
        let plain = Puppet::of(era).with(|s| s.capabilities = Some(json!({"tools": {}})));
        let door = open(host([puppet("pup", &plain)]).await).await;
        let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["x://a"]});
        let mut stream = listen(&door, json!(1), all).await;
        assert_eq!(stream.message().await.1["params"]["notifications"], json!({"toolsListChanged": true}));
        let wrong = door.modern("subscriptions/listen", json!({"notifications": 5})).await;
        assert_eq!(wrong.json()["error"]["code"], -32602, "{wrong:?}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_legacy_callers_hear_of_lists_that_changed_once_they_are_ready() {
    for era in ERAS {
        let host = host([puppet("pup", &changing(era))]).await;
        let mut ready = Caller::of(&host);
        ready.greet(json!({})).await;
        ready.ask(1, "tools/call", json!({"name": "pup_echo", "arguments": {}})).await;
        let mut heard = Vec::new();
        while heard.len() < 4 {
            let message = ready.next().await;
            heard.push(message["method"].as_str().unwrap_or("answer").to_owned());
        }
        heard.sort();
        let mut wanted: Vec<String> = LISTS.iter().map(|(_, method)| (*method).to_owned()).collect();
        wanted.insert(0, "answer".into());
        wanted.sort();
        assert_eq!(heard, wanted);
        host.close().await;
    }
}

/// How often the server was told that nobody listens any more.
fn let_go(era: Era, log: &Path) -> usize {
    let end = if era == Era::Legacy { "resources/unsubscribe" } else { "notifications/cancelled" };
    count(&received(log), end)
}

#[tokio::test]
async fn l80_a_modern_caller_watches_a_resource_until_it_hangs_up() {
    for era in ERAS {
        let files = folder();
        let (log, go) = (at(&files, "log"), at(&files, "go"));
        let door = open(host([puppet("pup", &watched(era, &log, &go))]).await).await;
        let mut one = listen(&door, json!("a"), json!({"resourceSubscriptions": ["x://a"]})).await;
        let mut two =
            listen(&door, json!("b"), json!({"resourceSubscriptions": ["wharf+pup:x://a", "wharf+no:x"]}))
                .await;
        let (_, first) = one.message().await;
        assert_eq!(first["params"]["notifications"], json!({"resourceSubscriptions": ["x://a"]}), "{first}");
        let (_, second) = two.message().await;
        assert_eq!(second["params"]["notifications"], json!({"resourceSubscriptions": ["wharf+pup:x://a"]}));
        std::fs::write(&go, "").unwrap();
        for (stream, id, uris) in [
            (&mut one, "a", ["x://a", "x://a/below"]),
            (&mut two, "b", ["wharf+pup:x://a", "wharf+pup:x://a/below"]),
        ] {
            let mut told = std::collections::BTreeSet::new();
            while told.len() < 2 {
                let (_, message) = stream.message().await;
                assert_eq!(message["method"], "notifications/resources/updated");
                assert_eq!(subscription(&message), id);
                told.insert(message["params"]["uri"].as_str().unwrap().to_owned());
            }
            assert_eq!(told.into_iter().collect::<Vec<_>>(), uris);
        }
        drop(one);
        drop(two);
        until("the server is told", || let_go(era, &log) == 1).await;
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_a_legacy_caller_watches_a_resource_until_it_says_otherwise() {
    for era in ERAS {
        let files = folder();
        let (log, go) = (at(&files, "log"), at(&files, "go"));
        let host = host([puppet("pup", &watched(era, &log, &go))]).await;
        let mut caller = Caller::of(&host);
        caller.greet(json!({})).await;
        caller.ask(1, "resources/subscribe", json!({"uri": "x://a"})).await;
        assert_eq!(caller.next().await, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        std::fs::write(&go, "").unwrap();
        let mut told = std::collections::BTreeSet::new();
        while told.len() < 2 {
            let message = caller.next().await;
            assert_eq!(message["method"], "notifications/resources/updated", "{message}");
            told.insert(message["params"]["uri"].as_str().unwrap().to_owned());
        }
        caller.ask(2, "resources/unsubscribe", json!({"uri": "x://a"})).await;
        while caller.next().await["id"] != 2 {}
        until("the server is told", || let_go(era, &log) == 1).await;
        caller.ask(3, "resources/subscribe", json!({"uri": "wharf+no:x"})).await;
        let refused = caller.next().await;
        assert!(refused["error"].is_object(), "{refused}");
        host.close().await;
    }
}

#[tokio::test]
async fn l80_a_modern_caller_over_a_pipe_listens_until_it_cancels() {
    let files = folder();
    let (log, go) = (at(&files, "log"), at(&files, "go"));
    let host = host([puppet("pup", &watched(Era::Legacy, &log, &go))]).await;
    let mut caller = Caller::of(&host);
    let mut body =
        modern_body("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": ["x://a"]}}));
    body["id"] = json!("mine");
    caller.say(body).await;
    assert_eq!(subscription(&caller.next().await), "mine");
    caller
        .say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine"}}))
        .await;
    until("the server is told", || let_go(Era::Legacy, &log) == 1).await;
    host.close().await;
}

fn logging(era: Era) -> Puppet {
    let say = |level: &str| {
        notify("notifications/message", Some(json!({"level": level, "data": {"n": 1.0}, "logger": "l"})))
    };
    able(era)
        .on("logging/setLevel", [Step::Reply(json!({}))])
        .on("tool:echo", [say("debug"), say("warning"), Step::Echo])
}

#[tokio::test]
async fn l80_log_messages_reach_the_caller_whose_request_they_are_of_and_nobody_else() {
    for server in ERAS {
        let host = host([puppet("pup", &logging(server))]).await;
        let door = open(host.clone()).await;
        let (mut legacy, mut silent) = (Caller::of(&host), Caller::of(&host));
        legacy.greet(json!({})).await;
        silent.greet(json!({})).await;
        legacy.ask(1, "logging/setLevel", json!({"level": "warning"})).await;
        assert_eq!(legacy.next().await["result"], json!({}));
        let called = json!({"name": "pup_echo", "arguments": {}});
        legacy.ask(2, "tools/call", called.clone()).await;
        let logged = legacy.next().await;
        assert_eq!(
            logged["params"].to_string(),
            r#"{"level":"warning","data":{"n":1.0},"logger":"l"}"#,
            "as it is, and graver ones only: {logged}"
        );
        assert_eq!(legacy.next().await["id"], 2);
        // A modern caller says with each request whether it wants the log.
        let mut wanting = called.clone();
        wanting["_meta"] = json!({"io.modelcontextprotocol/logLevel": "debug"});
        let answer = door.modern("tools/call", wanting).await;
        let levels: Vec<Value> =
            answer.events().iter().filter_map(|e| e["params"].get("level").cloned()).collect();
        assert_eq!(levels, [json!("debug"), json!("warning")], "{answer:?}");
        let answer = door.modern("tools/call", called.clone()).await;
        assert!(answer.json()["result"].is_object(), "one message, and no log: {answer:?}");
        // Whoever did not ask for it hears nothing of the others' either.
        silent.ask(3, "ping", json!({})).await;
        assert_eq!(silent.next().await["id"], 3);
        host.close().await;
    }
}
