//! `wharf serve --stdio` in a pipeline: what is asked is answered, and then it ends by itself.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::desk::Desk;

/// Says all of it at once and closes the input. The answers, by their ids.
fn piped(desk: &Desk, messages: &[Value]) -> Vec<Value> {
    let mut child = desk
        .command(&["serve", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for message in messages {
        writeln!(input, "{message}").unwrap();
    }
    drop(input);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let out = String::from_utf8(ended.stdout).unwrap();
    let mut answers: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    answers
}

fn ask(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[test]
fn l30_what_is_asked_in_a_pipeline_is_answered_in_either_era() {
    let desk = Desk::new();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let modern = piped(&desk, &[ask(1, "server/discover", json!({"_meta": meta}))]);
    assert_eq!(modern[0]["result"]["supportedVersions"], json!(["2026-07-28"]), "{modern:?}");
    let legacy = piped(
        &desk,
        &[
            ask(1, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}})),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            ask(2, "ping", json!({})),
        ],
    );
    assert_eq!(legacy[0]["result"]["protocolVersion"], "2025-11-25", "{legacy:?}");
    assert_eq!(legacy[1]["result"], json!({}), "{legacy:?}");
    assert_eq!((modern.len(), legacy.len()), (1, 2));
    assert!(piped(&desk, &[]).is_empty());
}
