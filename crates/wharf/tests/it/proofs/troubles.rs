//! Servers that fail to answer, or answer too much, over a pipe and over HTTP, for the proofs of P1.

use std::future::ready;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf_testkit::http::{Reply, SseStep, honest_legacy, honest_modern};
use wharf_testkit::{Era, HttpPuppet, Recorded, Step};

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}"#;

/// Ways in which a server can fail to answer, or answer too much.
pub(super) fn troubles() -> Vec<(&'static str, Vec<Step>)> {
    let raw = |text: &str| Step::Raw(text.to_owned());
    vec![
        ("honest", vec![Step::Honest]),
        ("silent", vec![Step::Hang]),
        ("busy", vec![Step::Progress { count: None, interval_ms: 20 }]),
        ("twice", vec![raw(ANSWER), raw(ANSWER)]),
        ("error_too", vec![raw(ANSWER), Step::ReplyError { code: -1, message: "no".into(), data: None }]),
        ("nobody", vec![raw(r#"{"jsonrpc":"2.0","id":987654,"result":{}}"#), Step::Hang]),
        ("neither", vec![raw(r#"{"jsonrpc":"2.0","id":$ID}"#)]),
        ("both", vec![raw(r#"{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":"x"}}"#)]),
        ("garbage", vec![raw("{{{{"), Step::Hang]),
        ("half", vec![Step::RawNoNewline(ANSWER[..40].into()), Step::Kill]),
        ("killed", vec![Step::Kill]),
        ("gone", vec![Step::CloseStdout, Step::Hang]),
        ("stopped", vec![Step::Freeze, Step::Hang]),
    ]
}

/// An answer to a call, this message, over HTTP.
fn far_trouble(name: &str, message: &Value) -> Reply {
    let answer =
        json!({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "resultType": "complete"}});
    let step = json!({
        "jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1},
    });
    let half = format!("data: {}", &answer.to_string()[..40]);
    match name {
        "silent" => Reply::Hang,
        "busy" => Reply::Live(again_and_again(SseStep::message(&step))),
        "twice" => Reply::messages([answer.clone(), answer]),
        "garbage" => Reply::Sse(vec![SseStep::data("{{{{"), SseStep::Hang]),
        "half" => Reply::Sse(vec![SseStep::Raw(half.into()), SseStep::Drop]),
        "gone" => Reply::Drop,
        _ => Reply::ok(answer),
    }
}

/// One every 20 ms, until nobody listens. On a thread, because a test may have a clock of its own.
fn again_and_again(step: SseStep) -> mpsc::Receiver<SseStep> {
    let (sender, steps) = mpsc::channel(1);
    std::thread::spawn(move || {
        while sender.blocking_send(step.clone()).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    steps
}

/// Ways to fail over HTTP, and the way not to.
pub(super) const FAR: [&str; 7] = ["honest", "silent", "busy", "twice", "garbage", "half", "gone"];

/// A server over HTTP whose one tool, `do`, has this trouble.
pub(super) fn far(era: Era, name: &'static str) -> (HttpPuppet, ServerConfig) {
    let tools = || vec![json!({"name": "do", "inputSchema": {"type": "object"}})];
    let (modern, legacy) = (honest_modern(tools()), honest_legacy(tools(), true));
    let puppet = HttpPuppet::start(move |request: Recorded| match (request.rpc_method().as_str(), era) {
        ("tools/call", _) => ready(far_trouble(name, &request.json())),
        (_, Era::Modern) => modern(request),
        _ => legacy(request),
    });
    let server = ServerName::parse(&format!("far-{name}")).unwrap();
    let config = ServerConfig::http(server, &puppet.url()).unwrap();
    (puppet, config)
}
