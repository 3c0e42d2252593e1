//! Answers of HTTP/1.1 down to their bytes: what is read, what is refused, and which connection is used again. Against a
//! listener on loopback that says what a test wrote down.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use url::Url;
use wharf::config::{Origin, Remote};
use wharf::names::ServerName;
use wharf::net::{Endpoint, HttpClient, NetError, NetOptions, read_body};
use wharf::policy::Policy;
use wharf::secret::SecretUrl;

const PATIENCE: Duration = Duration::from_secs(10);
const LARGE: usize = 8 << 20;

/// Somebody who answers, and counts who came and what was asked.
struct Server {
    url: String,
    endpoint: Endpoint,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Says this to every request, so many bytes at a time, and keeps the connection or closes it.
    async fn says(answer: impl Into<Vec<u8>>, at_once: usize, closes: bool) -> Self {
        let answer = answer.into();
        let (server, listener) = Self::listening().await;
        let (connections, requests) = (server.connections.clone(), server.requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(recite(stream, answer.clone(), at_once, closes, requests.clone()));
            }
        });
        server
    }

    async fn listening() -> (Self, TcpListener) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let remote = Remote { url: SecretUrl::new(Url::parse(&url).unwrap()), headers: Default::default() };
        let name = ServerName::parse("srv").unwrap();
        let permit = Policy::strict().permit_connect(&name, &remote, &Origin::Given).unwrap();
        let endpoint = HttpClient::new(NetOptions::default()).unwrap().for_permit(&permit);
        let (connections, requests) = (Arc::default(), Arc::default());
        (Self { url, endpoint, connections, requests }, listener)
    }

    async fn ask(&self) -> Result<(u16, String), NetError> {
        self.ask_with(Method::POST, "{}").await
    }

    async fn ask_with(&self, method: Method, body: impl Into<Bytes>) -> Result<(u16, String), NetError> {
        let request = Request::builder().method(method).uri(&self.url).body(Full::new(body.into())).unwrap();
        let asking = async {
            let response = self.endpoint.send(request).await?;
            let status = response.status().as_u16();
            let body = read_body(response.into_body(), LARGE).await?;
            Ok((status, String::from_utf8(body.to_vec()).unwrap()))
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("no answer in time")
    }

    fn counted(&self) -> (usize, usize) {
        (self.connections.load(Ordering::SeqCst), self.requests.load(Ordering::SeqCst))
    }
}

async fn recite(
    mut stream: TcpStream,
    answer: Vec<u8>,
    at_once: usize,
    closes: bool,
    asked: Arc<AtomicUsize>,
) {
    stream.set_nodelay(true).unwrap();
    let mut before = Vec::new();
    while head(&mut stream, &mut before).await {
        asked.fetch_add(1, Ordering::SeqCst);
        for part in answer.chunks(at_once) {
            if stream.write_all(part).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        if closes {
            return;
        }
    }
}

/// Reads a request whose body, if any, is `{}`.
async fn head(stream: &mut TcpStream, before: &mut Vec<u8>) -> bool {
    before.clear();
    while !before.ends_with(b"\r\n\r\n") && !before.ends_with(b"\r\n\r\n{}") {
        if stream.read_buf(before).await.unwrap_or(0) == 0 {
            return false;
        }
    }
    if before.starts_with(b"POST") && !before.ends_with(b"{}") {
        return stream.read_exact(&mut [0; 2]).await.is_ok();
    }
    true
}

const ALL: usize = usize::MAX;

/// Answers that say `hello`, and over how many connections three of them come.
const HELLO: [(&str, usize); 14] = [
    ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", 1),
    ("HTTP/1.1 200 \r\nContent-Length:5\r\nCONTENT-LENGTH: 5 \r\nconnection: keep-alive\r\n\r\nhello", 1),
    ("HTTP/1.1 200\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 1),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n001\r\nl\r\n2;a=b\r\nlo\r\n0;c\r\nx: y\r\n\r\n",
        1,
    ),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        1,
    ),
    ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: x, Close\r\n\r\nhello", 3),
    ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 3),
    ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\nconnection: keep-alive\r\n\r\nhello", 3),
    ("HTTP/1.0 200 OK\r\n\r\nhello", 3),
    ("HTTP/1.1 200 OK\r\n\r\nhello", 3),
    ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", 3),
    ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello\r\n", 3),
    ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n", 3),
    ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello!", 3),
];

#[tokio::test]
async fn l36_an_answer_is_the_same_in_whatever_pieces_it_comes_and_only_a_clean_end_is_gone_on_from() {
    for (answer, connections) in HELLO {
        let is_open = answer.ends_with("OK\r\n\r\nhello");
        // What comes behind an answer must come with it, or it may meet the next request.
        let is_clean = answer.ends_with("hello") || answer.ends_with("\r\n\r\n");
        for at_once in [1, 2, 3, 7, ALL] {
            if !is_clean && at_once != ALL {
                continue;
            }
            let server = Server::says(answer, at_once, is_open).await;
            for asked in 1..=3 {
                let (status, body) = server.ask().await.unwrap();
                assert_eq!((status, &*body), (200, "hello"), "{answer}");
                assert_eq!(server.counted().1, asked, "{answer}");
            }
            assert_eq!(server.counted().0, connections, "{answer}, {at_once} at once");
        }
    }
}

#[tokio::test]
async fn l36_an_answer_without_a_body_ends_with_its_head() {
    for (method, answer, connections) in [
        (Method::POST, "HTTP/1.1 204 No\r\n\r\n", 1),
        (Method::POST, "HTTP/1.1 304 No\r\ncontent-length: 0\r\n\r\n", 1),
        // Whether that body comes, and when, nobody knows.
        (Method::POST, "HTTP/1.1 304 No\r\ncontent-length: 5\r\n\r\n", 3),
        (Method::POST, "HTTP/1.1 204 No\r\ntransfer-encoding: chunked\r\n\r\n", 3),
        (Method::HEAD, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", 1),
        (Method::HEAD, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", 1),
        (Method::POST, "HTTP/1.1 202 OK\r\ncontent-length: 0\r\n\r\n", 1),
        (Method::POST, "HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 3),
        (Method::HEAD, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", 3),
    ] {
        let server = Server::says(answer, ALL, false).await;
        for _ in 0..3 {
            let body = if method == Method::HEAD { "" } else { "{}" };
            assert_eq!(server.ask_with(method.clone(), body).await.unwrap().1, "", "{answer}");
        }
        assert_eq!(server.counted(), (connections, 3), "{answer}");
    }
}

#[tokio::test]
async fn r_07_an_answer_that_can_be_read_in_two_ways_is_refused_and_not_asked_for_again() {
    let asides = |count: usize| {
        format!("{}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "HTTP/1.1 102 X\r\n\r\n".repeat(count))
    };
    for (answer, why) in [
        ("content-length: 5\r\ncontent-length: 6", "two lengths"),
        ("content-length: 5\r\ntransfer-encoding: chunked", "two ways"),
        ("transfer-encoding: chunked\r\ncontent-length: 5", "two ways"),
        ("content-length: 5, 5", "no number"),
        ("content-length: +5", "no number"),
        ("content-length: 0x5", "no number"),
        ("content-length: ", "no number"),
        ("content-length: 99999999999999999999", "no number"),
        ("transfer-encoding: gzip, chunked", "nobody asked for"),
        ("transfer-encoding: identity", "nobody asked for"),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", "nobody asked for"),
        ("content-length : 5", "malformed"),
        ("x: y\r\n content-length: 5", "malformed"),
        ("x: \0", "malformed"),
        ("content-length: 5\nx: y", "ends in half"),
    ]
    .map(|(fields, why)| (format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nhello"), why))
    .into_iter()
    .chain([
        ("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".into(), "nobody asked for"),
        ("HTTP/2.0 200 OK\r\n\r\n".into(), "no HTTP"),
        ("SSH-2.0-OpenSSH\r\n\r\n".into(), "no HTTP"),
        ("\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into(), "no HTTP"),
        ("HTTP/1.1 20 OK\r\n\r\n".into(), "no HTTP"),
        ("HTTP/1.1 099 OK\r\n\r\n".into(), "status"),
        ("HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n".into(), "another protocol"),
        (asides(9), "too much"),
    ]) {
        let server = Server::says(answer.clone(), ALL, false).await;
        let error = server.ask().await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, NetError::Unreadable { .. }) && text.contains(why), "{answer}: {text}");
        assert!(text.contains("the server's answer") && !error.is_before_send(), "{text}");
        assert_eq!(server.counted(), (1, 1), "{answer}");
    }
    let server = Server::says(asides(8), ALL, false).await;
    assert_eq!(server.ask().await.unwrap().1, "ok");
}

#[tokio::test]
async fn exh_01_a_head_has_a_limit() {
    let fields = |count: usize| {
        format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{}\r\n", "x: y\r\n".repeat(count - 1))
    };
    let long =
        |length: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: {}\r\n\r\n", "y".repeat(length));
    // With the rest of it, the largest head has 65,535 bytes.
    for fine in [fields(100), long(65_491), long(65_492)] {
        for at_once in [1000, ALL] {
            let server = Server::says(fine.clone(), at_once, false).await;
            server.ask().await.unwrap();
        }
    }
    for hostile in
        [fields(101), long(65_493), long(1 << 20), "HTTP/1.1 200 ".to_owned() + &"x".repeat(70_000)]
    {
        let server = Server::says(hostile, ALL, false).await;
        let error = server.ask().await.unwrap_err();
        assert!(matches!(error, NetError::Unreadable { .. }), "{error}");
    }
}

#[tokio::test]
async fn exh_01_chunks_are_plain_and_what_stands_beside_them_has_a_limit() {
    let trailer = |length: usize| format!("5\r\nhello\r\n0\r\n{}\r\n", "x: yyyy\r\n".repeat(length / 9));
    for (chunks, fine) in [
        ("5\r\nhello\r\n0\r\n\r\n".to_owned(), true),
        ("00000005 \r\nhello\r\n0\r\n\r\n".into(), true),
        (trailer(1000), true),
        (trailer(60_000), false),
        (format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(1019)), true),
        (format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(1020)), true),
        (format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(1021)), false),
        ("5\r\nhello\r\n0\r\nGET /x HTTP/1.1\r\nhost: h\r\n\r\n".into(), false),
        ("5\r\nhello\r\n0\r\n: empty\r\n\r\n".into(), false),
        ("1;xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\nx\r\n".repeat(2000), false),
        ("000000005\r\nhello\r\n0\r\n\r\n".into(), false),
        ("fffffffff\r\nhello".into(), false),
        ("-5\r\nhello\r\n0\r\n\r\n".into(), false),
        ("0x5\r\nhello\r\n0\r\n\r\n".into(), false),
        ("\r\n5\r\nhello\r\n0\r\n\r\n".into(), false),
        ("5\nhello\r\n0\r\n\r\n".into(), false),
        ("5\r\r\nhello\r\n0\r\n\r\n".into(), false),
        ("5\r\nhelloo\r\n0\r\n\r\n".into(), false),
        ("5\r\nhello0\r\n\r\n".into(), false),
        ("x\r\nhello\r\n0\r\n\r\n".into(), false),
    ] {
        for at_once in [100, ALL] {
            let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
            let server = Server::says(answer, at_once, false).await;
            let shown = &chunks[..chunks.len().min(60)];
            match server.ask().await {
                Ok(answer) => assert!(fine && answer.1 == "hello", "{shown}"),
                Err(error) => {
                    assert!(!fine && error.to_string().contains("the server's answer"), "{shown}: {error}");
                    assert!(!error.is_before_send());
                }
            }
            assert_eq!(server.counted(), (1, 1));
        }
    }
}

#[tokio::test]
async fn r_07_an_answer_that_ends_too_soon_is_no_answer() {
    for answer in [
        "",
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nhello",
    ] {
        let server = Server::says(answer, ALL, true).await;
        let error = server.ask().await.unwrap_err();
        assert!(matches!(error, NetError::Broken { .. }) && !error.is_before_send(), "{answer}: {error}");
        assert_eq!(server.counted(), (1, 1), "{answer}");
    }
}

#[tokio::test]
async fn l36_what_is_said_to_a_connection_at_rest_is_not_the_next_answer() {
    let (server, listener) = Server::listening().await;
    let (answered, said) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (a, s) = (answered.clone(), said.clone());
    tokio::spawn(async move {
        let mut held = Vec::new();
        for body in ["one", "two"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(head(&mut stream, &mut Vec::new()).await);
            let answer =
                |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer(body).as_bytes()).await.unwrap();
            a.notified().await;
            stream.write_all(answer("evil").as_bytes()).await.unwrap();
            s.notify_one();
            held.push(stream);
        }
    });
    for body in ["one", "two"] {
        assert_eq!(server.ask().await.unwrap().1, body);
        answered.notify_one();
        // The runtime need not have heard of it.
        said.notified().await;
    }
}

#[tokio::test]
async fn l36_an_answer_that_comes_before_the_request_has_left_is_read() {
    for reads_on in [false, true] {
        let (server, listener) = Server::listening().await;
        let connections = server.connections.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut begin = vec![0; 1000];
                    while let Ok(read @ 1..) = stream.read(&mut begin).await {
                        let text = String::from_utf8_lossy(&begin[..read]).into_owned();
                        let end = text.find("\r\n\r\n").unwrap() + 4;
                        stream.write_all(b"HTTP/1.1 413 X\r\ncontent-length: 5\r\n\r\n").await.unwrap();
                        if reads_on {
                            let mut rest = vec![0; LARGE - (read - end)];
                            stream.read_exact(&mut rest).await.unwrap();
                            assert!(rest.iter().all(|byte| *byte == b'x'));
                        }
                        stream.write_all(b"hello").await.unwrap();
                        if !reads_on {
                            return std::future::pending().await;
                        }
                    }
                });
            }
        });
        for _ in 0..3 {
            let answer = server.ask_with(Method::POST, vec![b'x'; LARGE]).await.unwrap();
            assert_eq!(answer, (413, "hello".into()));
        }
        let expected = if reads_on { 1 } else { 3 };
        assert_eq!(server.connections.load(Ordering::SeqCst), expected, "{reads_on}");
    }
}

#[tokio::test]
async fn l36_large_answers_are_whole_however_they_are_told() {
    let body: String = (0..300_000).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    let mut chunks = String::new();
    for part in body.as_bytes().chunks(40_000) {
        chunks += &format!("{:X}\r\n{}\r\n", part.len(), std::str::from_utf8(part).unwrap());
    }
    for (answer, closes) in [
        (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()), false),
        (format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"), false),
        (format!("HTTP/1.1 200 OK\r\n\r\n{body}"), true),
    ] {
        for at_once in [9973, ALL] {
            let server = Server::says(answer.clone(), at_once, closes).await;
            for _ in 0..2 {
                assert!(server.ask().await.unwrap().1 == body);
            }
            assert_eq!(server.counted(), if closes { (2, 2) } else { (1, 2) });
        }
    }
}
