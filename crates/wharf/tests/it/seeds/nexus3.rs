//! `nexus3.mcp`: the client, the registry with visibility, permissions, its configuration files.

use serde_json::{Value, json};
use wharf::ask::Answer;
use wharf::config::{Connect, Remote, ServerConfig, Sources, Transport, TrustStore, load};
use wharf::event::State;
use wharf::host::{Docking, Health, HostBuilder};
use wharf::names::ServerName;
use wharf::policy::{Permission, Policy, Reach};
use wharf::registry::{NameRules, Naming};
use wharf::secret::{Secret, SecretUrl};
use wharf::session::Visibility;
use wharf::{Error, Host};
use wharf_testkit::http::honest_legacy;
use wharf_testkit::{Era, HttpPuppet, Puppet, Step, rmcp_peer_path};

use super::{Shelf, filesystem, github, listed, program, stdio, text, tool, with_env};
use crate::sessions::Person;
use crate::support::{at, count, error, folder, is_alive, pid_in, received, soon, until};

pub(super) const GITHUB: [&str; 3] = ["npx", "-y", "@modelcontextprotocol/server-github"];

pub(super) fn shelf() -> Shelf {
    Shelf::with(&[
        ("@modelcontextprotocol/server-github", github()),
        ("@modelcontextprotocol/server-filesystem", filesystem()),
        ("nexus3.mcp.test_server", test_server()),
    ])
}

/// Names as nexus3 makes them.
pub(super) fn nexus(builder: HostBuilder) -> HostBuilder {
    builder.names(NameRules { naming: Naming::Mcp, ..NameRules::default() })
}

fn test_server() -> Puppet {
    let number = json!({"type": "number"});
    let add = json!({"name": "add", "description": "Add two numbers", "inputSchema": {
        "type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}});
    Puppet::new()
        .tool(tool("echo", "Echo back a message", &["*message"]))
        .tool(tool("get_time", "Get current date/time", &[]))
        .tool(add)
        .on("tool:echo", [text("Hello!")])
        .on("tool:add", [text("5")])
}

#[tokio::test]
async fn mcp_client_in_a_context_and_by_hand() {
    // Against somebody else's server: one built on the official SDK.
    let path = rmcp_peer_path().display().to_string();
    let policy = Policy::strict().with_sandbox(false).with_commands([path.clone()]);
    let builder = || Host::builder().policy(policy.clone()).server(program("client", &[&path]));
    let host = builder().start().await.unwrap();
    let client = host.ensemble("client").await.unwrap();
    let tools: Vec<&str> = client.tools().map(|tool| tool.name.as_str()).collect();
    assert_eq!(tools, ["add", "ask", "echo", "progress"]);
    let result = client.call("echo", json!({"message": "hello"})).await;
    assert_eq!(result.to_text(), "hello");
    assert!(!client.info().implementation.name.raw().is_empty() && client.info().offers("tools"));
    host.close().await;
    assert!(!client.connection().is_open());
    let host = builder().start().await.unwrap();
    let client = host.berth("client").unwrap();
    client.connect().await.unwrap();
    assert!(client.connected());
    client.disconnect().await;
    assert!(!client.connected());
}

#[tokio::test]
async fn stdio_transport_with_variables_and_a_folder() {
    let files = folder();
    let described = at(&files, "described");
    let script = github().with(|s| s.describe_file = Some(described.clone()));
    let shelf = Shelf::with(&[("@modelcontextprotocol/server-github", script)])
        .and("OPENROUTER_API_KEY", "sk-or-0123456789abcdef")
        .and("EDITOR_OF_CHOICE", "ed");
    let mut config = with_env(program("github", &GITHUB), "GITHUB_TOKEN", "ghp_0123456789abcdef");
    stdio(&mut config).env_passthrough = vec!["HOME".into(), "EDITOR_OF_CHOICE".into()];
    stdio(&mut config).cwd = Some(shelf.folder());
    let host = shelf.builder().server(config).start().await.unwrap();
    host.berth("github").unwrap().connect().await.unwrap();
    let said: Value = serde_json::from_str(&std::fs::read_to_string(&described).unwrap()).unwrap();
    assert_eq!(said["env"]["GITHUB_TOKEN"], "ghp_0123456789abcdef");
    assert_eq!(said["env"]["EDITOR_OF_CHOICE"], "ed");
    assert!(said["env"].get("OPENROUTER_API_KEY").is_none(), "only what is named is passed on");
    assert_eq!(said["cwd"], shelf.folder().canonicalize().unwrap().display().to_string());
    host.close().await;
}

#[tokio::test]
async fn http_transport() {
    let server = HttpPuppet::start(honest_legacy(vec![tool("ask", "Ask", &[])], true));
    let headers = [("Authorization".to_owned(), Secret::new("Bearer token-0123456789"))].into();
    let remote = Remote { url: SecretUrl::new(server.url().parse().unwrap()), headers };
    let config = ServerConfig::new(ServerName::parse("remote_api").unwrap(), Transport::Http(remote));
    let shelf = shelf();
    let host = shelf.builder().server(config).start().await.unwrap();
    assert!(host.call("remote_api_ask", json!({})).await.success);
    assert!(server.requests().iter().all(|r| r.header("authorization") == Some("Bearer token-0123456789")));
    host.close().await;
}

#[tokio::test]
async fn mcp_server_registry() {
    let files = folder();
    let pid = at(&files, "pid");
    let shelf = Shelf::with(&[("@modelcontextprotocol/server-github", github().pid(&pid))]);
    let registry = nexus(shelf.builder()).start().await.unwrap();
    let main = registry.session("main").permission(Permission::Yolo).start().unwrap();
    let other = registry.session("other").permission(Permission::Yolo).start().unwrap();
    let config = with_env(program("github", &GITHUB), "GITHUB_TOKEN", "ghp_0123456789abcdef");
    main.connect(Docking::new(config.clone()).visibility(Visibility::Shared)).await.unwrap();
    for agent in [&main, &other] {
        assert_eq!(listed(agent).await.len(), 5);
        assert_eq!(agent.servers()[0].name.as_str(), "github");
        let skill = agent.route("mcp_github_list_repos").await.unwrap();
        assert_eq!((skill.server.as_str(), skill.tool.name.as_str()), ("github", "list_repos"));
    }
    main.disconnect("github").await.unwrap();
    assert!(!is_alive(pid_in(&pid).await));
    // Not shared: its owner alone sees it.
    main.connect(Docking::new(config)).await.unwrap();
    assert!(listed(&other).await.is_empty() && other.servers().is_empty());
    assert_eq!((main.check_connections().await.len(), other.check_connections().await.len()), (1, 0));
    assert_eq!(other.route("mcp_github_list_repos").await.unwrap_err().kind(), "unknown_tool");
    let process = pid_in(&pid).await;
    registry.close().await;
    assert!(!is_alive(process), "closing all is closing all");
}

#[tokio::test]
async fn check_connections_names_the_dead() {
    let files = folder();
    let turn = at(&files, "turn");
    // It works once, and then it cannot even start any more.
    let gone = Puppet::new()
        .with(|s| s.start = vec![Step::TurnsIn { file: turn, turns: vec![vec![], vec![Step::Exit(1)]] }])
        .on("tool:echo", [Step::Exit(1)]);
    let shelf = Shelf::with(&[("lives", Puppet::new()), ("dies", gone)]);
    let servers = ["lives", "dies", "unused"].map(|name| program(name, &["npx", name]));
    let builder = shelf.builder().retry_pause(std::time::Duration::from_millis(1));
    let registry = builder.servers(servers).start().await.unwrap();
    assert!(registry.check_connections().await.is_empty(), "nothing is connected yet");
    for name in ["lives", "dies"] {
        registry.berth(name).unwrap().connect().await.unwrap();
    }
    let alive = registry.check_connections().await;
    assert!(alive.iter().all(|(_, health)| matches!(health, Ok(Health::Alive))), "{alive:?}");
    assert_eq!(alive.len(), 2, "what nobody uses is not started");
    assert!(!soon("a call", registry.call("dies_echo", json!({}))).await.success);
    let berth = registry.berth("dies").unwrap();
    until("it is given up", || berth.state() == State::Disconnected).await;
    let checked = soon("a check", registry.check_connections()).await;
    let dead: Vec<&str> =
        checked.iter().filter(|(_, health)| health.is_err()).map(|(n, _)| n.as_str()).collect();
    assert_eq!((checked.len(), dead), (2, vec!["dies"]), "{checked:?}");
    assert!(registry.call("lives_echo", json!({})).await.success);
    // What is disconnected on purpose is not missed.
    berth.disconnect().await;
    assert_eq!(registry.check_connections().await.len(), 1);
    registry.close().await;
}

#[tokio::test]
async fn check_connections_makes_the_lost_ones_again() {
    let files = folder();
    for era in [Era::Legacy, Era::Modern] {
        let (log, pid) = (at(&files, &format!("log-{era:?}")), at(&files, &format!("pid-{era:?}")));
        let shelf = Shelf::with(&[("it", Puppet::of(era).log(&log).pid(&pid))]);
        // Nobody makes it again by itself in the time of this test.
        let builder = shelf.builder().retry_pause(std::time::Duration::from_secs(600));
        let registry = builder.server(program("it", &["npx", "it"])).start().await.unwrap();
        let first = registry.berth("it").unwrap().connect().await.unwrap();
        let health = |mut checked: Vec<(ServerName, wharf::Result<Health>)>| checked.remove(0).1.unwrap();
        assert_eq!(health(registry.check_connections().await), Health::Alive);
        let asked = received(&log);
        let (pings, discoveries) = (count(&asked, "ping"), count(&asked, "server/discover"));
        let expected = if era == Era::Legacy { (1, 1) } else { (0, 2) };
        assert_eq!((pings, discoveries), expected, "each in its era's words, beside the first");
        let process = rustix::process::Pid::from_raw(pid_in(&pid).await.cast_signed()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        until("its end is noticed", || !first.is_open()).await;
        let checked = soon("a check", registry.check_connections()).await;
        assert_eq!(health(checked), Health::Reconnected);
        assert!(registry.call("it_echo", json!({})).await.success);
        registry.close().await;
    }
}

#[tokio::test]
async fn check_connections_reports_the_silent_and_keeps_their_connection() {
    let no = Step::ReplyError { code: -32601, message: "no such method".into(), data: None };
    let silent = Puppet::of(Era::Legacy).on("ping", [Step::Hang]);
    let refuses = Puppet::of(Era::Legacy).on("ping", [no]);
    let shelf = Shelf::with(&[("it", silent), ("refuses", refuses)]);
    let mut slow = program("it", &["npx", "it"]);
    slow.timeout = std::time::Duration::from_millis(100);
    let registry =
        shelf.builder().servers([slow, program("refuses", &["npx", "refuses"])]).start().await.unwrap();
    for name in ["it", "refuses"] {
        registry.berth(name).unwrap().connect().await.unwrap();
    }
    let connection = registry.berth("it").unwrap().live().unwrap();
    let checked = soon("a check", registry.check_connections()).await;
    assert_eq!(checked[0].1.as_ref().unwrap_err().kind(), "timeout");
    assert!(connection.is_open(), "a server that is busy is not ended");
    assert_eq!(*checked[1].1.as_ref().unwrap(), Health::Alive, "whoever refuses has answered");
    registry.close().await;
}

#[tokio::test]
async fn mcp_skill_adapter_and_skill_name_sanitization() {
    let script = Puppet::new().tool(tool("list-repos", "List", &["*owner", "repo"])).tool(tool(
        "../../etc",
        "Evil",
        &[],
    ));
    let shelf = Shelf::with(&[("it", script)]);
    let config = program("GitHub API", &["npx", "it"]);
    let host = nexus(shelf.builder()).server(config).start().await.unwrap();
    assert_eq!(listed(&host).await, ["mcp_github_api_list_repos", "mcp_github_api_etc"]);
    let adapter = host.callable("GitHub API", "list-repos").await.unwrap();
    assert_eq!(adapter.public_name(), "mcp_github_api_list_repos");
    assert_eq!(adapter.tool().name.as_str(), "list-repos", "the original name");
    assert!(adapter.call(json!({"owner": "octocat", "repo": "hello-world"})).await.success);
    assert_eq!(
        error(&adapter.call(json!({"owner": 1})).await).kind(),
        "arguments",
        "checked before it is sent"
    );
    host.close().await;
}

#[tokio::test]
async fn permission_gated_access() {
    let shelf = shelf();
    let host = nexus(shelf.builder()).server(program("github", &GITHUB)).start().await.unwrap();
    let arguments = || json!({"owner": "anthropics"});
    // No MCP at all: without a permission, and sandboxed.
    for builder in [host.session("none"), host.session("boxed").permission(Permission::Sandboxed)] {
        let agent = builder.start().unwrap();
        assert!(listed(&agent).await.is_empty());
        assert!(!agent.call("mcp_github_list_repos", arguments()).await.success);
    }
    // Trusted: asked at the first use of a server. Yolo: never.
    let person = Person::who_says([Answer::Allow(Reach::Server)]);
    let trusted = host.session("t").permission(Permission::Trusted).asker(person.clone()).start().unwrap();
    let yolo = host.session("y").permission(Permission::Yolo).asker(person.clone()).start().unwrap();
    for (agent, asked) in [(&yolo, 0), (&trusted, 1), (&trusted, 1)] {
        assert!(agent.call("mcp_github_list_repos", arguments()).await.success);
        assert_eq!(person.asked(), asked);
    }
    host.close().await;
}

#[tokio::test]
async fn configuration_examples() {
    let shelf = shelf().and("GITHUB_TOKEN", "ghp_0123456789abcdef").and("MY_API_KEY", "key-0123456789");
    let config = shelf.config(
        "mcp.json",
        r#"{"servers": {
            "github": {"command": ["npx", "-y", "@modelcontextprotocol/server-github"], "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}},
            "filesystem": {"command": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/user/projects"]},
            "custom": {"command": ["python", "-m", "my_mcp_server"], "cwd": "/path/to/server",
                       "env": {"DATABASE_URL": "postgresql://localhost/mydb"}, "env_passthrough": ["HOME", "USER"]},
            "remote_api": {"url": "https://mcp.example.com/api", "enabled": true},
            "slack": {"command": ["npx", "-y", "@modelcontextprotocol/server-slack"], "enabled": false},
            "api": {"command": ["my-mcp-server"], "env": {"API_KEY": "${MY_API_KEY}",
                    "BASE_URL": "${API_BASE_URL:-https://default.example.com}", "DEBUG": "false"}},
            "agentbridge": {"command": ["/mnt/d/tempo/python.exe", "-m", "mcp", "--port", "10001"], "cwd": "/mnt/d/tempo"}
        }}"#,
    );
    let server = |name: &str| config.servers[&ServerName::parse(name).unwrap()].clone();
    let env = |name: &str, key: &str| stdio(&mut server(name)).env[key].expose().to_owned();
    assert_eq!(config.servers.len(), 7);
    assert_eq!(env("github", "GITHUB_TOKEN"), "ghp_0123456789abcdef");
    assert_eq!(stdio(&mut server("filesystem")).args.last().unwrap(), "/home/user/projects");
    assert_eq!(stdio(&mut server("custom")).env_passthrough, ["HOME", "USER"]);
    assert!(!server("slack").enabled && server("remote_api").enabled);
    assert_eq!(
        (env("api", "API_KEY").as_str(), env("api", "BASE_URL").as_str()),
        ("key-0123456789", "https://default.example.com")
    );
    assert_eq!(server("remote_api").transport_name(), "http");
    let host = shelf.builder().servers([server("github"), server("slack")]).start().await.unwrap();
    assert_eq!(listed(&host).await.len(), 5, "what is not enabled is not started");
    host.close().await;
}

#[test]
fn configuration_merging() {
    let folder = tempfile::tempdir().unwrap();
    let (user, local) = (folder.path().join("wharf.toml"), folder.path().join("project/.mcp.json"));
    std::fs::create_dir(local.parent().unwrap()).unwrap();
    let write = |path, text| wharf::config::edit::write_atomically(path, text).unwrap();
    write(
        &user,
        "[mcp.github]\ncommand = \"npx\"\nargs = [\"-y\", \"@modelcontextprotocol/server-github\"]\n",
    );
    write(
        &local,
        r#"{"servers": {"github": {"enabled": false}, "project-specific": {"command": ["npx", "mine"]}}}"#,
    );
    let folders = vec![local.parent().unwrap().to_owned()];
    let sources =
        |trust| Sources { user: Some(user.clone()), folders: folders.clone(), trust, ..Sources::default() };
    let pending = load(&sources(TrustStore::default())).unwrap();
    assert_eq!(
        (pending.servers.len(), pending.pending.len()),
        (1, 1),
        "a project has no say until it is trusted"
    );
    let mut trust = TrustStore::default();
    trust.trust_pending(&pending.pending[0]).unwrap();
    let merged = load(&sources(trust)).unwrap();
    let enabled = |name: &str| merged.servers[&ServerName::parse(name).unwrap()].enabled;
    assert!(!enabled("github") && enabled("project-specific"));
}

#[tokio::test]
async fn test_server_example_usage() {
    let mut config = program("test", &["python", "-m", "nexus3.mcp.test_server"]);
    let shelf = shelf();
    stdio(&mut config).cwd = Some(shelf.folder());
    let host = shelf.builder().server(config).start().await.unwrap();
    let client = host.ensemble("test").await.unwrap();
    assert_eq!(client.tools().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["echo", "get_time", "add"]);
    assert_eq!(client.call("echo", json!({"message": "Hello!"})).await.to_text(), "Hello!");
    assert_eq!(client.call("add", json!({"a": 2, "b": 3})).await.to_text(), "5");
    host.close().await;
}

#[tokio::test]
async fn error_handling() {
    let script = github()
        .on("tool:list_repos", [Step::ReplyError { code: -32001, message: "bad token".into(), data: None }]);
    let shelf = Shelf::with(&[("@modelcontextprotocol/server-github", script)]);
    let mut off = program("off", &GITHUB);
    off.enabled = false;
    let servers = [program("github", &GITHUB), program("none", &["npx", "-y", "nobody-has-this"]), off];
    let host = shelf.builder().servers(servers).start().await.unwrap();
    let client = host.ensemble("github").await.unwrap();
    assert_eq!(client.call("unknown", json!({})).await.into_result().unwrap_err().kind(), "unknown_tool");
    let Error::Tool { rpc, .. } =
        client.call("list_repos", json!({"owner": "x"})).await.into_result().unwrap_err()
    else {
        panic!("an error of the server")
    };
    assert_eq!((rpc.code, rpc.message.raw()), (-32001, "bad token"));
    assert!(matches!(host.ensemble("none").await.unwrap_err(), Error::Connection { .. }));
    assert!(matches!(host.ensemble("off").await.unwrap_err(), Error::Denied { .. }));
    host.close().await;
}

#[tokio::test]
async fn usage_registry_based() {
    let shelf = shelf();
    let registry = nexus(shelf.builder()).start().await.unwrap();
    registry.add_server(with_env(program("github", &GITHUB), "GITHUB_TOKEN", "ghp_0123456789abcdef"));
    let mut lazy = program("filesystem", &["npx", "-y", "@modelcontextprotocol/server-filesystem", "/data"]);
    lazy.connect = Connect::Lazy;
    registry.add_server(lazy);
    let skills = listed(&registry).await;
    assert!(
        skills.contains(&"mcp_github_list_repos".into())
            && skills.contains(&"mcp_filesystem_read_file".into())
    );
    let result = registry.call("mcp_github_list_repos", json!({"owner": "anthropics"})).await;
    assert!(result.to_text().contains("anthropics"));
    registry.close().await;
}
