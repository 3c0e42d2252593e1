//! What is written of a fact: without secrets, in one line, and small.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::record::{Draft, Pen};
use crate::event::{Arguments, Fact, Kind, Redacted};
use crate::secret::{Redactor, Secret, is_credential_name};
use crate::wire::Json;

const KNOWN: &str = "known-secret-77";

/// The arguments of a record that was made with these.
fn shown(arguments: &str) -> Value {
    let json = Json::parse(arguments.to_owned(), 100).unwrap();
    let redacted = Redacted::new(json, Redactor::new([Secret::new(KNOWN)]));
    let mut fact = Fact::new(Kind::Call);
    fact.arguments = Some(Arguments::new(redacted));
    let pen = Pen { run: "r".into(), digest_only: false };
    let line = pen.write(1, &Draft::Fact(Box::new(fact), None)).unwrap();
    assert!(!line.contains('\n'), "{line}");
    serde_json::from_str::<Value>(&line).unwrap()["arguments"]["shown"].clone()
}

#[test]
fn l95_what_holds_no_secret_is_written_as_it_was() {
    for plain in [r#"{"a":1.0,"b":"x/y","n":12345678901234567890}"#, "[]", r#"{"path":"/tmp/x","monkeys":3}"#]
    {
        assert_eq!(shown(plain).to_string(), serde_json::from_str::<Value>(plain).unwrap().to_string());
    }
    assert_eq!(shown("{\n  \"a\": 1\r\n}"), json!({"a": 1}));
}

#[test]
fn log_03_secrets_are_found_by_value_name_and_shape_however_they_are_spelt() {
    for (arguments, secret) in [
        (json!({"a": format!("x {KNOWN} y")}).to_string(), KNOWN),
        (r#"{"a":"known\u002dsecret-77"}"#.to_owned(), KNOWN),
        (r#"{"p\u0061ssword":"hunter2"}"#.to_owned(), "hunter2"),
        (r#"{"my-api-key":"hunter2"}"#.to_owned(), "hunter2"),
        (r#"{"deploy_key":"hunter2"}"#.to_owned(), "hunter2"),
        (r#"{"x":{"gh_pat":"hunter2"}}"#.to_owned(), "hunter2"),
        (r#"{"Auth":"hunter2"}"#.to_owned(), "hunter2"),
        (r#"{"h":"Basic dXNlcjpodW50ZXIy"}"#.to_owned(), "dXNlcjpodW50ZXIy"),
        (r#"{"h":"use bearer hunter2222"}"#.to_owned(), "hunter2222"),
        (r#"{"t":"ghp_0123456789abcdef0123"}"#.to_owned(), "ghp_"),
        (r#"{"t":"-----BEGIN PRIVATE KEY----- abc"}"#.to_owned(), "abc"),
    ] {
        let shown = shown(&arguments).to_string();
        assert!(!shown.contains(secret), "{arguments}: {shown}");
    }
}

proptest! {
    /// The quick look never says no where the thorough one finds something.
    #[test]
    fn log_03_the_quick_look_finds_what_the_thorough_one_finds(
        key in "[a-zA-Z_-]{0,8}(token|Secret|PASSWORD|api-key|_key|_pat|auth|cookie|path|keys|)[a-z_-]{0,3}",
        value in "(ghp_|sk-|Bearer |Basic |AKIA|)[a-zA-Z0-9]{0,24}",
    ) {
        let arguments = json!({ &key: &value, "list": [&value] });
        let redacted = Redacted::new(Json::from(&arguments), Redactor::default());
        let (thorough, seen) = (redacted.to_value(), shown(&arguments.to_string()));
        prop_assert_eq!(&thorough, &seen);
        if is_credential_name(&key) && !value.is_empty() {
            prop_assert_eq!(&seen[&key], "***");
        }
    }
}
