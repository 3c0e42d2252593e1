//! The agents of the examples, run as they are: a scripted model on one side, real servers on the other.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use wharf_testkit::model::KEY;
use wharf_testkit::{Dialect, Puppet, ScriptedModel, Step, example_path, puppet_path, rmcp_peer_path};

use crate::support::{at, folder, soon};

const QUESTION: &str = "What do the tools say?";

/// A file with two servers: a puppet with a tool that draws and one that fails, and one built on the official SDK.
fn config(file: &Path) {
    let picture = json!({"content": [{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}]});
    let sorry = json!({"isError": true, "content": [{"type": "text", "text": "no paper left"}]});
    let puppet = Puppet::new().plain_tool("draw").plain_tool("print");
    let puppet =
        puppet.on("tool:draw", vec![Step::Reply(picture)]).on("tool:print", vec![Step::Reply(sorry)]);
    let (pup, peer) = (puppet_path(), rmcp_peer_path());
    let text = format!(
        "[policy]\ncommands = [{pup:?}, {peer:?}]\n[mcp.pup]\ncommand = {pup:?}\nargs = {}\n[mcp.peer]\ncommand = {peer:?}\n",
        json!(puppet.args()),
    );
    std::fs::write(file, text).unwrap();
}

/// Runs an agent to its end.
async fn run(agent: &str, model: &ScriptedModel) -> Output {
    let folder = folder();
    let file = at(&folder, "wharf.toml");
    config(&file);
    let mut command = tokio::process::Command::new(example_path(agent));
    command.args([QUESTION, file.to_str().unwrap()]).env_clear().envs(model.environment()).kill_on_drop(true);
    command.env("PATH", "/usr/bin:/bin");
    let output = soon(agent, command.output()).await.unwrap();
    let shown = format!("{output:?}");
    assert!(!shown.contains(KEY), "a key is shown: {shown}");
    output
}

fn assert_said(output: &Output, text: &str) {
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{output:?}");
}

/// The names of the tools that a provider was given.
fn names<'a>(tools: impl Iterator<Item = &'a Value>) -> Vec<&'a str> {
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

const TOOLS: [&str; 2] = ["pup_draw", "pup_print"];

#[tokio::test]
async fn l72_an_agent_works_on_openai() {
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let turn = json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [
        call("call_1", "peer_add", "{\"a\": 2, \"b\": 3}"),
        call("call_2", "pup_draw", ""),
        call("call_3", "pup_prnt", "{}"),
        call("call_4", "pup_print", "{"),
    ]});
    let model = ScriptedModel::start(
        Dialect::OpenAiChat,
        [
            json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": turn}]}),
            json!({"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Five.\u{1b}[2J"}}]}),
        ],
    );
    // What the model says is shown as harmlessly as what a server says.
    assert_said(&run("agent-openai", &model).await, "Five.\\u{1b}[2J\n");

    let [first, second] = &model.asked()[..] else { panic!("{:?}", model.asked()) };
    assert_eq!(first["messages"], json!([{"role": "user", "content": QUESTION}]));
    let tools = names(first["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]));
    assert!(TOOLS.iter().all(|name| tools.contains(name)) && tools.contains(&"peer_add"), "{tools:?}");
    assert_eq!(second["tools"], first["tools"]);
    let messages = second["messages"].as_array().unwrap();
    assert_eq!(messages[1], turn);
    assert_eq!(messages[2], json!({"role": "tool", "tool_call_id": "call_1", "content": "5"}));
    let picture = "[image/png: picture 1 of the next message]";
    assert_eq!(messages[3], json!({"role": "tool", "tool_call_id": "call_2", "content": picture}));
    let unknown = "Error: unknown tool `pup_prnt`\nnothing was run; did you mean `pup_print`";
    assert!(messages[4]["content"].as_str().unwrap().starts_with(unknown), "{}", messages[4]);
    assert!(messages[5]["content"].as_str().unwrap().contains("correct the arguments and call again"));
    let url = "data:image/png;base64,iVBORw0KGgo=";
    assert_eq!(messages[6]["content"][1], json!({"type": "image_url", "image_url": {"url": url}}));
    assert_eq!(messages.len(), 7);
}

#[tokio::test]
async fn l72_an_agent_works_on_anthropic() {
    let call = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    let turn = json!([
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "Let me see."},
        call("toolu_1", "peer_add", json!({"a": 2, "b": 3})),
        call("toolu_2", "pup_draw", json!({})),
        call("toolu_3", "pup_print", json!({})),
    ]);
    let answer = |content: &Value, stop: &str| json!({"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": stop});
    let again = json!([call("toolu_4", "peer_add", json!({"a": "two", "b": 3}))]);
    let model = ScriptedModel::start(
        Dialect::Anthropic,
        [
            answer(&turn, "tool_use"),
            answer(&again, "tool_use"),
            answer(&json!([{"type": "text", "text": "Five."}]), "end_turn"),
        ],
    );
    assert_said(&run("agent-anthropic", &model).await, "Five.\n");

    let asked = model.asked();
    assert_eq!(asked.len(), 3);
    let tools = names(asked[0]["tools"].as_array().unwrap().iter());
    assert!(TOOLS.iter().all(|name| tools.contains(name)) && tools.contains(&"peer_add"), "{tools:?}");
    let result = |id: &str, is_error: bool, content: Value| json!({"type": "tool_result", "tool_use_id": id, "is_error": is_error, "content": [content]});
    let source = json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="});
    let expected = json!([
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": turn},
        {"role": "user", "content": [
            result("toolu_1", false, json!({"type": "text", "text": "5"})),
            result("toolu_2", false, json!({"type": "image", "source": source})),
            result("toolu_3", true, json!({"type": "text", "text": "no paper left"})),
        ]},
    ]);
    assert_eq!(asked[1]["messages"], expected);
    let last = &asked[2]["messages"][4]["content"][0];
    assert!(
        last["is_error"] == true && last["content"][0]["text"].as_str().unwrap().contains("nothing was sent"),
        "{last}"
    );
}

#[tokio::test]
async fn l72_an_agent_works_on_gemini() {
    let turn = json!({"role": "model", "parts": [
        {"text": "hm", "thought": true},
        {"functionCall": {"name": "peer_add", "args": {"a": 2, "b": 3}}, "thoughtSignature": "c2lnbmF0dXJl"},
        {"functionCall": {"id": "f2", "name": "pup_draw"}},
        {"functionCall": {"name": "pup_print", "args": {}}},
    ]});
    let answer = |content: &Value| json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
    let model = ScriptedModel::start(
        Dialect::Gemini,
        [answer(&turn), answer(&json!({"role": "model", "parts": [{"text": "Five."}]}))],
    );
    assert_said(&run("agent-gemini", &model).await, "Five.\n");

    let [first, second] = &model.asked()[..] else { panic!("{:?}", model.asked()) };
    let tools = names(first["tools"][0]["functionDeclarations"].as_array().unwrap().iter());
    assert!(TOOLS.iter().all(|name| tools.contains(name)) && tools.contains(&"peer_add"), "{tools:?}");
    let expected = json!([
        {"role": "user", "parts": [{"text": QUESTION}]},
        turn,
        {"role": "user", "parts": [
            {"functionResponse": {"name": "peer_add", "response": {"output": "5"}}},
            {"functionResponse": {"id": "f2", "name": "pup_draw", "response": {"output": "[image/png: attached, number 1]"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]}},
            {"functionResponse": {"name": "pup_print", "response": {"error": "no paper left"}}},
        ]},
    ]);
    assert_eq!(second["contents"], expected);
}

#[tokio::test]
async fn l72_an_agent_tells_what_the_provider_refused() {
    for (agent, dialect) in [
        ("agent-openai", Dialect::OpenAiChat),
        ("agent-anthropic", Dialect::Anthropic),
        ("agent-gemini", Dialect::Gemini),
    ] {
        let model = ScriptedModel::start(dialect, []);
        let output = run(agent, &model).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("the script is over"), "{agent}: {output:?}");
    }
}
