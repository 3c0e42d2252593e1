//! The modern era: every request stands alone.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::server::{self, Server};
use super::{call, connect, done, kind, modern};

#[tokio::test]
async fn l31_a_modern_call_carries_the_headers_and_one_connection_serves_all() {
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
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    let log = server.log();
    for seen in &log {
        assert_eq!(seen.verb, "POST");
        assert_eq!(seen.path, "/mcp");
        assert_eq!(seen.header("content-type"), Some("application/json"));
        assert_eq!(seen.header("accept"), Some("application/json, text/event-stream"));
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
