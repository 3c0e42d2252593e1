//! Servers that take their time before anything is known of them, and those who ask for lists meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use wharf::catalog::CatalogMemory;
use wharf::config::ServerConfig;
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, Stream, modern_body, open};
use crate::support::{at, effects, folder, puppet, quick, soon};

/// Much longer than any list may take.
const AN_HOUR: Duration = Duration::from_secs(60 * 60);
/// Shorter than what is waited for a server that nobody has seen.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A server with a tool and a prompt.
fn script() -> Puppet {
    let capabilities = json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}});
    Puppet::of(Era::Modern)
        .with(|s| s.capabilities = Some(capabilities))
        .on("prompts/list", [Step::Reply(json!({"prompts": [{"name": "greet"}]}))])
}

/// The same, which does nothing before the gate is there.
fn slow(gate: &Path, starts: &Path) -> ServerConfig {
    let start = vec![Step::Count(starts.to_owned()), Step::WaitFor(gate.to_owned())];
    let mut config = puppet("slow", &script().with(|s| s.start = start));
    config.start_timeout = AN_HOUR;
    config
}

/// A store that knows a server `well`.
async fn remembered() -> Arc<CatalogMemory> {
    let store = Arc::new(CatalogMemory::default());
    let host = quick().catalogs(Arc::clone(&store) as _).server(well()).start().await.unwrap();
    host.known_tools().await;
    host.known_prompts().await;
    host.close().await;
    store
}

fn well() -> ServerConfig {
    puppet("well", &script())
}

/// Waits for an answer while the time goes by quickly.
async fn quickly<T>(answer: impl Future<Output = T>) -> T {
    let clock = async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            tokio::time::pause();
            tokio::time::advance(Duration::from_millis(500)).await;
            tokio::time::resume();
        }
    };
    let begun = Instant::now();
    let answer = tokio::select! {
        answer = answer => answer,
        () = clock => unreachable!("it has no end"),
    };
    assert!(begun.elapsed() < AN_HOUR / 2, "nobody waits for a start");
    answer
}

async fn names(door: &Door, method: &str, list: &str) -> Vec<String> {
    let listed = door.modern(method, json!({})).await.json();
    let items = listed["result"][list].as_array().unwrap_or_else(|| panic!("{listed}"));
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

async fn tools(door: &Door) -> Vec<String> {
    names(door, "tools/list", "tools").await
}

async fn listen(door: &Door) -> Stream {
    let wanted = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
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

async fn hears(stream: &mut Stream, method: &str) -> Value {
    soon(method, async {
        loop {
            let (_, message) = stream.message().await;
            if message["method"] == method {
                return message;
            }
        }
    })
    .await
}

#[tokio::test]
async fn l40_a_server_that_nobody_has_seen_is_waited_for_as_long_as_by_discovery_and_told_of_later() {
    let files = folder();
    let (gate, starts) = (at(&files, "gate"), at(&files, "starts"));
    let servers = [slow(&gate, &starts), well()];
    let host = quick().catalogs(remembered().await as _).servers(servers).start().await.unwrap();
    let door = open(host.clone()).await;
    quickly(door.modern("server/discover", json!({}))).await;
    let mut modern = listen(&door).await;
    let session = door.greet().await;
    let headers = [
        ("accept", "text/event-stream"),
        ("mcp-session-id", &session),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let mut legacy = door.stream(Method::GET, "/mcp", &headers, "").await;

    assert_eq!(quickly(tools(&door)).await, ["well_echo"], "what there is");
    assert_eq!(quickly(names(&door, "prompts/list", "prompts")).await, ["well_greet"]);
    let again = tokio::time::timeout(AT_ONCE, tools(&door)).await;
    assert_eq!(again.expect("it has been waited for"), ["well_echo"]);

    // Whoever calls it by its name waits for it.
    let called = door.modern("tools/call", json!({"name": "slow_echo", "arguments": {}}));
    let opened = async {
        tokio::task::yield_now().await;
        std::fs::write(&gate, "").unwrap();
    };
    let (called, ()) = tokio::join!(soon("the call", called), opened);
    assert!(called.json()["result"].is_object(), "{called:?}");
    for stream in [&mut modern, &mut legacy] {
        hears(stream, "notifications/tools/list_changed").await;
    }
    hears(&mut modern, "notifications/prompts/list_changed").await;
    assert_eq!(tools(&door).await, ["slow_echo", "well_echo"]);
    assert_eq!(names(&door, "prompts/list", "prompts").await, ["slow_greet", "well_greet"]);
    assert_eq!(effects(&starts), 1, "one start for all of them");
    host.close().await;
}

#[tokio::test]
async fn l40_a_caller_with_a_view_of_its_own_is_shown_what_there_is_and_told_of_the_rest() {
    let files = folder();
    let (gate, starts) = (at(&files, "gate"), at(&files, "starts"));
    let mut config = slow(&gate, &starts);
    let legacy = Puppet::of(Era::Legacy).tool_for("elicitation", "ask").plain_tool("echo");
    let start = vec![Step::WaitFor(gate.clone())];
    config.transport = puppet("slow", &legacy.with(|s| s.start = start)).transport;
    let host = quick().catalogs(remembered().await as _).servers([config, well()]).start().await.unwrap();
    let mut caller = super::pipe::Caller::of(&host);
    quickly(caller.greet(json!({"elicitation": {}}))).await;
    let mut listed = async |id: u64| {
        caller.ask(id, "tools/list", json!({})).await;
        let mut told = false;
        loop {
            let message = caller.next().await;
            told |= message["method"] == "notifications/tools/list_changed";
            if message["id"] == id {
                let tools = message["result"]["tools"].as_array().unwrap().clone();
                let names: Vec<String> =
                    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
                return (names, told);
            }
        }
    };
    assert_eq!(quickly(listed(1)).await.0, ["well_echo"], "what there is");
    std::fs::write(&gate, "").unwrap();
    let mut told = false;
    let names = soon("the rest", async {
        for id in 2.. {
            let (names, now) = listed(id).await;
            told |= now;
            if names.len() > 1 && told {
                return names;
            }
            tokio::task::yield_now().await;
        }
        unreachable!("numbers have no end")
    })
    .await;
    assert_eq!(names, ["slow_echo", "slow_ask", "well_echo"], "as it shows itself to this caller");
    host.close().await;
}
