//! The scripted model refuses what a provider would refuse, and nothing else.

use serde_json::{Value, json};

use super::{Dialect, KEY, MODEL, rules};
use crate::http::Recorded;

fn request(dialect: Dialect, body: &Value) -> Recorded {
    let (path, headers) = match dialect {
        Dialect::OpenAiChat => {
            ("/v1/chat/completions".into(), vec![("authorization", format!("Bearer {KEY}"))])
        }
        Dialect::Anthropic => {
            let version = ("anthropic-version", "2023-06-01".to_owned());
            ("/v1/messages".into(), vec![("x-api-key", KEY.to_owned()), version])
        }
        Dialect::Gemini => {
            (format!("/v1beta/models/{MODEL}:generateContent"), vec![("x-goog-api-key", KEY.to_owned())])
        }
    };
    let mut recorded =
        Recorded { method: "POST".into(), path, headers: Default::default(), body: body.to_string().into() };
    for (name, value) in headers.into_iter().chain([("content-type", "application/json".to_owned())]) {
        recorded.headers.insert(name, value.parse().unwrap());
    }
    recorded
}

/// A second request of an honest agent, and the pointer to the model's turn in it.
fn honest(dialect: Dialect) -> (Value, &'static str) {
    let schema = json!({"type": "object"});
    match dialect {
        Dialect::OpenAiChat => (
            json!({
                "model": MODEL,
                "tools": [{"type": "function", "function": {"name": "t", "parameters": schema, "strict": false}}],
                "messages": [
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]},
                    {"role": "tool", "tool_call_id": "a", "content": "1"},
                    {"role": "tool", "tool_call_id": "b", "content": "2"},
                ],
            }),
            "/messages/1",
        ),
        Dialect::Anthropic => (
            json!({
                "model": MODEL, "max_tokens": 9,
                "tools": [{"name": "t", "input_schema": schema}],
                "messages": [
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": false,
                        "content": [{"type": "text", "text": "1"}]}]},
                ],
            }),
            "/messages/1/content",
        ),
        Dialect::Gemini => (
            json!({
                "tools": [{"functionDeclarations": [{"name": "t", "parametersJsonSchema": schema}]}],
                "contents": [
                    {"role": "user", "parts": [{"text": "q"}]},
                    {"role": "model", "parts": [{"functionCall": {"name": "t"}, "thoughtSignature": "s"}]},
                    {"role": "user", "parts": [{"functionResponse": {"name": "t", "response": {"output": "1"}}}]},
                ],
            }),
            "/contents/1",
        ),
    }
}

fn check(dialect: Dialect, request: &Recorded) -> Result<(), String> {
    let (body, turn) = honest(dialect);
    let own = body.pointer(turn).unwrap().to_string();
    rules::check(dialect, request, [own.as_str()].into_iter())
}

const ALL: [Dialect; 3] = [Dialect::OpenAiChat, Dialect::Anthropic, Dialect::Gemini];

#[test]
fn an_honest_request_is_taken() {
    for dialect in ALL {
        check(dialect, &request(dialect, &honest(dialect).0)).unwrap();
    }
}

#[test]
fn a_request_without_its_head_is_refused() {
    for dialect in ALL {
        let good = request(dialect, &honest(dialect).0);
        for name in good.headers.keys() {
            let mut bad = good.clone();
            bad.headers.remove(name);
            assert!(check(dialect, &bad).is_err(), "{dialect:?} without {name}");
        }
        assert!(check(dialect, &Recorded { path: "/".into(), ..good.clone() }).is_err());
        assert!(check(dialect, &Recorded { method: "PUT".into(), ..good }).is_err());
    }
}

#[test]
fn a_request_with_one_thing_wrong_is_refused() {
    let openai: &[(&str, Value)] = &[
        ("/model", json!("other")),
        ("/tools/0/function/name", json!("a b")),
        ("/tools/0/function/parameters/type", json!("string")),
        ("/messages/1/tool_calls/0/id", json!("z")),
        ("/messages/2/tool_call_id", json!("b")),
        ("/messages/3/content", json!([{"type": "image_url"}])),
        ("/messages/3/role", json!("user")),
    ];
    let anthropic: &[(&str, Value)] = &[
        ("/max_tokens", json!(0)),
        ("/tools/0/input_schema", json!({})),
        ("/messages/1/content/0/id", json!("z")),
        ("/messages/2/content/0/tool_use_id", json!("z")),
        ("/messages/2/content/0/is_error", json!("no")),
        ("/messages/2/content/0/content/0/text", json!("")),
        ("/messages/2/role", json!("assistant")),
    ];
    let gemini: &[(&str, Value)] = &[
        ("/tools/0/functionDeclarations/0/parametersJsonSchema", json!({"$schema": "x"})),
        ("/contents/1/parts/0/thoughtSignature", json!("t")),
        ("/contents/2/parts/0/functionResponse/name", json!("u")),
        ("/contents/2/parts/0/functionResponse/response", json!("1")),
        ("/contents/2/parts", json!([])),
    ];
    for (dialect, changes) in [(ALL[0], openai), (ALL[1], anthropic), (ALL[2], gemini)] {
        for (place, wrong) in changes {
            let (mut body, _) = honest(dialect);
            *body.pointer_mut(place).unwrap() = wrong.clone();
            assert!(check(dialect, &request(dialect, &body)).is_err(), "{dialect:?} {place}");
        }
        let (mut body, _) = honest(dialect);
        body["stranger"] = json!(true);
        assert!(check(dialect, &request(dialect, &body)).is_err(), "{dialect:?}");
    }
}
