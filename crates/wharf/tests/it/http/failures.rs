//! Answers that are none: refusals, wrong content, too much, too little. A call is never sent twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use wharf::wire::Limits;

use super::server::{self, Ears, Server};
use super::{call, connect, discovered, done, kind, modern};

#[tokio::test]
async fn r_07_a_status_says_whether_the_call_may_be_made_again() {
    let table = [
        (400, "connection", false),
        (401, "auth", false),
        (403, "auth", false),
        (404, "connection", false),
        (409, "connection", false),
        (413, "connection", false),
        (429, "busy", true),
        (500, "unknown_outcome", false),
        (502, "unknown_outcome", false),
        (503, "unknown_outcome", false),
        (504, "unknown_outcome", false),
        // The legitimate twin.
        (200, "ok", false),
    ];
    for (status, expected, retryable) in table {
        let server = modern(move |x| async move {
            if status == 200 {
                return x.result(done()).await;
            }
            x.reply(status, "retry-after: -99999999999\r\n", "the reason\u{1b}[31m").await;
        })
        .await;
        let (connection, _) = connect(&server).await;
        let result = call(&connection).await;
        assert_eq!(kind(&result), expected, "{status}");
        if let Err(error) = result {
            assert_eq!(error.is_retryable(), retryable, "{status}");
            assert!(!error.to_string().contains('\u{1b}'), "{status}");
            assert!(error.to_string().contains(&status.to_string()), "{status}");
        }
        assert_eq!(server.count("POST tools/call"), 1, "{status}");
        assert!(connection.is_open(), "{status}");
    }
}

#[tokio::test]
async fn l30_a_challenge_is_told_and_our_own_secret_is_not() {
    let server = modern(|x| async move {
        let challenge = "www-authenticate: Bearer scope=\"a\", echo=\"opensesame\"\r\n";
        x.reply(401, challenge, "").await;
    })
    .await;
    let (connection, _) = connect(&server).await;
    let text = call(&connection).await.unwrap_err().to_string();
    assert!(text.contains("Bearer scope"), "{text}");
    assert!(!text.contains("opensesame"), "{text}");
}

#[tokio::test]
async fn l36_an_error_in_a_refusal_is_the_calls_whatever_id_it_names() {
    for id in [json!(null), json!("server-error"), json!(999_999), json!("1")] {
        for status in [400, 404, 422] {
            let body = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "bad"}});
            let server = modern(move |x| {
                let body = body.to_string();
                async move { x.reply(status, "content-type: application/json\r\n", &body).await }
            })
            .await;
            let (connection, _) = connect(&server).await;
            assert_eq!(kind(&call(&connection).await), "tool", "{status} {id}");
        }
    }
}

#[tokio::test]
async fn r_07_content_that_is_no_answer_is_a_broken_protocol() {
    let table = [
        ("content-type: text/html\r\n", "<p>hi</p>", "text/html"),
        ("", "{}", "no content type"),
        ("content-type: application/json\r\ncontent-encoding: gzip\r\n", "x", "gzip"),
        ("content-type: application/json\r\n", "{\"jsonrpc\":\"2.0\"", "JSON"),
        ("content-type: application/json\r\n", "[]", "answer"),
        ("content-type: application/json\r\n", "", "answer"),
        ("content-type: application/json\r\n", r#"{"jsonrpc":"2.0","id":77,"result":{}}"#, "answer"),
    ];
    for (headers, body, says) in table {
        let server = modern(move |x| async move { x.reply(200, headers, body).await }).await;
        let (connection, _) = connect(&server).await;
        let result = call(&connection).await;
        assert_eq!(kind(&result), "protocol", "{headers}{body}");
        let text = result.unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
    }
    // Accepted, and that was all.
    let server = modern(|x| async move { x.accepted().await }).await;
    let (connection, _) = connect(&server).await;
    assert_eq!(kind(&call(&connection).await), "protocol");
}

#[tokio::test]
async fn l36_bodies_and_events_have_a_limit() {
    const LIMIT: usize = 2000;
    for as_events in [false, true] {
        for (size, expected) in [(LIMIT - 1, "ok"), (LIMIT, "ok"), (LIMIT + 1, "protocol")] {
            let server = modern(move |x| async move {
                let empty = x.seen.answer(json!({"pad": ""})).to_string().len();
                let answer = x.seen.answer(json!({"pad": "x".repeat(size - empty)}));
                assert_eq!(answer.to_string().len(), size);
                if as_events {
                    let mut events = x.events("").await;
                    events.message(&answer).await;
                    events.end().await;
                } else {
                    x.json("", answer).await;
                }
            })
            .await;
            let mut dock = server::dock(Arc::new(Ears::default()));
            dock.limits = Limits { event: LIMIT, body: LIMIT, ..Limits::default() }.into();
            let connection = dock.open(&server::http(&server.url())).await.unwrap();
            assert_eq!(kind(&call(&connection).await), expected, "{as_events} {size}");
            assert!(connection.is_open());
        }
    }
}

#[tokio::test]
async fn exh_01_endless_events_and_floods_of_comments_are_cut() {
    let floods = ["data: xxxxxxxxxxxxxxxx", ": nothing to say\n", ":\n\n", "event: x\n\n"];
    for flood in floods {
        let server = modern(move |x| async move {
            let chunk = flood.repeat(1000);
            let mut events = x.events("").await;
            while events.text(&chunk).await {}
        })
        .await;
        let mut dock = server::dock(Arc::new(Ears::default()));
        dock.limits = Limits { event: 100_000, ..Limits::default() }.into();
        let connection = dock.open(&server::http(&server.url())).await.unwrap();
        assert_eq!(kind(&call(&connection).await), "protocol", "{flood:?}");
    }
}

#[tokio::test]
async fn r_07_a_connection_that_breaks_after_sending_is_an_unknown_outcome() {
    for how in ["before headers", "reset", "half an event", "half a body"] {
        let server = modern(move |x| async move {
            match how {
                "before headers" => drop(x),
                "reset" => x.events("").await.reset(),
                "half an event" => {
                    let answer = x.seen.answer(done());
                    let mut events = x.events("").await;
                    events.text(&format!("data: {answer}\n")).await;
                    events.end().await;
                }
                _ => {
                    let head =
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
                    drop(x.take(head).await);
                }
            }
        })
        .await;
        let (connection, _) = connect(&server).await;
        assert_eq!(kind(&call(&connection).await), "unknown_outcome", "{how}");
        assert_eq!(server.count("POST tools/call"), 1, "{how}");
    }
}

#[tokio::test]
async fn r_07_a_server_that_cannot_be_reached_was_not_called() {
    let server = modern(|x| async move { x.result(done()).await }).await;
    let port_of_nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let dock = server::dock(Arc::new(Ears::default()));
    let config = server::http(&format!("http://127.0.0.1:{port_of_nobody}/mcp"));
    let error = dock.open(&config).await.unwrap_err();
    assert_eq!(error.kind(), "connection");
    assert!(error.is_retryable());
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
    connect(&server).await;
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn ssrf_07_a_redirect_elsewhere_is_refused_and_nobody_is_contacted_there() {
    let other = Server::start(|x| async move { x.result(discovered()).await }).await;
    let target = other.url();
    let server = modern(move |x| {
        let location = format!("location: {target}\r\n");
        async move { x.reply(307, &location, "").await }
    })
    .await;
    let (connection, _) = connect(&server).await;
    assert_eq!(kind(&call(&connection).await), "denied");
    assert_eq!(other.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn l30_headers_that_cannot_be_sent_are_a_configuration_error() {
    let server = modern(|x| async move { x.result(done()).await }).await;
    for (name, value) in [("bad name", "x"), ("X-Ok", "two\nlines"), ("Content-Length", "3")] {
        let mut config = server::http(&server.url());
        let mut remote = server::remote(&server.url());
        remote.headers.insert(name.into(), wharf::secret::Secret::new(value));
        config.transport = wharf::config::Transport::Http(remote);
        let dock = server::dock(Arc::new(Ears::default()));
        assert_eq!(dock.open(&config).await.unwrap_err().kind(), "config", "{name}");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}
