//! `nexus3.mcp` inside its agents: the container that shares a registry, skills beside native ones, consent of a session.

use serde_json::{Value, json};
use wharf::ask::Answer;
use wharf::config::{Remote, ServerConfig, Transport};
use wharf::host::{Docking, NoArguments};
use wharf::names::ServerName;
use wharf::policy::{Permission, Reach};
use wharf::registry::Source;
use wharf::secret::SecretUrl;
use wharf::session::Visibility;
use wharf::{Host, LocalTool};
use wharf_testkit::http::honest_modern;
use wharf_testkit::{HttpPuppet, Puppet};

use super::nexus3::{GITHUB, nexus, shelf};
use super::{Shelf, listed, program, search, stdio, tool, with_env};
use crate::sessions::Person;
use crate::support::{at, error, folder};

const MCP_JSON: &str = r#"{"servers": {
    "github": {"command": ["npx", "-y", "@modelcontextprotocol/server-github"], "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}},
    "filesystem": {"command": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/data"]},
    "slack": {"command": ["npx", "-y", "@modelcontextprotocol/server-slack"], "enabled": false}
}}"#;

#[tokio::test]
async fn usage_direct_client() {
    let shelf = shelf();
    let config = with_env(program("github", &GITHUB), "GITHUB_TOKEN", "ghp_0123456789abcdef");
    let host = shelf.builder().server(config).start().await.unwrap();
    let client = host.ensemble("github").await.unwrap();
    let told: Vec<String> = client
        .tools()
        .map(|tool| format!("- {}: {}", tool.name, tool.description.as_ref().unwrap()))
        .collect();
    assert_eq!(told[3], "- list_repos: List repositories");
    let result = client.call("list_repos", json!({"owner": "anthropics"})).await;
    assert_eq!(result.to_text(), r#"{"owner":"anthropics"}"#);
    host.close().await;
}

#[tokio::test]
async fn programmatic_configuration() {
    let files = folder();
    let described = at(&files, "described");
    let server = search().with(|s| s.describe_file = Some(described.clone()));
    let shelf = Shelf::with(&[("my_mcp_server", server)]);
    let mut config =
        with_env(program("my-server", &["python", "-m", "my_mcp_server"]), "API_KEY", "secret-0123");
    stdio(&mut config).env_passthrough = vec!["HOME".into()];
    stdio(&mut config).cwd = Some(shelf.folder());
    config.enabled = true;
    config.start_timeout = std::time::Duration::from_secs(30);
    let registry = nexus(shelf.builder()).start().await.unwrap();
    let main = registry.session("main").permission(Permission::Yolo).start().unwrap();
    let skills = main.connect(Docking::new(config).visibility(Visibility::Shared)).await.unwrap();
    assert_eq!(super::names(&skills), ["mcp_my_server_exa_search", "mcp_my_server_web_search"]);
    let said: Value = serde_json::from_str(&std::fs::read_to_string(&described).unwrap()).unwrap();
    assert_eq!(said["env"]["API_KEY"], "secret-0123");
    assert_eq!(said["cwd"], shelf.folder().canonicalize().unwrap().display().to_string());
    registry.close().await;
}

#[tokio::test]
async fn with_service_container() {
    let shelf = shelf().and("GITHUB_TOKEN", "ghp_0123456789abcdef");
    // One registry for every agent, filled from the configuration.
    let servers = shelf.config("mcp.json", MCP_JSON).servers.into_values();
    let container = nexus(shelf.builder()).servers(servers).start().await.unwrap();
    for agent_id in ["main", "worker"] {
        let agent = container.session(agent_id).permission(Permission::Yolo).start().unwrap();
        let skills = listed(&agent).await;
        assert!(skills.contains(&"mcp_github_list_repos".into()), "{agent_id}: {skills:?}");
        assert!(skills.contains(&"mcp_filesystem_read_file".into()), "{agent_id}: {skills:?}");
        assert_eq!(skills.len(), 7, "{agent_id}: {skills:?}");
        agent.close().await;
    }
    let connected: Vec<bool> = container
        .servers()
        .iter()
        .filter(|s| s.enabled)
        .map(|s| container.berth(s.name.as_str()).unwrap().connected())
        .collect();
    assert_eq!(connected, [true, true], "an agent that ends takes nothing of the others along");
    container.close().await;
}

#[tokio::test]
async fn with_skill_registry() {
    let shelf = shelf();
    let skills = nexus(shelf.builder()).server(program("github", &GITHUB)).start().await.unwrap();
    let native = LocalTool::new("nap", "Rests", async |_: NoArguments, _| Ok::<_, String>("rested"));
    skills.register(native).unwrap();
    let listing = skills.tools().await;
    let local = listing.snapshot.tools().iter().find(|route| route.source == Source::Local).unwrap();
    assert_eq!(listing.snapshot.tools().len(), 6, "native skills and MCP's in one registry");
    assert_eq!(skills.call(&local.public, json!({})).await.to_text(), "rested");
    assert!(skills.call("mcp_github_list_repos", json!({"owner": "octocat"})).await.success);
    skills.close().await;
}

#[tokio::test]
async fn with_session_consent_and_allowances() {
    let shelf = shelf();
    let host = nexus(shelf.builder()).server(program("github", &GITHUB)).start().await.unwrap();
    let call = async |agent: &Host| agent.call("mcp_github_list_repos", json!({"owner": "octocat"})).await;
    // Nobody to ask is a no.
    let silent = host.session("silent").permission(Permission::Trusted).start().unwrap();
    assert_eq!(error(&call(&silent).await).kind(), "denied");
    // An allowance of the session needs no question, and can be taken back.
    silent.allow("github", None).unwrap();
    assert!(call(&silent).await.success);
    silent.revoke("github").unwrap();
    assert_eq!(error(&call(&silent).await).kind(), "denied");
    // A yes to the server is remembered as one.
    let person = Person::who_says([Answer::Allow(Reach::Server)]);
    let asked = host.session("asked").permission(Permission::Trusted).asker(person.clone()).start().unwrap();
    assert!(call(&asked).await.success && call(&asked).await.success);
    assert_eq!(person.asked(), 1);
    host.close().await;
}

#[tokio::test]
async fn skill_name_sanitization_of_servers_too() {
    let script = Puppet::new().tool(tool("../../etc", "Evil", &[])).tool(tool("list-repos", "List", &[]));
    let shelf = Shelf::with(&[("it", script)]);
    let host = nexus(shelf.builder()).server(program("evil/../path", &["npx", "it"])).start().await.unwrap();
    assert_eq!(listed(&host).await, ["mcp_evil_path_etc", "mcp_evil_path_list_repos"]);
    host.close().await;
}

#[tokio::test]
async fn test_server_over_http() {
    let tools = vec![
        tool("echo", "Echo back a message", &["*message"]),
        tool("get_time", "Get current date/time", &[]),
    ];
    let server = HttpPuppet::start(honest_modern(tools));
    let remote = Remote { url: SecretUrl::new(server.url().parse().unwrap()), headers: Default::default() };
    let config = ServerConfig::new(ServerName::parse("test").unwrap(), Transport::Http(remote));
    let host = Host::builder().server(config).start().await.unwrap();
    let client = host.ensemble("test").await.unwrap();
    assert_eq!(client.tools().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["echo", "get_time"]);
    assert!(client.call("echo", json!({"message": "Hello!"})).await.to_text().contains("Hello!"));
    host.close().await;
}
