//! `McpIntegrationSection` of weakincentives: servers by value, bridged tools, events, transactions, lifecycle.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use wharf::config::{Connect, Remote, ServerConfig, Transport};
use wharf::event::{Event, State};
use wharf::host::{Context, Docking, NoArguments};
use wharf::names::ServerName;
use wharf::outcome::Outcome;
use wharf::policy::Permission;
use wharf::render::{self, Template};
use wharf::secret::{Secret, SecretUrl};
use wharf::wire::Json;
use wharf::{CallOptions, Error, LocalTool};
use wharf_testkit::http::{honest_modern, honest_sse};
use wharf_testkit::{HttpPuppet, Puppet, Step};

use super::generated::{CreateIssue, Github};
use super::{Shelf, filesystem, github, listed, program, text, tool, with_env};
use crate::support::{at, error, folder, is_alive, pid_in, soon, until};

const GITHUB: [&str; 3] = ["npx", "-y", "@modelcontextprotocol/server-github"];

fn shelf() -> Shelf {
    Shelf::with(&[
        ("@modelcontextprotocol/server-github", github()),
        ("@modelcontextprotocol/server-filesystem", filesystem()),
        ("@anthropic/mcp-server-brave-search", Puppet::new().tool(tool("search", "Search", &["*query"]))),
    ])
}

#[tokio::test]
async fn single_server() {
    let server =
        program("filesystem", &["npx", "-y", "@modelcontextprotocol/server-filesystem", "/workspace"]);
    let shelf = shelf();
    let host = shelf.builder().server(server).start().await.unwrap();
    assert_eq!(listed(&host).await, ["filesystem_read_file", "filesystem_write_file"]);
    host.close().await;
}

#[tokio::test]
async fn multiple_servers() {
    let shelf = shelf();
    let github = with_env(program("github", &GITHUB), "GITHUB_TOKEN", "ghp_0123456789abcdef");
    let brave = program("brave", &["npx", "-y", "@anthropic/mcp-server-brave-search"]);
    let brave = with_env(brave, "BRAVE_API_KEY", "brave-0123456789");
    let host = shelf.builder().servers([github, brave]).start().await.unwrap();
    let tools = listed(&host).await;
    assert!(
        tools.contains(&"github_create_issue".into()) && tools.contains(&"brave_search".into()),
        "{tools:?}"
    );
    assert!(host.call("brave_search", json!({"query": "tides"})).await.success);
    host.close().await;
}

#[tokio::test]
async fn tool_filtering() {
    let mut config = program("github", &GITHUB);
    config.enabled_tools = Some(["create_issue", "list_issues", "get_issue"].map(str::to_owned).into());
    config.disabled_tools = vec!["delete_repo".into(), "get_issue".into()];
    let shelf = shelf();
    let host = shelf.builder().server(config).start().await.unwrap();
    assert_eq!(
        listed(&host).await,
        ["github_create_issue", "github_list_issues"],
        "the blocklist comes after"
    );
    let arguments = json!({"owner": "me", "repo": "boat"});
    let outcome = host.call_tool("github", "delete_repo", arguments, CallOptions::default()).await;
    assert!(!outcome.success);
    host.close().await;
}

#[tokio::test]
async fn http_transport() {
    let server = HttpPuppet::start(honest_modern(vec![tool("ask", "Ask", &["*question"])]));
    let headers = [("Authorization".to_owned(), Secret::new("Bearer api-key-0123456789"))].into();
    let remote = Remote { url: SecretUrl::new(server.url().parse().unwrap()), headers };
    let mut config = ServerConfig::new(ServerName::parse("remote").unwrap(), Transport::Http(remote));
    config.timeout = Duration::from_secs(60);
    let shelf = shelf();
    let host = shelf.builder().server(config).start().await.unwrap();
    assert!(host.call("remote_ask", json!({"question": "when is high tide?"})).await.success);
    let sent = server.requests();
    assert!(sent.iter().all(|r| r.header("authorization") == Some("Bearer api-key-0123456789")));
    host.close().await;
}

#[tokio::test]
async fn bridged_tools_have_a_prefix_and_their_schema() {
    let mut short = program("github", &GITHUB);
    short.tool_prefix = Some("gh".into());
    for (config, name) in [(program("github", &GITHUB), "github_create_issue"), (short, "gh_create_issue")] {
        let shelf = shelf();
        let host = shelf.builder().server(config).start().await.unwrap();
        let listing = host.tools().await;
        let route = listing.snapshot.route(name).unwrap();
        let schema: serde_json::Value = route.tool.input_schema.to().unwrap();
        assert_eq!(schema["required"], json!(["owner", "repo", "title"]));
        let issue = json!({"owner": "me", "repo": "boat", "title": "It leaks"});
        assert!(host.call(name, issue).await.to_text().contains("It leaks"));
        host.close().await;
    }
}

#[tokio::test]
async fn result_handling_and_failure_semantics() {
    let mut failed = json!({"content": [{"type": "text", "text": "rate limited"}]});
    failed["isError"] = json!(true);
    let script = Puppet::new()
        .tool(tool("works", "", &[]))
        .tool(tool("fails", "", &[]))
        .tool(tool("refuses", "", &[]))
        .tool(tool("hangs", "", &[]))
        .tool(tool("crashes", "", &[]))
        .tool(tool("strict", "", &["*field"]))
        .on("tool:works", [text("fine")])
        .on("tool:fails", [Step::Reply(failed)])
        .on("tool:refuses", [Step::ReplyError { code: -32000, message: "forbidden".into(), data: None }])
        .on("tool:hangs", [Step::Hang])
        .on("tool:crashes", [Step::Stderr("out of memory".into()), Step::Exit(1)]);
    let shelf = Shelf::with(&[("it", script)]);
    let host = shelf.builder().server(program("it", &["npx", "it"])).start().await.unwrap();
    let works = host.call("it_works", json!({})).await;
    assert!(works.success && works.content().len() == 1 && works.to_text() == "fine");
    let fails = host.call("it_fails", json!({})).await;
    assert!(!fails.success && fails.reason.unwrap().contains("rate limited"));
    let refuses = host.call("it_refuses", json!({})).await;
    assert!(matches!(error(&refuses), Error::Tool { .. }) && refuses.reason.unwrap().contains("forbidden"));
    let short = CallOptions { timeout: Some(Duration::from_millis(50)), ..CallOptions::default() };
    let hangs = host.call_with("it_hangs", Json::empty_object(), short).await;
    assert!(matches!(error(&hangs), Error::Timeout { .. }) && !hangs.success);
    assert_eq!(error(&host.call("it_nothing", json!({})).await).kind(), "unknown_tool");
    assert_eq!(error(&host.call("it_strict", json!({})).await).kind(), "arguments");
    let crashes = soon("a crash", host.call("it_crashes", json!({}))).await;
    assert!(error(&crashes).to_string().contains("out of memory"), "{crashes:?}");
    assert!(
        soon("it is back", host.call("it_works", json!({}))).await.success,
        "a lost connection is made again"
    );
    host.close().await;
}

#[tokio::test]
async fn connection_refused_is_an_error_of_connect() {
    let shelf = shelf();
    let host =
        shelf.builder().server(program("it", &["npx", "-y", "nobody-has-this"])).start().await.unwrap();
    let refused = host.berth("it").unwrap().connect().await.unwrap_err();
    assert!(matches!(refused, Error::Connection { transport: "stdio", .. }), "{refused:?}");
    assert!(refused.to_string().contains("no such package"), "{refused}");
}

#[tokio::test]
async fn event_publication() {
    let shelf = shelf();
    let host = shelf.builder().server(program("github", &GITHUB)).start().await.unwrap();
    host.tools().await;
    let mut bus = host.events().subscribe();
    let params = json!({"owner": "octocat"});
    assert!(host.call("github_list_repos", params.clone()).await.success);
    let told = loop {
        if let Event::ToolInvoked(told) = bus.try_recv().unwrap() {
            break told;
        }
    };
    assert_eq!((told.tool.as_str(), told.server.as_str(), told.local), ("list_repos", "github", false));
    assert_eq!((told.arguments().to_value(), told.success), (params, true));
    host.close().await;
}

#[tokio::test]
async fn transactional_execution() {
    let shelf = shelf();
    let host = shelf.builder().start().await.unwrap();
    let session = host.session("main").permission(Permission::Yolo).start().unwrap();
    session.connect(Docking::new(program("github", &GITHUB))).await.unwrap();
    session.reduce(|before: Option<&Vec<String>>, outcome: &Outcome| {
        before.into_iter().flatten().cloned().chain([outcome.to_text()]).collect::<Vec<_>>()
    });
    assert!(session.call("github_list_repos", json!({"owner": "octocat"})).await.success);
    assert!(!session.call("github_list_repos", json!({})).await.success);
    let remembered = session.state().get::<Vec<String>>().unwrap();
    assert_eq!(*remembered, [r#"{"owner":"octocat"}"#], "what failed is not remembered");
    host.close().await;
}

/// The connections, where handlers find them.
struct ConnectionPool(wharf::Host);

#[tokio::test]
async fn resource_registry() {
    let shelf = shelf();
    let host = shelf.builder().server(program("github", &GITHUB)).start().await.unwrap();
    host.extensions().insert(ConnectionPool(shelf.builder().start().await.unwrap()));
    let handler = LocalTool::new("repos", "Lists", async |_: NoArguments, context: Context| {
        assert!(context.extensions().get::<ConnectionPool>().is_some_and(|pool| pool.0.servers().is_empty()));
        let github = context.host().ensemble("github").await.map_err(|e| e.to_string())?;
        let said = github.call("list_repos", json!({"owner": "octocat"})).await;
        Ok::<_, String>(said.to_text())
    });
    host.register(handler).unwrap();
    assert_eq!(host.call("repos", json!({})).await.to_text(), r#"{"owner":"octocat"}"#);
    host.close().await;
}

#[tokio::test]
async fn lazy_eager_and_scoped_connection() {
    let files = folder();
    let pid = at(&files, "pid");
    let shelf = Shelf::with(&[("@modelcontextprotocol/server-github", github().pid(&pid))]);
    // By hand: nothing before `connect`, everything after it, nothing after `disconnect`.
    let mut manual = program("github", &GITHUB);
    manual.connect = Connect::Manual;
    let host = shelf.builder().server(manual).start().await.unwrap();
    assert_eq!(host.tools_of("github").await.unwrap_err().kind(), "not_connected");
    assert!(!pid.exists());
    let berth = host.berth("github").unwrap();
    berth.connect().await.unwrap();
    assert!(berth.connected() && berth.state() == State::Connected);
    assert_eq!(host.tools_of("github").await.unwrap().snapshot.tools().len(), 5);
    berth.disconnect().await;
    assert!(!berth.connected() && !is_alive(pid_in(&pid).await));
    // At once.
    let mut eager = program("github", &GITHUB);
    eager.connect = Connect::Eager;
    let host = shelf.builder().server(eager).start().await.unwrap();
    assert!(host.berth("github").unwrap().connected());
    // For as long as it is held.
    let process = pid_in(&pid).await;
    drop(host);
    until("it is disconnected by itself", || !is_alive(process)).await;
}

#[tokio::test]
async fn sse_transport() {
    let server = HttpPuppet::start(honest_sse(vec![tool("ask", "Ask", &[])]));
    let headers = [("Authorization".to_owned(), Secret::new("Bearer api-key-0123456789"))].into();
    let remote = Remote { url: SecretUrl::new(server.url_of("/sse").parse().unwrap()), headers };
    let config = ServerConfig::new(ServerName::parse("old").unwrap(), Transport::Sse(remote));
    let shelf = shelf();
    let host = shelf.builder().server(config).start().await.unwrap();
    let outcome = host.call("old_ask", json!({})).await;
    assert!(outcome.success, "{outcome:?}");
    assert!(server.requests().iter().all(|r| r.header("authorization") == Some("Bearer api-key-0123456789")));
    host.close().await;
}

#[tokio::test]
async fn environment_variables_stay_out_of_telemetry() {
    let token = "ghp_0123456789abcdef";
    let leaks = github().on("tool:list_repos", [text(&format!("I was given {token}"))]);
    let shelf = Shelf::with(&[("@modelcontextprotocol/server-github", leaks)]);
    let mut config = with_env(program("github", &GITHUB), "GITHUB_TOKEN", token);
    config.debug = true;
    let host = shelf.builder().server(config).start().await.unwrap();
    let mut bus = host.events().subscribe();
    let outcome = host.call("github_list_repos", json!({"owner": token})).await;
    assert!(outcome.success);
    let mut told = 0;
    while let Ok(event) = bus.try_recv() {
        told += usize::from(matches!(event, Event::Traffic { .. } | Event::ToolInvoked(_)));
        assert!(!format!("{event:?}").contains(token), "{event:?}");
    }
    assert!(told > 2, "there was something to tell");
    host.close().await;
}

/// What the design generates for `github_create_issue`, written by hand.
#[derive(Serialize)]
struct GithubCreateIssueParams {
    owner: &'static str,
    repo: &'static str,
    title: &'static str,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Issue {
    number: i64,
    milestone: Option<String>,
}

/// A server whose one tool gives a result of every type that the design has.
fn typed_github() -> Puppet {
    let text = json!({"type": "string"});
    let mut create =
        tool("create_issue", "Create a new issue in a repository", &["*owner", "*repo", "*title"]);
    create["outputSchema"] = json!({
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "url": text,
            "score": {"type": "number"},
            "open": {"type": "boolean"},
            "labels": {"type": "array", "items": text},
            "author": {"type": "object", "properties": {"login": text}, "required": ["login"]},
            "milestone": {"type": ["string", "null"]},
            "note": text,
        },
        "required": ["number", "url", "score", "open", "labels", "author", "milestone"],
    });
    let made = json!({"number": 7, "url": "https://example.com/7", "score": 0.5, "open": true,
        "labels": ["leak"], "author": {"login": "me"}, "milestone": null});
    let made = json!({"content": [{"type": "text", "text": made.to_string()}], "structuredContent": made});
    Puppet::new().tool(create).on("tool:create_issue", [Step::Reply(made)])
}

#[tokio::test]
async fn synthetic_dataclasses() {
    let shelf = Shelf::with(&[("@modelcontextprotocol/server-github", typed_github())]);
    let host = shelf.builder().server(program("github", &GITHUB)).start().await.unwrap();
    // Types of one's own.
    let create_issue = host.callable("github", "create_issue").await.unwrap();
    let params = GithubCreateIssueParams { owner: "me", repo: "boat", title: "It leaks" };
    let issue: Issue = create_issue.call_as(&params).await.unwrap();
    assert_eq!(issue, Issue { number: 7, milestone: None });
    let misfit = create_issue.call_as::<_, Vec<u8>>(&params).await.unwrap_err();
    assert_eq!(misfit.kind(), "protocol");
    // Types that are generated from the server's schemas: the module that is compiled here is the one that the server
    // gives now. `WHARF_WRITE=1` writes it anew.
    let listing = host.tools_of("github").await.unwrap();
    let tools = listing.snapshot.tools().iter().map(|route| &*route.tool);
    let module = render::rust(&ServerName::parse("github").unwrap(), tools);
    assert!(module.notes.is_empty(), "{:?}", module.notes);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/seeds/generated.rs");
    if std::env::var_os("WHARF_WRITE").is_some() {
        std::fs::write(file, &module.source).unwrap();
    }
    assert!(std::fs::read_to_string(file).unwrap() == module.source, "seeds/generated.rs is out of date");
    let params = CreateIssue { owner: "me".into(), repo: "boat".into(), title: "It leaks".into() };
    let issue = Github::new(host.clone()).create_issue(&params).await.unwrap();
    assert_eq!((issue.number, issue.score, issue.open), (7, 0.5, true));
    assert_eq!((issue.labels, issue.author.login), (vec!["leak".to_owned()], "me".to_owned()));
    assert_eq!((issue.milestone, issue.note), (None, None));
    host.close().await;
}

#[tokio::test]
async fn default_template() {
    let shelf = shelf();
    let mut github = program("github", &GITHUB);
    github.enabled_tools = Some(["create_issue", "list_issues", "get_issue"].map(str::to_owned).into());
    let files = program("filesystem", &["npx", "-y", "@modelcontextprotocol/server-filesystem"]);
    let host = shelf.builder().servers([github, files]).start().await.unwrap();
    let expected = "\
## MCP Integrations

The following external tools are available via MCP:

### github

- `github_create_issue` - Create a new issue in a repository
- `github_list_issues` - List issues with optional filters
- `github_get_issue` - Get details of a specific issue

### filesystem

- `filesystem_read_file` - Read contents of a file
- `filesystem_write_file` - Write contents to a file
";
    assert_eq!(render::markdown(host.tools().await.snapshot.tools()), expected);
    host.close().await;
}

#[tokio::test]
async fn custom_template() {
    let shelf = shelf();
    let files = program("filesystem", &["npx", "-y", "@modelcontextprotocol/server-filesystem"]);
    let host = shelf.builder().servers([program("github", &GITHUB), files]).start().await.unwrap();
    let listing = host.tools().await;
    let render =
        |template: &str| Template::parse(template).unwrap().render(listing.snapshot.tools()).unwrap();
    let said = render(
        "External integrations are available. Use the GitHub tools to manage\nissues and the filesystem tools to \
         read project files.\n\nAvailable servers: ${server_names}\nTotal tools: ${tool_count}\n",
    );
    assert!(said.ends_with("\n\nAvailable servers: github, filesystem\nTotal tools: 7\n"), "{said}");
    let by_server = render(
        "{% for server, tools in tools_by_server|items %}${server}: ${tools|length}, first ${tools[0].name}; {% endfor %}",
    );
    assert_eq!(
        by_server,
        "github: 5, first github_create_issue; filesystem: 2, first filesystem_read_file; "
    );
    assert_eq!(Template::parse("${server_nmaes}").unwrap_err().kind(), "config");
    host.close().await;
}
