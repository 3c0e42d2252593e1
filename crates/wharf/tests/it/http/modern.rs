//! The modern era: every request stands alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use wharf::connect::Request;
use wharf::mcp::method;
use wharf::wire::{Json, Members};

use super::{call, connect, done, kind, modern};

#[tokio::test]
async fn l31_a_modern_call_carries_its_headers_and_connections_are_used_again() {
    let server = modern(|x| async move {
        if x.seen.body["id"].as_u64().unwrap() % 2 == 0 {
            return x.result(done()).await;
        }
        let answer = x.seen.answer(done());
        let mut events = x.events("").await;
        events.message(&answer).await;
        events.end().await;
    })
    .await;
    let (connection, _) = connect(&server).await;
    for _ in 0..10 {
        let result = call(&connection).await.unwrap();
        assert_eq!(result.as_str(), done().to_string());
    }
    // The end of a stream may come after the next call began, which then takes a second connection; never a third.
    assert!(server.connections.load(Ordering::SeqCst) <= 2);
    let log = server.log();
    for seen in &log {
        assert_eq!(seen.verb, "POST");
        assert_eq!(seen.path, "/mcp");
        assert_eq!(seen.header("content-type"), Some("application/json"));
        assert_eq!(seen.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(seen.header("accept-encoding"), None);
        assert_eq!(seen.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(seen.header("mcp-method"), Some(seen.method()));
        assert_eq!(seen.header("mcp-session-id"), None);
        assert_eq!(seen.header("x-key"), Some("opensesame"));
        let meta = &seen.body["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    }
    assert_eq!(log[0].header("mcp-name"), None);
    assert_eq!(log[1].header("mcp-name"), Some("t"));
    // Nothing else was said: no handshake, no stream, no goodbye.
    connection.close().await;
    assert_eq!(server.log().len(), 11);
}

#[tokio::test]
async fn l31_names_and_arguments_in_headers_survive_the_journey() {
    let table = [
        ("plain", "plain"),
        ("with space inside", "with space inside"),
        ("file:///a%20b", "file:///a%20b"),
        ("", ""),
        ("42", "42"),
        (" leading", "=?base64?IGxlYWRpbmc=?="),
        ("trailing ", "=?base64?dHJhaWxpbmcg?="),
        ("Zürich", "=?base64?WsO8cmljaA==?="),
        ("two\nlines", "=?base64?dHdvCmxpbmVz?="),
        ("tab\tinside", "=?base64?dGFiCWluc2lkZQ==?="),
        ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
        ("=?base64?open", "=?base64?open"),
    ];
    let server = modern(|x| async move { x.result(json!({})).await }).await;
    let (connection, _) = connect(&server).await;
    for (text, _) in table {
        let mut request = Request::new(method::RESOURCES_READ, Members::new(), Duration::from_secs(20));
        request.name = Some(text);
        request.headers = vec![("Mcp-Param-Region".into(), text.into())];
        connection.request(request).await.unwrap();
    }
    let log = server.log();
    for ((text, sent), seen) in table.iter().zip(&log[1..]) {
        assert_eq!(seen.header("mcp-name"), Some(*sent), "{text:?}");
        assert_eq!(seen.header("mcp-param-region"), Some(*sent), "{text:?}");
    }
}

#[tokio::test]
async fn l37_progress_on_the_stream_comes_before_the_answer() {
    let server = modern(|x| async move {
        let token = x.seen.body["params"]["_meta"]["progressToken"].clone();
        let answer = x.seen.answer(done());
        let mut events = x.events("").await;
        for step in 1..=3 {
            let params = json!({"progressToken": token, "progress": step});
            let news = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            events.message(&news).await;
        }
        events.text(": still here\n\n").await;
        events.message(&answer).await;
        events.end().await;
    })
    .await;
    let (connection, _) = connect(&server).await;
    let mut steps = Vec::new();
    let mut listener = |p: wharf::connect::Progress| steps.push(p.progress);
    let mut request = Request::new(method::TOOLS_CALL, Members::new(), Duration::from_secs(20));
    request.on_progress = Some(&mut listener);
    connection.request(request).await.unwrap();
    assert_eq!(steps, [1.0, 2.0, 3.0]);
}

#[tokio::test]
async fn l37_giving_up_a_modern_call_closes_its_stream_and_says_nothing() {
    let (begun, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (b, c) = (Arc::clone(&begun), Arc::clone(&closed));
    let server = modern(move |x| {
        let (b, c) = (Arc::clone(&b), Arc::clone(&c));
        async move {
            let mut events = x.events("").await;
            b.notify_one();
            events.closed().await;
            c.notify_one();
        }
    })
    .await;
    let (connection, _) = connect(&server).await;
    tokio::select! {
        _ = call(&connection) => panic!("there is no answer"),
        () = begun.notified() => {}
    }
    let seen = tokio::time::timeout(Duration::from_secs(10), closed.notified()).await;
    assert!(seen.is_ok(), "the stream stayed open");
    assert_eq!(server.asked(), ["POST server/discover", "POST tools/call"]);
}

#[tokio::test]
async fn l31_a_modern_stream_that_ends_early_is_not_resumed() {
    let server = modern(|x| async move {
        let mut events = x.events("").await;
        events.text("id: 7\nretry: 1\ndata: \n\n").await;
        events.end().await;
    })
    .await;
    let (connection, _) = connect(&server).await;
    assert_eq!(kind(&call(&connection).await), "unknown_outcome");
    assert_eq!(server.asked(), ["POST server/discover", "POST tools/call"]);
}

/// A notification on a listen stream.
fn news(id: &Value, method: &str) -> Value {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": meta}})
}

#[tokio::test]
async fn l31_listening_brings_news_and_is_opened_again_but_not_for_ever() {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let server = modern(move |x| {
        let count = Arc::clone(&count);
        async move {
            if x.seen.method() != "subscriptions/listen" {
                return x.result(done()).await;
            }
            let id = x.seen.body["id"].clone();
            assert_eq!(x.seen.body["params"]["notifications"], json!({"toolsListChanged": true}));
            let mut events = x.events("").await;
            events.message(&news(&id, "notifications/subscriptions/acknowledged")).await;
            // News that nobody wants, on a stream that was asked for: none of it is held against the server.
            for _ in 0..150 {
                events.message(&news(&id, "notifications/resources/updated")).await;
            }
            events.message(&news(&id, "notifications/tools/list_changed")).await;
            count.fetch_add(1, Ordering::SeqCst);
            events.end().await;
        }
    })
    .await;
    let (connection, ears) = connect(&server).await;
    connection.listen(Json::of(&json!({"toolsListChanged": true})));
    // One each time it is open, and one after each gap, in which something may have been missed.
    ears.until_heard("notifications/tools/list_changed", 5).await;
    assert_eq!(ears.count("notifications/subscriptions/acknowledged"), 0);
    assert_eq!(opened.load(Ordering::SeqCst), 3);
    assert_eq!(connection.strays().notifications, 0);
    assert_eq!(kind(&call(&connection).await), "ok");
    assert_eq!(server.count("POST subscriptions/listen"), 3);
}

#[tokio::test]
async fn l31_listening_ends_with_the_last_hold_on_the_connection() {
    let closed = Arc::new(Notify::new());
    let c = Arc::clone(&closed);
    let server = modern(move |x| {
        let c = Arc::clone(&c);
        async move {
            let mut events = x.events("").await;
            events.closed().await;
            c.notify_one();
        }
    })
    .await;
    let (connection, _) = connect(&server).await;
    connection.listen(Json::of(&json!({"toolsListChanged": true})));
    server.until_asked("POST subscriptions/listen").await;
    assert!(connection.is_open());
    drop(connection);
    let ended = tokio::time::timeout(Duration::from_secs(10), closed.notified()).await;
    assert!(ended.is_ok(), "the stream stayed open");
}
