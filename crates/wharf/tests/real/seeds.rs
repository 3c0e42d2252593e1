//! Usage examples of the designs that Wharf grew out of, against the servers that they name. The others are in
//! `tests/it/seeds`.

#[path = "../it/seeds/model.rs"]
mod model;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use wharf::config::ServerConfig;
use wharf::event::Event;
use wharf::host::{Docking, Health, Load};
use wharf::names::ServerName;
use wharf::policy::{Permission, Policy};
use wharf::registry::{NameRules, Naming};
use wharf::render::{self, Template};
use wharf::session::Visibility;
use wharf::{Host, LocalTool};

use crate::process::{kill, python, reference, with_variable};
use crate::walk::{SERVER, program};
use model::Model;

fn server(name: &str, command: &str, args: &[&str]) -> ServerConfig {
    ServerConfig::stdio(ServerName::parse(name).unwrap(), command, args.iter().copied())
}

fn builder() -> wharf::host::HostBuilder {
    Host::builder()
        .policy(Policy::strict().with_commands([python()]))
        .environment(std::env::vars())
        .sandbox(crate::process::sandbox())
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

/// The program's own function and the server's tool in one turn, in three providers' forms.
#[tokio::test]
async fn llmgine_tool_execution_flow() {
    let everything = server("everything", "node", &[&reference("everything"), "stdio"]);
    let host = builder().server(everything).start().await.unwrap();
    let add = LocalTool::new("calculate", "Adds", async |sum: Calculate, _| {
        Ok::<_, String>((sum.a + sum.b).to_string())
    });
    let calculate = host.register(add).unwrap();
    let tools = host.tools().await;
    for name in ["gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-pro"] {
        let sum = json!({"a": 20, "b": 22});
        let mut model = Model::named(name)
            .calls(&[
                ("c1", &calculate, sum.clone()),
                ("c2", "everything_get-sum", sum),
                ("c3", "everything_get-sum", json!({"a": "twenty"})),
            ])
            .says("42, both say.");
        assert_eq!(model.converse(&host, tools.snapshot.tools(), "20 + 22?").await, "42, both say.");
        let [local, remote, wrong] = &model.results[..] else { panic!("{name}: {:?}", model.results) };
        assert_eq!((local.to_text().as_str(), local.is_error), ("42", false), "{name}");
        assert!(remote.to_text().contains("42") && !remote.is_error, "{name}: {remote:?}");
        assert!(wrong.is_error && wrong.to_text().contains("call again"), "{name}: {wrong:?}");
    }
    host.close().await;
}

#[tokio::test]
async fn converser_complete_flow_example() {
    let time = server("mcp-time", &python(), &["-m", "mcp_server_time", "--local-timezone", "UTC"]);
    let host = builder().server(time).start().await.unwrap();
    let ensemble = host.ensemble("mcp-time").await.unwrap();
    let invoker = ensemble.tool("convert_time").unwrap();
    let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let mut model = Model::named("claude-opus-4-5")
        .calls(&[("c1", invoker.public_name(), noon)])
        .says("Nine in the evening.");
    let snapshot = host.snapshot();
    let said = model.converse(&host, snapshot.tools(), "It is noon in UTC. In Tokyo?").await;
    assert_eq!(said, "Nine in the evening.");
    assert!(model.results[0].to_text().contains("T21:00:00+09:00"), "{:?}", model.results);
    ensemble.disconnect().await.unwrap();
    assert!(!ensemble.connection().is_open());
}

#[tokio::test]
async fn weakincentives_template_rendering() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().canonicalize().unwrap().display().to_string();
    let filesystem = server("filesystem", "node", &[&reference("filesystem"), &workspace]);
    let thinking = server("thinking", "node", &[&reference("sequential-thinking")]);
    let host = builder().servers([filesystem, thinking]).start().await.unwrap();
    let listing = host.tools().await;
    let tools = listing.snapshot.tools();
    let inventory = render::markdown(tools);
    let lines: Vec<&str> = inventory.lines().collect();
    assert_eq!(lines[..2], ["## MCP Integrations", ""]);
    assert!(lines.contains(&"### filesystem") && lines.contains(&"### thinking"), "{inventory}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("- `")).count(), tools.len());
    assert!(inventory.contains("- `filesystem_write_file` - Create a new file"), "{inventory}");
    let custom = Template::parse("Available servers: ${server_names}\nTotal tools: ${tool_count}\n").unwrap();
    let expected = format!("Available servers: filesystem, thinking\nTotal tools: {}\n", tools.len());
    assert_eq!(custom.render(tools).unwrap(), expected);
    host.close().await;
}

#[derive(Serialize)]
struct Place {
    location: &'static str,
}

#[derive(Debug, Deserialize)]
struct Weather {
    temperature: f64,
    conditions: String,
    humidity: f64,
}

/// Types of one's own; those that are generated are in `codegen`.
#[tokio::test]
async fn weakincentives_synthetic_dataclasses() {
    let everything = server("everything", "node", &[&reference("everything"), "stdio"]);
    let host = builder().server(everything).start().await.unwrap();
    let weather = host.callable("everything", "get-structured-content").await.unwrap();
    let told: Weather = weather.call_as(&Place { location: "New York" }).await.unwrap();
    assert!(told.temperature.is_finite() && told.humidity >= 0.0 && !told.conditions.is_empty(), "{told:?}");
    let nowhere = weather.call_as::<_, Weather>(&Place { location: "Atlantis" }).await.unwrap_err();
    assert_eq!(nowhere.kind(), "arguments");
    host.close().await;
}

#[tokio::test]
async fn nexus3_check_connections() {
    let mark = "seeds-check";
    let variable = format!("WHARF_TEST={mark}-{}", std::process::id());
    let host = builder()
        .retry_pause(std::time::Duration::from_secs(600))
        .server(program("node", &[&reference("memory")], mark))
        .start()
        .await
        .unwrap();
    assert!(host.check_connections().await.is_empty());
    let first = host.berth(SERVER).unwrap().connect().await.unwrap();
    let checked = host.check_connections().await;
    assert!(matches!(checked[..], [(_, Ok(Health::Alive))]), "{checked:?}");
    let mut heard = host.events().subscribe();
    kill(with_variable(&variable).await);
    while !matches!(heard.recv().await.unwrap(), Event::State { .. }) {}
    assert!(!first.is_open());
    let checked = host.check_connections().await;
    assert!(matches!(checked[..], [(_, Ok(Health::Reconnected))]), "{checked:?}");
    host.close().await;
    assert!(host.check_connections().await.is_empty());
}

#[derive(Deserialize)]
struct Entities {
    entities: Vec<serde_json::Value>,
}

#[tokio::test]
async fn lionpride_session_scoped_pool() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = server("memory", "node", &[&reference("memory")]);
    if let wharf::config::Transport::Stdio(stdio) = &mut memory.transport {
        let file = folder.path().join("memory.jsonl").display().to_string();
        stdio.env.insert("MEMORY_FILE_PATH".into(), wharf::secret::Secret::new(file));
    }
    let host = builder().start().await.unwrap();
    let session = host.session("agent").permission(Permission::Yolo).start().unwrap();
    let other = host.session("other").permission(Permission::Yolo).start().unwrap();
    let load = Load::new(memory).tools(["create_entities"]).demand("create_entities", |arguments| {
        let few = arguments.to::<Entities>().is_ok_and(|wanted| wanted.entities.len() < 2);
        if few { Ok(()) } else { Err("one at a time".to_owned()) }
    });
    let tools = session.load(load).await.unwrap();
    assert_eq!(tools.iter().map(|name| &**name).collect::<Vec<_>>(), ["memory_create_entities"]);
    let ship = json!({"name": "Vasa", "entityType": "ship", "observations": ["sank"]});
    let stored = session.call("memory_create_entities", json!({"entities": [ship.clone()]})).await;
    assert!(stored.success, "{stored:?}");
    let many =
        session.call("memory_create_entities", json!({"entities": [ship.clone(), ship.clone()]})).await;
    assert_eq!(many.into_result().unwrap_err().kind(), "arguments");
    let unseen = other.call("memory_create_entities", json!({"entities": [ship]})).await;
    assert_eq!(unseen.into_result().unwrap_err().kind(), "unknown_tool");
    let connection = session.berth("memory").unwrap().live().unwrap();
    session.close().await;
    assert!(!connection.is_open(), "what was the session's ends with it");
    host.close().await;
}
