//! What an honest server answers, in either era, to what the script does not mention.

use serde_json::{Value, json};

use super::script::{Era, Script};
use super::stage::Request;

pub(super) const MODERN: &str = "2026-07-28";
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// An answer that is neither good nor bad but final.
pub(super) enum Answer {
    Result(Value),
    Error(Value),
    Nothing,
    Exit,
}

pub(super) fn plain_tool(name: &str) -> Value {
    json!({"name": name, "description": format!("The tool {name}."), "inputSchema": {"type": "object"}})
}

/// The tools that a script begins with.
pub(super) fn tools(script: &Script) -> Vec<Value> {
    let mut tools = script.tools.clone();
    tools.extend((0..script.many_tools).map(|n| plain_tool(&format!("t{n}"))));
    if tools.is_empty() {
        tools.push(json!({
            "name": "echo",
            "description": "Says its arguments again.",
            "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}},
        }));
    }
    tools
}

pub(super) fn answer(script: &Script, tools: &[Value], request: &Request) -> Answer {
    let speaks_legacy = !matches!(script.era, Era::Modern);
    let speaks_modern = matches!(script.era, Era::Modern | Era::Both);
    if script.era == Era::Silent {
        return Answer::Nothing;
    }
    if request.modern && speaks_modern {
        return match request.version.as_deref() {
            Some(MODERN) => modern(script, tools, request),
            other => unsupported(other.unwrap_or_default()),
        };
    }
    match request.method.as_str() {
        "server/discover" if script.era == Era::DiesOnDiscover => Answer::Exit,
        "server/discover" if speaks_modern => error(-32602, "_meta lacks the protocol version"),
        "initialize" if speaks_legacy => Answer::Result(initialize(script, request)),
        "initialize" => unsupported(request.asked_version().as_deref().unwrap_or_default()),
        "ping" if speaks_legacy => Answer::Result(json!({})),
        _ if !speaks_legacy => error(-32602, "_meta lacks the protocol version"),
        _ => common(script, tools, request),
    }
}

fn modern(script: &Script, tools: &[Value], request: &Request) -> Answer {
    if request.method == "server/discover" {
        let mut result = json!({
            "supportedVersions": [MODERN],
            "capabilities": capabilities(script),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": server_info(script)},
        });
        if let Some(text) = &script.instructions {
            result["instructions"] = json!(text);
        }
        return Answer::Result(result);
    }
    match common(script, tools, request) {
        Answer::Result(mut result) if request.method == "tools/list" => {
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
            Answer::Result(result)
        }
        other => other,
    }
}

fn common(script: &Script, tools: &[Value], request: &Request) -> Answer {
    match request.method.as_str() {
        "tools/list" => list(script, tools, request),
        "tools/call" => {
            let name = request.tool().unwrap_or_default();
            if tools.iter().any(|t| t["name"] == name.as_str()) {
                Answer::Result(echo(request))
            } else {
                error(-32602, &format!("unknown tool: {name}"))
            }
        }
        other => error(-32601, &format!("unknown method: {other}")),
    }
}

fn list(script: &Script, tools: &[Value], request: &Request) -> Answer {
    let size = script.pages.unwrap_or(usize::MAX).max(1);
    let from: usize = match request.params().get("cursor") {
        None => 0,
        Some(cursor) => match cursor.as_str().and_then(|c| c.parse().ok()) {
            Some(at) if at < tools.len() => at,
            _ => return error(-32602, "unknown cursor"),
        },
    };
    let to = from.saturating_add(size).min(tools.len());
    let mut result = json!({"tools": tools[from..to]});
    if to < tools.len() {
        result["nextCursor"] = json!(to.to_string());
    }
    Answer::Result(result)
}

pub(super) fn echo(request: &Request) -> Value {
    text_result(&request.arguments())
}

pub(super) fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": false})
}

fn initialize(script: &Script, request: &Request) -> Value {
    let asked = request.asked_version().filter(|v| LEGACY.contains(&v.as_str()));
    let version = script.version.clone().or(asked).unwrap_or_else(|| LEGACY[3].to_owned());
    let mut result = json!({
        "protocolVersion": version,
        "capabilities": capabilities(script),
        "serverInfo": server_info(script),
    });
    if let Some(text) = &script.instructions {
        result["instructions"] = json!(text);
    }
    result
}

fn capabilities(script: &Script) -> Value {
    script.capabilities.clone().unwrap_or_else(|| json!({"tools": {"listChanged": true}}))
}

fn server_info(script: &Script) -> Value {
    script.server_info.clone().unwrap_or_else(|| json!({"name": "puppet", "version": "1"}))
}

fn unsupported(requested: &str) -> Answer {
    Answer::Error(json!({
        "code": -32022,
        "message": "this server speaks another revision",
        "data": {"supported": [MODERN], "requested": requested},
    }))
}

fn error(code: i64, message: &str) -> Answer {
    Answer::Error(json!({"code": code, "message": message}))
}
