//! Callers that mean no good, or are merely broken, each beside an honest one.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wharf::Host;
use wharf::config::CallLimits;
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, modern_body, open, open_with};
use crate::support::{at, count, folder, host, puppet, received, soon, until};

async fn connect(door: &Door) -> TcpStream {
    #[expect(clippy::disallowed_methods, reason = "a caller in a test")]
    TcpStream::connect(door.at).await.unwrap()
}

/// Sends bytes as they are, and reads what comes back until the other end closes.
async fn raw(door: &Door, bytes: &[u8]) -> String {
    let mut stream = connect(door).await;
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is reset has said all it will.
    let _ = soon("the connection closes", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The head of a request of the modern era, without what says how long its body is.
fn head(door: &Door, more: &str) -> String {
    let name = door.name();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {name}\r\ncontent-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\nconnection: close\r\n{more}\r\n"
    )
}

async fn logged(script: Puppet) -> (Door, tempfile::TempDir) {
    let files = folder();
    let log = at(&files, "log");
    (open(host([puppet("pup", &script.log(&log))]).await).await, files)
}

#[tokio::test]
async fn gwy_08_equal_ids_of_two_callers_never_cross() {
    const ROUNDS: usize = 1000;
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    let keys = [key("ann"), key("bob")];
    let script = Puppet::of(Era::Modern).on("tool:echo", [Step::Echo]);
    let host = host([puppet("pup", &script)]).await;
    let door = Arc::new(open_with(host, |b| b.callers(Callers::default().keys(keys))).await);
    let ask = |caller: &'static str, round: usize| {
        let door = Arc::clone(&door);
        async move {
            let message = format!("{caller} {round}");
            let params = json!({"name": "pup_echo", "arguments": {"message": message}});
            let bearer = format!("Bearer {caller}");
            let answer = door.modern_with("tools/call", params, &[("authorization", &bearer)]).await.json();
            assert_eq!(answer["id"], 7, "{answer}");
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
            let echoed: Value = serde_json::from_str(text).unwrap();
            assert_eq!(echoed["message"], message);
        }
    };
    for rounds in (0..ROUNDS).collect::<Vec<_>>().chunks(50) {
        let calls = rounds.iter().flat_map(|round| ["ann", "bob"].map(|caller| ask(caller, *round)));
        futures_util::future::join_all(calls).await;
    }
    door.host.close().await;
}

#[tokio::test]
async fn gwy_11_what_is_too_large_or_packed_is_refused_before_it_is_read() {
    let (door, files) = logged(Puppet::of(Era::Modern)).await;
    let body = modern_body("tools/list", json!({})).to_string();
    let announced = raw(&door, head(&door, "content-length: 9437184\r\n").as_bytes()).await;
    assert!(announced.starts_with("HTTP/1.1 413"), "{announced}");
    // A body without an end: chunk after chunk, more than it may be.
    let mut endless = head(&door, "transfer-encoding: chunked\r\n").into_bytes();
    for _ in 0..80 {
        endless.extend_from_slice(b"10000\r\n");
        endless.extend(std::iter::repeat_n(b' ', 0x10000));
        endless.extend_from_slice(b"\r\n");
    }
    let mut stream = connect(&door).await;
    let (mut reads, mut writes) = stream.split();
    let mut answer = vec![0; 12];
    // It need not be taken to the end; what counts is the answer.
    let (_, read) =
        tokio::join!(writes.write_all(&endless), soon("an answer", reads.read_exact(&mut answer)));
    read.unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    let head_too_long = format!("x-long: {}\r\ncontent-length: 0\r\n", "y".repeat(64 * 1024));
    let long = raw(&door, head(&door, &head_too_long).as_bytes()).await;
    assert!(long.starts_with("HTTP/1.1 431"), "{}", &long[..long.len().min(80)]);
    let packed = format!("content-encoding: gzip\r\ncontent-length: {}\r\n", body.len());
    let packed = raw(&door, (head(&door, &packed) + &body).as_bytes()).await;
    assert!(packed.starts_with("HTTP/1.1 415"), "{packed}");
    assert!(received(&at(&files, "log")).is_empty(), "the server was never contacted");

    let twin = format!("content-length: {}\r\n", body.len());
    let twin = raw(&door, (head(&door, &twin) + &body).as_bytes()).await;
    assert!(twin.starts_with("HTTP/1.1 200") && twin.contains("pup_echo"), "{twin}");
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let chunked = raw(&door, (head(&door, "transfer-encoding: chunked\r\n") + &chunked).as_bytes()).await;
    assert!(chunked.starts_with("HTTP/1.1 200"), "{chunked}");
    door.host.close().await;
}

#[tokio::test(start_paused = true)]
async fn gwy_11_whoever_is_too_slow_or_silent_is_not_waited_for() {
    let door = open(Host::builder().start().await.unwrap()).await;
    // No head, half a head, and a body that does not come: each is given up.
    assert_eq!(raw(&door, b"").await, "");
    let half = raw(&door, b"POST /mcp HTTP/1.1\r\nhost: 127").await;
    assert!(half.is_empty() || half.starts_with("HTTP/1.1 408"), "{half}");
    let late = raw(&door, (head(&door, "content-length: 10\r\n") + "{").as_bytes()).await;
    assert!(late.starts_with("HTTP/1.1 408"), "{late}");
    let idle = raw(&door, format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", door.name()).as_bytes()).await;
    assert!(idle.starts_with("HTTP/1.1 200"), "answered, and closed when nothing more comes: {idle}");
}

#[tokio::test(start_paused = true)]
async fn gwy_11_whoever_does_not_read_is_not_waited_for() {
    let door = open_with(Host::builder().start().await.unwrap(), |b| b.connections(1)).await;
    let asks = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", door.name()).repeat(1000);
    let mut deaf = connect(&door).await;
    // It asks and asks, and reads nothing: no more goes to it than what the system keeps, and then it is given up.
    let gone = async { while deaf.write_all(asks.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(600), gone).await.expect("the connection is closed");
    // Its place is free again, and whoever reads is answered as often as it asks, in the time that sockets need.
    tokio::time::resume();
    let mut twin = connect(&door).await;
    twin.write_all(asks.as_bytes()).await.unwrap();
    let mut answers = vec![0; 1000 * "HTTP/1.1 200 OK".len()];
    soon("a thousand answers", twin.read_exact(&mut answers)).await.unwrap();
}

#[tokio::test]
async fn gwy_11_connections_have_a_bound_and_the_next_one_waits_its_turn() {
    let door = open_with(Host::builder().start().await.unwrap(), |b| b.connections(4)).await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(connect(&door).await);
    }
    let name = door.name();
    let headers = [("host", name.as_str())];
    let mut waiting = Box::pin(door.send(Method::GET, "/healthz", &headers, ""));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "there is no room");
    idle.pop();
    assert_eq!(soon("its turn", waiting).await.status, StatusCode::OK);
}

#[tokio::test]
async fn gwy_12_requests_that_can_be_read_in_two_ways_are_refused() {
    let (door, files) = logged(Puppet::of(Era::Modern)).await;
    let body = modern_body("tools/list", json!({})).to_string();
    let (length, chunk) = (body.len(), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
    let inner = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n\r\n", door.name());
    let bad = [
        (
            "two lengths",
            format!("content-length: {length}\r\ncontent-length: {}\r\n", length + 1),
            body.clone(),
        ),
        ("a length that is none", "content-length: +5\r\n".into(), body.clone()),
        ("a list of lengths", format!("content-length: {length}, 0\r\n"), body.clone()),
        ("chunked, not last", "transfer-encoding: chunked, identity\r\n".into(), chunk.clone()),
        ("an encoding nobody knows", "transfer-encoding: xchunked\r\n".into(), chunk.clone()),
        ("a folded header", format!("x-a: b\r\n c: d\r\ncontent-length: {length}\r\n"), body.clone()),
        ("a blank before the colon", format!("content-length : {length}\r\n"), body.clone()),
        ("a bare CR", format!("x-a: b\rc: d\r\ncontent-length: {length}\r\n"), body.clone()),
        ("a bare LF", format!("x-a: b\nc: d\r\ncontent-length: {length}\r\n"), body.clone()),
        ("a bare LF at the end", format!("content-length: {length}\r\nx-a: b\n"), body.clone()),
        ("a NUL", format!("x-a: \0\r\ncontent-length: {length}\r\n"), body.clone()),
        ("a chunk of no size", "transfer-encoding: chunked\r\n".into(), format!("zz\r\n{body}\r\n0\r\n\r\n")),
    ];
    // They would go on with the same connection.
    let going_on = |more: &str| head(&door, more).replace("connection: close\r\n", "");
    for (what, headers, body) in &bad {
        let answer = raw(&door, format!("{}{body}{inner}", going_on(headers)).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "what follows is no request: {what}: {answer}");
    }
    // Both at once: the chunks count and the connection ends, so what was hidden behind is never a request.
    let both = "content-length: 4\r\ntransfer-encoding: chunked\r\n".to_owned();
    let answer = raw(&door, format!("{}{chunk}{inner}", going_on(&both)).as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    assert_eq!(count(&received(&at(&files, "log")), "tools/call"), 0);
    let twin = raw(&door, (head(&door, &format!("content-length: {length}\r\n")) + &body).as_bytes()).await;
    assert!(twin.starts_with("HTTP/1.1 200"), "{twin}");
    let good = format!("content-length: {length}\r\n");
    let two = format!("{}{body}{}{body}", going_on(&good), head(&door, &good));
    let twin = raw(&door, two.as_bytes()).await;
    assert_eq!(twin.matches("HTTP/1.1 200").count(), 2, "honest ones go on: {twin}");
    door.host.close().await;
}

#[tokio::test]
async fn gwy_13_a_caller_that_leaves_ends_its_call_and_frees_its_place() {
    let files = folder();
    let log = at(&files, "log");
    let script =
        Puppet::of(Era::Modern).on("tool:echo", [Step::Turns(vec![vec![Step::Hang], vec![Step::Honest]])]);
    let host = host([puppet("pup", &script.log(&log))]).await;
    host.tools().await;
    // One call at a time, and nobody may wait for long in line.
    let limits = CallLimits { calls_per_server: 1, waiting: 1, ..CallLimits::default() };
    let door = open_with(host, |b| b.limits(limits)).await;
    let params = json!({"name": "pup_echo", "arguments": {}});
    {
        let mut leaving = Box::pin(door.modern("tools/call", params.clone()));
        let gone =
            async { until("the call is under way", || count(&received(&log), "tools/call") == 1).await };
        tokio::select! {
            answer = &mut leaving => panic!("{answer:?}"),
            () = gone => {}
        }
    }
    until("the server hears of it", || count(&received(&log), "notifications/cancelled") == 1).await;
    let next = soon("the next call", door.modern("tools/call", params)).await;
    assert_eq!(next.status, StatusCode::OK, "{next:?}");
    assert!(next.json()["result"]["content"].is_array(), "{next:?}");
    door.host.close().await;
}

#[tokio::test]
async fn gwy_14_no_spelling_of_a_path_goes_around_the_keys() {
    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash("right"));
    let files = folder();
    let log = at(&files, "log");
    let host = host([puppet("pup", &Puppet::of(Era::Modern).log(&log))]).await;
    let door = open_with(host, |b| b.callers(Callers::default().keys([key]))).await;
    let name = door.name();
    let body = modern_body("tools/list", json!({})).to_string();
    let odd = [
        "/mcp/",
        "//mcp",
        "/MCP",
        "/mcp/../mcp",
        "/./mcp",
        "/%6dcp",
        "/mcp%2f",
        "/healthz/../mcp",
        "/mcp;a",
        "/healthz/mcp",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/../../mcp",
    ];
    for path in odd {
        let headers = [
            ("host", name.as_str()),
            ("content-type", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/list"),
        ];
        let answer = door.send(Method::POST, path, &headers, body.clone()).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
    let absolute = format!("http://{name}/mcp");
    let answer = door.send(Method::POST, &absolute, &[("host", name.as_str())], body).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(received(&log).is_empty(), "the server was never contacted");
    let right = door.modern_with("tools/list", json!({}), &[("authorization", "Bearer right")]).await;
    assert_eq!(right.status, StatusCode::OK);
    door.host.close().await;
}

#[tokio::test]
async fn gwy_10_what_a_server_lets_everybody_keep_for_ten_years_is_one_callers_for_an_hour() {
    const TEN_YEARS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;
    for (scope, ttl, wanted) in [("public", TEN_YEARS, 60 * 60 * 1000), ("private", 1500, 1500)] {
        let kept = |mut result: Value| {
            result["ttlMs"] = json!(ttl);
            result["cacheScope"] = json!(scope);
            [Step::Reply(result)]
        };
        let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
        let script = Puppet::of(Era::Modern)
            .with(|s| s.capabilities = Some(json!({"tools": {}, "resources": {}})))
            .on("tools/list", kept(json!({"tools": [tool]})))
            .on("resources/list", kept(json!({"resources": [{"uri": "x://a", "name": "a"}]})))
            .on("resources/templates/list", kept(json!({"resourceTemplates": []})))
            .on("resources/read", kept(json!({"contents": [{"uri": "x://a", "text": "t"}]})));
        let door = open(host([puppet("pup", &script)]).await).await;
        for (method, params) in [
            ("tools/list", json!({})),
            ("resources/list", json!({})),
            ("resources/read", json!({"uri": "x://a"})),
        ] {
            let result = door.modern(method, params).await.json()["result"].clone();
            assert_eq!(result["cacheScope"], "private", "{method}: {result}");
            let kept = result["ttlMs"].as_u64().unwrap_or_else(|| panic!("{method}: {result}"));
            // A list is our own, of all servers together.
            let most = if method == "resources/read" { wanted } else { wanted.min(5_000) };
            assert_eq!(kept, most, "{method}: {result}");
        }
        door.host.close().await;
    }
}
