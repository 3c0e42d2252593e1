//! Connections that are used again: what becomes of calls when one is not there any more, or is left in the middle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::server::{Exchange, Server};
use super::{call, connect, done, kind, legacy, modern};

const PATIENCE: Duration = Duration::from_secs(10);

type Held = Arc<Mutex<Vec<TcpStream>>>;

/// Answers a call, and keeps the connection where the test can close it.
async fn answer_and_hold(x: Exchange, held: Held) {
    let body = x.seen.answer(done()).to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
    let stream = x.take(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await;
    held.lock().unwrap().push(stream);
}

/// A server of either era that answers, and holds its connections.
async fn holding(is_modern: bool) -> (Server, Held) {
    let held = Held::default();
    let own = Arc::clone(&held);
    let play = move |x| answer_and_hold(x, Arc::clone(&own));
    (if is_modern { modern(play).await } else { legacy(play).await }, held)
}

fn connections(server: &Server) -> usize {
    server.connections.load(Ordering::SeqCst)
}

#[tokio::test]
async fn l36_a_connection_closed_while_idle_is_replaced_and_no_call_is_made_twice() {
    for is_modern in [true, false] {
        let (server, held) = holding(is_modern).await;
        let (connection, _) = connect(&server).await;
        let before = connections(&server);
        for calls in 1..=20 {
            assert_eq!(kind(&call(&connection).await), "ok");
            assert_eq!(server.count("POST tools/call"), calls);
            // Nothing is waited for in between: the runtime has not heard of it when the next call begins.
            held.lock().unwrap().clear();
        }
        assert!((19..=20).contains(&(connections(&server) - before)), "one for each call");
    }
}

#[tokio::test]
async fn l36_a_connection_that_is_closed_behind_its_answer_is_not_used_again() {
    let server = modern(|x| async move {
        let body = x.seen.answer(done()).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        drop(x.take(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await);
    })
    .await;
    let (connection, _) = connect(&server).await;
    for calls in 1..=20 {
        assert_eq!(kind(&call(&connection).await), "ok");
        assert_eq!(server.count("POST tools/call"), calls);
    }
}

#[tokio::test]
async fn r_07_a_kept_connection_that_dies_with_a_call_on_it_is_an_unknown_outcome_and_no_second_call() {
    for how in ["closed", "reset"] {
        let calls = Arc::new(AtomicUsize::new(0));
        let c = Arc::clone(&calls);
        let server = modern(move |x| {
            let nth = c.fetch_add(1, Ordering::SeqCst);
            async move {
                match (nth, how) {
                    (1, "closed") => drop(x),
                    (1, _) => x.take(b"").await.set_zero_linger().unwrap(),
                    _ => x.result(done()).await,
                }
            }
        })
        .await;
        let (connection, _) = connect(&server).await;
        assert_eq!(kind(&call(&connection).await), "ok");
        assert_eq!(connections(&server), 1);
        assert_eq!(kind(&call(&connection).await), "unknown_outcome", "{how}");
        assert_eq!((calls.load(Ordering::SeqCst), connections(&server)), (2, 1), "{how}");
        assert_eq!(kind(&call(&connection).await), "ok", "{how}");
        assert_eq!((calls.load(Ordering::SeqCst), connections(&server)), (3, 2), "{how}");
    }
}

#[tokio::test]
async fn l37_a_caller_that_gives_up_in_the_middle_of_an_answer_leaves_nothing_to_the_next() {
    for as_events in [false, true] {
        let (begun, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let calls = Arc::new(AtomicUsize::new(0));
        let (b, c, n) = (Arc::clone(&begun), Arc::clone(&closed), Arc::clone(&calls));
        let server = modern(move |x| {
            let nth = n.fetch_add(1, Ordering::SeqCst);
            let (b, c) = (Arc::clone(&b), Arc::clone(&c));
            async move {
                if nth == 1 {
                    let answer = x.seen.answer(json!({"of": "the one that was given up"})).to_string();
                    let (half, _) = answer.split_at(answer.len() / 2);
                    let (kind, half) = match as_events {
                        true => ("text/event-stream", format!("data: {half}")),
                        false => ("application/json", half.to_owned()),
                    };
                    let text = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 900\r\n\r\n{half}"
                    );
                    let mut stream = x.take(text.as_bytes()).await;
                    b.notify_one();
                    let mut byte = [0];
                    while matches!(stream.read(&mut byte).await, Ok(1..)) {}
                    c.notify_one();
                } else {
                    x.result(json!({"of": nth})).await;
                }
            }
        })
        .await;
        let (connection, _) = connect(&server).await;
        call(&connection).await.unwrap();
        tokio::select! {
            _ = call(&connection) => panic!("there is no answer"),
            () = begun.notified() => {}
        }
        let seen = tokio::time::timeout(PATIENCE, closed.notified()).await;
        assert!(seen.is_ok(), "the connection stayed open");
        for nth in 2..4 {
            let answer = call(&connection).await.unwrap();
            assert_eq!(answer.member("of"), Some(wharf::wire::Json::of(&nth)), "{as_events}");
        }
        assert_eq!(connections(&server), 2, "{as_events}");
    }
}

#[tokio::test]
async fn l30_a_server_that_is_closed_leaves_no_open_socket() {
    for is_modern in [true, false] {
        let (server, held) = holding(is_modern).await;
        let (connection, _) = connect(&server).await;
        assert_eq!(kind(&call(&connection).await), "ok");
        let mut kept = held.lock().unwrap().pop().unwrap();
        connection.close().await;
        let mut bytes = Vec::new();
        // A legacy server is told goodbye, perhaps over this very connection.
        let ended = tokio::time::timeout(PATIENCE, kept.read_to_end(&mut bytes)).await;
        assert!(ended.is_ok(), "still open, after {:?}", String::from_utf8_lossy(&bytes));
        // It is the closing, and not the end of the last hold on it.
        assert!(!connection.is_open());
    }
}
