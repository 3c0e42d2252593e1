//! Usage examples of the designs that Wharf grew out of, against the servers that they name. The others are in
//! `tests/it/seeds`.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use wharf::config::ServerConfig;
use wharf::event::Event;
use wharf::host::{Docking, Load};
use wharf::names::ServerName;
use wharf::policy::{Permission, Policy};
use wharf::registry::{NameRules, Naming};
use wharf::session::Visibility;
use wharf::{Host, LocalTool};

use crate::process::{python, reference};

fn server(name: &str, command: &str, args: &[&str]) -> ServerConfig {
    ServerConfig::stdio(ServerName::parse(name).unwrap(), command, args.iter().copied())
}

fn builder() -> wharf::host::HostBuilder {
    Host::builder().policy(Policy::strict().with_commands([python()])).environment(std::env::vars())
}

#[tokio::test]
async fn weakincentives_single_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().canonicalize().unwrap().join("note.txt");
    let workspace = file.parent().unwrap().display().to_string();
    let filesystem = server("filesystem", "node", &[&reference("filesystem"), &workspace]);
    let host = builder().server(filesystem).start().await.unwrap();
    let mut bus = host.events().subscribe();
    let listing = host.tools().await;
    assert!(listing.snapshot.route("filesystem_read_file").is_some(), "{:?}", listing.failed);
    assert!(host.call("filesystem_write_file", json!({"path": file, "content": "high tide"})).await.success);
    let read = host.call("filesystem_read_text_file", json!({"path": file})).await;
    assert_eq!(read.to_text(), "high tide");
    let mut told = Vec::new();
    while let Ok(event) = bus.try_recv() {
        if let Event::ToolInvoked(call) = event {
            told.push((call.tool.as_str().to_owned(), call.success));
        }
    }
    assert_eq!(told, [("write_file".into(), true), ("read_text_file".into(), true)]);
    let outside = host.call("filesystem_read_text_file", json!({"path": "/etc/passwd"})).await;
    assert!(!outside.success && outside.is_error(), "the server's own refusal is a result: {outside:?}");
    host.close().await;
}

#[derive(Deserialize, JsonSchema)]
struct Calculate {
    a: i64,
    b: i64,
}

#[tokio::test]
async fn llmgine_hybrid_local_and_mcp_tools() {
    let host = builder().start().await.unwrap();
    let add = LocalTool::new("calculate", "Adds", async |sum: Calculate, _| {
        Ok::<_, String>((sum.a + sum.b).to_string())
    });
    host.register(add).unwrap();
    let time = server("time", &python(), &["-m", "mcp_server_time", "--local-timezone", "UTC"]);
    let registered = host.load(Load::new(time)).await.unwrap();
    assert_eq!(registered.len(), 2);
    let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    assert!(host.call("time_convert_time", noon).await.to_text().contains("T21:00:00+09:00"));
    assert_eq!(host.call("calculate", json!({"a": 20, "b": 22})).await.to_text(), "42");
    host.close().await;
}

#[tokio::test]
async fn nexus3_mcp_server_registry() {
    let host =
        builder().names(NameRules { naming: Naming::Mcp, ..NameRules::default() }).start().await.unwrap();
    let main = host.session("main").permission(Permission::Yolo).start().unwrap();
    let other = host.session("other").permission(Permission::Yolo).start().unwrap();
    let everything = server("everything", "node", &[&reference("everything"), "stdio"]);
    let names = main.connect(Docking::new(everything).visibility(Visibility::Shared)).await.unwrap();
    assert!(names.iter().any(|name| &**name == "mcp_everything_get_sum"), "{names:?}");
    let thinking = server("thinking", "node", &[&reference("sequential-thinking")]);
    main.connect(Docking::new(thinking)).await.unwrap();
    for agent in [&main, &other] {
        let sum = agent.call("mcp_everything_get_sum", json!({"a": 20, "b": 22})).await;
        assert!(sum.to_text().contains("42"), "{sum:?}");
    }
    let thought =
        json!({"thought": "one", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1});
    assert!(main.call("mcp_thinking_sequentialthinking", thought.clone()).await.success);
    let unseen = other.call("mcp_thinking_sequentialthinking", thought).await;
    assert_eq!(unseen.into_result().unwrap_err().kind(), "unknown_tool");
    host.close().await;
}

#[tokio::test]
async fn converser_example_3_multiple_mcp_servers() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().canonicalize().unwrap().display().to_string();
    let servers = [
        server("mcp-filesystem", "node", &[&reference("filesystem"), &data]),
        server("mcp-time", &python(), &["-m", "mcp_server_time", "--local-timezone", "UTC"]),
    ];
    let host = builder().servers(servers).start().await.unwrap();
    for (name, tool, arguments) in [
        ("mcp-filesystem", "list_directory", json!({"path": data})),
        ("mcp-time", "get_current_time", json!({"timezone": "UTC"})),
    ] {
        let ensemble = host.ensemble(name).await.unwrap();
        let invoker = ensemble.tool(tool).unwrap();
        let outcome = invoker.call(arguments).await;
        assert!(outcome.success, "{outcome:?}");
        ensemble.disconnect().await.unwrap();
        assert!(!ensemble.connection().is_open());
    }
}
