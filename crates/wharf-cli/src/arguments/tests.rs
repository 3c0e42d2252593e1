//! What is typed, and what becomes of it under a schema.

use std::path::Path;

use serde_json::{Value, json};
use wharf::mcp::Tool;
use wharf::wire::Json;

use super::{Typed, usage};

fn tool() -> Tool {
    let definition = json!({ "name": "t", "inputSchema": {
        "type": "object",
        "properties": {
            "text": { "type": "string" },
            "whole": { "type": "integer" },
            "number": { "type": "number" },
            "flag": { "type": "boolean" },
            "maybe": { "type": ["integer", "null"] },
            "either": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
            "optional": { "anyOf": [{ "type": "number" }, { "type": "null" }] },
            "tags": { "type": "array", "items": { "type": "string" } },
            "counts": { "type": "array", "items": { "type": "integer" } },
            "deep": { "type": "object" },
            "level": { "enum": ["low", 2, true] },
            "via": { "$ref": "#/$defs/count" },
            "anything": {},
        },
        "required": ["text", "whole"],
        "$defs": { "count": { "type": "integer" } },
    }});
    Tool::read(Json::of(&definition)).unwrap()
}

fn fit(words: &[&str]) -> Value {
    let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
    let typed = Typed::read(None, &words, Path::new("/")).unwrap();
    serde_json::from_str(typed.fit(&tool()).unwrap().as_str()).unwrap()
}

#[test]
fn l100_words_are_read_as_the_schema_wants_them() {
    let cases = [
        ("text=42", json!({"text": "42"})),
        ("text=true", json!({"text": "true"})),
        ("text={\"a\":1}", json!({"text": "{\"a\":1}"})),
        ("text=a=b", json!({"text": "a=b"})),
        ("text=", json!({"text": ""})),
        ("whole=42", json!({"whole": 42})),
        ("whole=-7", json!({"whole": -7})),
        ("whole=many", json!({"whole": "many"})),
        ("number=1.5", json!({"number": 1.5})),
        ("flag=true", json!({"flag": true})),
        ("maybe=3", json!({"maybe": 3})),
        ("maybe=null", json!({"maybe": null})),
        ("either=3", json!({"either": "3"})),
        ("optional=3", json!({"optional": 3})),
        ("tags=a", json!({"tags": ["a"]})),
        ("tags=[\"a\",\"b\"]", json!({"tags": ["a", "b"]})),
        ("counts=4", json!({"counts": [4]})),
        ("deep={\"a\":[1]}", json!({"deep": {"a": [1]}})),
        ("level=low", json!({"level": "low"})),
        ("level=2", json!({"level": 2})),
        ("via=9", json!({"via": 9})),
        ("anything=9", json!({"anything": "9"})),
        ("anything:=9", json!({"anything": 9})),
        ("text:=\"@x\"", json!({"text": "@x"})),
    ];
    for (word, wanted) in cases {
        assert_eq!(fit(&[word]), wanted, "{word}");
    }
    assert_eq!(fit(&["tags=a", "tags=b"]), json!({"tags": ["a", "b"]}));
}

#[test]
fn l100_big_numbers_keep_their_spelling() {
    let words = ["whole=123456789012345678901234567890".to_owned()];
    let json =
        Typed::read(Some("{\"number\": 1.000}"), &words, Path::new("/")).unwrap().fit(&tool()).unwrap();
    assert_eq!(json.as_str(), "{\"number\":1.000,\"whole\":123456789012345678901234567890}");
}

#[test]
fn l100_what_is_no_argument_is_refused() {
    let read = |whole: Option<&str>, word: &str| Typed::read(whole, &[word.to_owned()], Path::new("/"));
    for word in ["hello", "=x", ":=1", "a:=", "a:={", "a:={\"x\":1,\"x\":2}", "a=@/no/such/file"] {
        assert!(read(None, word).is_err(), "{word}");
    }
    assert!(read(Some("[1]"), "a=1").is_err());
    assert!(read(Some("{\"a\":1,\"a\":2}"), "b=1").is_err());
    let twice = Typed::read(None, &["text=a".into(), "text=b".into()], Path::new("/")).unwrap();
    assert!(twice.fit(&tool()).is_err());
}

#[test]
fn l100_words_win_over_the_object() {
    let typed =
        Typed::read(Some("{\"text\":\"a\",\"whole\":1}"), &["text=b".into()], Path::new("/")).unwrap();
    assert_eq!(typed.fit(&tool()).unwrap().as_str(), "{\"whole\":1,\"text\":\"b\"}");
}

#[test]
fn l104_usage_names_every_field() {
    let line = usage(&tool());
    assert!(line.starts_with(" text=TEXT whole=NUMBER [number=NUMBER] [flag=true|false]"), "{line}");
    assert!(line.contains("[level=low|2|true]") && line.contains("[tags=ITEM…]"), "{line}");
}
