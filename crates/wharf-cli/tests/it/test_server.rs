//! `wharf test-server`, driven by raw bytes over each of its transports, and by rmcp.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests are the client: they start the server and connect to it"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use wharf_testkit::rmcp_client::{RmcpClient, Wire, list_and_call};

const WHARF: &str = env!("CARGO_BIN_EXE_wharf");
const TOOLS: [&str; 8] = ["echo", "get_time", "add", "sleep", "blob", "fail", "note", "ask"];
const BOTH: &str = "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";

/// The server on standard input and output.
struct Piped {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// The server over HTTP.
struct Listening {
    child: Child,
    port: u16,
}

/// An answer over HTTP, its head in lower case.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn initialize(version: &str) -> Value {
    let client = json!({"name": "test", "version": "1"});
    request(0, "initialize", &json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client}))
}

fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    request(id, "tools/call", &json!({"name": tool, "arguments": arguments}))
}

fn modern_call(id: u64, tool: &str, arguments: &Value) -> Value {
    request(id, "tools/call", &json!({"name": tool, "arguments": arguments, "_meta": meta()}))
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"))
}

impl Piped {
    fn start() -> Self {
        let mut child = Command::new(WHARF)
            .arg("test-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.send(&message.to_string());
        self.next()
    }

    /// Ends the input; gives what else the server said and its status.
    fn end(mut self) -> (String, Option<i32>) {
        self.input = None;
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

impl Listening {
    fn start() -> Self {
        let mut child = Command::new(WHARF)
            .args(["test-server", "--http", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let (_, rest) =
            line.split_once("http://127.0.0.1:").unwrap_or_else(|| panic!("no address in {line}"));
        let port = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
        Self { child, port }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // A server that says nothing fails the test instead of stopping it.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn open(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\nContent-Length: {length}\r\n");
        stream.write_all(format!("{head}{headers}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut answer = String::new();
        self.open(method, path, headers, body).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn post(&self, headers: &str, body: &Value) -> Answer {
        self.send("POST", "/mcp", &format!("{BOTH}{headers}"), &body.to_string())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    fn code(&self) -> (u16, i64) {
        (self.status, self.json()["error"]["code"].as_i64().unwrap_or_default())
    }

    fn session(&self) -> String {
        let (_, rest) = self.head.split_once("mcp-session-id: ").expect("a session id");
        rest.split("\r\n").next().unwrap().to_owned()
    }
}

/// Every tool, asked in one era; `make` writes a call in it.
fn check_tools(server: &mut Piped, make: impl Fn(u64, &str, &Value) -> Value) {
    let echo = server.ask(&make(1, "echo", &json!({"message": "täst\n"})));
    assert_eq!((text(&echo), &echo["id"]), ("täst\n", &json!(1)));
    let sum = server.ask(&make(2, "add", &json!({"a": 2, "b": 3})));
    assert_eq!((text(&sum), &sum["result"]["structuredContent"]), ("5", &json!({"sum": 5})));
    let sum = server.ask(&make(2, "add", &json!({"a": 0.5, "b": 9_007_199_254_740_993_u64})));
    assert_eq!(text(&sum), "9007199254740992.0");
    let large = server.ask(&make(2, "add", &json!({"a": 1, "b": 9_007_199_254_740_993_u64})));
    assert_eq!(text(&large), "9007199254740994", "whole numbers are added as whole numbers");
    let time = server.ask(&make(3, "get_time", &json!({})));
    let time = text(&time);
    assert!(time.len() == 25 && time.as_bytes()[10] == b'T' && time.ends_with("+00:00"), "{time}");
    let elsewhere = server.ask(&make(3, "get_time", &json!({"timezone": "Nowhere/Land"})));
    assert_eq!(elsewhere["result"]["isError"], true);
    let slept = server.ask(&make(4, "sleep", &json!({"ms": 1})));
    assert_eq!(text(&slept), "Slept 1 ms.");
    let blob = server.ask(&make(5, "blob", &json!({"bytes": 100_000})));
    assert_eq!(text(&blob).len(), 100_000);
    let image = server.ask(&make(5, "blob", &json!({"bytes": 9, "kind": "image"})));
    assert_eq!(
        image["result"]["content"][0],
        json!({"type": "image", "data": "iVBORw0KGgoA", "mimeType": "image/png"})
    );
    let failed = server.ask(&make(6, "fail", &json!({"message": "no luck"})));
    assert_eq!((text(&failed), &failed["result"]["isError"]), ("no luck", &json!(true)));
    let wrong = server.ask(&make(7, "add", &json!({"a": 2})));
    assert_eq!(text(&wrong), "The arguments of `add` are wrong: missing field `b`.");
    assert_eq!(wrong["result"]["isError"], true);
    assert_eq!(server.ask(&make(8, "nope", &json!({})))["error"]["code"], -32602);
}

fn names(list: &Value) -> Vec<&str> {
    list["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect()
}

#[test]
fn l102_stdio_in_the_legacy_era() {
    let mut server = Piped::start();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        assert_eq!(server.ask(&initialize(version))["result"]["protocolVersion"], version);
    }
    for version in ["2026-07-28", "1999-01-01"] {
        assert_eq!(server.ask(&initialize(version))["result"]["protocolVersion"], "2025-11-25");
    }
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(server.ask(&request(1, "ping", &json!({}))), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    let list = server.ask(&json!({"jsonrpc": "2.0", "id": "list", "method": "tools/list"}));
    assert_eq!((names(&list), &list["id"]), (TOOLS.to_vec(), &json!("list")));
    assert_eq!(list["result"].get("resultType"), None);
    check_tools(&mut server, call);
    assert_eq!(server.ask(&request(9, "server/think", &json!({})))["error"]["code"], -32601);
    assert_eq!(server.end(), (String::new(), Some(0)));
}

#[test]
fn l102_stdio_in_the_modern_era() {
    let mut server = Piped::start();
    let found = server.ask(&request(1, "server/discover", &json!({"_meta": meta()})));
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    for answer in [&found, &server.ask(&request(2, "tools/list", &json!({"_meta": meta()})))] {
        assert_eq!(answer["result"]["resultType"], "complete");
        assert!(answer["result"]["ttlMs"].is_u64() && answer["result"]["cacheScope"] == "public");
        let info = &answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(info["name"], "wharf-test-server");
    }
    check_tools(&mut server, modern_call);
    for gone in ["initialize", "ping", "logging/setLevel"] {
        assert_eq!(server.ask(&request(3, gone, &json!({"_meta": meta()})))["error"]["code"], -32601);
    }
    let other = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}});
    let refused = server.ask(&request(4, "tools/list", &other));
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "2099-01-01"}));
    let bare = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    assert_eq!(server.ask(&request(5, "tools/list", &bare))["error"]["code"], -32602);
    assert_eq!(server.end(), (String::new(), Some(0)));
}

#[test]
fn l102_a_long_call_blocks_nothing_and_can_be_cancelled() {
    let mut server = Piped::start();
    server.send(&call(1, "sleep", &json!({"ms": 600_000})).to_string());
    assert_eq!(server.ask(&call(2, "echo", &json!({"message": "now"})))["id"], 2);
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(server.ask(&request(3, "ping", &json!({})))["id"], 3);
    // The second sleep is still on when the input ends: that ends it too.
    server.send(&call(4, "sleep", &json!({"ms": 600_000})).to_string());
    assert_eq!(server.end(), (String::new(), Some(0)));
}

#[test]
fn l102_progress_is_reported_to_those_who_want_it() {
    let mut server = Piped::start();
    let params = json!({"name": "sleep", "arguments": {"ms": 20}, "_meta": {"progressToken": "p"}});
    server.send(&request(1, "tools/call", &params).to_string());
    for done in (2..=20).step_by(2) {
        let expected = json!({"progressToken": "p", "progress": done, "total": 20});
        let told = server.next();
        assert_eq!((&told["method"], &told["params"]), (&json!("notifications/progress"), &expected));
    }
    assert_eq!(text(&server.next()), "Slept 20 ms.");
    assert_eq!(text(&server.ask(&call(2, "sleep", &json!({"ms": 20})))), "Slept 20 ms.");
    assert_eq!(server.end(), (String::new(), Some(0)));
}

#[test]
fn l102_frames_that_are_wrong_are_refused_and_the_next_is_served() {
    let mut server = Piped::start();
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#;
    for (line, code) in [("not json", -32700), (r#"{"jsonrpc":"1.0","id":1}"#, -32600), (batch, -32600)] {
        server.send(line);
        let refused = server.next();
        assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(code), &Value::Null), "{line}");
    }
    assert_eq!(server.ask(&request(2, "ping", &json!({})))["id"], 2);
    // The one revision that has batches.
    server.ask(&initialize("2025-03-26"));
    server.send(batch);
    assert_eq!(server.next()["id"], 1);
    // No line break at the end.
    write!(server.input.as_mut().unwrap(), "{}", request(3, "ping", &json!({}))).unwrap();
    assert_eq!(server.end(), ("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}\n".to_owned(), Some(0)));
}

#[test]
fn l102_http_in_the_modern_era() {
    let server = Listening::start();
    let version = "MCP-Protocol-Version: 2026-07-28\r\n";
    let named =
        |method: &str, name: &str| format!("{version}mcp-METHOD:   {method}  \r\nMcp-Name: {name}\r\n");
    let discover = request(1, "server/discover", &json!({"_meta": meta()}));
    let found = server.post(&format!("{version}Mcp-Method: server/discover\r\n"), &discover);
    assert_eq!((found.status, &found.json()["result"]["resultType"]), (200, &json!("complete")));
    assert!(!found.head.contains("mcp-session-id"), "the modern era has no sessions");

    let echo = modern_call(2, "echo", &json!({"message": "hi"}));
    for name in ["echo", "=?base64?ZWNobw==?="] {
        let answer = server.post(&named("tools/call", name), &echo);
        assert_eq!((answer.status, text(&answer.json())), (200, "hi"));
    }
    for headers in [
        String::new(),
        version.to_owned(),
        format!("{version}Mcp-Method: tools/call\r\n"),
        named("tools/list", "echo"),
        named("tools/call", "ECHO"),
        named("tools/call", "=?base64?ZWNobw?="),
        named("tools/call", "=?base64?ZWNo?="),
        named("tools/call", "echo").replace("2026-07-28", "2025-11-25"),
    ] {
        assert_eq!(server.post(&headers, &echo).code(), (400, -32020), "{headers}");
    }
    let bare = request(3, "tools/list", &json!({}));
    assert_eq!(server.post(&named("tools/list", "-"), &bare).code(), (400, -32602));
    let mut newer = discover.clone();
    newer["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    let headers = "MCP-Protocol-Version: 2099-01-01\r\nMcp-Method: server/discover\r\n";
    assert_eq!(server.post(headers, &newer).code(), (400, -32022));
    for gone in ["initialize", "ping"] {
        let asked = request(4, gone, &json!({"_meta": meta()}));
        assert_eq!(server.post(&named(gone, "-"), &asked).code(), (404, -32601));
    }
    let unknown = modern_call(5, "nope", &json!({}));
    assert_eq!(server.post(&named("tools/call", "nope"), &unknown).code(), (200, -32602));
    let news = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(server.post(version, &news).status, 202);
    for method in ["GET", "DELETE"] {
        assert_eq!(server.send(method, "/mcp", version, "").status, 405);
    }
    let nap = modern_call(6, "sleep", &json!({"ms": 1}));
    let stream = server.post(&named("tools/call", "sleep"), &nap);
    assert!(stream.head.contains("content-type: text/event-stream") && stream.body.contains("Slept 1 ms."));
}

#[test]
fn l102_http_in_the_legacy_era() {
    let server = Listening::start();
    let begun = server.post("", &initialize("2025-11-25"));
    assert_eq!(begun.json()["result"]["protocolVersion"], "2025-11-25");
    let (session, other) = (begun.session(), server.post("", &initialize("2025-03-26")).session());
    assert!(session.len() == 32 && session.bytes().all(|b| b.is_ascii_hexdigit()) && session != other);
    let inside = format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n");

    let news = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(server.post(&inside, &news).status, 202);
    let ping = request(1, "ping", &json!({}));
    assert_eq!(server.post(&inside, &ping).json(), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    assert_eq!(names(&server.post(&inside, &request(2, "tools/list", &json!({}))).json()), TOOLS);
    assert_eq!(text(&server.post(&inside, &call(3, "add", &json!({"a": 2, "b": 3}))).json()), "5");
    let nap = server.post(&inside, &call(4, "sleep", &json!({"ms": 1})));
    assert!(nap.head.contains("text/event-stream") && nap.body.contains("Slept 1 ms."));

    let batch = json!([ping, request(2, "ping", &json!({}))]);
    assert_eq!(server.post(&inside, &batch).status, 400);
    let with_batches = format!("Mcp-Session-Id: {other}\r\n");
    assert_eq!(server.post(&with_batches, &batch).json().as_array().map(Vec::len), Some(2));

    // A cancelled call ends its stream without an answer.
    let mut asleep = server.open(
        "POST",
        "/mcp",
        &format!("{BOTH}{inside}"),
        &call(5, "sleep", &json!({"ms": 600_000})).to_string(),
    );
    let mut first = [0; 15];
    asleep.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    assert_eq!(server.post(&inside, &cancel).status, 202);
    let mut rest = String::new();
    asleep.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("data:"), "{rest}");

    assert_eq!(server.post("", &ping).status, 400);
    assert_eq!(server.post("Mcp-Session-Id: 0\r\n", &ping).status, 404);
    assert_eq!(server.send("GET", "/mcp", "", "").status, 400, "news is for sessions");
    assert_eq!(server.send("DELETE", "/mcp", &inside, "").status, 204);
    assert_eq!(server.post(&inside, &ping).status, 404);
}

#[test]
fn l102_http_serves_local_clients_only_and_bounds_what_they_send() {
    let server = Listening::start();
    let hello = initialize("2025-11-25");
    for refused in ["Host: evil.example\r\n", "Origin: http://evil.example\r\n", "Origin: null\r\n"] {
        assert_eq!(server.post(refused, &hello).status, 403, "{refused}");
    }
    for served in ["Host: 127.0.0.1:1\r\n", "Host: [::1]:1\r\n", "Origin: http://localhost:3000\r\n"] {
        assert_eq!(server.post(served, &hello).status, 200, "{served}");
    }
    let text = hello.to_string();
    let json_only = "Accept: application/json\r\nContent-Type: application/json\r\n";
    assert_eq!(server.send("POST", "/mcp", json_only, &text).status, 406);
    assert_eq!(server.send("POST", "/mcp", "Content-Type: text/plain\r\n", &text).status, 415);
    assert_eq!(server.send("POST", "/mcp", BOTH, "{").code(), (400, -32700));
    assert_eq!(server.send("POST", "/mcp", BOTH, "{}").code(), (400, -32600));
    assert_eq!(server.send("GET", "/", "", "").status, 404);
    // Announced and not sent: the length alone is too much.
    let much = "Content-Length: 99999999\r\nHost: localhost\r\nConnection: close\r\n";
    let mut stream = server.connect();
    write!(stream, "POST /mcp HTTP/1.1\r\n{much}{BOTH}\r\n").unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 413");
}

#[test]
fn l102_http_with_sse_of_2024() {
    let server = Listening::start();
    let mut stream = BufReader::new(server.open("GET", "/sse", "", ""));
    let mut next = |prefix: &str| loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended before {prefix}");
        if let Some(rest) = line.trim_end().strip_prefix(prefix) {
            return rest.to_owned();
        }
    };
    assert_eq!(next("event: "), "endpoint");
    let endpoint = next("data: ");
    assert!(endpoint.starts_with("/message?sessionId="));
    let hello = initialize("2024-11-05").to_string();
    assert_eq!(server.send("POST", &endpoint, BOTH, &hello).status, 202);
    assert_eq!(next("event: "), "message");
    let begun: Value = serde_json::from_str(&next("data: ")).unwrap();
    assert_eq!(begun["result"]["protocolVersion"], "2024-11-05");
    let add = call(1, "add", &json!({"a": 2, "b": 3})).to_string();
    assert_eq!(server.send("POST", &endpoint, BOTH, &add).status, 202);
    assert_eq!(text(&serde_json::from_str(&next("data: ")).unwrap()), "5");
    assert_eq!(server.send("POST", "/message?sessionId=0", BOTH, &add).status, 404);
    assert_eq!(server.send("POST", "/message", BOTH, &add).status, 400);
}

#[test]
fn l102_http_ends_on_an_interrupt() {
    let mut server = Listening::start();
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn l102_rmcp_is_content_on_both_wires() {
    for wire in [Wire::Legacy, Wire::Modern] {
        let sum = json!({"a": 2, "b": 3});
        let seen = list_and_call(wire, Path::new(WHARF), &["test-server"], "add", sum).await;
        assert_eq!(seen.tools, TOOLS);
        assert_eq!(seen.result["structuredContent"], json!({"sum": 5}));

        let client = RmcpClient::start(wire, Path::new(WHARF), &["test-server"]).await;
        assert_eq!(client.call("fail", json!({})).await.unwrap()["isError"], true);
        assert_eq!(
            client.call("sleep", json!({"ms": 5})).await.unwrap()["content"][0]["text"],
            "Slept 5 ms."
        );
        assert!(client.call("nope", json!({})).await.unwrap_err().contains("-32602"));
        client.close().await;
    }
}
