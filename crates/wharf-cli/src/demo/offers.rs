//! What the test server has beside tools: resources, prompts, and the completion of their arguments.

use serde_json::{Value, json};
use wharf::mcp::code;
use wharf::wire::RpcError;

pub(super) const NOTE: &str = "demo://note";
const GREETING: &str = "demo://greeting";
const DOT: &str = "demo://dot.png";
const HARBOUR: &str = "demo://harbours/";
const TEMPLATE: &str = "demo://harbours/{name}";

/// A red dot of one pixel.
const DOT_BASE64: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const HARBOURS: [(&str, &str); 6] = [
    ("bergen", "Bergen lies between seven mountains, and it rains there."),
    ("bremen", "Bremen is a day's sail up the Weser."),
    ("brest", "Brest looks out on the Atlantic."),
    ("genoa", "Genoa has one of the oldest lighthouses that still shine."),
    ("kiel", "Kiel is where the canal meets the Baltic."),
    ("lisbon", "Lisbon is on the Tagus, and on seven hills."),
];
const TONES: [&str; 3] = ["formal", "friendly", "nautical"];

pub(super) fn resources() -> Value {
    json!({"resources": [
        {"uri": GREETING, "name": "greeting", "description": "A text.", "mimeType": "text/plain"},
        {"uri": DOT, "name": "dot.png", "description": "A picture of one pixel.", "mimeType": "image/png"},
        {"uri": NOTE, "name": "note", "description": "What the tool `note` wrote last.", "mimeType": "text/plain"},
    ]})
}

pub(super) fn templates() -> Value {
    json!({"resourceTemplates": [{
        "uriTemplate": TEMPLATE,
        "name": "harbour",
        "description": "A sentence about a harbour.",
        "mimeType": "text/plain",
    }]})
}

/// Reads a resource; `note` is what is written on the note now.
pub(super) fn read(uri: &str, note: &str) -> Option<Value> {
    let text = |text: &str| json!({"uri": uri, "mimeType": "text/plain", "text": text});
    let part = match uri {
        GREETING => text("Ahoy! This text is a resource.\n"),
        DOT => json!({"uri": uri, "mimeType": "image/png", "blob": DOT_BASE64}),
        NOTE => text(note),
        other => text(harbour(other.strip_prefix(HARBOUR)?)?),
    };
    Some(json!({"contents": [part]}))
}

pub(super) fn prompts() -> Value {
    json!({"prompts": [
        {"name": "greet", "description": "Greets somebody.", "arguments": [
            {"name": "name", "description": "Whom to greet.", "required": true},
            {"name": "tone", "description": "How: formal, friendly or nautical."},
        ]},
        {"name": "describe_harbour", "description": "Has a harbour described, from a resource.", "arguments": [
            {"name": "name", "description": "Which harbour.", "required": true},
        ]},
    ]})
}

/// Fills a prompt.
pub(super) fn prompt(name: &str, arguments: &Value) -> Result<Value, RpcError> {
    let wrong = |what: String| RpcError::new(code::INVALID_PARAMS, what);
    let given = |key: &str| arguments.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(who) = given("name") else {
        let known = matches!(name, "greet" | "describe_harbour");
        let what =
            if known { "the argument `name` is missing".into() } else { format!("unknown prompt: {name}") };
        return Err(wrong(what));
    };
    let said = |text: String| json!({"role": "user", "content": {"type": "text", "text": text}});
    let messages = match name {
        "greet" => {
            let tone = given("tone").unwrap_or("friendly");
            json!([said(format!("Greet {who} in a {tone} tone."))])
        }
        "describe_harbour" => {
            let about = harbour(who).ok_or_else(|| wrong(format!("unknown harbour: {who}")))?;
            let uri = format!("{HARBOUR}{who}");
            let resource = json!({"uri": uri, "mimeType": "text/plain", "text": about});
            let read = json!({"role": "user", "content": {"type": "resource", "resource": resource}});
            json!([read, said(format!("Describe {who} to somebody who has never been there."))])
        }
        _ => return Err(wrong(format!("unknown prompt: {name}"))),
    };
    Ok(json!({"messages": messages}))
}

/// Proposes values for an argument of a prompt or of the template.
pub(super) fn complete(params: &Value) -> Result<Value, RpcError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (reference, argument) = (&params["ref"], &params["argument"]);
    let of = match text(&reference["type"]).as_str() {
        "ref/prompt" => text(&reference["name"]),
        "ref/resource" => text(&reference["uri"]),
        _ => return Err(RpcError::new(code::INVALID_PARAMS, "`ref` is neither a prompt nor a template")),
    };
    let harbours = HARBOURS.map(|(name, _)| name);
    let known: &[&str] = match (of.as_str(), text(&argument["name"]).as_str()) {
        ("greet", "tone") => &TONES,
        ("describe_harbour" | TEMPLATE, "name") => &harbours,
        ("greet", "name") => &[],
        _ => return Err(RpcError::new(code::INVALID_PARAMS, "there is no such argument")),
    };
    let begun = text(&argument["value"]).to_lowercase();
    let values: Vec<&str> = known.iter().copied().filter(|value| value.starts_with(&begun)).collect();
    Ok(json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}))
}

fn harbour(name: &str) -> Option<&'static str> {
    HARBOURS.iter().find(|(known, _)| *known == name).map(|(_, about)| *about)
}
