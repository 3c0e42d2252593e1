//! How many calls of a turn run at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::{AT_ONCE, run_calls};
use crate::error::Error;
use crate::mcp::Tool;
use crate::names::ServerName;
use crate::outcome::Outcome;
use crate::provider::{Provider, Toolset};
use crate::registry::{Route, Source};

fn tools() -> Toolset {
    let tool = Tool::read(json!({"name": "t", "inputSchema": {"type": "object"}}).into()).unwrap();
    let server = ServerName::parse("s").unwrap();
    [(
        "t".to_owned(),
        Route {
            public: "t".into(),
            server,
            tool: tool.into(),
            source: Source::Mcp,
            owner: None,
            tally: Default::default(),
        },
    )]
    .into_iter()
    .collect()
}

#[tokio::test]
async fn l72_a_long_turn_runs_a_few_calls_at_a_time() {
    let call = |n: usize| json!({"type": "tool_use", "id": n.to_string(), "name": "t", "input": {"n": n}});
    let body = json!({ "content": (0..3 * AT_ONCE).map(call).collect::<Vec<_>>() });
    let answer = Provider::Anthropic.answer(&body.into(), &tools()).unwrap();
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (running, most) = (&running, &most);
    let done = run_calls(answer.calls, async move |_, arguments| {
        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        running.fetch_sub(1, Ordering::SeqCst);
        Outcome::not_found(Error::Internal(arguments.as_str().to_owned()))
    })
    .await;
    assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
    let reasons: Vec<String> = done.into_iter().filter_map(|(_, outcome)| outcome.reason).collect();
    let expected: Vec<String> = (0..3 * AT_ONCE).map(|n| format!("{{\"n\":{n}}}")).collect();
    assert_eq!(reasons, expected, "in the order of the calls");
}
