//! `wharf tools --format` and `--model`: the list for a request, and nothing else, on standard output.

use serde_json::{Value, json};

use crate::desk::Desk;

#[test]
fn l70_the_list_alone_is_on_standard_output() {
    let desk = Desk::new();
    let ran = desk.run(&["tools", "--format", "openai"]).ok();
    let tools = ran.json();
    assert_eq!(tools.as_array().unwrap().len(), 8, "{ran:?}");
    assert_eq!(tools[0]["type"], "function");
    assert_eq!(tools[0]["function"]["name"], "demo_echo");
    assert!(tools[0]["function"]["parameters"]["properties"]["message"].is_object(), "{ran:?}");
    let ran = desk.run(&["tools", "demo", "--format", "bedrock"]).ok();
    assert_eq!(ran.json()[0]["toolSpec"]["name"], "demo_echo", "{ran:?}");
    let ran = desk.run(&["tools", "--format", "gemini"]).ok();
    assert_eq!(ran.json().as_array().unwrap().len(), 1, "{ran:?}");
    assert_eq!(ran.json()[0]["functionDeclarations"][0]["name"], "demo_echo", "{ran:?}");
}

#[test]
fn l70_a_model_chooses_its_form() {
    let desk = Desk::new();
    let by = |args: &[&str]| desk.run(&[&["tools", "demo"], args].concat()).ok().out;
    for (model, format) in [
        ("gpt-4o", "openai"),
        ("gpt-4o", "openai-chat"),
        ("gpt-5-codex", "openai-responses"),
        ("claude-opus-4-5", "anthropic"),
        ("gemini-2.5-pro", "gemini"),
        ("mistral-large-latest", "mistral"),
        ("amazon.nova-pro-v1:0", "bedrock"),
        ("llama3.2:3b", "ollama"),
    ] {
        assert_eq!(by(&["--model", model]), by(&["--format", format]), "{model}");
    }
    assert_ne!(by(&["--format", "gemini"]), by(&["--format", "gemini-openapi"]));
}

#[test]
fn l70_an_unknown_model_or_form_is_a_wrong_command_line() {
    let desk = Desk::new();
    let ran = desk.run(&["tools", "--model", "skynet-1"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
    for family in ["skynet-1", "OpenAI", "Anthropic", "Gemini", "Mistral", "Bedrock", "Ollama"] {
        assert!(ran.err.contains(family), "{ran:?}");
    }
    let ran = desk.run(&["tools", "--format", "cohere"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("openai-responses") && ran.err.contains("gemini-openapi"), "{ran:?}");
    assert_eq!(desk.run(&["tools", "--model", "gpt-5", "--format", "openai"]).code, 2);
}

/// A server whose first tool cannot be said, and whose second loses something.
fn odd_server(desk: &Desk) {
    let tools = json!([
        {"name": "elsewhere", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "https://example.com/s.json"}}}},
        {"name": "odd", "inputSchema": {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}},
    ]);
    let info = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}});
    let script = format!(
        "while read -r line; do id=$(printf '%s' \"$line\" | sed -n 's/.*\"id\":\\([0-9]*\\).*/\\1/p')\n\
         case \"$line\" in\n\
         *'\"initialize\"'*) printf '{{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}}\\n' \"$id\" '{info}' ;;\n\
         *'\"tools/list\"'*) printf '{{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{{\"tools\":%s}}}}\\n' \"$id\" '{tools}' ;;\n\
         *'\"id\"'*) printf '{{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{{\"code\":-32601,\"message\":\"no\"}}}}\\n' \"$id\" ;;\n\
         esac; done"
    );
    let command = desk.server("odd", &script);
    desk.user(&format!("[policy]\ncommands = [{command:?}]\n[mcp.odd]\ncommand = {command:?}\n"));
}

#[test]
fn l71_what_is_lost_or_left_out_is_told_on_standard_error() {
    let desk = Desk::new();
    odd_server(&desk);
    let ran = desk.run(&["tools", "--format", "gemini"]).ok();
    let names: Vec<Value> =
        ran.json()[0]["functionDeclarations"].as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
    assert_eq!(names, ["odd_odd"], "{ran:?}");
    assert!(
        ran.err.contains("tool `elsewhere` is left out") && ran.err.contains("https://example.com"),
        "{ran:?}"
    );
    assert!(
        ran.err.contains("tool `odd`: /properties/x: `uniqueItems` is moved into the description"),
        "{ran:?}"
    );
    // The twin: full JSON Schema loses nothing of it.
    let ran = desk.run(&["tools", "--format", "anthropic"]).ok();
    assert!(!ran.err.contains("uniqueItems") && ran.err.contains("elsewhere"), "{ran:?}");

    let document = desk.run(&["tools", "--format", "gemini", "--json"]).ok().json();
    assert_eq!(document["format"], "gemini");
    assert_eq!(document["tools"][0]["functionDeclarations"][0]["name"], "odd_odd");
    assert_eq!(
        document["losses"][0]["losses"][0],
        json!({"path": "/properties/x", "keyword": "uniqueItems", "how": "described", "widens": true})
    );
    assert_eq!(document["leftOut"][0]["tool"], "elsewhere");
    assert_eq!(document["failed"], json!([]));
}
