//! Web pages of other origins that were allowed by name, over HTTP.
//!
//! In: a request and its answer. Out: what a browser must read in them before it lets such a page ask and hear. Pages of
//! any other origin get nothing of it; whether they are answered at all is `guard`'s.

use http::{Method, StatusCode};

use super::Settings;
use super::body::{self, Reply};
use super::h1::{Head, Usual};

const METHODS: &str = "GET, POST, DELETE";
/// What a page may say beside what every page may.
const HEADERS: &str = "content-type, authorization, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, \
                       last-event-id, traceparent, tracestate, baggage";
/// What tools may want to have said in headers, by names of their own.
const PARAM: &str = "mcp-param-";
/// So many of those are allowed at a time.
const PARAMS: usize = 64;
const EXPOSED: &str = "mcp-session-id, www-authenticate, retry-after";
/// How long a browser need not ask again, in seconds.
const MAX_AGE: &str = "600";

/// The answer to a browser that asks whether a page may ask. It comes before the keys, as browsers show none with it.
pub(super) fn preflight(head: &Head, settings: &Settings) -> Option<Reply> {
    allowed(head, settings)?;
    if *head.method() != Method::OPTIONS || !head.has("access-control-request-method") {
        return None;
    }
    let mut headers = HEADERS.to_owned();
    let asked = head.lines("access-control-request-headers").flat_map(|line| line.split(',')).map(str::trim);
    for param in asked.filter(|name| is_param(name)).take(PARAMS) {
        headers.push_str(", ");
        headers.push_str(&param.to_ascii_lowercase());
    }
    let reply = body::empty(StatusCode::NO_CONTENT)
        .with("access-control-allow-methods", METHODS)
        .with("access-control-allow-headers", headers)
        .with("access-control-max-age", MAX_AGE);
    Some(reply)
}

/// An answer as the page may read it that asked.
pub(super) fn readable(reply: Reply, head: &Head, settings: &Settings) -> Reply {
    match allowed(head, settings) {
        Some(origin) => reply
            .with("access-control-allow-origin", origin.to_owned())
            .with("vary", "origin")
            .with("access-control-expose-headers", EXPOSED),
        None => reply,
    }
}

/// The origin of the page that asks, if it was allowed by name. A page of the gateway's own address needs no leave.
fn allowed<'a>(head: &'a Head, settings: &Settings) -> Option<&'a str> {
    if !head.has_usual(Usual::Origin) {
        return None;
    }
    let origin = head.one("origin")?;
    settings.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)).then_some(origin)
}

fn is_param(name: &str) -> bool {
    let rest = name
        .get(..PARAM.len())
        .filter(|start| start.eq_ignore_ascii_case(PARAM))
        .map(|_| &name[PARAM.len()..]);
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_token))
}
