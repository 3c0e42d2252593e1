//! Honest servers over HTTP: the modern wire, the legacy wire with or without sessions, and HTTP+SSE.
//! Every tool says its arguments again. What a client must send is checked, so that a sloppy client fails.

use std::collections::{HashMap, HashSet};
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Recorded, Reply, SseStep};

const MODERN: &str = "2026-07-28";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// A stateless server of 2026-07-28.
pub fn honest_modern(tools: Vec<Value>) -> impl Fn(Recorded) -> Ready<Reply> + Clone + Send + Sync + 'static {
    let tools = Arc::new(tools);
    move |request| ready(modern(&tools, &request))
}

/// A server of the legacy era, which hands out session ids if `sessions` is set.
pub fn honest_legacy(
    tools: Vec<Value>,
    sessions: bool,
) -> impl Fn(Recorded) -> Ready<Reply> + Clone + Send + Sync + 'static {
    let (tools, open, next) =
        (Arc::new(tools), Arc::new(Mutex::new(HashSet::new())), Arc::new(AtomicU64::new(1)));
    move |request| ready(legacy(&tools, sessions.then_some((&open, &next)), &request))
}

/// A server of 2024-11-05: `GET /sse` opens the stream, `POST /message?sessionId=N` takes messages.
pub fn honest_sse(tools: Vec<Value>) -> impl Fn(Recorded) -> Ready<Reply> + Clone + Send + Sync + 'static {
    let (tools, streams) = (Arc::new(tools), Arc::new(Mutex::new(HashMap::new())));
    move |request| ready(sse(&tools, &streams, &request))
}

type Sessions<'a> = (&'a Mutex<HashSet<String>>, &'a AtomicU64);
type Streams = Mutex<HashMap<String, mpsc::Sender<SseStep>>>;

fn modern(tools: &[Value], request: &Recorded) -> Reply {
    if request.method != "POST" {
        return Reply::status(405).with("allow", "POST");
    }
    let message = request.json();
    let Some(id) = message.get("id").cloned() else {
        return Reply::status(202);
    };
    let refuse = |code: i64, text: &str| Reply::Json(400, Vec::new(), error(&id, code, text));
    let (method, params) = (&message["method"], &message["params"]);
    let version = &params["_meta"][VERSION_KEY];
    if !version.is_string() || !params["_meta"][CAPABILITIES_KEY].is_object() {
        return refuse(-32602, "_meta lacks a key");
    }
    if request.header("mcp-protocol-version") != version.as_str() {
        return refuse(-32020, "MCP-Protocol-Version is not what _meta says");
    }
    if version != MODERN {
        let mut body = error(&id, -32022, "unsupported protocol version");
        body["error"]["data"] = json!({"supported": [MODERN], "requested": version});
        return Reply::Json(400, Vec::new(), body);
    }
    if request.header("mcp-method") != method.as_str() {
        return refuse(-32020, "Mcp-Method is not what the body says");
    }
    if method == "tools/call" && !request.header("mcp-name").is_some_and(|n| n.starts_with("=?base64?")) {
        // An encoded name is taken on trust: decoding it is not this server's point.
        if request.header("mcp-name") != params["name"].as_str() {
            return refuse(-32020, "Mcp-Name is not what the body says");
        }
    }
    let mut result = match method.as_str() {
        Some("server/discover") => json!({"supportedVersions": [MODERN], "capabilities": {"tools": {}}}),
        Some(name @ ("tools/list" | "tools/call")) => match common(tools, name, params) {
            Ok(result) => result,
            Err((code, text)) => return Reply::ok(error(&id, code, &text)),
        },
        _ => return Reply::Json(404, Vec::new(), error(&id, -32601, "unknown method")),
    };
    result["resultType"] = json!("complete");
    result["_meta"] = json!({INFO_KEY: server_info()});
    if method != "tools/call" {
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("private");
    }
    Reply::ok(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn legacy(tools: &[Value], sessions: Option<Sessions<'_>>, request: &Recorded) -> Reply {
    let message = request.json();
    let initializes = message["method"] == "initialize";
    if let (Some((open, _)), false) = (sessions, initializes) {
        let known = request.header("mcp-session-id").map(|id| open.lock().unwrap().contains(id));
        match known {
            None => return Reply::Json(400, Vec::new(), error(&Value::Null, -32000, "no session id")),
            Some(false) => {
                return Reply::Json(404, Vec::new(), error(&Value::Null, -32001, "no such session"));
            }
            Some(true) => {}
        }
    }
    match (request.method.as_str(), sessions) {
        ("POST", _) => {}
        ("DELETE", Some((open, _))) => {
            open.lock().unwrap().remove(request.header("mcp-session-id").unwrap_or_default());
            return Reply::status(200);
        }
        _ => return Reply::status(405),
    }
    let Some(answer) = legacy_answer(tools, &message) else {
        return Reply::status(202);
    };
    match sessions {
        Some((open, next)) if initializes => {
            let id = format!("session-{}", next.fetch_add(1, Ordering::SeqCst));
            open.lock().unwrap().insert(id.clone());
            Reply::ok(answer).with("mcp-session-id", &id)
        }
        _ => Reply::ok(answer),
    }
}

fn sse(tools: &[Value], streams: &Streams, request: &Recorded) -> Reply {
    let mut streams = streams.lock().unwrap();
    match (request.method.as_str(), request.path.split_once("?sessionId=")) {
        ("GET", None) if request.path == "/sse" => {
            let id = (streams.len() + 1).to_string();
            let (sender, receiver) = mpsc::channel(256);
            let endpoint = SseStep::Event {
                id: None,
                event: Some("endpoint".to_owned()),
                data: format!("/message?sessionId={id}"),
                retry: None,
            };
            sender.try_send(endpoint).expect("a fresh channel has room");
            streams.insert(id, sender);
            Reply::Live(receiver)
        }
        ("POST", Some(("/message", id))) => {
            let Some(stream) = streams.get(id).filter(|s| !s.is_closed()) else {
                return Reply::status(404);
            };
            if let Some(answer) = legacy_answer(tools, &request.json()) {
                let step = SseStep::Event {
                    id: None,
                    event: Some("message".to_owned()),
                    data: answer.to_string(),
                    retry: None,
                };
                stream.try_send(step).expect("nobody lets 256 answers pile up");
            }
            Reply::status(202)
        }
        // So answers an SSE server that is asked for Streamable HTTP.
        _ => Reply::status(405),
    }
}

/// The answer to a message of the legacy era; `None` if it wants none.
fn legacy_answer(tools: &[Value], message: &Value) -> Option<Value> {
    let id = message.get("id").filter(|_| message.get("method").is_some())?;
    let method = message["method"].as_str().unwrap_or_default();
    let params = &message["params"];
    let done = match method {
        "initialize" => {
            let asked = params["protocolVersion"].as_str().filter(|v| *v < MODERN).unwrap_or("2025-11-25");
            Ok(json!({
                "protocolVersion": asked,
                "capabilities": {"tools": {}},
                "serverInfo": server_info(),
            }))
        }
        "ping" => Ok(json!({})),
        _ => common(tools, method, params),
    };
    Some(match done {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err((code, text)) => error(id, code, &text),
    })
}

fn common(tools: &[Value], method: &str, params: &Value) -> Result<Value, (i64, String)> {
    match method {
        "tools/list" => Ok(json!({"tools": tools})),
        "tools/call" if tools.iter().any(|t| t["name"] == params["name"]) => {
            let text = params.get("arguments").map_or_else(|| "{}".to_owned(), Value::to_string);
            Ok(json!({"content": [{"type": "text", "text": text}], "isError": false}))
        }
        "tools/call" => Err((-32602, format!("unknown tool: {}", params["name"]))),
        other => Err((-32601, format!("unknown method: {other}"))),
    }
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn server_info() -> Value {
    json!({"name": "http-puppet", "version": "1"})
}
