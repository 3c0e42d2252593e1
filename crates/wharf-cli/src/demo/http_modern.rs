//! Streamable HTTP of 2026-07-28: every request stands alone, its headers say what its body says.

use std::sync::Arc;

use base64::Engine;
use http::StatusCode;
use http::header::HeaderMap;
use tokio::sync::mpsc;
use wharf::mcp::{code, method};
use wharf::wire::{Message, RpcError, response_error, response_result};

use super::answer::{Around, Asked};
use super::conversation::answer;
use super::http::{Reply, VERSION, accepted, events, json, refuse, text};
use super::state::Shared;

/// Whether a message is written in the modern way, whatever its headers say.
pub(super) fn speaks(message: &Message) -> bool {
    match message {
        Message::Request { id, method, params } => {
            Asked::new(id.clone(), method.clone(), params.as_ref()).version().is_some()
        }
        Message::Notification { .. } | Message::Response { .. } => false,
    }
}

pub(super) async fn take(headers: &HeaderMap, message: Message, shared: Arc<Shared>) -> Reply {
    let asked = match message {
        Message::Request { id, method, params } => Asked::new(id, method, params.as_ref()),
        Message::Notification { .. } => return accepted(),
        Message::Response { .. } => {
            let error = RpcError::new(code::INVALID_REQUEST, "a client of this revision sends no responses");
            return refuse(StatusCode::BAD_REQUEST, &error);
        }
    };
    let checked = check_version(headers, &asked)
        .and_then(|()| asked.check_meta())
        .and_then(|()| check_names(headers, &asked));
    if let Err(error) = checked {
        return json(StatusCode::BAD_REQUEST, response_error(&asked.id, &error));
    }
    if asked.has_words_before() {
        return stream(asked, shared);
    }
    match asked.answer(&Around { shared, client: None, frames: None }).await {
        Ok(result) => json(StatusCode::OK, response_result(&asked.id, &result)),
        Err(error) => {
            let unknown = error.code == code::METHOD_NOT_FOUND;
            let status = if unknown { StatusCode::NOT_FOUND } else { StatusCode::OK };
            json(status, response_error(&asked.id, &error))
        }
    }
}

/// Answers with events. A client that closes the stream cancels the call.
fn stream(asked: Asked, shared: Arc<Shared>) -> Reply {
    let (frames, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let around = Around { shared, client: None, frames: Some(frames.clone()) };
        tokio::select! {
            () = answer(&asked, &around, &frames) => {}
            () = frames.closed() => {}
        }
    });
    events(None, receiver)
}

fn check_version(headers: &HeaderMap, asked: &Asked) -> Result<(), RpcError> {
    // What the body lacks is told by the check of the body.
    let Some(version) = asked.version().and_then(|v| v.as_str()) else {
        return Ok(());
    };
    same(headers, VERSION, version, |v| Some(v.to_owned()))
}

fn check_names(headers: &HeaderMap, asked: &Asked) -> Result<(), RpcError> {
    same(headers, "mcp-method", &asked.method, |v| Some(v.to_owned()))?;
    let key = match asked.method.as_str() {
        method::TOOLS_CALL | method::PROMPTS_GET => "name",
        method::RESOURCES_READ => "uri",
        _ => return Ok(()),
    };
    match asked.params[key].as_str() {
        Some(name) => same(headers, "mcp-name", name, decode),
        None => Ok(()),
    }
}

fn same(
    headers: &HeaderMap,
    name: &str,
    body: &str,
    decode: impl Fn(&str) -> Option<String>,
) -> Result<(), RpcError> {
    let mismatch = |why: &str| RpcError::new(code::HEADER_MISMATCH, format!("the header `{name}` {why}"));
    let value = text(headers, name).ok_or_else(|| mismatch("is missing, or is not one plain value"))?;
    let value = decode(value).ok_or_else(|| mismatch("is not well encoded"))?;
    if value == body { Ok(()) } else { Err(mismatch("does not say what the body says")) }
}

/// A name that is not plain ASCII comes as `=?base64?…?=`.
fn decode(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|v| v.strip_suffix("?=")) {
        Some(encoded) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
            String::from_utf8(bytes).ok()
        }
        None => Some(value.to_owned()),
    }
}
