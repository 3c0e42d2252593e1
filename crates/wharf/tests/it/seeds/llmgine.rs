//! LLMgine's `ToolManager`: one interface for the program's functions and the servers' tools.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use wharf::LocalTool;
use wharf::config::ServerConfig;
use wharf::host::Load;
use wharf::registry::Source;
use wharf_testkit::Puppet;

use super::{Shelf, listed, names, program, stdio, tool, with_env};
use crate::support::{at, error, folder, is_alive, pid_in, soon};

#[derive(Deserialize, JsonSchema)]
struct Calculate {
    expression: String,
}

/// Calculates sums.
pub(super) fn local_calculator() -> LocalTool {
    LocalTool::blocking(
        "local_calculator",
        "Calculate mathematical expressions locally",
        |arguments: Calculate, _| {
            let numbers = arguments.expression.split('+').map(|number| number.trim().parse::<i64>());
            numbers.sum::<Result<i64, _>>().map(|sum| sum.to_string())
        },
    )
}

pub(super) fn shelf() -> Shelf {
    let notion = Puppet::new().tool(tool(
        "get_notion_pages",
        "Retrieve pages from Notion database",
        &["*database_id"],
    ));
    let database = Puppet::new().tool(tool("query", "Run a query", &["*sql"]));
    let shelf = Shelf::with(&[("notion_mcp_server.py", notion), ("db_server.py", database)]);
    for script in ["notion_mcp_server.py", "db_server.py"] {
        std::fs::write(shelf.folder().join(script), "").unwrap();
    }
    shelf
}

/// `python` with a script, found by the file that defines the server.
pub(super) fn script(shelf: &Shelf, name: &str, file: &str) -> ServerConfig {
    let mut config = program(name, &["python", file]);
    stdio(&mut config).base = Some(shelf.folder());
    stdio(&mut config).cwd = Some(shelf.folder());
    config
}

#[tokio::test]
async fn basic_mcp_integration() {
    let shelf = shelf();
    let tool_manager = shelf.builder().start().await.unwrap();
    // A server at run time.
    let notion =
        with_env(script(&shelf, "notion", "notion_mcp_server.py"), "NOTION_API_KEY", "notion-0123456789");
    let registered = tool_manager.load(Load::new(notion)).await.unwrap();
    assert_eq!(names(&registered), ["notion_get_notion_pages"]);
    let result = tool_manager.call("notion_get_notion_pages", json!({"database_id": "d1"})).await;
    assert!(result.to_text().contains("d1"), "{result:?}");
    tool_manager.close().await;
}

#[tokio::test]
async fn hybrid_local_and_mcp_tools() {
    let shelf = shelf();
    let tool_manager = shelf.builder().start().await.unwrap();
    tool_manager.register(local_calculator()).unwrap();
    tool_manager.load(Load::new(script(&shelf, "database", "db_server.py"))).await.unwrap();
    let tools = listed(&tool_manager).await;
    assert_eq!(tools.len(), 2);
    assert_eq!(tool_manager.call("local_calculator", json!({"expression": "20 + 22"})).await.to_text(), "42");
    assert!(tool_manager.call("database_query", json!({"sql": "select 1"})).await.success);
    let sources: Vec<Source> = tool_manager.tools().await.snapshot.tools().iter().map(|r| r.source).collect();
    assert!(sources.contains(&Source::Local) && sources.contains(&Source::Mcp));
    tool_manager.close().await;
}

#[tokio::test]
async fn graceful_degradation() {
    let shelf = shelf();
    let tool_manager = shelf.builder().start().await.unwrap();
    tool_manager.register(local_calculator()).unwrap();
    let broken = tool_manager.load(Load::new(script(&shelf, "broken", "not_there.py"))).await;
    assert!(broken.is_err(), "a failure is an answer, not an end");
    tool_manager.add_server(script(&shelf, "also_broken", "not_there.py"));
    tool_manager.add_server(script(&shelf, "database", "db_server.py"));
    let listing = tool_manager.tools().await;
    assert_eq!(listing.failed.len(), 1);
    assert_eq!(listing.failed[0].0.as_str(), "also_broken");
    assert_eq!(listing.snapshot.tools().len(), 2, "the rest works");
    assert!(tool_manager.call("local_calculator", json!({"expression": "1"})).await.success);
    tool_manager.close().await;
}

#[tokio::test]
async fn tool_execution_errors_are_told_not_raised() {
    let shelf = shelf();
    let tool_manager = shelf.builder().start().await.unwrap();
    tool_manager.register(local_calculator()).unwrap();
    let wrong = tool_manager.call("local_calculator", json!({"expression": "one"})).await;
    assert!(!wrong.success && wrong.to_text().contains("invalid digit"), "{wrong:?}");
    let missing = tool_manager.call("local_calculator", json!({})).await;
    assert_eq!(error(&missing).kind(), "arguments");
    assert_eq!(error(&tool_manager.call("nothing", json!({})).await).kind(), "unknown_tool");
}

#[tokio::test]
async fn resource_cleanup_and_process_isolation() {
    let files = folder();
    let pid = at(&files, "pid");
    let shelf = Shelf::with(&[("db_server.py", Puppet::new().pid(&pid))]);
    let tool_manager =
        shelf.builder().server(script(&shelf, "database", "db_server.py")).start().await.unwrap();
    assert_eq!(listed(&tool_manager).await, ["database_echo"]);
    let process = pid_in(&pid).await;
    assert_ne!(process, std::process::id());
    tool_manager.close().await;
    assert!(!is_alive(process));
}

#[tokio::test]
async fn environment_security() {
    let files = folder();
    let described = at(&files, "described");
    let server = Puppet::new().with(|s| s.describe_file = Some(described.clone()));
    let shelf = Shelf::with(&[("db_server.py", server)]).and("OTHER_API_KEY", "other-0123456789");
    let config = with_env(script(&shelf, "secure_server", "db_server.py"), "API_KEY", "secure-0123456789");
    let config = with_env(config, "DEBUG", "false");
    let tool_manager = shelf.builder().server(config).start().await.unwrap();
    assert_eq!(listed(&tool_manager).await.len(), 1);
    let said: Value = serde_json::from_str(&std::fs::read_to_string(&described).unwrap()).unwrap();
    assert_eq!(
        (&said["env"]["API_KEY"], &said["env"]["DEBUG"]),
        (&json!("secure-0123456789"), &json!("false"))
    );
    assert!(said["env"].get("OTHER_API_KEY").is_none());
    tool_manager.close().await;
}

#[tokio::test]
async fn async_performance_calls_run_side_by_side() {
    let shelf = shelf();
    let tool_manager = shelf.builder().start().await.unwrap();
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(10));
    let meets = LocalTool::new("meets", "Waits for nine others", move |_: wharf::host::NoArguments, _| {
        let barrier = std::sync::Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok::<_, String>("met")
        }
    });
    tool_manager.register(meets).unwrap();
    let calls = (0..10).map(|_| tool_manager.call("meets", json!({})));
    let all = soon("ten calls that wait for each other", futures_util::future::join_all(calls)).await;
    assert!(all.iter().all(|outcome| outcome.success));
}
