//! What an HTTP answer is, before its content is looked at: a message, a stream of events, or a refusal.

use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};

use super::Unsent;
use crate::connect::inbox::Inbox;
use crate::connect::link::LinkFailure;
use crate::net::{Answer, Head};
use crate::text::Escaped;
use crate::wire::Json;

/// What a good answer holds.
pub(crate) enum Content {
    Json,
    Events,
    /// Neither, and what it is instead.
    Other(String),
}

/// How much of a refusal is read, and how much of it is shown.
const REFUSAL_READ: usize = 64 * 1024;
const REFUSAL_SHOWN: usize = 300;
/// How deep it may be, to be understood.
const REFUSAL_DEPTH: usize = 8;

pub(crate) fn content(head: &Head) -> Content {
    let text = |value: &[u8]| String::from_utf8_lossy(value).to_ascii_lowercase();
    if let Some(encoding) = head.get(CONTENT_ENCODING).filter(|e| !e.eq_ignore_ascii_case(b"identity")) {
        let encoding = text(encoding);
        return Content::Other(format!(
            "it is compressed with `{}`, which nobody asked for",
            Escaped(&encoding)
        ));
    }
    let kind = head.get(CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if kind.eq_ignore_ascii_case(b"application/json") {
        return Content::Json;
    }
    if kind.eq_ignore_ascii_case(b"text/event-stream") {
        return Content::Events;
    }
    match text(kind).trim() {
        "" => Content::Other("it has no content type".into()),
        other => Content::Other(format!(
            "its content type is `{}`, not JSON or a stream of events",
            Escaped(other)
        )),
    }
}

/// A request that got no answer: whether it ever left decides whether it may be sent again.
pub(crate) fn unreached(unsent: Unsent) -> LinkFailure {
    let error = match unsent {
        Unsent::Net(error) => error,
        Unsent::Barred(error) => return LinkFailure::Barred(error),
    };
    if error.is_before_send() || error.is_refusal() {
        LinkFailure::Unreached(error)
    } else {
        LinkFailure::Lost(error.to_string())
    }
}

/// Reads a refusal. An error of JSON-RPC in it is the call's, whatever id it names; anything else is a status.
/// Statuses about who asks, when, and how much, and those of an outage, say more than their bodies.
pub(crate) async fn refusal(
    inbox: &Inbox,
    call: u64,
    in_session: bool,
    answer: Answer,
) -> Result<(), LinkFailure> {
    let Answer { head, body } = answer;
    let status = head.status();
    let header = |name: HeaderName| {
        let value = head.get(name)?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    let show = |text: &str| {
        Escaped(&inbox.monitor.redactor.redact_beginning(text.trim(), REFUSAL_SHOWN)).to_string()
    };
    let challenge = header(WWW_AUTHENTICATE).map(|c| show(&c));
    let body = body.read(REFUSAL_READ).await.unwrap_or_default();
    if in_session && is_expired(status, &body) {
        return Err(LinkFailure::SessionExpired);
    }
    let is_answer = status.is_client_error() && !matches!(status.as_u16(), 401 | 403 | 407 | 408 | 429);
    if is_answer && inbox.take_error(call, body.clone()) {
        return Ok(());
    }
    Err(LinkFailure::Status {
        status: status.as_u16(),
        body: show(&String::from_utf8_lossy(&body)),
        challenge,
        retry_after: header(RETRY_AFTER).and_then(|text| seconds(&text)),
    })
}

/// How long to stay away, in whole seconds. What is no such number, a date or less than nothing, says nothing.
fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number too large to be read is a very long time.
    is_number.then(|| Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()))
}

/// The server says that it does not know the session, and so cannot have run anything. 404 is what the specification
/// wants. The other two are in the field, and must be these very words: the examples of the TypeScript SDK, and rmcp before 1.0.
fn is_expired(status: StatusCode, body: &[u8]) -> bool {
    match status {
        StatusCode::NOT_FOUND => true,
        StatusCode::BAD_REQUEST => {
            let said = Json::parse(body.to_vec(), REFUSAL_DEPTH)
                .ok()
                .and_then(|body| body.member("error")?.member("message"));
            said.is_some_and(|said| {
                said.text().is_some_and(|said| said == "Bad Request: No valid session ID provided")
            })
        }
        StatusCode::UNAUTHORIZED => body.trim_ascii() == b"Unauthorized: Session not found",
        _ => false,
    }
}
