//! A model's answer becomes calls: every provider's form, and every way to write one badly.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use wharf::Error;
use wharf::mcp::Tool;
use wharf::names::ServerName;
use wharf::provider::{ARGUMENTS_MAX, Answer, CALLS_MAX, Provider, Stop, Toolset};
use wharf::registry::{Route, Source};
use wharf::wire::Json;

/// The tools `files_read` and `files_write`, and one whose name says something else than it is.
pub(crate) fn tools() -> Toolset {
    let route = |public: &str, tool: &str| {
        let definition = json!({"name": tool, "inputSchema": {"type": "object"}});
        let (server, source) = (ServerName::parse("files").unwrap(), Source::Mcp);
        let tool = Arc::new(Tool::read(definition.into()).unwrap());
        (
            public.to_owned(),
            Route { public: public.into(), server, tool, source, owner: None, tally: Default::default() },
        )
    };
    [route("files_read", "read"), route("files_write", "write"), route("mail_send", "read all")]
        .into_iter()
        .collect()
}

/// An answer with these calls, `(id, name, arguments)`, as a provider writes it. Arguments are a text where the
/// provider has them as text.
pub(crate) fn body(provider: Provider, calls: &[(&str, &str, Value)]) -> Value {
    let texted = |arguments: &Value| match arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let each = |one: &dyn Fn(&str, &str, &Value) -> Value| {
        calls.iter().map(|(id, name, arguments)| one(id, name, arguments)).collect::<Vec<_>>()
    };
    match provider {
        Provider::OpenAiChat | Provider::Mistral => {
            let calls = each(
                &|id, name, a| json!({"id": id, "type": "function", "function": {"name": name, "arguments": texted(a)}}),
            );
            json!({"id": "x", "choices": [{"index": 0, "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": null, "tool_calls": calls}}]})
        }
        Provider::OpenAiResponses => {
            let mut output = vec![json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "e=="})];
            output.extend(each(&|id, name, a| json!({"type": "function_call", "id": "fc", "call_id": id, "name": name, "arguments": texted(a)})));
            json!({"id": "resp_1", "status": "completed", "error": null, "incomplete_details": null, "output": output})
        }
        Provider::Anthropic => {
            let calls = each(&|id, name, a| json!({"type": "tool_use", "id": id, "name": name, "input": a}));
            json!({"id": "msg_1", "type": "message", "role": "assistant", "content": calls, "stop_reason": "tool_use", "usage": {}})
        }
        Provider::Gemini | Provider::GeminiOpenApi => {
            let parts = each(
                &|id, name, a| json!({"functionCall": {"id": id, "name": name, "args": a}, "thoughtSignature": "c2ln"}),
            );
            json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})
        }
        Provider::Bedrock => {
            let content =
                each(&|id, name, a| json!({"toolUse": {"toolUseId": id, "name": name, "input": a}}));
            json!({"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "tool_use"})
        }
        Provider::Ollama => {
            let calls = each(&|_, name, a| json!({"function": {"name": name, "arguments": a}}));
            json!({"model": "m", "done": true, "done_reason": "stop",
                "message": {"role": "assistant", "content": "", "tool_calls": calls}})
        }
        other => panic!("{other:?} is new"),
    }
}

/// The message in such a body, without what stands around it.
fn message_of(provider: Provider, body: &Value) -> Value {
    match provider {
        Provider::OpenAiChat | Provider::Mistral => body["choices"][0]["message"].clone(),
        Provider::OpenAiResponses => body["output"].clone(),
        Provider::Anthropic => json!({"role": "assistant", "content": body["content"]}),
        Provider::Gemini | Provider::GeminiOpenApi => body["candidates"][0]["content"].clone(),
        Provider::Bedrock => body["output"]["message"].clone(),
        Provider::Ollama => body["message"].clone(),
        other => panic!("{other:?} is new"),
    }
}

pub(crate) fn read(provider: Provider, body: impl Into<Json>) -> Answer {
    provider.answer(&body.into(), &tools()).unwrap()
}

#[test]
fn l72_calls_are_read_from_every_provider() {
    for provider in Provider::ALL {
        let calls = [("a1", "files_read", json!({"path": "a"})), ("b2", "mail_send", json!({"n": 1}))];
        let whole = body(provider, &calls);
        for given in [whole.clone(), message_of(provider, &whole)] {
            let answer = read(provider, given);
            assert_eq!(answer.stop, Stop::Tools, "{provider:?}");
            let [first, second] = &answer.calls[..] else { panic!("{provider:?}: {answer:?}") };
            let (route, arguments) = first.ready().unwrap();
            assert_eq!((route.tool.name.as_str(), arguments.as_str()), ("read", r#"{"path":"a"}"#));
            // The name is looked up: it leads where the toolset says, not where it seems to.
            let (route, arguments) = second.ready().unwrap();
            assert_eq!((route.server.as_str(), route.tool.name.as_str()), ("files", "read all"));
            assert_eq!(arguments.as_str(), r#"{"n":1}"#);
            let ids: Vec<Option<&str>> = answer.calls.iter().map(|call| call.id.as_deref()).collect();
            let expected = if provider == Provider::Ollama { [None, None] } else { [Some("a1"), Some("b2")] };
            assert_eq!(ids, expected, "{provider:?}");
        }
    }
}

#[test]
fn l72_the_models_turn_goes_back_byte_for_byte() {
    // Odd spacing, a long number and an escape that a rewrite would change.
    let turn = r#"{ "role":"model", "parts":[{"functionCall":{"name":"files_read","args":{"n":1.10}},"thoughtSignature":"c2\/ln","big":123456789012345678901}] }"#;
    let whole = format!(r#"{{"candidates":[{{"content":{turn},"finishReason":"STOP"}}]}}"#);
    let answer = read(Provider::Gemini, Json::parse(whole, 127).unwrap());
    assert_eq!(answer.messages[0].as_str(), turn);
    assert_eq!(answer.calls[0].arguments.as_ref().unwrap().as_str(), r#"{"n":1.10}"#);

    for provider in Provider::ALL {
        let whole = body(provider, &[("a", "files_read", json!({}))]);
        let sent_back = Json::of(&read(provider, whole.clone()).messages);
        let expected = match message_of(provider, &whole) {
            Value::Array(items) => Value::Array(items),
            message => json!([message]),
        };
        assert_eq!(sent_back.as_str(), expected.to_string(), "{provider:?}");
    }
}

#[test]
fn l72_an_answer_without_calls_is_its_text() {
    let bodies = [
        (
            Provider::OpenAiChat,
            json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}]}),
        ),
        (
            Provider::OpenAiResponses,
            json!({"status": "completed", "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}]}),
        ),
        (
            Provider::Anthropic,
            json!({"stop_reason": "end_turn", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Hello"}]}),
        ),
        (
            Provider::Gemini,
            json!({"candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [
            {"text": "hm", "thought": true}, {"text": "Hel"}, {"text": "lo"}]}}]}),
        ),
        (
            Provider::Mistral,
            json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hello"}]}}]}),
        ),
        (
            Provider::Bedrock,
            json!({"stopReason": "end_turn", "output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}}}),
        ),
        (
            Provider::Ollama,
            json!({"done_reason": "stop", "message": {"role": "assistant", "content": "Hello", "thinking": "hm"}}),
        ),
    ];
    for (provider, body) in bodies {
        let answer = read(provider, body);
        assert_eq!((answer.text.raw(), answer.calls.len()), ("Hello", 0), "{provider:?}");
        assert_eq!(answer.stop, Stop::Done, "{provider:?}");
    }
}

#[test]
fn l72_a_bad_call_fails_alone_and_says_how_to_do_better() {
    for provider in Provider::ALL {
        let bad: &[(Value, &str)] = &[
            (json!([1]), "not a JSON object"),
            (json!("\"{}\""), "not a JSON object"),
            (json!("{\"a\":"), "not usable JSON"),
            (json!("{\"a\":1,\"a\":2}"), "the key `a` appears twice"),
            (json!("{\"a\":1} {}"), "not usable JSON"),
        ];
        for (arguments, why) in bad {
            let calls = [("1", "files_read", arguments.clone()), ("2", "files_read", json!({"good": true}))];
            let answer = read(provider, body(provider, &calls));
            let problem = answer.calls[0].ready().unwrap_err();
            assert_eq!(problem.kind(), "arguments", "{provider:?} {arguments}");
            assert!(problem.to_string().contains(why), "{provider:?}: {problem}");
            assert!(problem.hint().unwrap().contains("nothing was sent"));
            assert!(answer.calls[1].ready().is_ok(), "the good call goes on");
        }
        for nothing in [json!(""), json!("  "), json!("null"), json!({}), json!("{}"), Value::Null] {
            let answer = read(provider, body(provider, &[("1", "files_read", nothing.clone())]));
            assert_eq!(answer.calls[0].ready().unwrap().1.as_str(), "{}", "{provider:?} {nothing}");
        }
    }
}

#[test]
fn l72_twin_keys_are_refused_in_the_object_form_too() {
    let twin = r#"{"content":[{"type":"tool_use","id":"1","name":"files_read","input":{"p":1,"p":2}},
        {"type":"tool_use","id":"2","name":"files_read","input":{"p":1,"q":2}}]}"#;
    let answer = read(Provider::Anthropic, Json::parse(twin, 127).unwrap());
    assert!(answer.calls[0].ready().unwrap_err().to_string().contains("the key `p` appears twice"));
    assert!(answer.calls[1].ready().is_ok());
}

#[test]
fn l72_an_unknown_name_fails_alone_with_a_suggestion() {
    for provider in Provider::ALL {
        let calls = [
            ("1", "files_reed", json!({})),
            ("2", "\u{1b}[2Jzzz", json!({})),
            ("3", "files_read", json!({})),
        ];
        let answer = read(provider, body(provider, &calls));
        let near = answer.calls[0].ready().unwrap_err();
        assert_eq!(near.kind(), "unknown_tool");
        assert!(near.hint().unwrap().contains("did you mean `files_read`"), "{near:?}");
        let far = answer.calls[1].ready().unwrap_err();
        assert!(
            !far.to_string().contains('\u{1b}') && far.hint().unwrap().contains("exact names"),
            "{far:?}"
        );
        assert!(answer.calls[2].ready().is_ok());
    }
}

#[test]
fn l72_ids_are_needed_where_the_provider_has_them_and_count_once() {
    for provider in Provider::ALL.into_iter().filter(|p| *p != Provider::Ollama) {
        let calls = [
            ("same", "files_read", json!({})),
            ("same", "files_write", json!({})),
            ("", "files_read", json!({})),
        ];
        let answer = read(provider, body(provider, &calls));
        assert!(answer.calls[0].ready().is_ok());
        let twice = answer.calls[1].ready().unwrap_err().to_string();
        assert!(twice.contains("an id is used once"), "{provider:?}: {twice}");
        let may_lack = matches!(provider, Provider::Gemini | Provider::GeminiOpenApi);
        assert_eq!(answer.calls[2].ready().is_ok(), may_lack, "{provider:?}");
    }
    let twice = [("", "files_read", json!({})), ("", "files_read", json!({}))];
    assert!(read(Provider::Gemini, body(Provider::Gemini, &twice)).calls.iter().all(|c| c.ready().is_ok()));
}

#[test]
fn l72_calls_beyond_the_limit_are_not_run_and_not_lost() {
    for provider in Provider::ALL {
        let ids: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "files_read", json!({}))).collect();
        let answer = read(provider, body(provider, &calls));
        assert_eq!(answer.calls.len(), 1000);
        assert!(answer.calls[..CALLS_MAX].iter().all(|call| call.ready().is_ok()));
        for call in &answer.calls[CALLS_MAX..] {
            assert!(call.ready().unwrap_err().to_string().contains("limit of 128 calls"));
        }
    }
}

#[test]
fn l72_arguments_may_be_long_but_not_without_end() {
    // The limit counts the arguments as they are written, quotes and escapes included.
    let forms = [(Provider::Anthropic, r#"{"a":""}"#), (Provider::OpenAiChat, r#""{\"a\":\"\"}""#)];
    for (provider, frame) in forms {
        for (more, fits) in [(0, true), (1, false)] {
            let long = "x".repeat(ARGUMENTS_MAX - frame.len() + more);
            let answer = read(provider, body(provider, &[("1", "files_read", json!({"a": long}))]));
            let ready = answer.calls[0].ready();
            assert_eq!(ready.is_ok(), fits, "{provider:?} {more}");
            assert!(fits || ready.unwrap_err().to_string().contains("more than 1048576"));
        }
    }
}

#[test]
fn l72_the_last_call_of_an_answer_that_was_cut_off_is_not_run() {
    let cut = json!({"stop_reason": "max_tokens", "content": [
        {"type": "tool_use", "id": "1", "name": "files_read", "input": {"path": "a"}},
        {"type": "tool_use", "id": "2", "name": "files_write", "input": {}}]});
    let answer = read(Provider::Anthropic, cut);
    assert_eq!(answer.stop, Stop::Cut);
    assert!(answer.calls[0].ready().is_ok());
    assert!(answer.calls[1].ready().unwrap_err().to_string().contains("cut off"));
}

#[test]
fn l72_why_an_answer_ended_is_told() {
    let refused = json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": null, "refusal": "No."}}]});
    let answer = read(Provider::OpenAiChat, refused);
    assert_eq!((answer.stop, answer.text.raw()), (Stop::Refused, "No."));
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}});
    assert_eq!(read(Provider::Gemini, blocked).stop, Stop::Refused);
    let malformed = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]});
    assert_eq!(read(Provider::Gemini, malformed).stop, Stop::Other("MALFORMED_FUNCTION_CALL".into()));
    let incomplete =
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []});
    assert_eq!(read(Provider::OpenAiResponses, incomplete).stop, Stop::Cut);
}

#[test]
fn l72_what_is_no_answer_is_an_error_of_the_turn() {
    let bodies = [
        json!({"error": {"message": "overloaded \u{1b}[31m"}}),
        json!({"type": "error", "error": {"type": "x", "message": "overloaded"}}),
        json!({"error": "overloaded"}),
    ];
    for provider in Provider::ALL {
        for body in &bodies {
            let error = provider.answer(&body.into(), &tools()).unwrap_err();
            assert_eq!(error.kind(), "provider");
            assert!(
                error.to_string().contains("overloaded") && !error.to_string().contains('\u{1b}'),
                "{error}"
            );
        }
        for nothing in [json!({}), json!(null), json!("hello"), json!({"choices": [], "candidates": []})] {
            let answer = provider.answer(&nothing.clone().into(), &tools());
            assert!(answer.is_err(), "{provider:?} {nothing}: {answer:?}");
        }
    }
}

#[test]
fn l72_a_namespace_is_kept_beside_the_name() {
    let item = json!([{"type": "function_call", "call_id": "c", "namespace": "files", "name": "files_read", "arguments": ""}]);
    let answer = read(Provider::OpenAiResponses, item);
    assert_eq!(answer.calls[0].namespace.as_ref().unwrap().raw(), "files");
    assert!(answer.calls[0].ready().is_ok());
}

/// Bodies made of the words that providers use, in places where they do not belong.
fn odd_body() -> impl Strategy<Value = Value> {
    const WORDS: [&str; 34] = [
        "choices",
        "message",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "output",
        "type",
        "function_call",
        "call_id",
        "content",
        "tool_use",
        "input",
        "candidates",
        "parts",
        "functionCall",
        "args",
        "toolUse",
        "toolUseId",
        "role",
        "assistant",
        "text",
        "files_read",
        "files_write",
        "stop_reason",
        "max_tokens",
        "finish_reason",
        "length",
        "finishReason",
        "refusal",
        "incomplete_details",
        "reason",
        "stopReason",
    ];
    let word = proptest::sample::select(&WORDS[..]);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        Just(Value::Null),
        Just(json!(1)),
        Just(json!(true)),
        Just(json!("{\"path\": 1}")),
    ];
    leaf.prop_recursive(7, 60, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((word.clone(), inner), 0..5).prop_map(|members| {
                Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn l72_any_body_is_read_or_refused(inner in odd_body(), name in "[a-z_]{0,12}") {
        let tools = tools();
        for provider in Provider::ALL {
            // As it is, and in the place where the provider's own would be.
            let mut wrapped = body(provider, &[("a", &name, inner.clone()), ("b", "files_read", json!({}))]);
            for whole in [inner.clone(), json!({"output": inner}), std::mem::take(&mut wrapped)] {
                let Ok(answer) = provider.answer(&whole.into(), &tools) else { continue };
                for call in &answer.calls {
                    prop_assert!(call.ready().is_ok() == call.problem.is_none());
                    prop_assert!(call.ready().is_err() || call.arguments.as_ref().unwrap().is_object());
                }
                let done: Vec<_> = answer.calls.iter().map(|call| {
                    (call.clone(), call.failed(call.ready().err().unwrap_or(Error::Internal("x".into()))))
                }).collect();
                prop_assert_eq!(provider.results(&done).is_empty(), done.is_empty());
            }
        }
    }
}
