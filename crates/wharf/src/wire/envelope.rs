//! The JSON-RPC envelope: which message is this, whose answer is it, and where do its parts lie?

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;

use super::scan::{Bad, Scanner};
use super::{Json, JsonError};
use crate::text::Foreign;

/// One message, its parts still in the bytes that came.
#[derive(Clone, Debug)]
pub enum Message {
    /// The other side asks for something.
    Request {
        /// Its id, to be echoed as it is.
        id: Json,
        /// What it asks for.
        method: String,
        /// With what.
        params: Option<Json>,
    },
    /// The other side tells something.
    Notification {
        /// What happened.
        method: String,
        /// The details.
        params: Option<Json>,
    },
    /// The other side answers.
    Response {
        /// Whose answer it is.
        id: ReplyId,
        /// What the answer is.
        outcome: Result<Json, RpcError>,
    },
}

/// The id of an answer, seen from our side, where ids are whole numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyId {
    /// A number as we send them.
    Number(u64),
    /// One of our numbers in another spelling, `"7"` or `7.0`: the call is known, the answer is not acceptable.
    Respelt(u64),
    /// `null`, or no id where an error came.
    Null,
    /// Nothing we ever sent.
    Unknown,
}

/// A frame that cannot be taken, and the call it belongs to where that can still be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The call that the frame was meant to answer.
    pub id: Option<u64>,
    /// What is wrong with the frame.
    pub reason: String,
}

/// A JSON-RPC error as a server gave it.
#[derive(Clone, Debug)]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The message; it comes from outside, so it is escaped where it is shown.
    pub message: Foreign,
    /// Whatever else was said.
    pub data: Option<Json>,
}

/// Takes one frame apart. A batch gives its messages in order; whether batches are allowed is for the caller to say.
pub fn parse_frame(frame: Bytes, max_depth: usize) -> Vec<Result<Message, Malformed>> {
    if first_visible(&frame) == Some(b'[') {
        return match split_batch(&frame, max_depth) {
            Ok(parts) => parts.into_iter().map(|part| parse_one(part, max_depth)).collect(),
            Err(e) => vec![Err(Malformed { id: None, reason: format!("a batch that is not JSON: {e}") })],
        };
    }
    vec![parse_one(frame, max_depth)]
}

fn split_batch(frame: &Bytes, max_depth: usize) -> Result<Vec<Bytes>, JsonError> {
    let whole = Json::parse(frame.clone(), max_depth)?;
    let parts: Vec<Json> = whole.to().map_err(|_| JsonError::Syntax { what: "not a batch", at: 0 })?;
    Ok(parts.into_iter().map(|p| p.bytes().clone()).collect())
}

fn parse_one(frame: Bytes, max_depth: usize) -> Result<Message, Malformed> {
    match Parts::read(&frame, max_depth) {
        Ok(parts) => parts.into_message(&frame),
        Err(e) => {
            Err(Malformed { id: guess_id(&frame, &frame), reason: format!("not acceptable JSON: {e}") })
        }
    }
}

/// Where the members of the envelope lie.
#[derive(Default)]
struct Parts {
    version: Option<Range<usize>>,
    id: Option<Range<usize>>,
    method: Option<Range<usize>>,
    params: Option<Range<usize>>,
    result: Option<Range<usize>>,
    error: Option<Range<usize>>,
}

impl Parts {
    fn read(frame: &[u8], max_depth: usize) -> Result<Self, JsonError> {
        let text = std::str::from_utf8(frame).map_err(|e| JsonError::Utf8(e.valid_up_to()))?;
        let mut parts = Self::default();
        let mut twice = None;
        Scanner::new(text, max_depth)
            .members(|key, value| {
                let at = key.start;
                let name = unquote(&text[key]);
                let place = match &*name {
                    "jsonrpc" => &mut parts.version,
                    "id" => &mut parts.id,
                    "method" => &mut parts.method,
                    "params" => &mut parts.params,
                    "result" => &mut parts.result,
                    "error" => &mut parts.error,
                    _ => return Ok(()),
                };
                if place.replace(value).is_some() {
                    twice = Some(name.into_owned());
                    return Err(Bad { what: "a key stands twice", at });
                }
                Ok(())
            })
            .map_err(|bad| twice.map_or_else(|| bad.into(), JsonError::DuplicateKey))?;
        Ok(parts)
    }

    fn into_message(self, frame: &Bytes) -> Result<Message, Malformed> {
        let part = |place: &Option<Range<usize>>| place.clone().map(|p| Json::part(frame, p));
        let id = part(&self.id);
        let reply_id = reply_id(id.as_ref());
        let malformed = |reason: &str| Malformed { id: reply_id.number(), reason: reason.to_owned() };

        if part(&self.version).is_none_or(|v| v.as_str() != "\"2.0\"") {
            return Err(malformed("`jsonrpc` is not \"2.0\""));
        }
        // Old libraries write both members and set one to null; a null beside the other means nothing.
        let result = part(&self.result);
        let error = part(&self.error).filter(|e| !e.is_null());
        let result = result.filter(|r| error.is_none() || !r.is_null());

        if let Some(method) = part(&self.method) {
            let method: String = method.to().map_err(|_| malformed("`method` is not a string"))?;
            let params = part(&self.params);
            return match id {
                Some(id) if !matches!(first_visible(id.bytes()), Some(b'"' | b'-' | b'0'..=b'9')) => {
                    Err(malformed("the id of a request is neither a string nor a number"))
                }
                Some(id) => Ok(Message::Request { id, method, params }),
                None => Ok(Message::Notification { method, params }),
            };
        }
        let outcome = match (result, error) {
            (Some(_), Some(_)) => return Err(malformed("both `result` and `error`")),
            (None, None) => return Err(malformed("neither `method`, `result` nor `error`")),
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(read_error(&error).map_err(|reason| malformed(&reason))?),
        };
        Ok(Message::Response { id: reply_id, outcome })
    }
}

// === impl ReplyId ===

impl ReplyId {
    /// The call that is meant, however it is spelt.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(n) | Self::Respelt(n) => Some(*n),
            Self::Null | Self::Unknown => None,
        }
    }
}

fn reply_id(id: Option<&Json>) -> ReplyId {
    let Some(id) = id else { return ReplyId::Null };
    let text = id.as_str();
    if text == "null" {
        return ReplyId::Null;
    }
    if let Some(number) = whole_number(text) {
        return ReplyId::Number(number);
    }
    let respelt = text.trim_matches('"').split_once('.').map_or(text.trim_matches('"'), |(whole, rest)| {
        if rest.bytes().all(|b| b == b'0') { whole } else { text }
    });
    whole_number(respelt).map_or(ReplyId::Unknown, ReplyId::Respelt)
}

/// Digits only: `+7`, `07` and `7e0` are not spellings of ours.
fn whole_number(text: &str) -> Option<u64> {
    let plain = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

fn read_error(error: &Json) -> Result<RpcError, String> {
    #[derive(Deserialize)]
    struct Shape {
        code: i64,
        message: String,
        data: Option<Json>,
    }
    let shape: Shape = error.to().map_err(|e| format!("its error is not a JSON-RPC error ({e})"))?;
    Ok(RpcError { code: shape.code, message: Foreign::new(shape.message), data: shape.data })
}

// === impl RpcError ===

impl RpcError {
    /// An error of our own making, to answer a request with.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: Foreign::new(message.into()), data: None }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

fn unquote(key: &str) -> Cow<'_, str> {
    if key.contains('\\') {
        return serde_json::from_str::<String>(key).map_or(Cow::Borrowed(key), Cow::Owned);
    }
    Cow::Borrowed(key.trim_matches('"'))
}

fn first_visible(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|b| !b.is_ascii_whitespace())
}

/// Looks for the id of an answer in a frame that cannot be parsed: among the outermost members of its beginning, or as
/// the very last member of its end. It is only used to end a call with an error, never to deliver an answer.
pub(super) fn guess_id(head: &[u8], tail: &[u8]) -> Option<u64> {
    guess_in_head(head).or_else(|| guess_in_tail(tail))
}

fn guess_in_head(head: &[u8]) -> Option<u64> {
    let (mut depth, mut in_string, mut escaped, mut string_start) = (0_usize, false, false, 0);
    for (at, &b) in head.iter().enumerate() {
        if in_string {
            match b {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    in_string = false;
                    if depth == 1 && &head[string_start..at] == b"id" {
                        if let Some(id) = number_after_colon(&head[at + 1..]) {
                            return Some(id);
                        }
                    }
                }
                _ => {}
            }
            continue;
        }
        match b {
            b'"' => (in_string, string_start) = (true, at + 1),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn guess_in_tail(tail: &[u8]) -> Option<u64> {
    let at = memchr::memmem::rfind(tail, b"\"id\"")?;
    let after = &tail[at + 4..];
    let closes = after.iter().filter(|b| !b.is_ascii_whitespace()).skip_while(|b| **b != b'}').eq(b"}");
    closes.then(|| number_after_colon(after)).flatten()
}

fn number_after_colon(after: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(&after[..after.len().min(32)]).ok()?;
    let value = text.trim_start().strip_prefix(':')?.trim_start().trim_start_matches('"');
    let digits = value.find(|c: char| !c.is_ascii_digit())?;
    whole_number(&value[..digits])
}
