//! The headers of every request: what the configuration gives, what the protocol wants, and how text gets into a header.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::config::{Remote, ServerConfig};
use crate::error::{Error, Result};
use crate::net::is_of_the_journey;
use crate::text::Escaped;

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

const SENTINEL: (&str, &str) = ("=?base64?", "?=");

/// What every POST to a server carries. This is where the secrets in `headers` are opened.
pub(crate) fn of_config(config: &ServerConfig, remote: &Remote) -> Result<HeaderMap> {
    let mut all = HeaderMap::with_capacity(remote.headers.len() + 8);
    for (name, value) in &remote.headers {
        let refuse = |why: &str| {
            Error::config(format!("server `{}`: the header `{}` {why}", config.name, Escaped(name)))
        };
        let key =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse("is not the name of a header"))?;
        if is_of_the_journey(&key) {
            return Err(refuse("is set by Wharf itself"));
        }
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| refuse("has a value that cannot be sent in a header"))?;
        value.set_sensitive(true);
        all.append(key, value);
    }
    all.insert(CONTENT_TYPE, JSON);
    all.insert(ACCEPT, JSON_OR_EVENTS);
    Ok(all)
}

/// The same for a request without a body that asks for a stream of events.
pub(crate) fn for_stream(post: &HeaderMap) -> HeaderMap {
    let mut all = post.clone();
    all.remove(CONTENT_TYPE);
    all.insert(ACCEPT, EVENTS);
    all
}

/// The same for the request that becomes a WebSocket.
pub(crate) fn for_upgrade(post: &HeaderMap) -> HeaderMap {
    let mut all = post.clone();
    all.remove(CONTENT_TYPE);
    all.remove(ACCEPT);
    all
}

/// The same for a request without a body that ends a session.
pub(crate) fn for_end(post: &HeaderMap) -> HeaderMap {
    let mut all = post.clone();
    all.remove(CONTENT_TYPE);
    all
}

/// Text as a header's value: as it is where it survives the journey, in base64 between markers where it would not.
pub(crate) fn value(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|b| (0x20..=0x7e).contains(&b));
    let trimmed = text.starts_with(' ') || text.ends_with(' ');
    let marked = text.starts_with(SENTINEL.0) && text.ends_with(SENTINEL.1);
    let text = if plain && !trimmed && !marked {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("{}{}{}", SENTINEL.0, STANDARD.encode(text), SENTINEL.1))
    };
    // Both spellings are visible ASCII, which is always a header's value.
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
