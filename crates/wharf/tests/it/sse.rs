//! HTTP+SSE, the transport of 2024-11-05.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly, in its scenery too")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use wharf::config::{ServerConfig, Transport};
use wharf::connect::Connection;

use crate::http::server::{self, Ears, Exchange, Server};
use crate::http::{call, done, initialized, kind};

/// A server of the old kind. What goes on the stream comes through the channel; an empty text ends it.
async fn old(endpoint: &'static str) -> Server {
    let (sender, receiver) = mpsc::unbounded_channel::<String>();
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    Server::start(move |x| {
        let (sender, receiver) = (sender.clone(), Arc::clone(&receiver));
        async move { play(x, endpoint, sender, receiver).await }
    })
    .await
}

async fn play(
    x: Exchange,
    endpoint: &str,
    stream: mpsc::UnboundedSender<String>,
    receiver: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>>,
) {
    let say = |message: Value| drop(stream.send(format!("event: message\ndata: {message}\n\n")));
    match (x.seen.line().as_str(), x.seen.path.as_str()) {
        ("GET", "/mcp") => {
            let mut events = x.events("").await;
            events.text(&format!("event: endpoint\ndata: {endpoint}\n\n")).await;
            let mut receiver = receiver.lock().await;
            while let Some(text) = receiver.recv().await {
                if text.is_empty() || !events.text(&text).await {
                    return;
                }
            }
        }
        ("POST initialize", "/messages?sessionId=7") => {
            say(x.seen.answer(initialized()));
            x.accepted().await;
        }
        ("POST tools/call", "/messages?sessionId=7") => {
            match x.seen.body["params"]["name"].as_str() {
                Some("t") => {
                    say(json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}}));
                    say(x.seen.answer(done()));
                }
                _ => drop(stream.send(String::new())),
            }
            x.accepted().await;
        }
        (_, "/messages?sessionId=7") => x.accepted().await,
        _ => x.reply(404, "content-type: text/html\r\n", "<p>Cannot POST</p>").await,
    }
}

fn sse(url: &str) -> ServerConfig {
    let mut config = server::http(url);
    config.transport = Transport::Sse(server::remote(url));
    config
}

async fn connect(server: &Server) -> (Connection, Arc<Ears>) {
    let ears = Arc::new(Ears::default());
    let dock = server::dock(Arc::clone(&ears));
    (dock.open(&sse(&server.url())).await.unwrap(), ears)
}

#[tokio::test]
async fn l30_an_old_server_is_spoken_with_over_its_stream() {
    for endpoint in ["/messages?sessionId=7", "messages?sessionId=7"] {
        let server = old(endpoint).await;
        let (connection, _) = connect(&server).await;
        assert_eq!(connection.transport(), "sse");
        assert_eq!(kind(&call(&connection).await), "ok");
        // What the server asked was answered by post.
        server.until(|log| log.iter().any(|s| s.body["id"] == "q")).await;
        let log = server.log();
        assert_eq!(log[0].verb, "GET");
        assert_eq!(log[0].header("accept"), Some("text/event-stream"));
        assert!(log.iter().all(|s| s.header("x-key") == Some("opensesame")));
        let lines = server.asked();
        assert_eq!(lines[1..4], ["POST initialize", "POST notifications/initialized", "POST tools/call"]);
        connection.close().await;
        assert_eq!(server.count("DELETE"), 0);
    }
}

#[tokio::test]
async fn l30_streamable_http_falls_back_to_the_old_transport() {
    let server = old("/messages?sessionId=7").await;
    let dock = server::dock(Arc::new(Ears::default()));
    let connection = dock.open(&server::http(&server.url())).await.unwrap();
    assert_eq!(connection.transport(), "sse");
    assert_eq!(kind(&call(&connection).await), "ok");
}

#[tokio::test]
async fn l30_no_transport_at_all_is_reported_as_the_first_refusal() {
    let server = Server::start(|x| async move { x.reply(404, "", "nothing here").await }).await;
    let dock = server::dock(Arc::new(Ears::default()));
    let error = dock.open(&server::http(&server.url())).await.unwrap_err();
    assert!(error.to_string().contains("404: nothing here"), "{error}");
    assert_eq!(server.asked(), ["POST server/discover", "POST initialize", "GET"]);
}

#[tokio::test]
async fn ssrf_07_messages_are_not_posted_to_another_origin() {
    let other = Server::start(|x| async move { x.accepted().await }).await;
    let elsewhere = [
        format!("{}?sessionId=7", other.url()),
        format!("//{}/messages", other.address),
        "https://127.0.0.1/messages".to_owned(),
        "http://user:pass@127.0.0.1/messages".to_owned(),
        "file:///etc/passwd".to_owned(),
        "http://[".to_owned(),
    ];
    for endpoint in elsewhere {
        let server = old(Box::leak(endpoint.clone().into_boxed_str())).await;
        let dock = server::dock(Arc::new(Ears::default()));
        let error = dock.open(&sse(&server.url())).await.unwrap_err();
        assert_eq!(error.kind(), "connection", "{endpoint}");
        assert_eq!(server.asked(), ["GET"], "{endpoint}");
    }
    assert_eq!(other.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn r_07_the_end_of_the_stream_is_the_end_of_the_connection() {
    let server = old("/messages?sessionId=7").await;
    let (connection, _) = connect(&server).await;
    let tool = wharf::names::ToolName::parse("leave").unwrap();
    let mut params = wharf::wire::Members::new();
    params.text("name", "leave");
    let mut request = wharf::connect::Request::new("tools/call", params, Duration::from_secs(20));
    request.tool = Some(&tool);
    let result = connection.request(request).await;
    assert_eq!(kind(&result), "unknown_outcome");
    assert!(!connection.is_open());
    assert_eq!(server.count("POST tools/call"), 1);
}

#[tokio::test]
async fn l37_giving_up_is_posted() {
    let begun = Arc::new(Notify::new());
    let b = Arc::clone(&begun);
    let (sender, receiver) = mpsc::unbounded_channel::<String>();
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    let server = Server::start(move |x| {
        let (b, sender, receiver) = (Arc::clone(&b), sender.clone(), Arc::clone(&receiver));
        async move {
            if x.seen.method() == "tools/call" {
                b.notify_one();
                return x.accepted().await;
            }
            play(x, "/messages?sessionId=7", sender, receiver).await;
        }
    })
    .await;
    let (connection, _) = connect(&server).await;
    tokio::select! {
        _ = call(&connection) => panic!("there is no answer"),
        () = begun.notified() => {}
    }
    let cancelled = server.until_asked("POST notifications/cancelled").await;
    let called = server.until_asked("POST tools/call").await;
    assert_eq!(cancelled.body["params"]["requestId"], called.body["id"]);
}

#[tokio::test]
async fn l30_a_stream_that_begins_with_anything_else_is_not_of_this_kind() {
    let server = Server::start(|x| async move {
        let mut events = x.events("").await;
        events.text("data: hello\n\n").await;
        events.closed().await;
    })
    .await;
    let dock = server::dock(Arc::new(Ears::default()));
    let error = dock.open(&sse(&server.url())).await.unwrap_err();
    assert!(error.to_string().contains("endpoint"), "{error}");
}
