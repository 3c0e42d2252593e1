//! JSON Schema against each provider, keyword by keyword. A judge that knows only the providers' rules sees every result.

use serde_json::{Value, json};
use wharf::provider::{How, Provider};

use super::provider_support::{argument, one, with_argument};

/// What is expected of a keyword: it stays, or what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// As it was.
    Stays,
    /// Said in another way, with the same meaning.
    Rewritten,
    /// Gone from the schema, told in words.
    Told,
    /// Gone.
    Gone,
}
use Fate::{Gone, Rewritten, Stays, Told};

/// Full JSON Schema, Gemini's two forms, Ollama's.
const COLUMNS: [&[Provider]; 4] = [
    &[
        Provider::OpenAiChat,
        Provider::OpenAiResponses,
        Provider::Anthropic,
        Provider::Mistral,
        Provider::Bedrock,
    ],
    &[Provider::Gemini],
    &[Provider::GeminiOpenApi],
    &[Provider::Ollama],
];

/// A schema for the argument, the keyword in question, and its fate in each column.
#[expect(clippy::too_many_lines, reason = "a table")]
fn table() -> Vec<(&'static str, Value, [Fate; 4])> {
    let of = |ty: &str, keyword: &str, value: Value| json!({ "type": ty, keyword: value });
    vec![
        ("type", json!({"type": "string"}), [Stays; 4]),
        ("type", json!({"type": ["string", "null"]}), [Stays, Stays, Rewritten, Stays]),
        ("type", json!({"type": ["string", "integer"]}), [Stays, Stays, Rewritten, Stays]),
        ("title", of("string", "title", json!("T")), [Stays, Stays, Stays, Gone]),
        ("description", of("string", "description", json!("D")), [Stays; 4]),
        ("default", of("string", "default", json!("d")), [Stays, Told, Stays, Told]),
        ("examples", of("string", "examples", json!(["e"])), [Stays, Told, Told, Told]),
        ("deprecated", of("string", "deprecated", json!(true)), [Stays, Told, Told, Told]),
        ("readOnly", of("string", "readOnly", json!(true)), [Stays, Gone, Gone, Gone]),
        ("enum", of("string", "enum", json!(["a", "b"])), [Stays; 4]),
        ("enum", json!({"enum": ["a", "b"]}), [Stays; 4]),
        ("enum", of("integer", "enum", json!([1, 2])), [Stays, Stays, Told, Stays]),
        ("enum", json!({"enum": [true, "a"]}), [Stays, Told, Told, Stays]),
        ("const", json!({"const": "a"}), [Stays, Rewritten, Rewritten, Rewritten]),
        ("format", of("string", "format", json!("date-time")), [Stays, Stays, Stays, Told]),
        ("format", of("string", "format", json!("uri")), [Stays, Stays, Told, Told]),
        ("pattern", of("string", "pattern", json!("^a+$")), [Stays, Told, Stays, Told]),
        ("minLength", of("string", "minLength", json!(1)), [Stays, Told, Stays, Told]),
        ("maxLength", of("string", "maxLength", json!(9)), [Stays, Told, Stays, Told]),
        ("contentEncoding", of("string", "contentEncoding", json!("base64")), [Stays, Gone, Gone, Gone]),
        ("minimum", of("number", "minimum", json!(1)), [Stays, Stays, Stays, Told]),
        ("maximum", of("number", "maximum", json!(9)), [Stays, Stays, Stays, Told]),
        (
            "exclusiveMinimum",
            of("integer", "exclusiveMinimum", json!(1)),
            [Stays, Rewritten, Rewritten, Told],
        ),
        (
            "exclusiveMaximum",
            of("integer", "exclusiveMaximum", json!(9)),
            [Stays, Rewritten, Rewritten, Told],
        ),
        ("exclusiveMinimum", of("number", "exclusiveMinimum", json!(1)), [Stays, Told, Told, Told]),
        ("multipleOf", of("number", "multipleOf", json!(5)), [Stays, Told, Told, Told]),
        ("items", of("array", "items", json!({"type": "string"})), [Stays; 4]),
        (
            "minItems",
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            [Stays, Stays, Stays, Told],
        ),
        (
            "maxItems",
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 3}),
            [Stays, Stays, Stays, Told],
        ),
        (
            "uniqueItems",
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            [Stays, Told, Told, Told],
        ),
        (
            "prefixItems",
            json!({"type": "array", "prefixItems": [{"type": "string"}]}),
            [Stays, Stays, Told, Told],
        ),
        (
            "contains",
            json!({"type": "array", "items": {"type": "string"}, "contains": {"const": "a"}}),
            [Stays, Told, Told, Told],
        ),
        (
            "unevaluatedItems",
            json!({"type": "array", "prefixItems": [{"type": "string"}], "unevaluatedItems": {"type": "null"}}),
            [Stays, Told, Told, Told],
        ),
        ("properties", of("object", "properties", json!({"a": {"type": "string"}})), [Stays; 4]),
        (
            "required",
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            [Stays; 4],
        ),
        (
            "additionalProperties",
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            [Stays, Stays, Gone, Gone],
        ),
        (
            "additionalProperties",
            of("object", "additionalProperties", json!({"type": "string"})),
            [Stays, Stays, Told, Told],
        ),
        (
            "patternProperties",
            of("object", "patternProperties", json!({"^a": {"type": "string"}})),
            [Stays, Told, Told, Told],
        ),
        ("propertyNames", of("object", "propertyNames", json!({"pattern": "^a"})), [Stays, Told, Told, Told]),
        ("minProperties", of("object", "minProperties", json!(1)), [Stays, Told, Stays, Told]),
        ("maxProperties", of("object", "maxProperties", json!(1)), [Stays, Told, Stays, Told]),
        (
            "dependentRequired",
            of("object", "dependentRequired", json!({"a": ["b"]})),
            [Stays, Told, Told, Told],
        ),
        (
            "dependentSchemas",
            of("object", "dependentSchemas", json!({"a": {"required": ["b"]}})),
            [Stays, Told, Told, Told],
        ),
        (
            "unevaluatedProperties",
            of("object", "unevaluatedProperties", json!(false)),
            [Stays, Gone, Gone, Gone],
        ),
        ("anyOf", json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}), [Stays; 4]),
        ("anyOf", json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), [Stays, Stays, Rewritten, Stays]),
        (
            "oneOf",
            json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}),
            [Stays, Rewritten, Rewritten, Rewritten],
        ),
        (
            "oneOf",
            json!({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]}),
            [Stays, Told, Told, Told],
        ),
        (
            "allOf",
            json!({"type": "object", "allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a"]}]}),
            [Stays; 4],
        ),
        ("not", json!({"type": "string", "not": {"const": "a"}}), [Stays, Told, Told, Told]),
        (
            "if",
            json!({"type": "string", "if": {"minLength": 3}, "then": {"pattern": "^a"}}),
            [Stays, Told, Told, Told],
        ),
        ("x-own", of("string", "x-own", json!("something")), [Gone; 4]),
        ("definitions", json!({"$ref": "#/definitions/d"}), [Stays; 4]),
    ]
}

#[test]
fn l71_keyword_by_keyword() {
    for (keyword, schema, fates) in table() {
        for (providers, fate) in COLUMNS.iter().zip(fates) {
            for &provider in *providers {
                let mut whole = with_argument(schema.clone());
                whole["definitions"] = json!({"d": {"type": "string"}});
                let (sent, losses) = one(provider, whole).unwrap();
                let argument = &sent["properties"]["x"];
                let found =
                    losses.iter().find(|l| l.keyword == keyword && l.path.starts_with("/properties/x"));
                let got = match found.map(|loss| loss.how) {
                    None => Stays,
                    Some(How::Rewritten) => Rewritten,
                    Some(How::Described) => Told,
                    Some(_) => Gone,
                };
                assert_eq!(got, fate, "{provider}: {keyword}: {schema} became {argument}; {losses:?}");
                if fate == Told {
                    let told = argument["description"].as_str().unwrap_or_default();
                    assert!(
                        told.contains(keyword) || told.contains("exactly one"),
                        "{provider}: {keyword}: {argument}"
                    );
                }
            }
        }
    }
}

#[test]
fn l71_full_json_schema_goes_out_as_it_came() {
    for (keyword, schema, _) in table().into_iter().filter(|(k, ..)| !["x-own", "definitions"].contains(k)) {
        for provider in [Provider::OpenAiChat, Provider::Anthropic, Provider::Mistral] {
            assert_eq!(argument(provider, schema.clone()).0, schema, "{provider}: {keyword}");
        }
    }
}

#[test]
fn l71_rewritten_forms() {
    let cases = [
        (
            Provider::GeminiOpenApi,
            json!({"type": ["string", "null"]}),
            json!({"type": "string", "nullable": true}),
        ),
        (Provider::GeminiOpenApi, json!({"const": "a"}), json!({"enum": ["a"], "type": "string"})),
        (
            Provider::GeminiOpenApi,
            json!({"type": "integer", "exclusiveMinimum": 1}),
            json!({"type": "integer", "minimum": 2}),
        ),
        (
            Provider::GeminiOpenApi,
            json!({"type": "integer", "exclusiveMaximum": 2.5}),
            json!({"type": "integer", "maximum": 2}),
        ),
        (
            Provider::GeminiOpenApi,
            json!({"type": ["string", "integer"], "minLength": 2, "minimum": 3}),
            json!({"anyOf": [{"type": "string", "minLength": 2}, {"type": "integer", "minimum": 3}]}),
        ),
        (
            Provider::GeminiOpenApi,
            json!({"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}], "description": "d"}),
            json!({"description": "d", "type": "string", "minLength": 1, "nullable": true}),
        ),
        (
            Provider::GeminiOpenApi,
            json!({"allOf": [{"$ref": "#/$defs/d"}], "description": "own"}),
            json!({"description": "own", "type": "string"}),
        ),
        (
            Provider::Gemini,
            json!({"$ref": "#/$defs/d", "description": "own"}),
            json!({"description": "own", "type": "string"}),
        ),
        (Provider::Ollama, json!({"$ref": "#/$defs/d"}), json!({"type": "string", "description": "of d"})),
        (
            Provider::Gemini,
            json!({"enum": ["a", null]}),
            json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        ),
        (
            Provider::Gemini,
            json!({"allOf": [{"type": "integer", "minimum": 1}, {"type": "number", "minimum": 3, "maximum": 9}]}),
            json!({"type": "integer", "minimum": 3, "maximum": 9}),
        ),
        (
            Provider::Anthropic,
            json!({"$ref": "#/$defs/d", "description": "own"}),
            json!({"$ref": "#/$defs/d", "description": "own"}),
        ),
        (
            Provider::Anthropic,
            json!({"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "null"}}),
            json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}}),
        ),
        (
            Provider::Anthropic,
            json!({"type": "number", "minimum": 3, "exclusiveMinimum": true}),
            json!({"type": "number", "exclusiveMinimum": 3}),
        ),
        (Provider::Anthropic, json!(true), json!({})),
    ];
    for (provider, schema, expected) in cases {
        let mut whole = with_argument(schema.clone());
        whole["$defs"] = json!({"d": {"type": "string", "description": "of d"}});
        let (sent, losses) = one(provider, whole).unwrap();
        assert_eq!(sent["properties"]["x"], expected, "{provider}: {schema}");
        assert!(losses.iter().all(|loss| !loss.widens), "{losses:?}");
    }
}

#[test]
fn l71_of_two_limits_the_tighter_one_counts() {
    let of = |ty: &str, keyword: &str, value: i32| json!({"type": ty, keyword: value});
    let limits = [
        ("number", "minimum", "maximum"),
        ("number", "exclusiveMinimum", "exclusiveMaximum"),
        ("string", "minLength", "maxLength"),
        ("array", "minItems", "maxItems"),
        ("object", "minProperties", "maxProperties"),
    ];
    for (ty, least, most) in limits {
        for (keyword, our, their, tighter) in
            [(least, 1, 3, 3), (least, 3, 1, 3), (most, 5, 9, 5), (most, 9, 5, 5)]
        {
            let (ours, theirs) = (of(ty, keyword, our), of(ty, keyword, their));
            // Where references are written out, what stands beside one is joined with what it leads to.
            let mut whole = with_argument(ours.clone());
            whole["properties"]["x"]["$ref"] = json!("#/$defs/d");
            whole["$defs"] = json!({"d": theirs});
            for provider in [Provider::Mistral, Provider::Bedrock] {
                let (sent, losses) = one(provider, whole.clone()).unwrap();
                assert_eq!(
                    sent["properties"]["x"][keyword],
                    json!(tighter),
                    "{provider}: {keyword} {our} {their}"
                );
                assert!(losses.iter().all(|loss| !loss.widens), "{losses:?}");
            }
            // Where there is no `allOf`, its schemas are joined.
            let (sent, losses) = argument(Provider::GeminiOpenApi, json!({"allOf": [ours, theirs]}));
            if keyword.starts_with("exclusive") {
                assert!(losses.iter().any(|loss| loss.keyword == keyword && loss.widens), "{losses:?}");
            } else {
                assert_eq!(sent[keyword], json!(tighter), "{keyword} {our} {their}: {sent}");
            }
        }
    }
}

#[test]
fn l71_a_choice_at_the_root_becomes_one_form_with_all_properties() {
    let schema = json!({"type": "object", "oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "string"}}, "required": ["kind", "x"]},
        {"type": "object", "properties": {"kind": {"const": "b"}, "y": {"type": "integer"}}, "required": ["kind", "y"]},
    ]});
    for provider in Provider::ALL {
        let (sent, losses) = one(provider, schema.clone()).unwrap();
        let names: Vec<&String> = sent["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["kind", "x", "y"], "{provider}");
        assert_eq!(sent["required"], json!(["kind"]), "{provider}");
        assert!(losses.iter().any(|loss| loss.keyword == "oneOf" && loss.widens), "{losses:?}");
    }
}

#[test]
fn l71_what_recurs_is_kept_where_it_may_be_and_cut_where_not() {
    let node = |required: Value| {
        json!({"type": "object", "properties": {"tree": {"$ref": "#/$defs/node"}}, "$defs": {"node": {
            "type": "object", "required": required,
            "properties": {"value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        }}})
    };
    for provider in Provider::ALL {
        for (required, optional) in [(json!([]), true), (json!(["children"]), false)] {
            let (sent, losses) = one(provider, node(required)).unwrap();
            let cut =
                losses.iter().any(|loss| loss.keyword == "$ref" && loss.how == How::Dropped && loss.widens);
            let stays = match provider {
                Provider::Gemini => optional,
                Provider::OpenAiChat | Provider::OpenAiResponses | Provider::Anthropic => true,
                _ => false,
            };
            assert_eq!(stays, !cut, "{provider}: {sent}; {losses:?}");
            assert_eq!(stays, sent.to_string().contains("#/$defs/node"), "{provider}: {sent}");
        }
    }
}

#[test]
fn l71_a_name_that_a_provider_does_not_take() {
    let schema = |required: Value| json!({"type": "object", "properties": {"a-b": {"type": "string"}, "c": {"type": "string"}}, "required": required});
    let (sent, losses) = one(Provider::GeminiOpenApi, schema(json!([]))).unwrap();
    assert_eq!(sent["properties"], json!({"c": {"type": "string"}}));
    assert!(
        losses.iter().any(|loss| loss.path == "/properties/a-b" && loss.how == How::Dropped),
        "{losses:?}"
    );
    let reason = one(Provider::GeminiOpenApi, schema(json!(["a-b"]))).unwrap_err();
    assert!(reason.contains("`a-b`"), "{reason}");
    assert!(one(Provider::Gemini, schema(json!(["a-b"]))).is_ok());
}
