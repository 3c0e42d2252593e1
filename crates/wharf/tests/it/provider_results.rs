//! Outcomes become each provider's messages; calls of a turn run side by side; superseded results shrink.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use wharf::names::{ServerName, ToolName};
use wharf::outcome::Outcome;
use wharf::provider::{DATA_MAX, History, Provider, ToolCall, ToolMessage, Toolset};
use wharf::{Error, Host};
use wharf_testkit::{Puppet, Step};

use crate::provider_calls::{body, read};
use crate::support::{at, folder, host, puppet, soon};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

fn png() -> String {
    STANDARD.encode(PNG)
}

fn call(provider: Provider) -> ToolCall {
    read(provider, body(provider, &[("c1", "files_read", json!({"path": "a"}))])).calls.remove(0)
}

fn result(raw: Value) -> Outcome {
    Outcome::from_result(ServerName::parse("files").unwrap(), ToolName::parse("read").unwrap(), raw.into())
}

fn content(blocks: Value) -> Outcome {
    result(json!({ "content": blocks }))
}

fn rendered(provider: Provider, outcome: Outcome) -> Vec<Value> {
    provider.results(&[(call(provider), outcome)]).iter().map(|m| m.to().unwrap()).collect()
}

/// The one text of a result, wherever the provider has it.
fn text_in(provider: Provider, messages: &[Value]) -> String {
    let first = &messages[0];
    let text = match provider {
        Provider::OpenAiChat | Provider::Mistral | Provider::Ollama => &first["content"],
        Provider::OpenAiResponses => &first["output"],
        Provider::Anthropic => &first["content"][0]["content"][0]["text"],
        Provider::Gemini | Provider::GeminiOpenApi => {
            let response = &first["parts"][0]["functionResponse"]["response"];
            response.get("output").unwrap_or(&response["error"])
        }
        _ => &first["content"][0]["toolResult"]["content"][0]["text"],
    };
    text.as_str().unwrap_or_else(|| panic!("{provider:?}: {first}")).to_owned()
}

#[test]
fn l72_a_text_and_a_picture_in_every_form() {
    let outcome = || {
        content(
            json!([{"type": "text", "text": "see"}, {"type": "image", "mimeType": "image/png", "data": png()}]),
        )
    };
    let url = format!("data:image/png;base64,{}", png());
    let expected = |provider| match provider {
        Provider::OpenAiChat => json!([
            {"role": "tool", "tool_call_id": "c1", "content": "see\n[image/png: picture 1 of the next message]"},
            {"role": "user", "content": [
                {"type": "text", "text": "picture 1, from the result of `files_read`:"},
                {"type": "image_url", "image_url": {"url": url}}]}]),
        Provider::OpenAiResponses => json!([{"type": "function_call_output", "call_id": "c1", "output": [
            {"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": url}]}]),
        Provider::Anthropic => json!([{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "is_error": false, "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png()}}]}]}]),
        Provider::Gemini | Provider::GeminiOpenApi => {
            json!([{"role": "user", "parts": [{"functionResponse": {
            "name": "files_read", "response": {"output": "see\n[image/png: attached, number 1]"}, "id": "c1",
            "parts": [{"inlineData": {"mimeType": "image/png", "data": png()}}]}}]}])
        }
        Provider::Mistral => json!([{"role": "tool", "name": "files_read", "tool_call_id": "c1", "content": [
            {"type": "text", "text": "see"}, {"type": "image_url", "image_url": url}]}]),
        Provider::Bedrock => json!([{"role": "user", "content": [
            {"toolResult": {"toolUseId": "c1", "status": "success", "content": [
                {"text": "see"}, {"image": {"format": "png", "source": {"bytes": png()}}}]}}]}]),
        _ => json!([{"role": "tool", "tool_name": "files_read",
            "content": format!("see\n[image/png, {} bytes of base64, not shown]", png().len())}]),
    };
    for provider in Provider::ALL {
        assert_eq!(Value::Array(rendered(provider, outcome())), expected(provider), "{provider:?}");
    }
}

#[test]
fn l72_results_keep_the_order_of_the_calls_and_pictures_come_last() {
    let calls = [("a", "files_read", json!({})), ("b", "nobody", json!({})), ("c", "files_write", json!({}))];
    for provider in Provider::ALL {
        let picture = json!([{"type": "image", "mimeType": "image/png", "data": png()}]);
        let done: Vec<(ToolCall, Outcome)> = read(provider, body(provider, &calls))
            .calls
            .into_iter()
            .map(|call| match call.ready() {
                Ok(_) => (call, content(picture.clone())),
                Err(error) => (call.clone(), call.failed(error)),
            })
            .collect();
        let messages: Vec<Value> = provider.results(&done).iter().map(|m| m.to().unwrap()).collect();
        let text = serde_json::to_string(&messages).unwrap();
        let (first, then, last) = match provider {
            Provider::Ollama => ("files_read", "unknown tool `nobody`", "files_write"),
            Provider::Gemini | Provider::GeminiOpenApi => ("\"id\":\"a\"", "\"id\":\"b\"", "\"id\":\"c\""),
            _ => ("\"a\"", "\"b\"", "\"c\""),
        };
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{provider:?} {what}: {text}"));
        assert!(place(first) < place(then) && place(then) < place(last), "{provider:?}: {text}");
        let roles: Vec<&str> = messages.iter().filter_map(|m| m["role"].as_str()).collect();
        match provider {
            Provider::OpenAiChat => assert_eq!(roles, ["tool", "tool", "tool", "user"]),
            Provider::Anthropic | Provider::Bedrock => assert_eq!(roles, ["user"]),
            _ => {}
        }
    }
    assert!(Provider::ALL.iter().all(|provider| provider.results(&[]).is_empty()), "no calls, no message");
}

#[test]
fn l72_a_failure_says_whether_to_call_again() {
    let (server, tool) = (ServerName::parse("files").unwrap(), ToolName::parse("read").unwrap());
    let lost = Error::UnknownOutcome {
        server: server.clone(),
        method: "tools/call".into(),
        reason: "the pipe broke".into(),
        stderr: Default::default(),
    };
    let denied = Error::Denied { what: "files/read".into(), rule: "`deny`".into(), hint: "allow it".into() };
    let wrong = Error::Arguments {
        server: server.clone(),
        tool: tool.clone(),
        problems: vec!["`path` is missing".into()],
    };
    let slow = Error::Timeout {
        server: server.clone(),
        after: std::time::Duration::from_secs(1),
        sent: true,
        stderr: Default::default(),
    };
    let down = Error::Connection {
        server: server.clone(),
        transport: "stdio",
        reason: "gone".into(),
        stderr: Default::default(),
        retryable: true,
    };
    let broke = |sent| Error::Protocol {
        server: server.clone(),
        reason: "it floods".into(),
        sent,
        stderr: Default::default(),
    };
    let cases = [
        (broke(true), "may have run: check its effect"),
        (broke(false), "nothing was run"),
        (lost, "may have run: check its effect"),
        (slow, "may have run: check its effect"),
        (denied, "the same call will fail again. What helps: allow it"),
        (wrong, "correct the arguments and call again"),
        (down, "the call may be made again"),
    ];
    for provider in Provider::ALL {
        for (error, advice) in &cases {
            let outcome = Outcome::from_error(server.clone(), tool.clone(), error.clone());
            let messages = rendered(provider, outcome);
            let text = text_in(provider, &messages);
            assert!(text.contains(&error.to_string()) && text.contains(advice), "{provider:?}: {text}");
            assert!(is_flagged(provider, &messages[0], &text), "{provider:?}: {messages:?}");
        }
        let own = result(json!({"isError": true, "content": [{"type": "text", "text": "no such file"}]}));
        let messages = rendered(provider, own);
        let text = text_in(provider, &messages);
        assert!(text.contains("no such file") && is_flagged(provider, &messages[0], &text), "{provider:?}");
        // The twin: a success carries no mark.
        let messages = rendered(provider, content(json!([{"type": "text", "text": "fine"}])));
        assert_eq!(text_in(provider, &messages), "fine");
        assert!(!is_flagged(provider, &messages[0], "fine"), "{provider:?}");
    }
}

fn is_flagged(provider: Provider, message: &Value, text: &str) -> bool {
    match provider {
        Provider::Anthropic => message["content"][0]["is_error"] == true,
        Provider::Gemini | Provider::GeminiOpenApi => {
            message["parts"][0]["functionResponse"]["response"].get("error").is_some()
        }
        Provider::Bedrock => message["content"][0]["toolResult"]["status"] == "error",
        _ => text.starts_with("Error: "),
    }
}

#[test]
fn l72_a_label_does_not_make_a_picture() {
    let html = STANDARD.encode("<script>");
    let forged = [
        ("image/png", html.as_str(), "not in a format"),
        ("image/svg+xml", &STANDARD.encode("<svg/>"), "not in a format"),
        ("image/png\r\nx: y", "%%%", "not valid base64"),
        ("image/png", "", "not in a format"),
    ];
    for provider in Provider::ALL {
        for (mime, data, why) in &forged {
            let outcome = content(json!([{"type": "image", "mimeType": mime, "data": data}]));
            let text = text_in(provider, &rendered(provider, outcome));
            assert!(text.contains(why) && !text.contains('\r'), "{provider:?} {mime}: {text}");
        }
    }
    // What the bytes are is what the provider is told, and broken lines or missing padding do no harm.
    let jpeg = STANDARD.encode([0xff, 0xd8, 0xff, 0xe0, 1]);
    let spelt = jpeg.trim_end_matches('=').to_owned() + "\r\n";
    let outcome = content(json!([{"type": "image", "mimeType": "image/png", "data": spelt}]));
    let source = &rendered(Provider::Anthropic, outcome)[0]["content"][0]["content"][0]["source"];
    assert_eq!(source, &json!({"type": "base64", "media_type": "image/jpeg", "data": jpeg}));
}

#[test]
fn l72_a_picture_has_a_limit() {
    for (more, fits) in [(0, true), (4, false)] {
        let data = png() + &"A".repeat(DATA_MAX - png().len() + more);
        let outcome = content(json!([{"type": "image", "mimeType": "image/png", "data": data}]));
        let block = &rendered(Provider::Anthropic, outcome)[0]["content"][0]["content"][0];
        assert_eq!(block["type"], if fits { "image" } else { "text" });
    }
}

#[test]
fn l72_documents_sound_links_and_unknown_kinds_are_not_lost() {
    let pdf = STANDARD.encode("%PDF-1.7 x");
    let blocks = json!([
        {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": pdf}},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
        {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
        {"type": "resource_link", "uri": "https://example.com", "name": "there"},
        {"type": "hologram"},
    ]);
    for provider in Provider::ALL {
        let text = serde_json::to_string(&rendered(provider, content(blocks.clone()))).unwrap();
        for part in ["inside", "audio/wav", "[link there: https://example.com]", "`hologram`"] {
            assert!(text.contains(part), "{provider:?} {part}: {text}");
        }
        let takes_pdf = !matches!(provider, Provider::OpenAiChat | Provider::Mistral | Provider::Ollama);
        assert_eq!(text.contains(&pdf), takes_pdf, "{provider:?}");
        assert!(takes_pdf || text.contains("[application/pdf, "), "{provider:?}: {text}");
    }
}

#[test]
fn l72_a_structured_result_alone_is_json_and_an_empty_one_says_so() {
    for provider in Provider::ALL {
        let structured = result(json!({"content": [], "structuredContent": {"n": 1, "hidden": "a\u{200b}"}}));
        let text = text_in(provider, &rendered(provider, structured));
        assert_eq!(text, "{\"n\":1,\"hidden\":\"a\\u200b\"}", "{provider:?}");
        let empty = content(json!([{"type": "text", "text": " "}]));
        assert!(text_in(provider, &rendered(provider, empty)).contains("returned nothing"), "{provider:?}");
    }
    let plain = result(json!({"content": [], "structuredContent": {"n": 1}}));
    let block = rendered(Provider::Bedrock, plain)[0]["content"][0]["toolResult"]["content"][0].clone();
    assert_eq!(block, json!({"json": {"n": 1}}));
}

#[test]
fn l72_text_from_a_server_cannot_hide_in_the_prompt() {
    for provider in Provider::ALL {
        let hostile = "a\u{1b}[2J\u{202e}b\u{e0041}\r\nc\td";
        let text =
            text_in(provider, &rendered(provider, content(json!([{"type": "text", "text": hostile}]))));
        assert_eq!(text, "a\\u{1b}[2J\\u{202e}b\\u{e0041}\r\nc\td", "{provider:?}");
        let plain = "Größe: 5 µm 👍\n\tfn main() {}";
        let text = text_in(provider, &rendered(provider, content(json!([{"type": "text", "text": plain}]))));
        assert_eq!(text, plain, "{provider:?}");
    }
}

#[test]
fn l66_a_result_has_a_neutral_form() {
    let outcome = content(
        json!([{"type": "text", "text": "see"}, {"type": "image", "mimeType": "image/png", "data": png()}]),
    );
    let message = ToolMessage::new(&call(Provider::Anthropic), &outcome);
    assert_eq!((message.call_id.as_deref(), message.name.as_str()), (Some("c1"), "files_read"));
    let (server, tool) = message.tool.as_ref().unwrap();
    assert_eq!((server.as_str(), tool.as_str(), message.is_error), ("files", "read", false));
    assert_eq!(message.parts.len(), 2);
    // The same value, whoever it is for.
    let other = ToolMessage::new(&call(Provider::OpenAiResponses), &outcome);
    assert_eq!(other.parts, message.parts);
}

fn read_result(path: &str, text: &str, good: bool) -> ToolMessage {
    let whole = body(Provider::OpenAiChat, &[(text, "files_read", json!({"path": path, "limit": text}))]);
    let call = read(Provider::OpenAiChat, whole).calls.remove(0);
    ToolMessage::new(&call, &result(json!({"isError": !good, "content": [{"type": "text", "text": text}]})))
}

fn texts(history: &History) -> Vec<String> {
    let messages = history.messages(Provider::OpenAiChat);
    messages.iter().map(|m| m.to::<Value>().unwrap()["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn l66_superseded_results_shrink_to_a_line() {
    let mut history = History::default();
    history.keep_newest("files", "read", &["path"]);
    history.say(json!({"role": "user", "content": "go"}));
    history.results([read_result("a", "one", true), read_result("b", "two", true)]);
    history.results([read_result("a", "three", true)]);
    let now = texts(&history);
    assert!(now[1].starts_with("[superseded"), "{now:?}");
    assert_eq!((now[0].as_str(), now[2].as_str(), now[3].as_str()), ("go", "two", "three"));
    // Every call still has its result, by its id.
    let first: Value = history.messages(Provider::OpenAiChat)[1].to().unwrap();
    assert_eq!((&first["role"], &first["tool_call_id"]), (&json!("tool"), &json!("one")));

    // A failure supersedes nothing: the older result is still the best there is.
    history.results([read_result("a", "four", false)]);
    assert_eq!(texts(&history)[3..], ["three", "Error: four"]);
    // Nor does a result of the same turn leave two: the later one counts.
    history.results([read_result("a", "five", true), read_result("a", "six", true)]);
    let now = texts(&history);
    assert!(now[3..6].iter().all(|text| text.starts_with("[superseded")), "{now:?}");
    assert_eq!(now[6], "six");
}

#[test]
fn l66_nothing_is_superseded_unless_it_is_said() {
    let mut history = History::default();
    history.keep_newest("files", "write", &[]);
    history.keep_newest("mail", "read", &[]);
    history.results([read_result("a", "one", true)]);
    history.results([read_result("a", "two", true)]);
    assert_eq!(texts(&history), ["one", "two"]);
}

async fn toolset(host: &Host) -> Toolset {
    let listing = host.tools().await;
    listing.snapshot.tools().iter().map(|route| (route.public.to_string(), route.clone())).collect()
}

#[tokio::test]
async fn l72_calls_of_a_turn_run_side_by_side_and_keep_their_order() {
    // Each of the two answers only when the other was called too: one after the other would never end.
    let folder = folder();
    let (a, b) = (at(&folder, "a"), at(&folder, "b"));
    let meet = |own: &PathBuf, other: &PathBuf| {
        vec![Step::Count(own.clone()), Step::WaitFor(other.clone()), Step::Echo]
    };
    let script = Puppet::new().plain_tool("left").plain_tool("right");
    let script = script.on("tool:left", meet(&a, &b)).on("tool:right", meet(&b, &a));
    let dying = Puppet::new().plain_tool("fail").on("tool:fail", vec![Step::Exit(3)]);
    let host = host([puppet("one", &script), puppet("two", &dying), puppet("three", &Puppet::new())]).await;
    let tools = toolset(&host).await;
    let provider = Provider::Anthropic;
    let calls = [
        ("1", "one_right", json!({"say": "first"})),
        ("2", "two_fail", json!({})),
        ("3", "nobody", json!({})),
        ("4", "three_echo", json!({"message": 7})),
        ("5", "one_left", json!({"say": "last"})),
    ];
    let answer = provider.answer(&body(provider, &calls).into(), &tools).unwrap();
    // A turn can run on a task of its own.
    let turn = tokio::spawn({
        let host = host.clone();
        async move { host.run_calls(answer.calls).await }
    });
    let done = soon("a turn", turn).await.unwrap();
    let kinds: Vec<Option<&str>> =
        done.iter().map(|(_, outcome)| outcome.error.as_deref().map(Error::kind)).collect();
    assert_eq!(kinds, [None, Some("unknown_outcome"), Some("unknown_tool"), Some("arguments"), None]);
    assert!(done[0].1.to_text().contains("first") && done[4].1.to_text().contains("last"));
    let ids: Vec<_> = done.iter().map(|(call, _)| call.id.as_deref().unwrap()).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "5"]);
    host.close().await;
}

#[tokio::test]
async fn l72_a_call_that_is_refused_since_the_model_was_asked_is_a_result_too() {
    let mut config = puppet("pup", &Puppet::new());
    let host = host([config.clone()]).await;
    let tools = toolset(&host).await;
    config.enabled = false;
    host.add_server(config);
    let provider = Provider::Gemini;
    let calls = [("", "pup_echo", json!({"message": "x"}))];
    let answer = provider.answer(&body(provider, &calls).into(), &tools).unwrap();
    let done = soon("a turn", host.run_calls(answer.calls)).await;
    let message: Value = provider.results(&done)[0].to().unwrap();
    let response = &message["parts"][0]["functionResponse"];
    let error = response["response"]["error"].as_str().unwrap();
    assert!(error.contains("the same call will fail again") && response.get("id").is_none(), "{message}");
    host.close().await;
}
