//! The HTTP puppet, asked by raw bytes.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wharf_testkit::http::{honest_legacy, honest_modern, honest_sse};
use wharf_testkit::{HttpPuppet, Reply, SseStep};

async fn post(puppet: &HttpPuppet, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(puppet.addr()).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is broken off may be an error here; what came before it counts.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn replies_are_what_the_handler_says_and_requests_are_kept() {
    let puppet = HttpPuppet::start(|request| async move {
        match &request.body[..] {
            b"json" => Reply::ok(json!({"a": 1})).with("x-extra", "yes"),
            b"sse" => Reply::Sse(vec![SseStep::Comment("c".to_owned()), SseStep::data("one\ntwo")]),
            b"broken" => Reply::Sse(vec![SseStep::data("one"), SseStep::Drop]),
            b"go" => Reply::Redirect(307, "/there".to_owned()),
            _ => Reply::Drop,
        }
    });
    let json = post(&puppet, "x-mine: 1\r\n", "json").await;
    assert!(
        json.starts_with("HTTP/1.1 200") && json.contains("x-extra: yes") && json.ends_with(r#"{"a":1}"#)
    );
    let sse = post(&puppet, "", "sse").await;
    assert!(
        sse.contains(": c\n\n") && sse.contains("data: one\ndata: two\n\n") && sse.ends_with("0\r\n\r\n")
    );
    let broken = post(&puppet, "", "broken").await;
    assert!(broken.contains("data: one") && !broken.ends_with("0\r\n\r\n"));
    assert!(post(&puppet, "", "go").await.contains("location: /there"));
    assert_eq!(post(&puppet, "", "anything").await, "");

    assert_eq!((puppet.accepts(), puppet.requests().len()), (5, 5));
    assert_eq!(puppet.requests()[0].header("x-mine"), Some("1"));
}

#[tokio::test]
async fn a_client_that_hangs_up_is_counted() {
    let puppet = HttpPuppet::start(|_| async { Reply::Hang });
    let mut stream = TcpStream::connect(puppet.addr()).await.unwrap();
    stream.write_all(b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    while puppet.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(puppet.hangups(), 0);
    drop(stream);
    while puppet.hangups() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(puppet.hangups(), 1);
}

#[tokio::test]
async fn honest_servers_are_strict() {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let modern = HttpPuppet::start(honest_modern(vec![json!({"name": "t"})]));
    let good = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n";
    let answer = post(&modern, good, list).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""tools":[{"name":"t"}]"#));
    assert!(post(&modern, "", list).await.contains("-32020"));

    let legacy = HttpPuppet::start(honest_legacy(vec![], true));
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    assert!(post(&legacy, "", initialize).await.contains("mcp-session-id: session-1"));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert!(post(&legacy, "Mcp-Session-Id: session-1\r\n", ping).await.starts_with("HTTP/1.1 200"));
    assert!(post(&legacy, "Mcp-Session-Id: session-2\r\n", ping).await.starts_with("HTTP/1.1 404"));
    assert!(post(&legacy, "", ping).await.starts_with("HTTP/1.1 400"));

    let sse = HttpPuppet::start(honest_sse(vec![]));
    assert!(post(&sse, "", ping).await.starts_with("HTTP/1.1 405"));
}
