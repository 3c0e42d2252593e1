//! Callers over a pipe that say nothing more: what they asked is answered.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use wharf::gateway::Gateway;
use wharf::{Host, LocalTool};

use super::modern_body;
use super::pipe::Caller;

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A host with a tool that waits until it may go on. Time is paused, so nothing here is a process.
struct Slow {
    host: Host,
    go: watch::Sender<bool>,
    /// How many calls are at the tool.
    under_way: watch::Receiver<usize>,
}

/// Counted while it is there.
struct Counted(Arc<watch::Sender<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Slow {
    async fn start() -> Self {
        let host = Host::builder().start().await.unwrap();
        let ((go, gate), (count, under_way)) = (watch::channel(false), watch::channel(0));
        let count = Arc::new(count);
        let tool = LocalTool::new("wait", "Waits", move |_: Nothing, _| {
            let (mut gate, count) = (gate.clone(), Arc::clone(&count));
            async move {
                count.send_modify(|count| *count += 1);
                let _counted = Counted(count);
                let _ = gate.wait_for(|go| *go).await;
                Ok::<_, String>("done")
            }
        });
        host.register(tool).unwrap();
        Self { host, go, under_way }
    }

    async fn until(&mut self, count: usize) {
        self.under_way.wait_for(|now| *now == count).await.unwrap();
    }
}

fn call(id: u64) -> Value {
    let mut body = modern_body("tools/call", json!({"name": "wait", "arguments": {}}));
    body["id"] = json!(id);
    body
}

#[tokio::test(start_paused = true)]
async fn l30_what_was_asked_before_the_input_ends_is_answered() {
    let slow = Slow::start().await;
    slow.go.send(true).unwrap();
    let began = Instant::now();
    for request in [modern_body("server/discover", json!({})), modern_body("tools/list", json!({})), call(7)]
    {
        let mut caller = Caller::of(&slow.host);
        caller.say(request.clone()).await;
        caller.hush().await;
        let answer = caller.next().await;
        assert!(answer["id"] == 7 && answer["result"].is_object(), "{request}: {answer}");
        assert_eq!(caller.last().await, None);
    }
    let mut legacy = Caller::of(&slow.host);
    legacy.ask(0, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}})).await;
    legacy.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    legacy.ask(1, "tools/list", json!({})).await;
    legacy.ask(2, "tools/call", json!({"name": "wait", "arguments": {}})).await;
    legacy.hush().await;
    let mut answered = Vec::new();
    while let Some(answer) = legacy.last().await {
        assert!(answer["result"].is_object(), "{answer}");
        answered.push(answer["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, [0, 1, 2]);
    assert!(began.elapsed() < Duration::from_secs(1), "nobody waits where nothing is under way");
}

#[tokio::test(start_paused = true)]
async fn l30_a_call_under_way_goes_on_for_a_while_after_the_input_has_ended() {
    let mut slow = Slow::start().await;
    let mut caller = Caller::of(&slow.host);
    caller.say(call(1)).await;
    slow.until(1).await;
    caller.hush().await;
    tokio::time::advance(Duration::from_millis(1900)).await;
    slow.go.send(true).unwrap();
    let answer = caller.next().await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    assert_eq!(caller.last().await, None);

    // The twin takes longer.
    slow.go.send(false).unwrap();
    let mut caller = Caller::of(&slow.host);
    caller.say(call(1)).await;
    slow.until(1).await;
    let began = Instant::now();
    caller.hush().await;
    let told = caller.next().await;
    assert_eq!((&told["id"], &told["error"]["data"]["kind"]), (&json!(1), &json!("cancelled")), "{told}");
    slow.until(0).await;
    assert_eq!(caller.last().await, None);
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn l30_a_caller_that_neither_speaks_nor_reads_has_its_calls_cancelled_at_once() {
    let mut slow = Slow::start().await;
    let mut caller = Caller::of(&slow.host);
    caller.say(call(1)).await;
    slow.until(1).await;
    let began = Instant::now();
    // What is said to nobody shows that nobody is there.
    caller.say(modern_body("server/discover", json!({}))).await;
    drop(caller);
    slow.until(0).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn l30_streams_do_not_hold_up_the_end() {
    let slow = Slow::start().await;
    let mut caller = Caller::of(&slow.host);
    let began = Instant::now();
    caller
        .say(modern_body("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})))
        .await;
    assert_eq!(caller.next().await["method"], "notifications/subscriptions/acknowledged");
    caller.hush().await;
    assert_eq!(caller.last().await, None);
    let mut legacy = Caller::of(&slow.host);
    legacy.greet(json!({"roots": {}})).await;
    legacy.hush().await;
    assert_eq!(legacy.last().await, None);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn p6_a_request_that_comes_while_the_gateway_stops_is_answered_at_once() {
    let mut slow = Slow::start().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let gateway = Gateway::builder(slow.host.clone()).build().unwrap();
    let mut caller = Caller::at(gateway, async { drop(stopped.await) });
    caller
        .say(modern_body("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})))
        .await;
    assert_eq!(caller.next().await["method"], "notifications/subscriptions/acknowledged");
    caller.say(call(1)).await;
    caller.say(call(2)).await;
    slow.until(2).await;
    stop.send(()).unwrap();
    assert_eq!(caller.next().await["id"], 7, "the stream ends");
    caller.say(call(3)).await;
    let told = caller.next().await;
    let data = &told["error"]["data"];
    assert!(told["id"] == 3 && data["kind"] == "unavailable" && data["retryable"] == true, "{told}");
    assert!(told["error"]["message"].as_str().unwrap().contains("nothing was done"), "{told}");
    // What is told is heard, too: this one need not be waited for.
    caller
        .say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}))
        .await;
    slow.until(1).await;
    // The stop has its own patience, also with a caller that says nothing more.
    caller.hush().await;
    tokio::time::advance(Duration::from_secs(5)).await;
    slow.go.send(true).unwrap();
    assert_eq!(caller.next().await["id"], 1);
    assert_eq!(caller.last().await, None);

    // The twin: the last one is cancelled by its caller, and nothing is left to wait for.
    slow.go.send(false).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let gateway = Gateway::builder(slow.host.clone()).build().unwrap();
    let mut caller = Caller::at(gateway, async { drop(stopped.await) });
    caller.say(call(1)).await;
    slow.until(1).await;
    let began = Instant::now();
    stop.send(()).unwrap();
    caller
        .say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}))
        .await;
    assert_eq!(caller.last().await, None);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}
