//! Each provider's answer, taken apart.
//!
//! In: the body of an answer, or only the message in it. Out: what to send back unchanged, the text, why it ended, and
//! the calls as they were written. What the calls mean is `calls`' business.

use serde::Serialize;

use super::family::Provider;
use crate::wire::Json;

/// What a body holds.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// What the conversation goes on with, byte for byte as the provider wrote it.
    pub(super) messages: Vec<Json>,
    /// The text for the reader, thoughts left out.
    pub(super) text: String,
    /// The provider's word for why it ended.
    pub(super) ended: Option<String>,
    /// The calls, in order.
    pub(super) calls: Vec<Written>,
}

/// A call as a model wrote it.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) id: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) arguments: Option<Json>,
}

/// A message put together from a provider's own pieces.
#[derive(Serialize)]
struct Said<'a> {
    role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<&'a Json>,
}

/// Takes a body apart, or says what is wrong with it as a whole.
pub(super) fn read(provider: Provider, body: &Json) -> Result<Heard, String> {
    if let Some(error) = body.member("error").filter(|e| !e.is_null()) {
        let message = string(error.member("message")).or_else(|| string(Some(error)));
        return Err(format!("it is an error: {}", message.unwrap_or_else(|| "it does not say which".into())));
    }
    let heard = match provider {
        Provider::OpenAiChat | Provider::Mistral => chat(body),
        Provider::Ollama => ollama(body),
        Provider::OpenAiResponses => responses(body),
        Provider::Anthropic => anthropic(body),
        Provider::Gemini | Provider::GeminiOpenApi => gemini(body),
        Provider::Bedrock => bedrock(body),
    };
    heard.ok_or_else(|| "there is no message in it".to_owned())
}

fn chat(body: &Json) -> Option<Heard> {
    match body.member("choices") {
        Some(choices) => {
            let choice = items(Some(choices)).into_iter().next()?;
            chat_message(choice.member("message")?, string(choice.member("finish_reason")))
        }
        None => chat_message(body.clone(), None),
    }
}

fn ollama(body: &Json) -> Option<Heard> {
    match body.member("message") {
        Some(message) => chat_message(message, string(body.member("done_reason"))),
        None => chat_message(body.clone(), None),
    }
}

/// The message that OpenAI Chat made common: text beside `tool_calls`.
fn chat_message(message: Json, ended: Option<String>) -> Option<Heard> {
    let [role, content, refusal, calls] = message.pick(["role", "content", "refusal", "tool_calls"]);
    if role.is_none() && content.is_none() && calls.is_none() {
        return None;
    }
    let refusal = string(refusal).filter(|r| !r.is_empty());
    let ended = if refusal.is_some() { Some("refusal".into()) } else { ended };
    let text = string(content.clone()).unwrap_or_else(|| {
        items(content).iter().filter_map(|chunk| text_of(chunk, "text")).collect::<Vec<_>>().concat()
    });
    let calls = items(calls).iter().map(chat_call).collect();
    Some(Heard { messages: vec![message], text: refusal.unwrap_or(text), ended, calls })
}

fn chat_call(call: &Json) -> Written {
    let [id, function, custom] = call.pick(["id", "function", "custom"]);
    let function = function.or(custom);
    let inner = |key| function.as_ref().and_then(|f| f.member(key));
    Written {
        id: named(id),
        namespace: None,
        name: string(inner("name")).unwrap_or_default(),
        arguments: inner("arguments").or_else(|| inner("input")),
    }
}

fn responses(body: &Json) -> Option<Heard> {
    let [output, status, details] = body.pick(["output", "status", "incomplete_details"]);
    let output = output.unwrap_or_else(|| body.clone());
    if output.bytes().first() != Some(&b'[') {
        return None;
    }
    let ended = string(details.and_then(|d| d.member("reason"))).or_else(|| string(status));
    let mut heard = Heard { messages: items(Some(output)), ended, ..Heard::default() };
    for item in &heard.messages {
        let [kind, call_id, namespace, name, arguments, content] =
            item.pick(["type", "call_id", "namespace", "name", "arguments", "content"]);
        match string(kind).as_deref() {
            Some("function_call") => heard.calls.push(Written {
                id: named(call_id),
                namespace: string(namespace),
                name: string(name).unwrap_or_default(),
                arguments,
            }),
            Some("message") => {
                for part in items(content) {
                    if let Some(refusal) = string(part.member("refusal")) {
                        heard.ended = Some("refusal".into());
                        heard.text.push_str(&refusal);
                    }
                    heard.text.extend(text_of(&part, "output_text"));
                }
            }
            _ => {}
        }
    }
    Some(heard)
}

fn anthropic(body: &Json) -> Option<Heard> {
    let [content, ended] = body.pick(["content", "stop_reason"]);
    let content = content?;
    let messages = vec![Json::of(&Said { role: "assistant", content: Some(&content), parts: None })];
    if let Some(text) = string(Some(content.clone())) {
        return Some(Heard { messages, text, ended: string(ended), calls: Vec::new() });
    }
    let mut heard = Heard { messages, ended: string(ended), ..Heard::default() };
    for block in items(Some(content)) {
        heard.text.extend(text_of(&block, "text"));
        if is_kind(&block, "tool_use") {
            let [id, name, input] = block.pick(["id", "name", "input"]);
            heard.calls.push(Written::new(id, name, input));
        }
    }
    Some(heard)
}

fn gemini(body: &Json) -> Option<Heard> {
    let candidate = match body.member("candidates") {
        Some(candidates) => items(Some(candidates)).into_iter().next(),
        // A prompt that was refused has no candidate at all.
        None => match body.member("promptFeedback") {
            Some(feedback) => {
                let ended = string(feedback.member("blockReason")).map(|_| "safety".to_owned());
                return Some(Heard { ended, ..Heard::default() });
            }
            None => Some(body.clone()),
        },
    }?;
    let [content, ended] = candidate.pick(["content", "finishReason"]);
    let ended = string(ended);
    let content = match content {
        Some(content) => content,
        None if candidate.member("parts").is_some() => candidate,
        // Such as after `MALFORMED_FUNCTION_CALL`: nothing was said, and the reason says why.
        None => return ended.map(|ended| Heard { ended: Some(ended), ..Heard::default() }),
    };
    let [role, parts] = content.pick(["role", "parts"]);
    let message = match (&role, &parts) {
        (None, Some(parts)) => Json::of(&Said { role: "model", content: None, parts: Some(parts) }),
        _ => content,
    };
    let mut heard = Heard { messages: vec![message], ended, ..Heard::default() };
    for part in items(parts) {
        let [text, thought, call] = part.pick(["text", "thought", "functionCall"]);
        if thought.is_none_or(|t| t.as_str() != "true") {
            heard.text.extend(string(text));
        }
        if let Some(call) = call {
            let [id, name, args] = call.pick(["id", "name", "args"]);
            heard.calls.push(Written::new(id, name, args));
        }
    }
    Some(heard)
}

fn bedrock(body: &Json) -> Option<Heard> {
    let [output, ended] = body.pick(["output", "stopReason"]);
    let message = match output {
        Some(output) => output.member("message")?,
        None => body.clone(),
    };
    let content = message.member("content")?;
    let mut heard = Heard { messages: vec![message], ended: string(ended), ..Heard::default() };
    for block in items(Some(content)) {
        let [text, call] = block.pick(["text", "toolUse"]);
        heard.text.extend(string(text));
        if let Some(call) = call {
            let [id, name, input] = call.pick(["toolUseId", "name", "input"]);
            heard.calls.push(Written::new(id, name, input));
        }
    }
    Some(heard)
}

// === impl Written ===

impl Written {
    fn new(id: Option<Json>, name: Option<Json>, arguments: Option<Json>) -> Self {
        Self { id: named(id), namespace: None, name: string(name).unwrap_or_default(), arguments }
    }
}

/// The elements of an array; none if it is no array.
fn items(json: Option<Json>) -> Vec<Json> {
    json.and_then(|json| json.to().ok()).unwrap_or_default()
}

/// A string's text, if it is a string.
pub(super) fn string(json: Option<Json>) -> Option<String> {
    json.and_then(|json| json.to().ok())
}

/// An id that says something.
fn named(id: Option<Json>) -> Option<String> {
    string(id).filter(|id| !id.is_empty())
}

fn is_kind(block: &Json, kind: &str) -> bool {
    string(block.member("type")).as_deref() == Some(kind)
}

/// The `text` of a block of this kind.
fn text_of(block: &Json, kind: &str) -> Option<String> {
    is_kind(block, kind).then(|| string(block.member("text"))).flatten()
}
