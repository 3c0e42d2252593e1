//! What each provider demands of a request.

use std::collections::HashSet;

use serde_json::Value;

use super::{Dialect, KEY, MODEL};
use crate::http::Recorded;

type Checked = Result<(), String>;

/// A condition of the interface.
fn need(holds: bool, rule: &str, found: &Value) -> Checked {
    if holds { Ok(()) } else { Err(format!("{rule}: {found}")) }
}

pub(super) fn check<'a>(
    dialect: Dialect,
    request: &Recorded,
    brought_back: impl Iterator<Item = &'a str>,
) -> Checked {
    let body = request.json();
    need(request.method == "POST", "the method is POST", &Value::from(request.method.as_str()))?;
    need(
        request.header("content-type") == Some("application/json"),
        "the content type is JSON",
        &Value::Null,
    )?;
    let text = String::from_utf8_lossy(&request.body);
    for own in brought_back {
        need(text.contains(own), "the model's turn comes back as it was", &body)?;
    }
    match dialect {
        Dialect::OpenAiChat => openai(request, &body),
        Dialect::Anthropic => anthropic(request, &body),
        Dialect::Gemini => gemini(request, &body),
    }
}

fn openai(request: &Recorded, body: &Value) -> Checked {
    need(request.path == "/v1/chat/completions", "the path", &Value::from(request.path.as_str()))?;
    let bearer = format!("Bearer {KEY}");
    need(request.header("authorization") == Some(&bearer), "the key", &Value::Null)?;
    only(body, &["model", "messages", "tools"])?;
    need(body["model"] == MODEL, "the model", body)?;
    for tool in list(&body["tools"])? {
        only(tool, &["type", "function"])?;
        need(tool["type"] == "function", "the type of a tool", tool)?;
        let function = &tool["function"];
        only(function, &["name", "description", "parameters", "strict"])?;
        need(function.get("parameters").is_none_or(|p| p["type"] == "object"), "the parameters", function)?;
    }
    names(list(&body["tools"])?.iter().map(|tool| &tool["function"]["name"]), 64)?;
    // Ids that still need a result, in any order.
    let mut open: Vec<&Value> = Vec::new();
    for message in list(&body["messages"])? {
        if message["role"] == "tool" {
            only(message, &["role", "tool_call_id", "content"])?;
            let place = open.iter().position(|id| **id == message["tool_call_id"]);
            open.remove(place.ok_or_else(|| format!("a result without its call: {message}"))?);
            need(message["content"].is_string(), "a result is text", message)?;
            continue;
        }
        need(open.is_empty(), "calls must be followed by their results", message)?;
        match message["role"].as_str() {
            Some("user") => need(!message["content"].is_null(), "a user says something", message)?,
            Some("assistant") => {
                open = list(&message["tool_calls"])?.iter().map(|call| &call["id"]).collect();
            }
            _ => return Err(format!("an unknown role: {message}")),
        }
    }
    need(open.is_empty(), "calls must be followed by their results", body)
}

fn anthropic(request: &Recorded, body: &Value) -> Checked {
    need(request.path == "/v1/messages", "the path", &Value::from(request.path.as_str()))?;
    need(request.header("x-api-key") == Some(KEY), "the key", &Value::Null)?;
    need(request.header("anthropic-version") == Some("2023-06-01"), "the version", &Value::Null)?;
    only(body, &["model", "max_tokens", "messages", "tools"])?;
    need(body["model"] == MODEL && body["max_tokens"].as_u64() > Some(0), "the model and its limit", body)?;
    for tool in list(&body["tools"])? {
        only(tool, &["name", "description", "input_schema", "strict"])?;
        need(tool["input_schema"]["type"] == "object", "the schema of a tool", tool)?;
    }
    names(list(&body["tools"])?.iter().map(|tool| &tool["name"]), 128)?;
    let mut open: Vec<&Value> = Vec::new();
    for (place, message) in list(&body["messages"])?.iter().enumerate() {
        let role = if place % 2 == 0 { "user" } else { "assistant" };
        need(message["role"] == role, "the roles take turns", message)?;
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let results: Vec<&Value> = blocks.iter().take_while(|b| b["type"] == "tool_result").collect();
        let ids: Vec<&Value> = results.iter().map(|result| &result["tool_use_id"]).collect();
        need(ids == open, "results come first, one for each call", message)?;
        for result in results {
            only(result, &["type", "tool_use_id", "is_error", "content"])?;
            need(result["is_error"].is_boolean(), "an error is true or false", result)?;
            for block in list(&result["content"])? {
                let is_text =
                    block["type"] == "text" && block["text"].as_str().is_some_and(|t| !t.is_empty());
                let is_data = block["type"] == "image" || block["type"] == "document";
                need(is_text || (is_data && result["is_error"] == false), "the content of a result", block)?;
            }
        }
        open = blocks.iter().filter(|b| b["type"] == "tool_use").map(|b| &b["id"]).collect();
    }
    need(open.is_empty(), "results follow their calls", body)
}

fn gemini(request: &Recorded, body: &Value) -> Checked {
    let path = format!("/v1beta/models/{MODEL}:generateContent");
    need(request.path == path, "the path", &Value::from(request.path.as_str()))?;
    need(request.header("x-goog-api-key") == Some(KEY), "the key", &Value::Null)?;
    only(body, &["contents", "tools"])?;
    for group in list(&body["tools"])? {
        only(group, &["functionDeclarations"])?;
        let declared = list(&group["functionDeclarations"])?;
        for tool in declared {
            only(tool, &["name", "description", "parametersJsonSchema", "responseJsonSchema"])?;
            need(tool["parametersJsonSchema"].get("$schema").is_none(), "no `$schema`", tool)?;
        }
        names(declared.iter().map(|tool| &tool["name"]), 63)?;
    }
    let mut open: Vec<(&Value, Option<&Value>)> = Vec::new();
    for (place, content) in list(&body["contents"])?.iter().enumerate() {
        let role = if place % 2 == 0 { "user" } else { "model" };
        need(content["role"] == role, "the roles take turns", content)?;
        let parts = list(&content["parts"])?;
        let of = |kind: &'static str| parts.iter().filter_map(move |part| part.get(kind));
        let results: Vec<_> = of("functionResponse").map(|r| (&r["name"], r.get("id"))).collect();
        need(results == open, "a result for each call, in order", content)?;
        for result in of("functionResponse") {
            only(result, &["id", "name", "response", "parts"])?;
            need(result["response"].is_object(), "a response is an object", result)?;
            only(&result["response"], &["output", "error"])?;
        }
        open = of("functionCall").map(|call| (&call["name"], call.get("id"))).collect();
    }
    need(open.is_empty(), "results follow their calls", body)
}

/// The elements of a list; nothing is an empty one.
fn list(value: &Value) -> Result<&[Value], String> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        other => Err(format!("a list is wanted: {other}")),
    }
}

/// An object with no other members than these.
fn only(object: &Value, members: &[&str]) -> Checked {
    let object = object.as_object().ok_or_else(|| format!("an object is wanted: {object}"))?;
    match object.keys().find(|key| !members.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown name `{key}`")),
        None => Ok(()),
    }
}

/// Names of tools: plain, short enough, each once.
fn names<'a>(names: impl Iterator<Item = &'a Value>, max: usize) -> Checked {
    let mut seen = HashSet::new();
    for name in names {
        let text = name.as_str().unwrap_or_default();
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        need(plain && (1..=max).contains(&text.len()), "the name of a tool", name)?;
        need(seen.insert(text), "a name is given once", name)?;
    }
    Ok(())
}
