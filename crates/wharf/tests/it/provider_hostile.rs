//! Schemas that mean harm, each with a twin that means none.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use wharf::provider::{Compiler, Provider};

use super::provider_checker::{problems, sent};
use super::provider_support::{compile, one, snapshot, tool, with_argument};

/// Generous: these tests are about what would take for ever.
const SOON: Duration = Duration::from_secs(20);

/// The tool is left out with these words, and takes no other with it; its twin goes through.
fn refused(schema: Value, twin: Value, words: &str) {
    for provider in Provider::ALL {
        let started = Instant::now();
        let tools = vec![
            tool("first", json!({"type": "object"})),
            tool("bad", schema.clone()),
            tool("last", json!({"type": "object"})),
        ];
        let compiled = compile(provider, &snapshot("s", tools));
        assert!(started.elapsed() < SOON, "{provider}");
        let names: Vec<String> =
            sent(provider, &compiled.tools.to().unwrap()).into_iter().map(|t| t.name).collect();
        assert_eq!(names, ["s_first", "s_last"], "{provider}");
        assert_eq!(compiled.left_out.len(), 1);
        assert!(compiled.left_out[0].reason.contains(words), "{provider}: {:?}", compiled.left_out);
        one(provider, twin.clone()).unwrap();
    }
}

fn nested(levels: usize) -> Value {
    with_argument(
        (0..levels).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner})),
    )
}

#[test]
fn l71_a_schema_that_is_too_deep() {
    refused(nested(70), nested(30), "nested too deeply");
}

#[test]
fn l71_a_schema_with_too_many_parts() {
    let wide = |count: usize| {
        let properties: Map<String, Value> =
            (0..count).map(|i| (format!("p{i}"), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties})
    };
    refused(wide(6_000), wide(600), "too many parts");
}

#[test]
fn l71_a_schema_that_is_too_large() {
    let long = |bytes: usize| with_argument(json!({"type": "string", "description": "a".repeat(bytes)}));
    refused(long(300 * 1024), long(3 * 1024), "too large");
}

/// Each definition refers to the next one several times.
fn bomb(levels: usize, times: usize) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        let properties: Map<String, Value> = (0..times).map(|i| (format!("p{i}"), next.clone())).collect();
        defs.insert(format!("d{level}"), json!({"type": "object", "properties": properties}));
    }
    defs.insert(format!("d{levels}"), json!({"type": "string"}));
    json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

#[test]
fn l71_references_that_multiply() {
    for provider in Provider::ALL {
        let started = Instant::now();
        let done = one(provider, bomb(30, 8));
        assert!(started.elapsed() < SOON, "{provider}");
        match provider {
            // References stay, so nothing multiplies.
            Provider::OpenAiChat | Provider::OpenAiResponses | Provider::Anthropic => drop(done.unwrap()),
            _ => assert!(done.unwrap_err().contains("grows too large"), "{provider}"),
        }
        one(provider, bomb(3, 4)).unwrap();
    }
}

#[test]
fn l71_branches_that_multiply() {
    let half = |n: usize| json!({"anyOf": (0..n).map(|i| json!({"type": "string", "minLength": i})).collect::<Vec<_>>()});
    let product = |n: usize, m: usize| with_argument(json!({"allOf": vec![half(n); m]}));
    let started = Instant::now();
    for provider in Provider::ALL {
        // Either it can be said, or it is left out: soon, in any case.
        let _ = one(provider, product(20, 12));
        one(provider, product(2, 2)).unwrap();
    }
    assert!(started.elapsed() < SOON);
}

#[test]
fn l71_circles() {
    let circle =
        |defs: Value| json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": defs});
    let vacuous = circle(json!({"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}));
    let chain = circle(json!({"a": {"$ref": "#/$defs/b"}, "b": {"type": "string"}}));
    refused(vacuous, chain, "without end");
    for provider in Provider::ALL {
        let (sent, _) = one(
            provider,
            json!({"type": "object", "properties": {"again": {"$ref": "#"}, "a": {"type": "string"}}}),
        )
        .unwrap();
        assert!(sent["properties"]["a"].is_object(), "{provider}: {sent}");
        let both = json!({"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}}, "b": {"type": "array", "items": {"$ref": "#/$defs/a"}}});
        one(provider, circle(both)).unwrap();
    }
}

#[test]
fn l71_references_to_elsewhere() {
    let to = |reference: &str| json!({"type": "object", "properties": {"x": {"$ref": reference}}, "$defs": {"a b": {"$anchor": "here", "type": "string"}}});
    refused(to("https://example.com/schema.json"), to("#/$defs/a%20b"), "which is not in it");
    refused(to("file:///etc/passwd"), to("#here"), "which is not in it");
    refused(to("#/$defs/none"), to("#/$defs/a b"), "which is not in it");
}

#[test]
fn l71_schemas_that_are_none() {
    for bad in [
        json!("string"),
        json!(3),
        json!({"type": "text"}),
        json!({"enum": "a"}),
        json!({"properties": []}),
        json!({"required": true}),
        json!({"minLength": -1}),
        json!({"anyOf": []}),
    ] {
        refused(with_argument(bad), with_argument(json!({"type": "string"})), "its schema");
    }
    let twins = json!({"type": "object", "properties": {"x": true, "y": false}});
    for provider in Provider::ALL {
        one(provider, twins.clone()).unwrap();
        let impossible = json!({"type": "object", "properties": {"y": false}, "required": ["y"]});
        assert!(one(provider, impossible).unwrap_err().contains("no arguments can fit"), "{provider}");
    }
}

#[test]
fn l71_names_that_programs_stumble_over() {
    for name in ["__proto__", "constructor", "properties", "type", "$ref", "", "a/b~c"] {
        let schema =
            json!({"type": "object", "properties": {name: {"type": "integer", "exclusiveMinimum": 0.5}}});
        let (sent, _) = one(Provider::Gemini, schema).unwrap();
        assert_eq!(sent["properties"][name], json!({"type": "integer", "minimum": 1}), "{name}");
    }
}

#[test]
fn l71_twin_keys() {
    let text = r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"string","type":"integer"}}}}"#;
    let tool = wharf::mcp::Tool::read(wharf::wire::Json::parse(text, 127).unwrap()).unwrap();
    let mut route =
        snapshot("s", vec![super::provider_support::tool("t", json!({"type": "object"}))]).tools()[0].clone();
    assert!(Compiler::new().compile(Provider::OpenAiChat, [&route]).left_out.is_empty());
    route.tool = tool.into();
    let compiled = Compiler::new().compile(Provider::OpenAiChat, [&route]);
    assert!(compiled.left_out[0].reason.contains("appears twice"), "{:?}", compiled.left_out);
}

#[test]
fn l71_nothing_hidden_reaches_the_model() {
    let hidden = "Adds.\u{e0049}\u{e0067}\u{200b}\u{202e}\u{1b}[8m secret\u{1b}[0m\r";
    let schema = json!({"type": "object", "description": hidden, "properties": {
        "a": {"type": "string", "description": hidden, "title": hidden, "default": hidden, "examples": [hidden], "pattern": hidden},
        "b": {"enum": ["ok", "line\nbreak", hidden, "👩\u{200d}🚀"]}, "c": {"const": hidden}, "d": {"type": "string", "format": hidden},
        "e": {"type": "string", "maxLength": 3, "not": {"const": hidden}},
    }});
    for provider in Provider::ALL {
        let tools = vec![
            json!({"name": "t", "description": hidden, "inputSchema": schema}),
            tool("plain", json!({"type": "object"})),
        ];
        let compiled = compile(provider, &snapshot("s", tools));
        let text: Value = compiled.tools.to().unwrap();
        assert_eq!(problems(provider, &text), [""; 0]);
        let text = text.to_string();
        let is_hidden = |c: char| matches!(c, '\u{e0000}'..='\u{e007f}' | '\u{200b}' | '\u{202e}' | '\u{1b}');
        assert!(!text.contains(is_hidden) && !text.contains("\\u001b"), "{provider}: {text}");
        assert!(
            text.contains("Adds.[8m secret[0m")
                && text.contains("line\\nbreak")
                && text.contains("👩\u{200d}🚀"),
            "{text}"
        );
        let losses = &compiled.losses[0].losses;
        assert!(
            losses.iter().any(|loss| loss.path.is_empty() && loss.keyword == "description"),
            "{losses:?}"
        );
        assert!(
            losses.iter().any(|loss| loss.path == "/properties/b" && loss.keyword == "enum"),
            "{losses:?}"
        );
    }
    let named = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
    refused(named("a\u{202e}b"), named("ab"), "cannot be seen");
}

#[test]
fn l71_a_list_of_values_without_end() {
    let listed = |count: usize| {
        with_argument(
            json!({"type": "string", "enum": (0..count).map(|i| format!("v{i}")).collect::<Vec<_>>()}),
        )
    };
    for provider in Provider::ALL {
        let (sent, losses) = one(provider, listed(5_000)).unwrap();
        assert!(sent["properties"]["x"]["enum"].is_null(), "{provider}");
        assert!(losses.iter().any(|loss| loss.keyword == "enum" && loss.widens), "{losses:?}");
        let (sent, _) = one(provider, listed(500)).unwrap();
        assert_eq!(sent["properties"]["x"]["enum"].as_array().unwrap().len(), 500, "{provider}");
    }
}
