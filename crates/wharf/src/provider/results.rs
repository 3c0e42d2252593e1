//! Results as each provider wants them.
//!
//! In: results in the neutral form, in the order of their calls. Out: the messages that follow the model's turn. What a
//! provider does not take is a line of text in the place where it was; nothing is left out in silence.

use serde_json::{Value, json};

use super::calls::ToolCall;
use super::family::Provider;
use super::media::Format;
use super::message::{Part, ToolMessage, visible_json};
use crate::outcome::Outcome;
use crate::wire::Json;

// === impl Provider ===

impl Provider {
    /// The outcomes of a turn as the messages that follow it, in the order of the calls.
    pub fn results(self, done: &[(ToolCall, Outcome)]) -> Vec<Json> {
        let messages: Vec<_> = done.iter().map(|(call, outcome)| ToolMessage::new(call, outcome)).collect();
        self.messages(&messages)
    }

    /// The same from results in the neutral form. None at all is no message.
    pub fn messages(self, results: &[ToolMessage]) -> Vec<Json> {
        if results.is_empty() {
            return Vec::new();
        }
        let each = |one: fn(&ToolMessage) -> Value| results.iter().map(one).collect::<Vec<Value>>();
        let messages = match self {
            Self::OpenAiChat => chat(results),
            Self::OpenAiResponses => each(responses),
            Self::Anthropic => vec![json!({ "role": "user", "content": each(anthropic) })],
            Self::Gemini | Self::GeminiOpenApi => vec![json!({ "role": "user", "parts": each(gemini) })],
            Self::Mistral => each(mistral),
            Self::Bedrock => vec![json!({ "role": "user", "content": each(bedrock) })],
            Self::Ollama => each(ollama),
        };
        messages.into_iter().map(Json::from).collect()
    }
}

/// Tool messages take text only, so all pictures of the turn go into one user message behind them.
fn chat(results: &[ToolMessage]) -> Vec<Value> {
    let mut pictures: Vec<Value> = Vec::new();
    let mut messages: Vec<Value> = Vec::with_capacity(results.len() + 1);
    for result in results {
        let lines: Vec<String> = result
            .parts
            .iter()
            .map(|part| match part {
                Part::Data { format, base64 } if format.is_image() => {
                    let number = pictures.len() / 2 + 1;
                    let label = format!("picture {number}, from the result of `{}`:", result.name);
                    pictures.push(json!({ "type": "text", "text": label }));
                    pictures
                        .push(json!({ "type": "image_url", "image_url": { "url": url(*format, base64) } }));
                    format!("[{}: picture {number} of the next message]", format.mime())
                }
                part => part.to_text(),
            })
            .collect();
        let content = flagged(result, lines.join("\n"));
        messages.push(json!({ "role": "tool", "tool_call_id": id(result), "content": content }));
    }
    if !pictures.is_empty() {
        messages.push(json!({ "role": "user", "content": pictures }));
    }
    messages
}

fn responses(result: &ToolMessage) -> Value {
    let has_data = result.parts.iter().any(|part| matches!(part, Part::Data { .. }));
    let output = if has_data {
        let error = result.is_error.then(|| json!({ "type": "input_text", "text": "Error:" }));
        let parts = result.parts.iter().map(|part| match part {
            Part::Data { format, base64 } if format.is_image() => {
                json!({ "type": "input_image", "image_url": url(*format, base64) })
            }
            Part::Data { format, base64 } => {
                let name = format!("result.{}", format.word());
                json!({ "type": "input_file", "filename": name, "file_data": url(*format, base64) })
            }
            part => json!({ "type": "input_text", "text": part.to_text() }),
        });
        Value::Array(error.into_iter().chain(parts).collect())
    } else {
        Value::String(flagged(result, result.to_text()))
    };
    json!({ "type": "function_call_output", "call_id": id(result), "output": output })
}

fn anthropic(result: &ToolMessage) -> Value {
    let part = |part: &Part| match part {
        // A failed result may hold nothing but text.
        Part::Data { format, base64 } if !result.is_error => {
            let kind = if format.is_image() { "image" } else { "document" };
            let source = json!({ "type": "base64", "media_type": format.mime(), "data": base64 });
            json!({ "type": kind, "source": source })
        }
        part => json!({ "type": "text", "text": part.to_text() }),
    };
    json!({
        "type": "tool_result",
        "tool_use_id": id(result),
        "is_error": result.is_error,
        "content": result.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

fn gemini(result: &ToolMessage) -> Value {
    let mut data: Vec<Value> = Vec::new();
    let lines: Vec<String> = result
        .parts
        .iter()
        .map(|part| match part {
            Part::Data { format, base64 } if *format != Format::Gif => {
                data.push(json!({ "inlineData": { "mimeType": format.mime(), "data": base64 } }));
                format!("[{}: attached, number {}]", format.mime(), data.len())
            }
            part => part.to_text(),
        })
        .collect();
    let key = if result.is_error { "error" } else { "output" };
    let mut response = json!({ "name": result.name, "response": { key: lines.join("\n") } });
    if let Some(id) = &result.call_id {
        response["id"] = json!(id);
    }
    if !data.is_empty() {
        response["parts"] = Value::Array(data);
    }
    json!({ "functionResponse": response })
}

fn mistral(result: &ToolMessage) -> Value {
    let has_picture =
        result.parts.iter().any(|p| matches!(p, Part::Data { format, .. } if format.is_image()));
    let content = if has_picture {
        let error = result.is_error.then(|| json!({ "type": "text", "text": "Error:" }));
        let chunks = result.parts.iter().map(|part| match part {
            Part::Data { format, base64 } if format.is_image() => {
                json!({ "type": "image_url", "image_url": url(*format, base64) })
            }
            part => json!({ "type": "text", "text": part.to_text() }),
        });
        Value::Array(error.into_iter().chain(chunks).collect())
    } else {
        Value::String(flagged(result, result.to_text()))
    };
    json!({ "role": "tool", "name": result.name, "tool_call_id": id(result), "content": content })
}

fn bedrock(result: &ToolMessage) -> Value {
    let part = |(place, part): (usize, &Part)| match part {
        Part::Data { format, base64 } if format.is_image() => {
            json!({ "image": { "format": format.word(), "source": { "bytes": base64 } } })
        }
        Part::Data { format, base64 } => {
            let name = format!("result-{}", place + 1);
            json!({ "document": { "format": format.word(), "name": name, "source": { "bytes": base64 } } })
        }
        Part::Structured(structured) => match as_value(structured) {
            Some(value) => json!({ "json": value }),
            None => json!({ "text": part.to_text() }),
        },
        Part::Text(text) => json!({ "text": text }),
    };
    json!({ "toolResult": {
        "toolUseId": id(result),
        "status": if result.is_error { "error" } else { "success" },
        "content": result.parts.iter().enumerate().map(part).collect::<Vec<_>>(),
    } })
}

fn ollama(result: &ToolMessage) -> Value {
    json!({ "role": "tool", "tool_name": result.name, "content": flagged(result, result.to_text()) })
}

/// An object as a value, if nothing in it changes on the way and nothing in it hides.
fn as_value(structured: &Json) -> Option<Value> {
    let text = structured.as_str();
    let value: Value = structured.to().ok()?;
    (value.is_object() && Json::of(&value) == *structured && visible_json(text) == text).then_some(value)
}

/// Where the form has no place for it, the text says that the call failed.
fn flagged(result: &ToolMessage, text: String) -> String {
    if result.is_error { format!("Error: {text}") } else { text }
}

fn id(result: &ToolMessage) -> &str {
    result.call_id.as_deref().unwrap_or_default()
}

fn url(format: Format, base64: &str) -> String {
    format!("data:{};base64,{base64}", format.mime())
}
