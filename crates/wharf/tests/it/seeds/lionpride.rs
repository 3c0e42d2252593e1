//! `lionpride.services.mcps`: pools of a session, security, loading of tools.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use wharf::config::{Sources, load};
use wharf::host::{Load, LoadAll};
use wharf::names::ServerName;
use wharf::policy::{EnvRules, Permission, Policy, filter_environment};
use wharf::{Error, LocalTool};
use wharf_testkit::Puppet;

use super::{Shelf, names, program, search, tool};
use crate::support::{at, error, folder, is_alive, pid_in, until};

const MCP_JSON: &str = r#"{
  "mcpServers": {
    "search": {
      "command": "uvx",
      "args": ["--from", "exa-mcp-server", "exa-mcp-server"],
      "env": {"EXA_API_KEY": "${EXA_API_KEY}"}
    },
    "memory": {"command": "python", "args": ["-m", "memory_server"], "cwd": ".", "debug": true}
  }
}"#;

fn memory() -> Puppet {
    Puppet::new().tool(tool("store", "Remember", &["*key", "*value"])).tool(tool(
        "recall",
        "Recall",
        &["*key"],
    ))
}

fn shelf() -> Shelf {
    Shelf::with(&[("exa-mcp-server", search()), ("memory_server", memory()), ("my_mcp_server", search())])
        .and("EXA_API_KEY", "exa-key-0123456789")
}

#[tokio::test]
async fn create_mcp_pool() {
    let shelf = shelf();
    let start = async |policy: Policy, command: &[&str]| {
        let host = shelf.builder().policy(policy).start().await.unwrap();
        let connected = host.berth(program("it", command)).unwrap().connect().await;
        host.close().await;
        connected
    };
    let (known, own) = (["uvx", "exa-mcp-server"], ["my-runner", "exa-mcp-server"]);
    // With default security.
    let pool = Policy::strict().with_sandbox(false);
    assert!(start(pool.clone(), &known).await.is_ok());
    assert_eq!(start(pool.clone(), &own).await.unwrap_err().kind(), "command_not_allowed");
    // A custom command added to the allowlist.
    let added = pool.with_commands(["my-runner"]);
    assert!(start(added.clone(), &known).await.is_ok() && start(added, &own).await.is_ok());
    // The defaults replaced entirely.
    let replaced = pool.replace_commands(["python", "node"]);
    assert_eq!(start(replaced, &known).await.unwrap_err().kind(), "command_not_allowed");
    // Strict mode off.
    assert!(start(pool.with_strict(false), &own).await.is_ok());
}

#[test]
fn mcp_security_config_with_commands() {
    let defaults = Policy::strict().with_sandbox(false);
    let security = defaults.with_commands(["my-runner"]);
    assert!(security.is_strict() && security.commands().any(|c| c == "my-runner"));
    assert!(security.commands().any(|c| c == "npx"));
    assert!(!defaults.commands().any(|c| c == "my-runner"), "the one it was made of stays as it was");
}

#[tokio::test]
async fn context_manager_pattern() {
    let files = folder();
    let pid = at(&files, "pid");
    let shelf = Shelf::with(&[("exa-mcp-server", search().pid(&pid)), ("memory_server", memory())])
        .and("EXA_API_KEY", "exa-key-0123456789");
    {
        let pool = shelf.builder().servers(shelf.config(".mcp.json", MCP_JSON).servers.into_values());
        let pool = pool.start().await.unwrap();
        let client = pool.ensemble("search").await.unwrap();
        let result = client.call("exa_search", json!({"query": "AI"})).await;
        assert!(result.success && result.to_text().contains("AI"), "{result:?}");
    }
    let process = pid_in(&pid).await;
    until("connections are cleaned up", || !is_alive(process)).await;
}

#[tokio::test]
async fn get_client_by_name_or_inline_and_the_same_twice() {
    let shelf = shelf();
    let pool = shelf.builder().servers(shelf.config(".mcp.json", MCP_JSON).servers.into_values());
    let pool = pool.start().await.unwrap();
    let named = pool.berth("search").unwrap().connect().await.unwrap();
    assert_eq!(pool.berth("search").unwrap().connect().await.unwrap().number(), named.number());
    let inline = || program("mine", &["uvx", "exa-mcp-server"]);
    let first = pool.berth(inline()).unwrap().connect().await.unwrap();
    assert_eq!(pool.berth(inline()).unwrap().connect().await.unwrap().number(), first.number());
    assert_ne!(first.number(), named.number());
    assert_eq!(pool.berth("nobody").unwrap_err().kind(), "unknown_server");
    pool.close().await;
    pool.close().await;
    assert!(!named.is_open() && !first.is_open());
}

#[derive(Deserialize)]
struct SearchRequest {
    #[serde(rename = "query")]
    _query: String,
    #[serde(rename = "limit", default)]
    _limit: u8,
}

#[tokio::test]
async fn load_mcp_tools() {
    let shelf = shelf();
    let host = shelf.builder().servers(shelf.config(".mcp.json", MCP_JSON).servers.into_values());
    let host = host.start().await.unwrap();
    let session = host.session("agent").permission(Permission::Yolo).start().unwrap();
    // Every tool of a server.
    let tools = session.load(Load::new("search")).await.unwrap();
    assert_eq!(names(&tools), ["search_exa_search", "search_web_search"]);
    // Some tools, with one's own validation.
    let mut server = program("mine", &["python", "-m", "my_mcp_server"]);
    super::stdio(&mut server).cwd = Some(shelf.folder());
    let load = || Load::new(server.clone()).tools(["exa_search"]).demand_type::<SearchRequest>("exa_search");
    assert_eq!(names(&session.load(load()).await.unwrap()), ["mine_exa_search"]);
    assert!(session.call("mine_exa_search", json!({"query": "AI", "limit": 10})).await.success);
    let outcome = session.call("mine_exa_search", json!({"query": "AI", "limit": 1000})).await;
    assert_eq!(error(&outcome).kind(), "arguments");
    // Registered already: refused, or updated.
    assert_eq!(session.load(load()).await.unwrap_err().kind(), "config");
    assert_eq!(names(&session.load(load().update()).await.unwrap()), ["mine_exa_search"]);
    host.close().await;
}

#[tokio::test]
async fn load_mcp_config_all_and_chosen_servers() {
    let shelf = shelf();
    let servers = || shelf.config(".mcp.json", MCP_JSON).servers.into_values();
    let name = |text: &str| ServerName::parse(text).unwrap();
    for only in [None, Some(["memory"])] {
        let host = shelf.builder().start().await.unwrap();
        let session = host.session("agent").permission(Permission::Yolo).start().unwrap();
        let load = LoadAll::new(servers());
        let all = session.load_all(only.map_or(load.clone(), |only| load.only(only))).await;
        assert_eq!(names(all[&name("memory")].as_ref().unwrap()), ["memory_store", "memory_recall"]);
        assert_eq!(all.len(), if only.is_some() { 1 } else { 2 });
        host.close().await;
    }
}

#[tokio::test]
async fn create_mcp_callable() {
    let shelf = shelf();
    let pool = shelf.builder().servers(shelf.config(".mcp.json", MCP_JSON).servers.into_values());
    let pool = pool.start().await.unwrap();
    let search = pool.callable("search", "exa_search").await.unwrap();
    let result = search.call(json!({"query": "AI research", "limit": 10})).await;
    assert!(result.to_text().contains("AI research"), "{result:?}");
    assert_eq!(search.public_name(), "search_exa_search");
    pool.close().await;
}

#[test]
fn filter_mcp_environment() {
    let world = [
        ("PATH", "/bin"),
        ("HOME", "/home/ada"),
        ("OPENAI_API_KEY", "sk-x"),
        ("MY_SAFE_VAR", "1"),
        ("MCP_MODE", "x"),
    ];
    let world = world.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = filter_environment(&world, &EnvRules::default());
    assert!(env.kept.contains_key("PATH") && env.kept.contains_key("MCP_MODE"));
    assert!(!env.kept.contains_key("OPENAI_API_KEY") && !env.kept.contains_key("MY_SAFE_VAR"));
    let env = filter_environment(&world, &EnvRules::new(["PATH", "HOME", "MY_SAFE_VAR"], [""; 0]));
    assert_eq!(env.kept.keys().collect::<Vec<_>>(), ["HOME", "MY_SAFE_VAR", "PATH"]);
}

#[tokio::test]
async fn command_not_allowed_error() {
    let shelf = shelf();
    let pool = shelf.builder().start().await.unwrap();
    for command in ["malicious-binary", "./python", "/tmp/malicious"] {
        let blocked = pool.berth(program("it", &[command])).unwrap().connect().await.unwrap_err();
        assert!(matches!(blocked, Error::CommandNotAllowed { .. }), "{blocked:?}");
        assert!(blocked.to_string().contains(command), "{blocked}");
    }
}

#[tokio::test]
async fn session_scoped_pool() {
    let files = folder();
    let pid = at(&files, "pid");
    let shelf = Shelf::with(&[("exa-mcp-server", search().pid(&pid)), ("memory_server", memory())])
        .and("EXA_API_KEY", "exa-key-0123456789");
    let config = shelf.config(".mcp.json", MCP_JSON);
    let host = shelf
        .builder()
        .policy(Policy::strict().with_sandbox(false).with_commands(["my-runner"]))
        .start()
        .await
        .unwrap();
    let session = host.session("agent").permission(Permission::Yolo).start().unwrap();
    let other = host.session("other").permission(Permission::Yolo).start().unwrap();
    session.load(Load::new(config.servers[&ServerName::parse("search").unwrap()].clone())).await.unwrap();
    let response = session.call("search_exa_search", json!({"query": "AI research", "limit": 10})).await;
    assert!(response.success, "{response:?}");
    assert_eq!(error(&other.call("search_exa_search", json!({"query": "x"})).await).kind(), "unknown_tool");
    let process = pid_in(&pid).await;
    session.close().await;
    assert!(!is_alive(process));
}

#[tokio::test]
async fn load_config_and_the_configuration_file_format() {
    let text = MCP_JSON.replacen(
        "\"mcpServers\": {",
        "\"mcpServers\": {\n    \"remote\": {\"url\": \"https://mcp.example.com/api\"},",
        1,
    );
    let shelf = shelf();
    let config = shelf.config(".mcp.json", &text);
    let server = |name: &str| &config.servers[&ServerName::parse(name).unwrap()];
    assert_eq!(server("remote").transport_name(), "http");
    assert!(server("memory").debug && !server("search").debug);
    let env = super::stdio(&mut server("search").clone()).env["EXA_API_KEY"].expose().to_owned();
    assert_eq!(env, "exa-key-0123456789");
    // No file, or one that cannot be read.
    let sources = |path| Sources { explicit: vec![path], env: shelf.env(), ..Sources::default() };
    let missing = load(&sources(shelf.folder().join("nobody.json"))).unwrap_err();
    assert!(missing.to_string().contains("there is no such file"), "{missing}");
    let broken = shelf.folder().join("broken.json");
    wharf::config::edit::write_atomically(&broken, "{\"mcpServers\": [").unwrap();
    let broken = load(&sources(broken)).unwrap();
    assert!(!broken.problems.is_empty() && broken.servers.is_empty(), "{:?}", broken.problems);
}

#[tokio::test]
async fn migration_pools_have_nothing_in_common() {
    let shelf = shelf();
    let servers = || shelf.config(".mcp.json", MCP_JSON).servers.into_values();
    let wide = Policy::strict().with_sandbox(false).with_commands(["my-runner"]);
    let one = shelf.builder().policy(wide).servers(servers()).start().await.unwrap();
    let two = shelf.builder().servers(servers()).start().await.unwrap();
    let berths = [&one, &two].map(|pool| pool.berth("search").unwrap());
    let (first, second) = tokio::join!(berths[0].connect(), berths[1].connect());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_ne!(first.number(), second.number(), "each has its own");
    // What one may start, the other still may not.
    let own = || program("own", &["my-runner", "exa-mcp-server"]);
    assert!(one.berth(own()).unwrap().connect().await.is_ok());
    let refused = two.berth(own()).unwrap().connect().await.unwrap_err();
    assert_eq!(refused.kind(), "command_not_allowed");
    one.close().await;
    assert!(!first.is_open() && second.is_open(), "and what one closes, the other keeps");
    assert!(two.call("search_exa_search", json!({"query": "AI"})).await.success);
    two.close().await;
}

#[tokio::test]
async fn multi_server_configuration_and_the_unified_interface() {
    let shelf = shelf();
    let host = shelf.builder().start().await.unwrap();
    let session = host.session("agent").permission(Permission::Yolo).start().unwrap();
    let servers = || shelf.config(".mcp.json", MCP_JSON).servers.into_values();
    let all_tools = session.load_all(LoadAll::new(servers())).await;
    let told: Vec<String> = all_tools
        .iter()
        .map(|(server, tools)| {
            format!("Server '{server}': {} tools registered", tools.as_ref().unwrap().len())
        })
        .collect();
    assert_eq!(told, ["Server 'search': 2 tools registered", "Server 'memory': 2 tools registered"]);
    // Again: refused, or updated.
    let again = session.load_all(LoadAll::new(servers())).await;
    assert!(again.values().all(|tools| tools.as_ref().is_err_and(|e| e.kind() == "config")), "{again:?}");
    let updated = session.load_all(LoadAll::new(servers()).update()).await;
    assert!(updated.values().all(Result::is_ok), "{updated:?}");
    // Local and remote tools are invoked alike.
    let echo = LocalTool::new("echo", "Says it again", async |said: Said, _| Ok::<_, String>(said.query));
    session.register(echo).unwrap();
    for name in ["search_exa_search", "echo"] {
        let calling = session.call(name, json!({"query": "AI research"})).await;
        assert!(calling.success && calling.to_text().contains("AI research"), "{name}: {calling:?}");
    }
    host.close().await;
}

#[derive(Deserialize, JsonSchema)]
struct Said {
    query: String,
}

#[tokio::test]
async fn pitfall_environment_leakage() {
    let files = folder();
    let described = at(&files, "described");
    let server = search().with(|s| s.describe_file = Some(described.clone()));
    let shelf = Shelf::with(&[("exa-mcp-server", server), ("memory_server", memory())])
        .and("EXA_API_KEY", "exa-key-0123456789")
        .and("OPENAI_API_KEY", "sk-0123456789abcdef")
        .and("AWS_SECRET_ACCESS_KEY", "aws-0123456789abcdef")
        .and("MCP_MODE", "test");
    let pool = shelf.builder().servers(shelf.config(".mcp.json", MCP_JSON).servers.into_values());
    let pool = pool.start().await.unwrap();
    pool.berth("search").unwrap().connect().await.unwrap();
    let said: Value = serde_json::from_str(&std::fs::read_to_string(&described).unwrap()).unwrap();
    assert_eq!(
        (&said["env"]["EXA_API_KEY"], &said["env"]["MCP_MODE"]),
        (&json!("exa-key-0123456789"), &json!("test"))
    );
    for secret in ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"] {
        assert!(said["env"].get(secret).is_none(), "{secret} is nobody's business");
    }
    pool.close().await;
}
