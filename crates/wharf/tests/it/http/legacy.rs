//! The legacy era: a session, streams that are resumed, requests in both directions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::server::{Exchange, Server};
use super::{call, connect, done, initialized, kind, legacy};

#[tokio::test]
async fn l31_a_legacy_session_goes_with_every_request_and_is_ended() {
    let server = legacy(|x| async move { x.result(done()).await }).await;
    let (connection, _) = connect(&server).await;
    call(&connection).await.unwrap();
    server.until_asked("GET").await;
    connection.close().await;
    connection.close().await;
    let log = server.log();
    let find = |line: &str| log.iter().find(|s| s.line() == line).unwrap();
    let initialize = find("POST initialize");
    assert_eq!(initialize.header("mcp-session-id"), None);
    assert_eq!(initialize.header("mcp-protocol-version"), None);
    assert_eq!(initialize.header("mcp-method"), None);
    for line in ["POST notifications/initialized", "POST tools/call", "GET", "DELETE"] {
        assert_eq!(find(line).header("mcp-session-id"), Some("s1"), "{line}");
        assert_eq!(find(line).header("mcp-protocol-version"), Some("2025-11-25"), "{line}");
        assert_eq!(find(line).header("mcp-method"), None, "{line}");
        assert_eq!(find(line).header("x-key"), Some("opensesame"), "{line}");
    }
    assert_eq!(server.count("DELETE"), 1);
    let at = |line: &str| log.iter().position(|s| s.line() == line).unwrap();
    // What the server says of its own accord is heard from the start.
    assert!(at("POST notifications/initialized") < at("GET"));
    assert!(at("GET") < at("POST tools/call"));
}

#[tokio::test]
async fn l31_a_session_is_ended_when_the_last_hold_on_it_goes() {
    let server = legacy(|x| async move { x.result(done()).await }).await;
    let (connection, _) = connect(&server).await;
    drop(connection);
    let goodbye = server.until_asked("DELETE").await;
    assert_eq!(goodbye.header("mcp-session-id"), Some("s1"));
}

#[tokio::test]
async fn l37_giving_up_a_legacy_call_is_said_in_words() {
    let begun = Arc::new(Notify::new());
    let b = Arc::clone(&begun);
    let server = legacy(move |x| {
        let b = Arc::clone(&b);
        async move {
            if x.seen.method() == "notifications/cancelled" {
                return x.accepted().await;
            }
            let mut events = x.events("").await;
            b.notify_one();
            events.closed().await;
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
    assert_eq!(cancelled.header("mcp-session-id"), Some("s1"));
}

#[tokio::test]
async fn l31_a_stream_that_breaks_is_resumed_after_the_pause_it_asked_for() {
    for broken in [false, true] {
        let asked = Arc::new(Mutex::new(Value::Null));
        let server = legacy(move |x| {
            let asked = Arc::clone(&asked);
            async move {
                if x.seen.verb == "GET" {
                    let answer = asked.lock().unwrap().clone();
                    let mut events = x.events("").await;
                    events.text("id: e2\ndata: \n\n").await;
                    let text = format!("event: message\nid: e3\ndata: {answer}\n\n");
                    events.text(&text).await;
                    return events.closed().await;
                }
                *asked.lock().unwrap() = x.seen.answer(done());
                let mut events = x.events("").await;
                events.text("id: e1\nretry: 300\ndata: \n\n").await;
                if broken {
                    events.reset();
                } else {
                    events.end().await;
                }
            }
        })
        .await;
        let (connection, _) = connect(&server).await;
        let since = Instant::now();
        assert_eq!(kind(&call(&connection).await), "ok", "broken: {broken}");
        assert!(since.elapsed() >= Duration::from_millis(300), "it did not wait");
        let log = server.log();
        let resumed = log.iter().find(|s| s.header("last-event-id").is_some()).unwrap();
        assert_eq!(resumed.header("last-event-id"), Some("e1"));
        assert_eq!(resumed.header("accept"), Some("text/event-stream"));
        assert_eq!(resumed.header("mcp-session-id"), Some("s1"));
        assert_eq!(server.count("POST tools/call"), 1);
    }
}

#[tokio::test]
async fn l31_a_stream_that_cannot_be_resumed_is_an_unknown_outcome() {
    let server = legacy(|x| async move {
        if x.seen.verb == "GET" {
            return x.reply(405, "", "").await;
        }
        let mut events = x.events("").await;
        events.text("id: e1\nretry: 1\ndata: \n\n").await;
        events.end().await;
    })
    .await;
    let (connection, _) = connect(&server).await;
    assert_eq!(kind(&call(&connection).await), "unknown_outcome");
    assert_eq!(server.count("POST tools/call"), 1);
}

#[tokio::test]
async fn l31_a_stream_is_resumed_a_few_times_in_vain_and_no_more() {
    let server = legacy(|x| async move {
        let mut events = x.events("").await;
        events.text("id: e1\nretry: 1\ndata: \n\n").await;
        events.end().await;
    })
    .await;
    let (connection, _) = connect(&server).await;
    assert_eq!(kind(&call(&connection).await), "unknown_outcome");
    let resumes = server.log().iter().filter(|s| s.header("last-event-id").is_some()).count();
    assert_eq!(resumes, 5);
}

/// A legacy server whose own stream the test plays.
async fn with_stream<F>(play: impl Fn(Exchange) -> F + Send + Sync + 'static) -> Server
where
    F: Future<Output = ()> + Send + 'static,
{
    let play = Arc::new(play);
    Server::start(move |x| {
        let play = Arc::clone(&play);
        async move {
            match x.seen.line().as_str() {
                "POST server/discover" => x.reply(404, "", "").await,
                "POST initialize" => x.result(initialized()).await,
                "POST notifications/initialized" => x.accepted().await,
                _ => play(x).await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn l31_the_servers_own_stream_brings_news_and_is_opened_again_but_not_for_ever() {
    let server = with_stream(|x| async move {
        let news = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let mut events = x.events("").await;
        events.text(&format!("id: n1\nretry: 10\ndata: {news}\n\n")).await;
        events.end().await;
    })
    .await;
    let (connection, ears) = connect(&server).await;
    ears.until_heard("notifications/tools/list_changed", 3).await;
    assert!(connection.is_open());
    let log = server.log();
    let streams: Vec<_> = log.iter().filter(|s| s.verb == "GET").collect();
    assert_eq!(streams.len(), 3);
    assert_eq!(streams[0].header("last-event-id"), None);
    assert_eq!(streams[1].header("last-event-id"), Some("n1"));
}

#[tokio::test]
async fn l31_a_server_asks_on_a_calls_stream_and_is_answered_by_post() {
    let answered = Arc::new(Notify::new());
    let a = Arc::clone(&answered);
    let server = legacy(move |x| {
        let a = Arc::clone(&a);
        async move {
            if x.seen.method().is_empty() {
                a.notify_one();
                return x.accepted().await;
            }
            let answer = x.seen.answer(done());
            let mut events = x.events("").await;
            let ask = json!({"jsonrpc": "2.0", "id": "q-1", "method": "elicitation/create", "params": {}});
            events.message(&ask).await;
            a.notified().await;
            events.message(&answer).await;
            events.end().await;
        }
    })
    .await;
    let (connection, _) = connect(&server).await;
    assert_eq!(kind(&call(&connection).await), "ok");
    let log = server.log();
    let answer = log.iter().find(|s| s.body["id"] == "q-1").unwrap();
    assert_eq!(answer.verb, "POST");
    assert_eq!(answer.header("mcp-session-id"), Some("s1"));
    assert_eq!(answer.body["result"]["content"]["asked"], "elicitation/create");
}

/// A server that forgets its first session, says so in its own way, and counts the calls that it ran.
async fn forgetful(refuse: (u16, &'static str), runs: &Arc<AtomicUsize>) -> Server {
    let (runs, sessions) = (Arc::clone(runs), Arc::new(AtomicUsize::new(0)));
    Server::start(move |x| {
        let (runs, sessions) = (Arc::clone(&runs), Arc::clone(&sessions));
        async move {
            match x.seen.line().as_str() {
                "POST server/discover" => x.reply(400, "", "no").await,
                "POST initialize" => {
                    let session = sessions.fetch_add(1, Ordering::SeqCst) + 1;
                    let answer = x.seen.answer(initialized());
                    x.json(&format!("mcp-session-id: s{session}\r\n"), answer).await;
                }
                "POST notifications/initialized" => x.accepted().await,
                "POST tools/call" if x.seen.header("mcp-session-id") == Some("s1") => {
                    x.reply(refuse.0, "", refuse.1).await;
                }
                "POST tools/call" => {
                    runs.fetch_add(1, Ordering::SeqCst);
                    x.result(done()).await;
                }
                _ => x.reply(405, "", "").await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn l35_a_forgotten_session_is_made_again_once_and_every_call_runs_once() {
    let ways = [
        (404, ""),
        (404, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#),
        (
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#,
        ),
        (401, "Unauthorized: Session not found"),
    ];
    for refuse in ways {
        let runs = Arc::new(AtomicUsize::new(0));
        let server = forgetful(refuse, &runs).await;
        let (connection, ears) = connect(&server).await;
        let (a, b, c) = tokio::join!(call(&connection), call(&connection), call(&connection));
        assert_eq!([kind(&a), kind(&b), kind(&c)], ["ok"; 3], "{refuse:?}");
        assert_eq!(runs.load(Ordering::SeqCst), 3, "{refuse:?}");
        assert_eq!(server.count("POST initialize"), 2, "{refuse:?}");
        assert_eq!(server.count("POST notifications/initialized"), 2, "{refuse:?}");
        // Whoever keeps the list of tools asks again: another server may answer now.
        assert_eq!(ears.count("notifications/tools/list_changed"), 1);
        connection.close().await;
        assert_eq!(server.until_asked("DELETE").await.header("mcp-session-id"), Some("s2"));
    }
}

#[tokio::test]
async fn l35_words_about_sessions_do_not_make_a_call_be_sent_again() {
    let ways = [
        (
            400,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID in row 7"}}"#,
        ),
        (400, "No valid session ID"),
        (401, "row 7: Session not found"),
    ];
    for refuse in ways {
        let runs = Arc::new(AtomicUsize::new(0));
        let server = forgetful(refuse, &runs).await;
        let (connection, _) = connect(&server).await;
        assert_ne!(kind(&call(&connection).await), "ok", "{refuse:?}");
        let greeted = server.count("POST initialize");
        assert_eq!((server.count("POST tools/call"), greeted), (1, 1), "{refuse:?}");
    }
}

#[tokio::test]
async fn l35_a_session_that_cannot_be_made_again_ends_the_connection_and_nothing_ran() {
    let runs = Arc::new(AtomicUsize::new(0));
    let greeted = Arc::new(AtomicUsize::new(0));
    let g = Arc::clone(&greeted);
    let server = Server::start(move |x| {
        let g = Arc::clone(&g);
        async move {
            match x.seen.line().as_str() {
                "POST initialize" if g.fetch_add(1, Ordering::SeqCst) == 0 => {
                    let answer = x.seen.answer(initialized());
                    x.json("mcp-session-id: s1\r\n", answer).await;
                }
                "POST notifications/initialized" => x.accepted().await,
                _ => x.reply(404, "", "").await,
            }
        }
    })
    .await;
    let (connection, _) = connect(&server).await;
    let result = call(&connection).await;
    assert_eq!(kind(&result), "connection");
    assert!(result.unwrap_err().is_retryable());
    assert!(!connection.is_open());
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert_eq!(server.count("POST tools/call"), 1);
}

#[tokio::test]
async fn l31_a_server_that_keeps_its_own_stream_silent_does_not_hold_up_the_calls() {
    let server = with_stream(|x| async move {
        if x.seen.verb == "GET" {
            // Not even the head of an answer.
            return x.hold().await;
        }
        x.result(done()).await;
    })
    .await;
    let (connection, _) = connect(&server).await;
    assert_eq!(kind(&call(&connection).await), "ok");
}
