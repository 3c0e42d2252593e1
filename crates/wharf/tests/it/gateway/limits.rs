//! Floods: refused at once and in plain words, and at nobody else's cost.

use std::collections::HashMap;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use wharf::config::CallLimits;
use wharf::gateway::Gateway;
use wharf_testkit::{Era, Puppet, Step};

use super::{modern_body, open_with};
use crate::support::{at, count, folder, host, puppet, received, soon, until};

fn call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {}})
}

fn is_overloaded(message: &Value) -> bool {
    let data = &message["error"]["data"];
    data["kind"] == "overloaded" && data["retryable"] == true && data["retryAfterMs"].as_u64() > Some(0)
}

#[tokio::test]
async fn exh_03_ten_thousand_calls_to_one_slow_server() {
    const CALLS: usize = 10_000;
    let files = folder();
    let log = at(&files, "log");
    let slow = Puppet::of(Era::Modern).on("tool:echo", [Step::Hang]).log(&log);
    let host = host([puppet("slow", &slow), puppet("fine", &Puppet::of(Era::Modern))]).await;
    host.tools().await;
    let gateway = Gateway::builder(host.clone()).build().unwrap();
    let (mut caller, input) = tokio::io::duplex(64 * 1024);
    let (output, answers) = tokio::io::duplex(64 * 1024);
    let serving = tokio::spawn(async move {
        gateway.serve_stdio(BufReader::new(input), output, std::future::pending()).await
    });
    let mut answers = BufReader::new(answers).lines();
    let flood = tokio::spawn(async move {
        for id in 0..CALLS {
            let mut body = modern_body("tools/call", call("slow_echo"));
            body["id"] = json!(id);
            caller.write_all(format!("{body}\n").as_bytes()).await.unwrap();
        }
        // The same caller, to another server, after all of that.
        let mut body = modern_body("tools/call", call("fine_echo"));
        body["id"] = json!("fine");
        caller.write_all(format!("{body}\n").as_bytes()).await.unwrap();
        caller
    });
    // 256 are under way, since there is no other caller, and 128 wait; the rest are told at once.
    let refused = CALLS - 384;
    let mut told: HashMap<String, Value> = HashMap::new();
    while told.len() < refused + 1 {
        let line = soon("an answer", answers.next_line()).await.unwrap().unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        assert!(told.insert(message["id"].to_string(), message).is_none(), "one answer each");
    }
    let fine = told.remove("\"fine\"").expect("a call to another server is not held up");
    assert!(fine["result"]["content"].is_array(), "{fine}");
    assert!(told.values().all(is_overloaded), "{:?}", told.values().find(|m| !is_overloaded(m)));
    until("the first calls reach the server", || count(&received(&log), "tools/call") == 256).await;
    drop(flood.await.unwrap());
    soon("the end of the pipe", serving).await.unwrap().unwrap();
    assert_eq!(count(&received(&log), "tools/call"), 256, "the queue went with its caller");
    host.close().await;
}

#[tokio::test]
async fn l94_over_http_too_much_is_429_in_the_modern_era_and_an_error_in_the_legacy_one() {
    let files = folder();
    let (log, go) = (at(&files, "log"), at(&files, "go"));
    let slow = Puppet::of(Era::Modern).on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]).log(&log);
    let limits = CallLimits { calls_per_server: 1, waiting: 8, ..CallLimits::default() };
    let host = host([puppet("slow", &slow), puppet("fine", &Puppet::of(Era::Modern))]).await;
    host.tools().await;
    let door = std::sync::Arc::new(open_with(host, |b| b.limits(limits)).await);
    // One is under way and one waits.
    let held: Vec<_> = (0..2)
        .map(|_| {
            let door = std::sync::Arc::clone(&door);
            tokio::spawn(async move { door.modern("tools/call", call("slow_echo")).await })
        })
        .collect();
    until("the first call is under way", || count(&received(&log), "tools/call") == 1).await;
    let refused = loop {
        // The second may still be on its way to the queue; then this one waits in its place, and is given up.
        let asking = door.modern("tools/call", call("slow_echo"));
        if let Ok(answer) = tokio::time::timeout(Duration::from_millis(200), asking).await {
            break answer;
        }
    };
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{refused:?}");
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(is_overloaded(&refused.json()) && refused.json()["id"] == 7, "{refused:?}");
    let session = door.greet().await;
    let message = json!({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": call("slow_echo")});
    let legacy = door.legacy(Some(&session), message).await;
    assert!(is_overloaded(&legacy.json()) && legacy.json()["id"] == "x", "{legacy:?}");
    assert_eq!(door.modern("tools/call", call("fine_echo")).await.status, StatusCode::OK);
    std::fs::write(&go, "").unwrap();
    for answer in held {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK, "those that were taken end well");
    }
    assert_eq!(
        door.modern("tools/call", call("slow_echo")).await.status,
        StatusCode::OK,
        "there is room again"
    );
    door.host.close().await;
}

#[tokio::test]
async fn l94_a_caller_that_asks_too_often_is_told_when_to_come_back() {
    let limits = CallLimits { requests_per_second: Some(0.01), burst: Some(2), ..CallLimits::default() };
    let files = folder();
    let log = at(&files, "log");
    let host = host([puppet("pup", &Puppet::of(Era::Modern).log(&log))]).await;
    let door = open_with(host, |b| b.limits(limits)).await;
    for _ in 0..2 {
        assert_eq!(door.modern("ping", json!({})).await.status, StatusCode::NOT_FOUND, "no word of this era");
    }
    let refused = door.modern("tools/list", json!({})).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((90..=100).contains(&wait), "{wait}");
    assert!(is_overloaded(&refused.json()), "{refused:?}");
    let words = refused.json()["error"]["message"].to_string();
    assert!(words.contains("rate limit of your requests") && words.contains("try again in 9"), "{words}");
    assert!(received(&log).is_empty(), "the server was never contacted");
    door.host.close().await;
}

#[tokio::test]
async fn exh_04_nine_healthy_servers_beside_a_hostile_one() {
    const ROUNDS: usize = 20;
    let files = folder();
    let log = at(&files, "log");
    let flood =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"$SEQ"}}"#;
    let flood = Step::Flood { line: flood.into(), count: Some(100) };
    let hostile = Puppet::of(Era::Legacy).on("tool:echo", [flood, Step::Hang]).log(&log);
    let mut servers: Vec<_> = (0..9).map(|n| puppet(&format!("ok{n}"), &Puppet::of(Era::Modern))).collect();
    servers.push(puppet("bad", &hostile));
    let host = host(servers).await;
    host.tools().await;
    let door = std::sync::Arc::new(open_with(host, |b| b).await);
    let calls: Vec<_> = (0..300)
        .map(|_| {
            let door = std::sync::Arc::clone(&door);
            tokio::spawn(async move { door.modern("tools/call", call("bad_echo")).await.status })
        })
        .collect();
    until("the hostile server is called", || count(&received(&log), "tools/call") > 0).await;
    // All of these end while none of those does. How quickly is for the benchmark to say.
    for _ in 0..ROUNDS {
        let healthy = (0..9).map(|n| {
            let door = std::sync::Arc::clone(&door);
            async move {
                let answer = door.modern("tools/call", call(&format!("ok{n}_echo"))).await;
                assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            }
        });
        soon("healthy servers answer", futures_util::future::join_all(healthy)).await;
    }
    assert!(
        calls.iter().any(|call| !call.is_finished()),
        "the hostile server still keeps its callers waiting"
    );
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    door.host.close().await;
}
