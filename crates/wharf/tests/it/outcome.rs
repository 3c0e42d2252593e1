//! What a call came to.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself must be there")]

use std::time::Duration;

use serde_json::{Value, json};
use wharf::mcp::Content;
use wharf::names::{ServerName, ToolName};
use wharf::outcome::Outcome;
use wharf::wire::Json;
use wharf::{Error, Side};

fn server() -> ServerName {
    ServerName::parse("files").unwrap()
}

fn tool() -> ToolName {
    ToolName::parse("read").unwrap()
}

fn outcome(raw: Value) -> Outcome {
    Outcome::from_result(server(), tool(), Json::from(raw))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn l55_every_content_kind_is_kept() {
    let blocks = json!([
        text("hello"),
        {"type": "image", "data": "AAAA", "mimeType": "image/png", "annotations": {"priority": 1}},
        {"type": "audio", "data": "AAAAAAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "application/x-b", "blob": "AAAA"}},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
        {"type": "hologram", "x": true},
        {"type": "text"},
        "not even an object",
    ]);
    let outcome = outcome(json!({"content": blocks, "structuredContent": {"a": 1}}));
    assert!(outcome.success && outcome.reason.is_none() && !outcome.is_error());
    let content = outcome.content();
    assert_eq!(content.len(), 9);
    for (block, raw) in content.iter().zip(blocks.as_array().unwrap()) {
        assert_eq!(&block.raw().to::<Value>().unwrap(), raw, "kept as it came");
    }
    assert!(matches!(content[6], Content::Unknown { .. }) && matches!(content[8], Content::Unknown { .. }));
    assert_eq!(outcome.structured().unwrap().as_str(), r#"{"a":1}"#);
    let lines = outcome.to_text();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(
        lines[..8],
        [
            "hello",
            "[image image/png, 3 bytes]",
            "[audio audio/wav, 6 bytes]",
            "[resource file:///a.txt]",
            "inside",
            "[resource file:///b application/x-b, 3 bytes]",
            "[link c: file:///c]",
            "[a block of the unknown kind `hologram`, 28 bytes]",
        ]
    );
    assert!(
        lines.iter().all(|l| !l.contains(r#"{"a":1}"#)),
        "there is text, so the structured result is not repeated"
    );
}

#[test]
fn l55_structured_results_stand_in_for_text() {
    let only = outcome(json!({"content": [], "structuredContent": {"sum": 5}}));
    assert_eq!(only.to_text(), r#"{"sum":5}"#);
    let beside_image = outcome(
        json!({"content": [{"type": "image", "data": "", "mimeType": "image/png"}], "structuredContent": [1]}),
    );
    assert_eq!(beside_image.to_text(), "[image image/png, 0 bytes]\n[1]");
    assert_eq!(outcome(json!({"content": [text("5")], "structuredContent": {"sum": 5}})).to_text(), "5");
    assert_eq!(outcome(json!({"content": [text("a"), text("b")]})).to_text(), "a\nb");
    assert_eq!(outcome(json!({})).to_text(), "");
}

#[test]
fn l55_sizes_are_told_in_words() {
    let of = |bytes: usize| {
        let data = "AAAA".repeat(bytes.div_ceil(3));
        outcome(json!({"content": [{"type": "image", "data": data, "mimeType": "image/png"}]})).to_text()
    };
    assert_eq!(of(12 * 1024), "[image image/png, 12 KB]");
    assert_eq!(of(3 * 1024 * 1024), "[image image/png, 3.0 MB]");
}

#[test]
fn l55_is_error_is_a_value_or_a_typed_error() {
    let failed = outcome(json!({"content": [text("no such\u{1b}[31m file")], "isError": true}))
        .after(Duration::from_millis(7));
    assert!(!failed.success && failed.is_error() && failed.error.is_none());
    assert_eq!(failed.took, Duration::from_millis(7));
    let reason = failed.reason.clone().unwrap();
    assert!(reason.starts_with("no such") && !reason.contains('\u{1b}'), "{reason}");
    assert!(failed.to_text().contains('\u{1b}'), "the text for the model is the server's own");
    let error = failed.into_result().unwrap_err();
    assert!(matches!(&error, Error::ToolFailed { message, .. } if *message == reason));
    assert_eq!((error.kind(), error.side(), error.is_retryable()), ("tool_failed", Side::Server, false));
    assert!(outcome(json!({"content": [text("ok")], "isError": false})).into_result().is_ok());
    let silent = outcome(json!({"content": [], "isError": true}));
    assert!(silent.reason.unwrap().contains("no reason"));
}

#[test]
fn l55_an_error_on_the_way_is_a_value_or_itself() {
    let errors = [
        Error::Timeout {
            server: server(),
            after: Duration::from_secs(30),
            sent: true,
            stderr: Default::default(),
        },
        Error::Arguments {
            server: server(),
            tool: tool(),
            problems: vec!["missing required field `path`".into()],
        },
        Error::UnknownTool { name: "x".into(), hint: "list the tools".into() },
    ];
    for error in errors {
        let kind = error.kind();
        let said = error.to_string();
        let outcome = Outcome::from_error(server(), tool(), error);
        assert!(!outcome.success && !outcome.is_error());
        assert_eq!(outcome.reason.as_deref(), Some(said.as_str()));
        assert_eq!(outcome.to_text(), said);
        assert!(outcome.content().is_empty() && outcome.structured().is_none() && outcome.raw.is_null());
        assert_eq!(outcome.into_result().unwrap_err().kind(), kind);
    }
}

#[test]
fn frm_11_what_is_no_result_is_a_protocol_error() {
    let cases = [
        (json!(null), "not an object"),
        (json!([1]), "not an object"),
        (json!("done"), "not an object"),
        (json!({"content": "text"}), "not a list"),
        (json!({"content": {"type": "text", "text": "x"}}), "not a list"),
        (json!({"content": null}), "not a list"),
        (json!({"content": [], "isError": "yes"}), "isError"),
        (json!({"content": [], "resultType": "input_required"}), "resultType"),
        (json!({"content": [], "resultType": "\u{1b}]0;x\u{7}"}), "resultType"),
        (json!({"content": [], "resultType": 7}), "resultType"),
    ];
    for (raw, said) in cases {
        let outcome = outcome(raw.clone());
        let reason = outcome.reason.clone().unwrap();
        assert!(!outcome.success && reason.contains(said) && !reason.contains('\u{1b}'), "{raw}: {reason}");
        assert!(matches!(outcome.into_result(), Err(Error::Protocol { .. })));
    }
    for fine in [
        json!({"content": []}),
        json!({"content": [], "resultType": "complete"}),
        json!({"content": [], "isError": false}),
    ] {
        assert!(outcome(fine).success);
    }
}

#[test]
fn l55_a_long_failure_is_cut_and_the_result_stays_whole() {
    let long = "é".repeat(5000);
    let failed = outcome(json!({"content": [text(&long)], "isError": true}));
    assert_eq!(failed.reason.as_ref().unwrap().chars().count(), 2001);
    assert_eq!(failed.to_text(), long);
}

#[test]
fn l55_the_raw_result_shares_the_bytes_that_came() {
    let raw = Json::from(json!({"content": [text(&"x".repeat(1 << 20))]}));
    let outcome = Outcome::from_result(server(), tool(), raw.clone());
    assert_eq!(outcome.raw.bytes().as_ptr(), raw.bytes().as_ptr());
    assert_eq!(outcome.to_text().len(), 1 << 20);
}
