//! The JSON-RPC envelope: which message is this, whose answer is it, and where do its parts lie?

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

use super::id_finder::IdFinder;
use super::json::{Member, OUTLINE, text_of, unquote};
use super::scan::{Bad, Scanner, TOO_DEEP};
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
    /// `null`, or no id at all.
    Null,
    /// Nothing we ever sent.
    Unknown,
}

/// A frame that cannot be taken, and the call it belongs to where that can still be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The call that the frame was meant to answer.
    pub id: Option<u64>,
    /// The id of the request that it was meant to be, to be echoed as it is.
    pub asked: Option<Json>,
    /// Whether it is JSON at least.
    pub is_json: bool,
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

/// The most messages of one batch. Small parts make large messages: without a bound, ten megabytes of `[1,1,…` would
/// fill the memory with complaints.
const BATCH: usize = 1000;

/// What is wrong with a batch that has more.
const TOO_MANY: &str = "too many messages";

/// Whether a frame holds several messages.
pub fn is_batch(frame: &[u8]) -> bool {
    first_visible(frame) == Some(b'[')
}

/// Takes one frame apart. A batch gives its messages in order; whether batches are allowed is for the caller to say.
/// There is always at least one message or complaint.
pub fn parse_frame(frame: Bytes, max_depth: usize) -> Vec<Result<Message, Malformed>> {
    if is_batch(&frame) {
        return match split_batch(&frame, max_depth, BATCH) {
            Ok(parts) if parts.is_empty() => {
                vec![Err(Malformed { is_json: true, ..Malformed::new(None, "an empty batch") })]
            }
            Ok(parts) => parts.into_iter().map(|part| parse_message(part, max_depth)).collect(),
            Err(e) => vec![Err(Malformed::new(None, format!("not an acceptable batch: {e}")))],
        };
    }
    vec![parse_message(frame, max_depth)]
}

/// Cuts a batch of at most so many messages into them.
pub(crate) fn split_batch(frame: &Bytes, max_depth: usize, most: usize) -> Result<Vec<Bytes>, JsonError> {
    let mut parts = Vec::new();
    Scanner::of_bytes(frame, max_depth).items(|place| {
        if parts.len() == most {
            return Err(Bad { what: TOO_MANY, at: place.start });
        }
        parts.push(frame.slice(place));
        Ok(())
    })?;
    Ok(parts)
}

/// Takes a frame of one message apart.
pub fn parse_message(frame: Bytes, max_depth: usize) -> Result<Message, Malformed> {
    match Parts::read(&frame, &Scanner::of_bytes(&frame, max_depth)) {
        Ok(parts) => parts.into_message(frame),
        Err(e) => Err(Malformed::unread(&frame, &e, max_depth)),
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
    /// The members of `result` or `params`, where it is an object of a few members whose keys have no escapes.
    outline: Option<Arc<[Member]>>,
}

impl Parts {
    fn read(frame: &[u8], scanner: &Scanner<'_>) -> Result<Self, JsonError> {
        let mut parts = Self::default();
        let mut outline: [Member; OUTLINE] = Default::default();
        let mut seen = 0;
        let mut others: Option<HashSet<_>> = None;
        let mut twice = None;
        let outer = |key: Range<usize>, value: Range<usize>| {
            let (at, name) = (key.start, name_of(&frame[key], scanner.is_plain()));
            let place = match &*name {
                b"jsonrpc" => &mut parts.version,
                b"id" => &mut parts.id,
                b"method" => &mut parts.method,
                b"params" => &mut parts.params,
                b"result" => &mut parts.result,
                b"error" => &mut parts.error,
                _ if others.get_or_insert_default().insert(name.clone()) => return Ok(()),
                _ => &mut Some(value.clone()),
            };
            if place.replace(value).is_some() {
                twice = Some(JsonError::twice(&String::from_utf8_lossy(&name)));
                return Err(Bad { what: "a key stands twice", at });
            }
            Ok(())
        };
        let mut plain = true;
        let inner = |key: Range<usize>, value| {
            plain &= seen < OUTLINE && (scanner.is_plain() || !frame[key.clone()].contains(&b'\\'));
            if plain {
                outline[seen] = (key, value);
                seen += 1;
            }
            Ok(())
        };
        let is_outlined = |key: &[u8]| key == b"\"result\"" || key == b"\"params\"";
        let walked = scanner.members_within(is_outlined, outer, inner);
        walked.map_err(|bad| twice.unwrap_or_else(|| bad.into()))?;
        // A message with both is none of the protocol's: whose members are whose is not looked at.
        let start = match (&parts.result, &parts.params) {
            (Some(place), None) | (None, Some(place)) if plain && seen > 0 => Some(place.start),
            _ => None,
        };
        let outline = start.map(|start| Json::outline(start, &outline[..seen]));
        Ok(Self { outline, ..parts })
    }

    /// The message takes the frame with it: most of it is one part of the message, and is not counted twice.
    fn into_message(self, frame: Bytes) -> Result<Message, Malformed> {
        let reply_id = reply_id(self.id.clone().map(|place| &frame[place]));
        // The ids of the other side's requests are its own: one of them must not end a call of ours.
        let is_answer = self.method.is_none() || self.result.is_some() || self.error.is_some();
        let call = reply_id.number().filter(|_| is_answer);
        // An answer has an id of ours: the other side would take it for one of its own.
        let is_asked = self.method.is_some() || (self.result.is_none() && self.error.is_none());
        let asked = self.id.clone().filter(|_| is_asked);
        let malformed = |frame: &Bytes, reason: &str| Malformed {
            asked: asked.clone().map(|place| Json::part(frame, place)).filter(Json::is_id),
            is_json: true,
            ..Malformed::new(call, reason)
        };

        if self.version.is_none_or(|place| frame[place] != *b"\"2.0\"") {
            return Err(malformed(&frame, "`jsonrpc` is not \"2.0\""));
        }
        if let Some(method) = self.method {
            if is_answer {
                return Err(malformed(&frame, "both `method` and `result` or `error`"));
            }
            let method = text_of(&frame[method]).map(Cow::into_owned);
            let method = method.ok_or_else(|| malformed(&frame, "`method` is not a string"))?;
            let id = self.id.map(|place| Json::part(&frame, place));
            if id.as_ref().is_some_and(|id| !id.is_id()) {
                return Err(malformed(&frame, "the id of a request is neither a string nor a number"));
            }
            let params = self.params.map(|place| Json::cut(frame, place, self.outline));
            return match id {
                Some(id) => Ok(Message::Request { id, method, params }),
                None => Ok(Message::Notification { method, params }),
            };
        }
        // Old libraries write both members and set one to null; a null beside the other means nothing.
        let is_null = |place: &Range<usize>| frame[place.clone()] == *b"null";
        let error = self.error.filter(|place| !is_null(place));
        let result = self.result.filter(|place| error.is_none() || !is_null(place));
        let outcome = match (result, error) {
            (Some(_), Some(_)) => return Err(malformed(&frame, "both `result` and `error`")),
            (None, None) => return Err(malformed(&frame, "neither `method`, `result` nor `error`")),
            (Some(place), None) => Ok(Json::cut(frame, place, self.outline)),
            (None, Some(place)) => {
                Err(read_error(&Json::part(&frame, place)).map_err(|why| malformed(&frame, why))?)
            }
        };
        Ok(Message::Response { id: reply_id, outcome })
    }
}

/// A key without its quotes and escapes, if it can have any.
fn name_of(written: &[u8], no_escapes: bool) -> Cow<'_, [u8]> {
    let plain = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
    if no_escapes || !plain.contains(&b'\\') {
        return Cow::Borrowed(plain);
    }
    // An escape that cannot be read is no key of ours, and a text that is not UTF-8 is refused at its end.
    match unquote(std::str::from_utf8(written).unwrap_or_default()) {
        Cow::Owned(name) => Cow::Owned(name.into_bytes()),
        Cow::Borrowed(name) => Cow::Borrowed(name.as_bytes()),
    }
}

// === impl JsonError ===

impl JsonError {
    /// Whether there is merely more of it than is taken.
    pub(crate) fn is_about_size(&self) -> bool {
        matches!(self, Self::Syntax { what: TOO_DEEP | TOO_MANY, .. })
    }
}

// === impl Malformed ===

impl Malformed {
    /// A frame that says no more than which call it may belong to.
    pub(crate) fn new(id: Option<u64>, reason: impl Into<String>) -> Self {
        Self { id, asked: None, is_json: false, reason: reason.into() }
    }

    /// A frame whose envelope cannot be taken apart.
    fn unread(frame: &[u8], error: &JsonError, max_depth: usize) -> Self {
        let is_json = match Scanner::of_bytes(frame, max_depth).whole() {
            Ok(_) => true,
            Err(bad) => JsonError::from(bad).is_about_size(),
        };
        let mut finder = IdFinder::default();
        finder.more(frame);
        // Which of two ids is meant, nobody knows.
        let is_twin = matches!(error, JsonError::DuplicateKey(key) if key == "id");
        let asked = if is_json && !is_twin { finder.asked() } else { None };
        let reason = format!("not acceptable JSON: {error}");
        Self { asked, is_json, ..Self::new(IdFinder::look(frame), reason) }
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

fn reply_id(id: Option<&[u8]>) -> ReplyId {
    let Some(id) = id else { return ReplyId::Null };
    if let Some(number) = whole_number(id) {
        return ReplyId::Number(number);
    }
    let text = std::str::from_utf8(id).unwrap_or_default();
    if text == "null" {
        return ReplyId::Null;
    }
    let respelt = text.trim_matches('"').split_once('.').map_or(text.trim_matches('"'), |(whole, rest)| {
        if rest.bytes().all(|b| b == b'0') { whole } else { text }
    });
    whole_number(respelt.as_bytes()).map_or(ReplyId::Unknown, ReplyId::Respelt)
}

/// Digits only: `+7`, `07` and `7e0` are not spellings of ours.
pub(super) fn whole_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

fn read_error(error: &Json) -> Result<RpcError, &'static str> {
    #[derive(Deserialize)]
    struct Shape {
        code: i64,
        message: String,
        data: Option<Json>,
    }
    // The reader's own words are not repeated: they would quote the server, at any length.
    let shape: Shape =
        error.to().map_err(|_| "its error has no whole number as `code` or no text as `message`")?;
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

fn first_visible(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|b| !b.is_ascii_whitespace())
}
