//! The very moment of a stop: what was begun before it is under way, and nothing is begun after it, however a request came
//! in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use wharf::gateway::Gateway;
use wharf::{Host, LocalTool};

use super::pipe::Caller;
use super::{Door, modern_body, open};
use crate::support::soon;

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A host with a tool that counts how often it was run.
struct Counting {
    host: Host,
    ran: Arc<AtomicUsize>,
}

/// A connection over HTTP, written to and read by hand.
struct Raw(TcpStream);

impl Counting {
    async fn start() -> Self {
        let host = Host::builder().start().await.unwrap();
        let ran = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&ran);
        host.register(LocalTool::new("count", "Counts", move |_: Nothing, _| {
            counter.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, String>("counted") }
        }))
        .unwrap();
        Self { host, ran }
    }

    fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }
}

impl Raw {
    /// A connection on which something was answered already.
    async fn open(door: &Door) -> Self {
        Self::behind(door, "").await
    }

    /// The same, which has begun to say something more.
    async fn behind(door: &Door, begun: &str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a caller in a test")]
        let mut raw = Self(TcpStream::connect(door.at).await.unwrap());
        raw.say(&format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n{begun}", door.name()));
        raw.until("ok\n").await;
        raw
    }

    /// Writes at once: nobody else does anything meanwhile.
    fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).now_or_never().expect("there is room").unwrap();
    }

    async fn until(&mut self, end: &str) {
        let mut heard = Vec::new();
        while !heard.ends_with(end.as_bytes()) {
            assert!(soon("an answer", self.0.read_buf(&mut heard)).await.unwrap() > 0, "{heard:?}");
        }
    }

    /// What is said until the connection is closed.
    async fn rest(&mut self) -> String {
        let mut heard = Vec::new();
        soon("the end", self.0.read_to_end(&mut heard)).await.unwrap();
        String::from_utf8(heard).unwrap()
    }
}

fn call(id: impl Into<Value>) -> Value {
    let mut body = modern_body("tools/call", json!({"name": "count", "arguments": {}}));
    body["id"] = id.into();
    body
}

fn old_call() -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "count", "arguments": {}}})
}

/// A head, without the empty line behind it.
fn head(door: &Door, line: &str, more: &[(&str, &str)]) -> String {
    let mut head = format!(
        "{line} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n",
        door.name()
    );
    for (name, value) in more {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head
}

const MODERN: [(&str, &str); 3] =
    [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "count")];

/// A call as a whole.
fn whole(door: &Door) -> String {
    let body = call(7).to_string();
    format!("{}content-length: {}\r\n\r\n{body}", head(door, "POST /mcp", &MODERN), body.len())
}

fn is_refused(answer: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("retry-after: 1"), "{answer}");
    let told: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
    assert!(told["id"] == 7 && is_unavailable(&told), "{told}");
}

fn is_unavailable(told: &Value) -> bool {
    let data = &told["error"]["data"];
    data["kind"] == "unavailable" && data["retryable"] == true && data["mayHaveRun"] == false
}

/// Waits until the gateway says that it stops.
async fn stopping(door: &Door) {
    let name = door.name();
    while door.send(Method::GET, "/readyz", &[("host", &name)], "").await.status == StatusCode::OK {}
}

#[tokio::test]
async fn p6_a_request_whose_body_comes_after_the_stop_began_is_not_begun() {
    for stops in [false, true] {
        let counting = Counting::start().await;
        let mut door = open(counting.host.clone()).await;
        let session = door.greet().await;
        let mut oldest = door.stream(Method::GET, "/sse", &[("accept", "text/event-stream")], "").await;
        let post_to = format!("POST {}", oldest.event().await.unwrap().data);
        let old = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
        let requests =
            [("POST /mcp", &MODERN[..], call(7)), ("POST /mcp", &old, old_call()), (&post_to, &[], call(7))];
        let mut under_way = Vec::new();
        for (line, more, body) in requests {
            let mut raw = Raw::open(&door).await;
            let (head, length) = (head(&door, line, more), body.to_string().len());
            raw.say(&format!(
                "{head}connection: close\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
            ));
            // Its caller was let in, and all that is waited for is what it wants.
            raw.until("HTTP/1.1 100 Continue\r\n\r\n").await;
            under_way.push((raw, body));
        }
        if stops {
            door.stop();
            stopping(&door).await;
        }
        for (mut raw, body) in under_way {
            raw.say(&body.to_string());
            match raw.rest().await {
                answer if stops => is_refused(&answer),
                answer if answer.starts_with("HTTP/1.1 202") => {
                    assert_eq!(oldest.message().await.1["result"]["content"][0]["text"], "counted");
                }
                answer => assert!(answer.contains("counted"), "{answer}"),
            }
        }
        assert_eq!(counting.ran(), if stops { 0 } else { 3 });
        counting.host.close().await;
    }
}

#[tokio::test]
async fn p6_a_request_that_has_arrived_when_the_stop_begins_and_was_not_read_is_told_so() {
    let counting = Counting::start().await;
    let mut door = open(counting.host.clone()).await;
    let request = whole(&door);
    let (first, rest) = request.split_at(40);
    let (mut asks, mut idle) = (Raw::open(&door).await, Raw::open(&door).await);
    let (mut begun, mut half) = (Raw::behind(&door, first).await, Raw::behind(&door, first).await);
    let (mut socket, mut stream) = (Raw::open(&door).await, Raw::open(&door).await);
    // All in one go, so that nobody reads before the stop has begun.
    door.stop();
    asks.say(&request);
    begun.say(rest);
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    socket.say(&format!("{}\r\n", head(&door, "GET /mcp", &upgrade)));
    stream.say(&format!("{}\r\n", head(&door, "GET /sse", &[])));
    is_refused(&asks.rest().await);
    is_refused(&begun.rest().await);
    for raw in [&mut socket, &mut stream] {
        let answer = raw.rest().await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1"), "{answer}");
    }
    assert_eq!(idle.rest().await, "", "who asks nothing is let go");
    assert!(half.rest().await.starts_with("HTTP/1.1 408 "), "and who asks half is not waited for");
    assert_eq!(counting.ran(), 0);
    counting.host.close().await;
}

/// Says these lines over a pipe, and hears what is answered to its end.
async fn over_a_pipe(host: &Host, lines: &str, stop: impl Future<Output = ()>) -> Vec<Value> {
    let gateway = Gateway::builder(host.clone()).build().unwrap();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let hearing = async {
        let (mut answers, mut lines) = (Vec::new(), BufReader::new(near).lines());
        while let Some(line) = lines.next_line().await.unwrap() {
            answers.push(serde_json::from_str(&line).unwrap());
        }
        answers
    };
    let serving = gateway.serve_stdio(lines.as_bytes(), far, stop);
    let (served, answers) = soon("the end", async { tokio::join!(serving, hearing) }).await;
    served.unwrap();
    answers
}

#[tokio::test]
async fn p6_what_is_read_from_a_pipe_after_the_stop_began_is_not_begun() {
    let counting = Counting::start().await;
    let line = format!("{}\n", call(7));
    let told = over_a_pipe(&counting.host, &line, std::future::ready(())).await;
    assert!(matches!(&told[..], [told] if told["id"] == 7 && is_unavailable(told)), "{told:?}");
    assert_eq!(counting.ran(), 0);
    // The twin.
    let answers = over_a_pipe(&counting.host, &line, std::future::pending()).await;
    assert_eq!(answers[0]["result"]["content"][0]["text"], "counted", "{answers:?}");
    assert_eq!(counting.ran(), 1);
    // However much there is to read, the stop is heard in the middle of it.
    let many: String = (0..1000).map(|id| format!("{}\n", call(id))).collect();
    let answers = over_a_pipe(&counting.host, &many, tokio::task::yield_now()).await;
    let refused = answers.iter().filter(|answer| is_unavailable(answer)).count();
    let done = answers.iter().filter(|answer| answer["result"].is_object()).count();
    assert_eq!((done + 1, refused + done), (counting.ran(), 1000));
    assert!(done > 0 && refused > 800, "{done} done, {refused} refused");
    counting.host.close().await;
}

#[tokio::test(start_paused = true)]
async fn p6_a_request_that_waits_for_its_caller_to_read_is_not_begun_after_the_stop() {
    let counting = Counting::start().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let gateway = Gateway::builder(counting.host.clone()).build().unwrap();
    let mut caller = Caller::at(gateway, async { drop(stopped.await) });
    let asking = async {
        for number in 0..5000 {
            caller.say(call(format!("{number:01000}"))).await;
        }
    };
    // Time goes on only when nobody can do anything more: the gateway holds a call, and waits until its caller reads.
    let idle = || tokio::time::sleep(Duration::from_secs(1));
    tokio::select! {
        () = asking => panic!("it takes more than its caller does"),
        () = idle() => {}
    }
    let ran = counting.ran();
    assert!(ran > 0);
    drop(stop);
    idle().await;
    let (mut done, mut refused) = (0, 0);
    while let Some(answer) = caller.last().await {
        match &answer["result"] {
            Value::Null if is_unavailable(&answer) => refused += 1,
            Value::Object(_) => done += 1,
            _ => panic!("{answer}"),
        }
    }
    assert_eq!((counting.ran(), done), (ran, ran), "what was begun has ended, and nothing else was");
    assert!(refused > 0, "the one that waited is told so");
}
