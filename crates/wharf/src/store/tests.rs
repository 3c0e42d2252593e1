//! What is written of a fact: without secrets, in one line, and small.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::chain::{Link, hex};
use super::head::{Head, HeadFile};
use super::record::{Draft, Own, Pen};
use crate::event::{Arguments, Fact, Kind, Named, Redacted, Verdict};
use crate::names::{CallerName, ServerName};
use crate::secret::{Redactor, Secret, is_credential_name};
use crate::text::Foreign;
use crate::wire::Json;

const KNOWN: &str = "known-secret-77";

/// The arguments of a record that was made with these.
fn shown(arguments: &str) -> Value {
    let json = Json::parse(arguments.to_owned(), 100).unwrap();
    let redacted = Redacted::new(json, Redactor::new([Secret::new(KNOWN)]));
    let mut fact = Fact::new(Kind::Call);
    fact.arguments = Some(Arguments::new(redacted));
    let pen = Pen { run: "r".into(), digest_only: false };
    let line = written(&pen, &Draft::Fact(Box::new(fact), None));
    assert!(!line.contains('\n'), "{line}");
    serde_json::from_str::<Value>(&line).unwrap()["arguments"]["shown"].clone()
}

fn written(pen: &Pen, draft: &Draft) -> String {
    let mut line = b"what was written before".to_vec();
    pen.write(&mut line, 1, draft).unwrap();
    String::from_utf8(line).unwrap()
}

/// A text in which everything stands that JSON escapes.
const ODD: &str = "a\"b\\c\n\r\t\u{8}\u{c}\u{1}\u{7f}\u{2028}/é";

/// A record is put together by hand. It must be what a writer of JSON makes of it.
#[test]
fn l95_a_record_is_spelt_as_json_is() {
    let arguments = Json::parse(r#"{"a":[1.0,"x"]}"#, 100).unwrap();
    let mut fact = Fact::new(Kind::Call);
    fact.at = UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001);
    let bare = json!({"seq": 1, "at": 1_700_000_000_000_001_u64, "kind": "call", "run": "r"});
    let pen = Pen { run: "r".into(), digest_only: false };
    assert_eq!(written(&pen, &Draft::Fact(Box::new(fact.clone()), None)), bare.to_string());

    fact.caller = Some(CallerName::local());
    fact.session = Some(u64::MAX);
    fact.server = Some(ServerName::parse("s").unwrap());
    fact.tool = Some(Named::Raw(Foreign::new(ODD)));
    fact.verdict = Some(Verdict::Deny);
    fact.rule = Some(ODD.into());
    fact.outcome = Some("\"");
    fact.took = Some(Duration::from_millis(2));
    fact.arguments = Some(Arguments::new(Redacted::new(arguments, Redactor::default())));
    fact.reason = Some(ODD.into());
    let sha256 = hex(&Sha256::digest(r#"{"a":[1.0,"x"]}"#));
    let mut whole = json!({
        "seq": 1, "at": 1_700_000_000_000_001_u64, "kind": "call", "run": "r", "caller": "local",
        "session": u64::MAX, "server": "s", "tool": ODD, "decision": "deny", "rule": ODD, "outcome": "\"",
        "took_us": 2000, "arguments": {"sha256": sha256, "size": 15, "shown": {"a": [1.0, "x"]}},
        "reason": ODD, "began": 7
    });
    assert_eq!(written(&pen, &Draft::Fact(Box::new(fact.clone()), Some(7))), whole.to_string());

    let pen = Pen { digest_only: true, ..pen };
    whole["arguments"] = json!({"sha256": sha256, "size": 15});
    assert_eq!(written(&pen, &Draft::Fact(Box::new(fact.clone()), Some(7))), whole.to_string());

    let own: Value = serde_json::from_str(&written(&pen, &Draft::Own(Own::Gap, ODD.into()))).unwrap();
    assert_eq!(own, json!({"seq": 1, "at": own["at"], "kind": "gap", "run": "r", "reason": ODD}));
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

/// The head is written over the one before. What stood there otherwise, such as the shorter one of an older Wharf, goes.
#[test]
fn log_04_a_head_is_whole_whatever_stood_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let (log, file) = (folder.path().join("audit.db"), folder.path().join("audit.db.head"));
    let head = HeadFile::open(&log).unwrap();
    assert_eq!(head.read(), Head::Missing);
    let at = |seq| Link { seq, hash: [seq as u8; 32] };
    let written = |seq| {
        head.write(&at(seq)).unwrap();
        assert_eq!(head.read(), Head::At(at(seq)));
        std::fs::read(&file).unwrap()
    };
    let first = written(u64::MAX);
    let inode = file.metadata().unwrap().ino();
    assert_eq!(written(7).len(), first.len());
    assert_eq!(file.metadata().unwrap().ino(), inode);
    for other in [first.trim_ascii_end(), b"", &[b'x'; 300]] {
        std::fs::write(&file, other).unwrap();
        assert_eq!(head.read() == Head::At(at(u64::MAX)), other.len() > 100 && other.len() < 300);
        assert_eq!(written(8).len(), first.len());
    }
}

proptest! {
    /// The quick look never says no where the thorough one finds something.
    #[test]
    fn log_03_the_quick_look_finds_what_the_thorough_one_finds(
        key in "[a-zA-Z_-]{0,8}(token|Secret|PASSWORD|api-key|_key|_pat|auth|cookie|path|keys|)[a-z_-]{0,3}",
        value in "(ghp_|sk-|Bearer |Basic |AKIA|npm_|-----BEGIN |eyJ0\\.eyJ1\\.|)[a-zA-Z0-9]{0,24}",
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
