//! LLMgine's `ToolAdapter` and `ToolChatEngine`: the tools in every provider's form, and its calls on the way back.

use serde_json::{Value, json};
use wharf::Host;
use wharf::host::Load;
use wharf::provider::{Compiler, Provider, Strict};
use wharf_testkit::Puppet;

use super::llmgine::{local_calculator, script, shelf};
use super::model::Model;
use super::{Shelf, listed, program, with_env};
use crate::support::{at, count, folder, received, soon};

/// Both a function of the program and a server.
async fn tool_manager(shelf: &Shelf) -> Host {
    let host = shelf.builder().start().await.unwrap();
    host.register(local_calculator()).unwrap();
    host.load(Load::new(script(shelf, "database", "db_server.py"))).await.unwrap();
    host
}

#[test]
fn model_detection_logic() {
    for (model, provider) in [
        ("gpt-4o-mini", Some(Provider::OpenAiChat)),
        ("o1-mini", Some(Provider::OpenAiChat)),
        ("text-davinci-003", Some(Provider::OpenAiChat)),
        ("text-curie-001", Some(Provider::OpenAiChat)),
        ("text-babbage-001", Some(Provider::OpenAiChat)),
        ("text-ada-001", Some(Provider::OpenAiChat)),
        ("claude-sonnet-4-5", Some(Provider::Anthropic)),
        ("gemini-2.5-pro", Some(Provider::Gemini)),
        ("somebody-elses", None),
    ] {
        assert_eq!(Provider::of_model(model).ok(), provider, "{model}");
    }
}

#[tokio::test]
async fn format_examples() {
    let schema = json!({
        "type": "object",
        "properties": {"database_id": {"type": "string", "description": "Database ID"}},
        "required": ["database_id"],
    });
    let (name, description) = ("notion_get_notion_pages", "Retrieve pages from Notion database");
    let notion = Puppet::new()
        .tool(json!({"name": "get_notion_pages", "description": description, "inputSchema": schema.clone()}));
    let shelf = Shelf::with(&[("notion", notion)]);
    let host = shelf.builder().server(program("notion", &["npx", "notion"])).start().await.unwrap();
    let tools = host.tools().await;
    let formatted = |model: &str| -> Value {
        let form = Provider::of_model(model).unwrap();
        let compiler = Compiler::new().with_strict(Strict::Never);
        compiler.compile(form, tools.snapshot.tools()).tools.to().unwrap()
    };
    let function = json!({"name": name, "description": description, "parameters": schema, "strict": false});
    assert_eq!(formatted("gpt-4o-mini"), json!([{"type": "function", "function": function}]));
    let anthropic = json!([{"name": name, "description": description, "input_schema": schema}]);
    assert_eq!(formatted("claude-sonnet-4-5"), anthropic, "as its interface has it today");
    let declaration = json!({"name": name, "description": description, "parametersJsonSchema": schema});
    assert_eq!(formatted("gemini-2.5-pro"), json!([{"functionDeclarations": [declaration]}]));
    host.close().await;
}

#[tokio::test]
async fn tool_discovery_flow_parse_tools_to_list() {
    let shelf = shelf();
    let tool_manager = tool_manager(&shelf).await;
    let compiler = Compiler::new();
    for provider in Provider::ALL {
        let listing = tool_manager.tools().await;
        let tools = compiler.compile(provider, listing.snapshot.tools());
        let names: Vec<&str> = tools.toolset.names().collect();
        assert_eq!(names.len(), 2, "{provider}: local and MCP tools in one list");
        let text = tools.tools.as_str();
        assert!(names.iter().all(|name| text.contains(&format!("{name:?}"))), "{provider}: {text}");
        assert!(text.contains("expression") && text.contains("sql"), "{provider}: {text}");
    }
    tool_manager.close().await;
}

#[tokio::test]
async fn tool_schema_caching() {
    let files = folder();
    let log = at(&files, "log");
    let shelf = Shelf::with(&[("notion", Puppet::new().log(&log))]);
    let host = shelf.builder().server(program("notion", &["npx", "notion"])).start().await.unwrap();
    let compiler = Compiler::new();
    let first = compiler.compile(Provider::Gemini, host.tools().await.snapshot.tools());
    for _ in 0..3 {
        let again = compiler.compile(Provider::Gemini, host.tools().await.snapshot.tools());
        assert_eq!(again.tools.as_str(), first.tools.as_str());
    }
    assert_eq!(count(&received(&log), "tools/list"), 1, "the server is asked once");
    host.close().await;
}

#[tokio::test]
async fn tool_execution_flow_execute_tool_call() {
    let shelf = shelf();
    let tool_manager = tool_manager(&shelf).await;
    let listing = tool_manager.tools().await;
    let name_of = |tool: &str| {
        let route = listing.snapshot.tools().iter().find(|route| route.tool.name.as_str() == tool);
        route.unwrap().public.to_string()
    };
    let (calculator, query) = (name_of("local_calculator"), name_of("query"));
    for model in ["gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-pro"] {
        let mut model = Model::named(model)
            .calls(&[
                ("c1", &calculator, json!({"expression": "20 + 22"})),
                ("c2", &query, json!({"sql": "select 1"})),
                ("c3", &calculator, json!({"expression": "one"})),
                ("c4", "no_such_tool", json!({})),
            ])
            .says("done");
        assert_eq!(model.converse(&tool_manager, listing.snapshot.tools(), "Go").await, "done");
        let texts: Vec<String> = model.results.iter().map(|result| result.to_text()).collect();
        assert_eq!(texts[..2], ["42".to_owned(), r#"{"sql":"select 1"}"#.to_owned()]);
        // An error is a text for the model, and the other calls are run all the same.
        assert!(texts[2].contains("invalid digit"), "{texts:?}");
        assert!(texts[3].contains("unknown tool `no_such_tool`"), "{texts:?}");
        let errors: Vec<bool> = model.results.iter().map(|result| result.is_error).collect();
        assert_eq!(errors, [false, false, true, true]);
        let ids: Vec<_> = model.results.iter().map(|result| result.call_id.as_deref().unwrap()).collect();
        assert_eq!(ids, ["c1", "c2", "c3", "c4"]);
    }
    tool_manager.close().await;
}

#[tokio::test]
async fn tool_chat_engine() {
    let shelf = shelf();
    let tool_manager = shelf.builder().start().await.unwrap();
    let notion =
        with_env(script(&shelf, "notion", "notion_mcp_server.py"), "NOTION_API_KEY", "notion-0123456789");
    tool_manager.load(Load::new(notion)).await.unwrap();
    let listing = tool_manager.tools().await;
    let mut engine = Model::named("gpt-4o-mini")
        .calls(&[("call_1", "notion_get_notion_pages", json!({"database_id": "d1"}))])
        .says("There is one page.");
    let answer = engine.converse(&tool_manager, listing.snapshot.tools(), "Which pages are there?");
    assert_eq!(soon("a conversation", answer).await, "There is one page.");
    let [question, call, result] = &engine.heard[..] else { panic!("{:?}", engine.heard) };
    assert_eq!(question["content"], "Which pages are there?");
    assert_eq!(call["tool_calls"][0]["function"]["name"], "notion_get_notion_pages");
    let expected = json!({"role": "tool", "tool_call_id": "call_1", "content": r#"{"database_id":"d1"}"#});
    assert_eq!(*result, expected);
    assert!(!engine.tools.to_string().contains("notion-0123456789"));
    assert_eq!(listed(&tool_manager).await, ["notion_get_notion_pages"]);
    tool_manager.close().await;
}
