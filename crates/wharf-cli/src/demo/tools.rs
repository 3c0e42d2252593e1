//! The tools of the test server: their definitions, and what they do.

use std::time::Duration;

use base64::Engine;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value, json};
use tokio::time::Instant;

use super::answer::Progress;

const MAX_SLEEP_MS: u64 = 600_000;
const MAX_BLOB: usize = 32 * 1024 * 1024;
const MAX_NOTE: usize = 64 * 1024;
/// A sleep reports its progress so many times.
const REPORTS: u64 = 10;
const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A sentence about what is wrong with a call.
type Wrong = String;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Echo {
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetTime {
    timezone: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Add {
    a: Number,
    b: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleep {
    ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Blob {
    bytes: usize,
    #[serde(default)]
    kind: BlobKind,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "lowercase")]
enum BlobKind {
    #[default]
    Text,
    Image,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    question: Option<String>,
}

/// The tools as `tools/list` gives them.
pub(super) fn definitions() -> Value {
    json!([
        tool("echo", "Says a message again.", &json!({"message": {"type": "string"}}), &["message"]),
        tool(
            "get_time",
            "Tells the time, as RFC 3339 has it.",
            &json!({"timezone": {"type": "string", "description": "An IANA name such as Europe/Berlin. Defaults to UTC."}}),
            &[],
        ),
        add_definition(),
        tool(
            "sleep",
            "Waits, and reports its progress.",
            &json!({"ms": {"type": "integer", "minimum": 0, "maximum": MAX_SLEEP_MS}}),
            &["ms"],
        ),
        tool(
            "blob",
            "Gives back that many bytes.",
            &json!({
                "bytes": {"type": "integer", "minimum": 0, "maximum": MAX_BLOB},
                "kind": {"type": "string", "enum": ["text", "image"], "default": "text"},
            }),
            &["bytes"],
        ),
        tool("fail", "Fails.", &json!({"message": {"type": "string"}}), &[]),
        note_definition(),
        tool(
            "ask",
            "Asks you for a name, and greets it.",
            &json!({"question": {"type": "string", "description": "What to ask. Defaults to asking for your name."}}),
            &[],
        ),
    ])
}

/// Calls a tool; `None` if there is no such tool. Bad arguments are a result that says so: a model can mend them.
pub(super) async fn call(name: &str, arguments: Value, progress: Option<Progress>) -> Option<Value> {
    let done = match name {
        "echo" => read(name, arguments).map(|Echo { message }| text(&message)),
        "get_time" => read(name, arguments).and_then(|GetTime { timezone }| get_time(timezone.as_deref())),
        "add" => read(name, arguments).and_then(|Add { a, b }| add(&a, &b)),
        "sleep" => match read(name, arguments) {
            Ok(Sleep { ms }) => sleep(ms, progress).await,
            Err(wrong) => Err(wrong),
        },
        "blob" => read(name, arguments).and_then(|Blob { bytes, kind }| blob(bytes, &kind)),
        "fail" => read(name, arguments).and_then(|Fail { message }| {
            Err(message.unwrap_or_else(|| "It failed, as it was asked to.".to_owned()))
        }),
        _ => return None,
    };
    Some(done.unwrap_or_else(|wrong| failed(&wrong)))
}

/// What is to be written on the note, or the result that says what is wrong.
pub(super) fn note(arguments: Value) -> Result<String, Value> {
    let Note { text } = read("note", arguments).map_err(|wrong| failed(&wrong))?;
    if text.len() > MAX_NOTE {
        return Err(failed(&format!("`text` has at most {MAX_NOTE} bytes.")));
    }
    Ok(text)
}

/// The form of a question: the parameters of `elicitation/create`.
pub(super) fn form(arguments: Value) -> Result<Value, Value> {
    let Ask { question } = read("ask", arguments).map_err(|wrong| failed(&wrong))?;
    Ok(json!({
        "mode": "form",
        "message": question.unwrap_or_else(|| "What shall I call you?".to_owned()),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "title": "Name", "minLength": 1, "maxLength": 80, "default": "sailor"},
                "loud": {"type": "boolean", "title": "Loud", "default": false},
            },
            "required": ["name"],
        },
    }))
}

/// What is said to the answer of that question: the result of `elicitation/create`.
pub(super) fn thank(answer: &Value) -> Value {
    match (answer["action"].as_str(), answer["content"]["name"].as_str()) {
        (Some("accept"), Some(name)) if answer["content"]["loud"] == true => {
            text(&format!("AHOY, {}!", name.to_uppercase()))
        }
        (Some("accept"), Some(name)) => text(&format!("Ahoy, {name}!")),
        (Some("decline"), _) => text("You would rather not say."),
        _ => text("Never mind."),
    }
}

/// A result that says that it failed.
pub(super) fn failed(wrong: &str) -> Value {
    let mut result = text(wrong);
    result["isError"] = json!(true);
    result
}

fn read<T: DeserializeOwned>(name: &str, arguments: Value) -> Result<T, Wrong> {
    // `deny_unknown_fields` also takes an array for a struct; a tool takes an object only.
    if !arguments.is_object() {
        return Err(format!("The arguments of `{name}` are not an object."));
    }
    serde_json::from_value(arguments).map_err(|e| format!("The arguments of `{name}` are wrong: {e}."))
}

fn get_time(timezone: Option<&str>) -> Result<Value, Wrong> {
    let zone = match timezone {
        None => jiff::tz::TimeZone::UTC,
        Some(name) => jiff::tz::TimeZone::get(name)
            .map_err(|_| format!("There is no time zone `{name}`; try `Europe/Berlin`."))?,
    };
    let now = jiff::Timestamp::now().to_zoned(zone);
    Ok(text(&now.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()))
}

fn add(a: &Number, b: &Number) -> Result<Value, Wrong> {
    let whole = |n: &Number| n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from));
    let exact = whole(a).zip(whole(b)).and_then(|(a, b)| Number::from_i128(a + b));
    let sum = match exact {
        Some(sum) => sum,
        None => {
            let sum = a.as_f64().unwrap_or(f64::NAN) + b.as_f64().unwrap_or(f64::NAN);
            Number::from_f64(sum).ok_or("The sum is too large for a number.")?
        }
    };
    let mut result = text(&sum.to_string());
    result["structuredContent"] = json!({"sum": sum});
    Ok(result)
}

async fn sleep(ms: u64, progress: Option<Progress>) -> Result<Value, Wrong> {
    if ms > MAX_SLEEP_MS {
        return Err(format!("`ms` is at most {MAX_SLEEP_MS}."));
    }
    let start = Instant::now();
    if let Some(progress) = progress {
        let mut before = 0;
        for report in 1..=REPORTS {
            let done = ms * report / REPORTS;
            tokio::time::sleep_until(start + Duration::from_millis(done)).await;
            // Progress must grow, which it does not in a sleep of less than ten milliseconds.
            if done > before {
                progress.report(done, ms).await;
                before = done;
            }
        }
    }
    tokio::time::sleep_until(start + Duration::from_millis(ms)).await;
    Ok(text(&format!("Slept {ms} ms.")))
}

fn blob(bytes: usize, kind: &BlobKind) -> Result<Value, Wrong> {
    if bytes > MAX_BLOB {
        return Err(format!("`bytes` is at most {MAX_BLOB}."));
    }
    if *kind == BlobKind::Text {
        return Ok(text(&"x".repeat(bytes)));
    }
    // The first bytes say PNG, as far as they go; no one is meant to look at it.
    let mut image = vec![0; bytes];
    let signed = bytes.min(PNG_SIGNATURE.len());
    image[..signed].copy_from_slice(&PNG_SIGNATURE[..signed]);
    let data = base64::engine::general_purpose::STANDARD.encode(image);
    Ok(json!({"content": [{"type": "image", "data": data, "mimeType": "image/png"}], "isError": false}))
}

pub(super) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": false})
}

fn tool(name: &str, description: &str, properties: &Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema["additionalProperties"] = json!(false);
    json!({
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

fn note_definition() -> Value {
    let text = json!({"text": {"type": "string"}});
    let mut definition = tool(
        "note",
        "Writes on the note, the resource demo://note, until the server ends.",
        &text,
        &["text"],
    );
    definition["annotations"] = json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false});
    definition
}

fn add_definition() -> Value {
    let numbers = json!({"a": {"type": "number"}, "b": {"type": "number"}});
    let mut definition = tool("add", "Adds two numbers.", &numbers, &["a", "b"]);
    definition["outputSchema"] = json!({
        "type": "object",
        "properties": {"sum": {"type": "number"}},
        "required": ["sum"],
    });
    definition
}
