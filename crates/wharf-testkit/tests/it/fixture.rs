//! The fixture as each kind of server: rmcp is content with it, the other era is refused, and what the conformance suite
//! cannot reach (stdio, HTTP+SSE) does what the rest does. The suite itself runs in `proof/conformance/serve`.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use wharf_testkit::rmcp_client::{RmcpClient, Wire};
use wharf_testkit::{Fixture, Kind, Place, fixture_path};

/// A fixture on pipes.
struct Piped {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Piped {
    fn start(kind: Kind) -> Self {
        let mut command = Command::new(fixture_path());
        command.args(["--kind", kind.name()]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { _child: child, input, output: BufReader::new(output).lines() }
    }

    async fn send(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.output.next_line().await.unwrap().unwrap()).unwrap()
    }
}

/// Sends a request and gives back the connection.
async fn open(url: &str, method: &str, headers: &str, body: &str) -> TcpStream {
    let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(authority).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn post(url: &str, headers: &str, body: &Value) -> String {
    let mut answer = String::new();
    open(url, "POST", headers, &body.to_string()).await.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Reads until the text holds this.
async fn until(stream: &mut TcpStream, seen: &mut String, what: &str) {
    let mut piece = [0; 4096];
    while !seen.contains(what) {
        let length = stream.read(&mut piece).await.unwrap();
        assert!(length > 0, "it ended without {what}: {seen}");
        seen.push_str(std::str::from_utf8(&piece[..length]).unwrap());
    }
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn initialize() -> Value {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    });
    request(1, "initialize", &params)
}

fn modern(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request(id, method, &params)
}

#[tokio::test]
async fn rmcp_is_content_with_the_fixture_on_pipes() {
    for (kind, wire) in [(Kind::LegacyStdio, Wire::Legacy), (Kind::ModernStdio, Wire::Modern)] {
        let Place::Command { program, args } = Fixture::start(kind).place() else { panic!("a command") };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let client = RmcpClient::start(wire, &program, &args).await;
        assert_eq!(client.tools().await[0], "test_simple_text");
        let answer = client.call("test_input_required_result_elicitation", json!({})).await.unwrap();
        assert_eq!(answer["content"][0]["text"], "Hello, Ada!", "{kind:?}");
        client.close().await;
    }
}

#[tokio::test]
async fn each_kind_knows_its_own_era_only() {
    let discover = modern(1, "server/discover", json!({}));
    let mut legacy = Piped::start(Kind::LegacyStdio);
    legacy.send(&discover).await;
    assert_eq!(legacy.next().await["error"]["code"], -32601);
    legacy.send(&initialize()).await;
    assert_eq!(legacy.next().await["result"]["protocolVersion"], "2025-11-25");

    let mut stateless = Piped::start(Kind::ModernStdio);
    stateless.send(&initialize()).await;
    assert_eq!(stateless.next().await["error"]["data"]["supported"], json!(["2026-07-28"]));
    stateless.send(&discover).await;
    assert_eq!(stateless.next().await["result"]["supportedVersions"], json!(["2026-07-28"]));

    let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n";
    for (kind, old, new) in [
        (Kind::LegacyHttp, "200 ", "400 "),
        (Kind::ModernHttp, "400 ", "200 "),
        (Kind::BothHttp, "200 ", "200 "),
        (Kind::Sse, "405 ", "405 "),
    ] {
        let fixture = Fixture::start(kind);
        let Place::Url(url) = fixture.place() else { panic!("a URL") };
        let answers = [post(&url, "", &initialize()).await, post(&url, headers, &discover).await];
        for (answer, status) in answers.iter().zip([old, new]) {
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{kind:?}: {answer}");
        }
        assert_eq!(fixture.requests().len(), 2);
    }
}

#[tokio::test]
async fn changes_and_cancellations_are_told_on_pipes() {
    let mut legacy = Piped::start(Kind::LegacyStdio);
    legacy.send(&initialize()).await;
    legacy.next().await;
    legacy.send(&request(2, "resources/subscribe", &json!({"uri": "test://watched-resource"}))).await;
    legacy.next().await;
    legacy.send(&request(3, "tools/call", &json!({"name": "test_trigger_resource_update"}))).await;
    let mut both = [legacy.next().await, legacy.next().await];
    both.sort_by_key(|message| message.get("id").is_some());
    assert_eq!(both[0]["params"]["uri"], "test://watched-resource");
    assert_eq!(both[1]["id"], 3);

    let mut stateless = Piped::start(Kind::ModernStdio);
    stateless
        .send(&modern(7, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})))
        .await;
    let acknowledged = stateless.next().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    stateless.send(&modern(8, "tools/call", json!({"name": "test_trigger_tool_change"}))).await;
    let mut both = [stateless.next().await, stateless.next().await];
    both.sort_by_key(|message| message.get("id").is_some());
    assert_eq!(both[0]["method"], "notifications/tools/list_changed");
    assert_eq!(both[0]["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);

    for (server, wait) in [
        (&mut legacy, request(9, "tools/call", &json!({"name": "test_wait"}))),
        (&mut stateless, modern(9, "tools/call", json!({"name": "test_wait"}))),
    ] {
        server.send(&wait).await;
        let count = |id| modern(id, "tools/call", json!({"name": "test_waits"}));
        let mut id = 10;
        for wanted in [json!({"waiting": 1, "cancelled": 0}), json!({"waiting": 0, "cancelled": 1})] {
            loop {
                server.send(&count(id)).await;
                id += 1;
                if server.next().await["result"]["structuredContent"] == wanted {
                    break;
                }
            }
            let cancel =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
            server.send(&cancel).await;
        }
    }
}

#[tokio::test]
async fn a_question_goes_over_http_and_sse() {
    let fixture = Fixture::start(Kind::Sse);
    let Place::Url(url) = fixture.place() else { panic!("a URL") };
    let mut seen = String::new();
    let mut stream = open(&url, "GET", "", "").await;
    until(&mut stream, &mut seen, "/message?sessionId=").await;
    until(&mut stream, &mut seen, "\n\n").await;
    let path = seen[seen.find("/message").unwrap()..].lines().next().unwrap().trim().to_owned();
    let messages = url.replace("/sse", &path);
    assert!(post(&messages, "", &initialize()).await.starts_with("HTTP/1.1 202"));
    until(&mut stream, &mut seen, "2025-11-25").await;
    let call = request(2, "tools/call", &json!({"name": "test_input_required_result_elicitation"}));
    post(&messages, "", &call).await;
    until(&mut stream, &mut seen, "elicitation/create").await;
    let answer = json!({
        "jsonrpc": "2.0",
        "id": "ask-1",
        "result": {"action": "accept", "content": {"name": "Ada"}},
    });
    post(&messages, "", &answer).await;
    until(&mut stream, &mut seen, "Hello, Ada!").await;
}

#[tokio::test]
async fn lists_come_in_pages_if_they_should() {
    let fixture = Fixture::paged(Kind::ModernHttp, Some(40));
    let Place::Url(url) = fixture.place() else { panic!("a URL") };
    let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n";
    let first = post(&url, headers, &modern(1, "tools/list", json!({}))).await;
    assert!(first.contains(r#""nextCursor":"40""#), "{first}");
    let second = post(&url, headers, &modern(2, "tools/list", json!({"cursor": "40"}))).await;
    assert!(second.contains("json_schema_2020_12_tool") && !second.contains("nextCursor"), "{second}");
    let wrong = post(&url, headers, &modern(3, "tools/list", json!({"cursor": "x"}))).await;
    assert!(wrong.contains("-32602"), "{wrong}");
}

#[tokio::test]
async fn a_legacy_task_asks_where_its_result_is_asked_for() {
    let mut server = Piped::start(Kind::LegacyStdio);
    server.send(&initialize()).await;
    server.next().await;
    server.send(&request(2, "tools/call", &json!({"name": "test_tool_with_task"}))).await;
    assert_eq!(server.next().await["error"]["code"], -32601);
    server
        .send(&request(3, "tools/call", &json!({"name": "test_tool_with_task", "task": {"ttl": 60000}})))
        .await;
    let mut seen = Vec::new();
    let task = loop {
        match server.next().await {
            message if message["id"] == 3 => break message["result"]["task"]["taskId"].clone(),
            status => seen.push(status),
        }
    };
    server.send(&request(4, "tasks/result", &json!({"taskId": task}))).await;
    let answered = loop {
        match server.next().await {
            message if message["id"] == 4 => break message,
            message if message["method"] == "elicitation/create" => {
                let related = &message["params"]["_meta"]["io.modelcontextprotocol/related-task"];
                assert_eq!(related["taskId"], task);
                let result = json!({"action": "accept", "content": {"name": "Ada"}});
                server.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).await;
            }
            status => seen.push(status),
        }
    };
    assert_eq!(answered["result"]["content"][0]["text"], "Hello, Ada!");
    assert!(seen.iter().all(|status| status["method"] == "notifications/tasks/status"), "{seen:?}");
    assert!(seen.iter().any(|status| status["params"]["status"] == "input_required"), "{seen:?}");
}
