//! Servers built on the official Rust SDK: somebody else's reading of the same specification.

use serde_json::json;
use wharf::CallOptions;
use wharf::config::Transport;
use wharf::mcp::{Era, LogLevel, Reference};
use wharf::wire::Json;
use wharf_testkit::rmcp_peer_path;

use crate::process::{Running, unread};
use crate::walk::{Expected, SERVER, endpoint, host, killed_in_a_call, ordinary, program, whole, works};

fn expected() -> Expected<'static> {
    Expected {
        era: Era::Modern,
        tools: &["add", "ask", "echo", "progress"],
        good: ("add", json!({"a": 20, "b": 22}), "42"),
        bad: ("add", json!({"a": 20}), "missing required field `b`"),
    }
}

#[tokio::test]
async fn rmcp_over_stdio() {
    let path = rmcp_peer_path().display().to_string();
    whole(program(&path, &[], "rmcp"), "rmcp", &expected()).await;
}

#[tokio::test]
async fn rmcp_over_http() {
    let address = |port: u16| endpoint(Transport::Http, &format!("http://127.0.0.1:{port}/mcp"));
    let (first, port) = Running::rmcp();
    let host = host(address(port)).await;
    ordinary(&host, &expected()).await;
    killed_in_a_call(&host, &expected(), first.pid(), unread(port)).await;
    // It comes back on another port, so its place is taken by a new one of the same name.
    let (second, port) = Running::rmcp();
    host.add_server(address(port));
    works(&host, &expected()).await;
    host.close().await;
    second.end();
}

#[tokio::test]
async fn rmcp_reports_progress_in_order() {
    let path = rmcp_peer_path().display().to_string();
    let (running, port) = Running::rmcp();
    let over_http = endpoint(Transport::Http, &format!("http://127.0.0.1:{port}/mcp"));
    for server in [program(&path, &[], "rmcp-progress"), over_http] {
        let host = host(server).await;
        let mut steps = Vec::new();
        let mut heard = |step: wharf::connect::Progress| steps.push(step.progress);
        let options = CallOptions { on_progress: Some(&mut heard), ..CallOptions::default() };
        let outcome = host.call_tool(SERVER, "progress", Json::of(&json!({"steps": 5})), options).await;
        assert!(outcome.success, "{outcome:?}");
        assert_eq!(steps, [1.0, 2.0, 3.0, 4.0, 5.0]);
        host.close().await;
    }
    running.end();
}

#[tokio::test]
async fn rmcp_has_more_than_tools_in_the_modern_era() {
    let path = rmcp_peer_path().display().to_string();
    let (running, port) = Running::rmcp();
    let over_http = endpoint(Transport::Http, &format!("http://127.0.0.1:{port}/mcp"));
    for server in [program(&path, &[], "rmcp-offers"), over_http] {
        let host = host(server).await;
        let resources = host.resources(SERVER).await.unwrap();
        assert_eq!(resources.items[0].uri.raw(), "rmcp://tide");
        let read = host.read_resource(SERVER, "rmcp://tide").await.unwrap();
        assert_eq!(read.contents[0].text().unwrap().raw(), "high");
        assert_eq!(host.read_resource(SERVER, "rmcp://moon").await.unwrap_err().kind(), "rpc");
        assert!(host.resource_templates(SERVER).await.unwrap().items.is_empty());

        let limit = std::time::Duration::from_secs(60);
        let watching = tokio::time::timeout(limit, host.subscribe(SERVER, "rmcp://tide")).await;
        let mut watching = watching.expect("it agrees").unwrap();
        let update = tokio::time::timeout(limit, watching.next()).await.expect("it changes");
        assert_eq!(update.unwrap().uri.raw(), "rmcp://tide");
        drop(watching);

        let who = [("who".to_owned(), "Ada".to_owned())].into();
        let filled = host.prompt(SERVER, "greet", &who).await.unwrap();
        assert!(filled.messages[0].raw.as_str().contains("Greet"), "{filled:?}");
        let greet = Reference::Prompt("greet".into());
        let found = host.complete(SERVER, &greet, ("who", "A"), &Default::default()).await.unwrap();
        assert_eq!(found.values.iter().map(|v| v.raw()).collect::<Vec<_>>(), ["Ada", "Alan"]);
        assert_eq!(host.set_log_level(SERVER, LogLevel::Info).await.unwrap_err().kind(), "not_offered");
        host.close().await;
    }
    running.end();
}
