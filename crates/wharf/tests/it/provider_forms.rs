//! Each provider's form around the schema: shapes, names, limits, strict tools, and which model wants which.

use std::sync::Arc;

use serde_json::{Value, json};
use wharf::provider::{Compiler, MANY_TOOLS, Provider, Strict};

use super::provider_checker::{problems, sent};
use super::provider_support::{compile, one_with, snapshot, tool};

#[test]
fn l70_exact_shapes() {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": true});
    let snapshot = snapshot("s", vec![tool("t", schema.clone())]);
    let (name, about) = ("s_t", "Does t.");
    let function = json!({"name": name, "description": about, "parameters": schema});
    let mut chat = json!({"type": "function", "function": function});
    chat["function"]["strict"] = json!(false);
    let plain = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let cases = [
        (Provider::OpenAiChat, chat),
        (
            Provider::OpenAiResponses,
            json!({"type": "function", "name": name, "description": about, "parameters": schema, "strict": false}),
        ),
        (Provider::Anthropic, json!({"name": name, "description": about, "input_schema": schema})),
        (
            Provider::Gemini,
            json!({"functionDeclarations": [{"name": name, "description": about, "parametersJsonSchema": schema}]}),
        ),
        (
            Provider::GeminiOpenApi,
            json!({"functionDeclarations": [{"name": name, "description": about, "parameters": plain}]}),
        ),
        (Provider::Mistral, json!({"type": "function", "function": function})),
        (
            Provider::Bedrock,
            json!({"toolSpec": {"name": name, "description": about, "inputSchema": {"json": schema}}}),
        ),
        (
            Provider::Ollama,
            json!({"type": "function", "function": {"name": name, "description": about, "parameters": plain}}),
        ),
    ];
    for (provider, expected) in cases {
        let compiled = compile(provider, &snapshot);
        assert_eq!(compiled.tools.to::<Value>().unwrap(), json!([expected]), "{provider}");
        assert_eq!(compiled.toolset.route("s_t").unwrap().tool.name.as_str(), "t");
        assert_eq!(compiled.toolset.name("s", "t"), Some("s_t"));
    }
}

#[test]
fn l70_no_tools_is_an_empty_list_and_no_arguments_are_no_arguments() {
    let nothing = snapshot("s", vec![]);
    let bare = snapshot("s", vec![json!({"name": "t", "inputSchema": {"type": "object"}})]);
    for provider in Provider::ALL {
        assert_eq!(compile(provider, &nothing).tools.as_str(), "[]", "{provider}");
        let tools: Value = compile(provider, &bare).tools.to().unwrap();
        assert_eq!(problems(provider, &tools), [""; 0]);
        let sent = sent(provider, &tools);
        assert_eq!(sent[0].description, "");
        assert_eq!(sent[0].schema.is_none(), provider == Provider::GeminiOpenApi, "{provider}");
    }
}

#[test]
fn l70_models_by_name() {
    let cases = [
        ("gpt-4o-mini", "openai"),
        ("GPT-5", "openai"),
        ("o1-preview", "openai"),
        ("o3", "openai"),
        ("o4-mini", "openai"),
        ("chatgpt-4o-latest", "openai"),
        ("text-davinci-003", "openai"),
        ("text-curie-001", "openai"),
        ("text-babbage-001", "openai"),
        ("text-ada-001", "openai"),
        ("ft:gpt-4o-mini:acme::id", "openai"),
        ("openai/gpt-5", "openai"),
        ("azure/my-deployment", "openai"),
        ("openrouter/anthropic/claude-opus-4", "openai"),
        ("gpt-5-codex", "openai-responses"),
        ("codex-mini-latest", "openai-responses"),
        ("o1-pro", "openai-responses"),
        ("o3-deep-research", "openai-responses"),
        ("openai/gpt-5-pro", "openai-responses"),
        ("claude-opus-4-5", "anthropic"),
        ("anthropic/claude-sonnet-4", "anthropic"),
        ("vertex_ai/claude-opus-4", "anthropic"),
        ("gemini-2.5-pro", "gemini"),
        ("models/gemini-2.5-flash", "gemini"),
        ("google/gemini-3", "gemini"),
        ("vertex_ai/gemini-3", "gemini"),
        ("mistral-large-latest", "mistral"),
        ("ministral-8b", "mistral"),
        ("magistral-medium", "mistral"),
        ("codestral-2508", "mistral"),
        ("devstral-small", "mistral"),
        ("pixtral-large", "mistral"),
        ("mistralai/mixtral-8x7b", "mistral"),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", "bedrock"),
        ("us.anthropic.claude-sonnet-4-v1:0", "bedrock"),
        ("amazon.nova-pro-v1:0", "bedrock"),
        ("eu.amazon.nova-lite-v1:0", "bedrock"),
        ("meta.llama3-70b-instruct-v1:0", "bedrock"),
        ("bedrock/anthropic.claude-v2", "bedrock"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/x", "bedrock"),
        ("ollama/whatever", "ollama"),
        ("llama3.2", "ollama"),
        ("qwen3:8b", "ollama"),
        ("mistral:7b", "ollama"),
        ("gpt-oss:20b", "ollama"),
    ];
    for (model, family) in cases {
        assert_eq!(Provider::of_model(model).unwrap().name(), family, "{model}");
    }
    for unknown in ["", "gpt", "o2", "oracle", "somebody/else", "claud", "o1x", "\u{1b}[31mred"] {
        let error = Provider::of_model(unknown).unwrap_err();
        let hint = error.hint().unwrap();
        for family in ["OpenAI", "Anthropic", "Gemini", "Mistral", "Bedrock", "Ollama"] {
            assert!(hint.contains(family), "{hint}");
        }
        assert!(!error.to_string().contains('\u{1b}'));
    }
    for provider in Provider::ALL {
        assert_eq!(provider.name().parse::<Provider>().unwrap(), provider);
    }
    assert_eq!("openai-chat".parse::<Provider>().unwrap(), Provider::OpenAiChat);
    assert!("OpenAI".parse::<Provider>().unwrap_err().hint().unwrap().contains("gemini-openapi"));
}

#[test]
fn l70_names_keep_the_rules_and_lead_back() {
    let long = "x".repeat(120);
    let names = [
        "9lives",
        "-dash",
        "plain",
        &long,
        &format!("{long}y"),
        &format!("{long}z"),
        "ünïcode",
        "a.b",
        "a:b",
        "A.B",
    ];
    let schema = || json!({"type": "object"});
    let snapshot = snapshot("server", names.iter().map(|name| tool(name, schema())).collect());
    let other = super::provider_support::snapshot(
        "server",
        names.iter().rev().map(|name| tool(name, schema())).collect(),
    );
    for provider in Provider::ALL {
        let compiled = compile(provider, &snapshot);
        assert!(compiled.left_out.is_empty(), "{:?}", compiled.left_out);
        let tools: Value = compiled.tools.to().unwrap();
        assert_eq!(problems(provider, &tools), [""; 0]);
        for sent in sent(provider, &tools) {
            let route = compiled.toolset.route(&sent.name).unwrap();
            assert_eq!(compiled.toolset.name("server", route.tool.name.as_str()), Some(&*sent.name));
        }
        // The order makes no difference.
        let reversed = compile(provider, &other);
        for name in names {
            assert_eq!(
                compiled.toolset.name("server", name),
                reversed.toolset.name("server", name),
                "{name}"
            );
        }
        assert!(compiled.toolset.route("nothing").is_none());
    }
}

#[test]
fn l70_too_many_tools_are_left_out_with_the_reason() {
    let many = |count: usize| {
        snapshot("s", (0..count).map(|i| tool(&format!("t{i}"), json!({"type": "object"}))).collect())
    };
    let all = many(600);
    for (provider, max) in [
        (Provider::OpenAiChat, 128),
        (Provider::Gemini, 512),
        (Provider::GeminiOpenApi, 512),
        (Provider::Anthropic, 600),
    ] {
        let compiled = compile(provider, &all);
        assert_eq!((compiled.toolset.len(), compiled.left_out.len()), (max, 600 - max), "{provider}");
        assert_eq!(problems(provider, &compiled.tools.to().unwrap()), [""; 0]);
        if let Some(left) = compiled.left_out.first() {
            assert!(left.reason.contains(&max.to_string()), "{left:?}");
        }
    }
    assert_eq!(compile(Provider::Anthropic, &many(MANY_TOOLS - 1)).warnings, [""; 0]);
    assert_eq!(compile(Provider::Anthropic, &many(MANY_TOOLS)).warnings.len(), 1);
}

#[test]
fn l70_strict_only_where_nothing_is_lost() {
    let strict = |schema: &Value, strict: Strict, provider: Provider| {
        let tools = snapshot("s", vec![tool("t", schema.clone())]);
        let compiled = Compiler::new().with_strict(strict).compile(provider, tools.tools());
        sent(provider, &compiled.tools.to().unwrap()).remove(0).strict
    };
    let all = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}, "b": {"type": ["integer", "null"]}}, "required": ["a", "b"]});
    let good = [
        all.clone(),
        json!({"type": "object"}),
        json!({"type": "object", "properties": {"k": {"const": "x"}}, "required": ["k"], "additionalProperties": false}),
    ];
    let one = |schema: Value| json!({"type": "object", "properties": {"x": schema}, "required": ["x"]});
    let bad = [
        json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        one(json!({"type": "object"})),
        one(json!({})),
        one(json!({"type": "array"})),
        one(json!({"type": "string", "maxLength": 3})),
        one(json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})),
        one(json!({"oneOf": [{"type": "integer"}, {"type": "number"}]})),
        one(json!({"type": "string", "pattern": "^(?!x)"})),
        one(json!({"type": "string", "enum": (0..1001).map(|i| i.to_string()).collect::<Vec<_>>()})),
        one((0..12).fold(
            json!({"type": "string"}),
            |inner, _| json!({"type": "object", "properties": {"i": inner}, "required": ["i"]}),
        )),
    ];
    for provider in [Provider::OpenAiChat, Provider::OpenAiResponses] {
        for schema in &good {
            assert_eq!(strict(schema, Strict::Usual, provider), Some(true), "{schema}");
            assert_eq!(strict(schema, Strict::Never, provider), Some(false), "{schema}");
        }
        for schema in &bad {
            assert_eq!(strict(schema, Strict::Lossless, provider), Some(false), "{schema}");
        }
    }
    assert_eq!(strict(&all, Strict::Usual, Provider::Anthropic), None);
    let optional = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    assert_eq!(strict(&optional, Strict::Lossless, Provider::Anthropic), Some(true));
    assert_eq!(strict(&all, Strict::Lossless, Provider::Anthropic), None, "a pattern is not known there");
    let (sent, losses) = one_with(Strict::Usual, Provider::OpenAiChat, all).unwrap();
    assert_eq!(sent["additionalProperties"], json!(false));
    assert_eq!(losses, []);
}

#[test]
fn l70_the_second_time_comes_from_the_cache() {
    let snapshot = snapshot(
        "s",
        vec![tool("t", json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}))],
    );
    let compiler = Compiler::new();
    for provider in Provider::ALL {
        let first = compiler.compile(provider, snapshot.tools());
        let second = compiler.compile(provider, snapshot.tools());
        assert_eq!(first.tools, second.tools, "{provider}");
        // The report is the same one, so it was not made again.
        for (one, two) in first.losses.iter().zip(&second.losses) {
            assert!(Arc::ptr_eq(&one.losses, &two.losses), "{provider}");
        }
    }
    let openai = compiler.compile(Provider::OpenAiChat, snapshot.tools());
    let gemini = compiler.compile(Provider::Gemini, snapshot.tools());
    assert!(openai.losses.is_empty() && !gemini.losses.is_empty());
}

#[test]
fn l70_a_tool_given_twice_is_sent_once() {
    let snapshot = snapshot("s", vec![tool("t", json!({"type": "object"}))]);
    let twice = snapshot.tools().iter().chain(snapshot.tools());
    let compiled = Compiler::new().compile(Provider::Gemini, twice);
    assert_eq!(problems(Provider::Gemini, &compiled.tools.to().unwrap()), [""; 0]);
    assert_eq!(compiled.toolset.len(), 1);
}
