//! What is asked of a server, but not where: a method, headers, a body.
//!
//! In: headers that many requests share, and those of one. Out: the head of a request as HTTP/1.1 writes it, or the
//! headers as HTTP/2 wants them. Their values may be secrets, and are never shown.

use std::fmt;

use bytes::Bytes;
use http::header::{self, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};

use crate::wire::http1::{write_field, write_length};

/// Headers that many requests share, with their text made ready.
#[derive(Clone, Default)]
pub(crate) struct Preset {
    map: HeaderMap,
    text: Vec<u8>,
}

/// One request, as it is sent and perhaps sent again.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a Method,
    pub(crate) preset: &'a Preset,
    /// In place of those of the same names.
    pub(crate) own: &'a [(HeaderName, HeaderValue)],
    pub(crate) body: &'a Bytes,
}

/// Where a request goes within an origin, as each version of HTTP says it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    whole: Uri,
    target: String,
}

/// Whether a header describes how a message travels: that is ours to say.
pub(crate) fn is_of_the_journey(name: &HeaderName) -> bool {
    matches!(
        *name,
        header::CONNECTION
            | header::CONTENT_LENGTH
            | header::TE
            | header::TRAILER
            | header::TRANSFER_ENCODING
            | header::UPGRADE
    ) || name.as_str() == "keep-alive"
}

// === impl Preset ===

impl Preset {
    /// Without what describes how a message travels.
    pub(crate) fn new(headers: HeaderMap) -> Self {
        let mut map = headers;
        if map.keys().any(is_of_the_journey) {
            let ours: Vec<_> = map.keys().filter(|name| is_of_the_journey(name)).cloned().collect();
            for name in ours {
                map.remove(name);
            }
        }
        let mut text = Vec::new();
        write_all(&mut text, &map);
        Self { map, text }
    }
}

impl fmt::Debug for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preset").field("headers", &self.map.len()).finish_non_exhaustive()
    }
}

// === impl Ask ===

impl Ask<'_> {
    /// All headers.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut all = self.preset.map.clone();
        for (name, value) in self.own {
            all.insert(name, value.clone());
        }
        all
    }

    /// Writes the head, `host` in it if no other is named.
    pub(super) fn write_head(&self, out: &mut Vec<u8>, to: &Address, host: &HeaderValue) {
        for part in [self.method.as_str(), " ", &to.target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        if self.replaces() {
            let all = self.headers();
            if !all.contains_key(HOST) {
                write_field(out, "host", host.as_bytes());
            }
            write_all(out, &all);
        } else {
            if !self.preset.map.contains_key(HOST) {
                write_field(out, "host", host.as_bytes());
            }
            out.extend_from_slice(&self.preset.text);
            for (name, value) in self.own {
                write_field(out, name.as_str(), value.as_bytes());
            }
        }
        // A request that usually has a body says so if it has none.
        if !self.body.is_empty() || matches!(*self.method, Method::POST | Method::PUT | Method::PATCH) {
            write_length(out, self.body.len());
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Whether one of its own headers takes the place of another.
    fn replaces(&self) -> bool {
        let mut earlier = self.own.iter().enumerate();
        earlier.any(|(at, (name, _))| {
            let said = self.own[..at].iter().any(|(other, _)| other == name);
            said || *name == HOST || self.preset.map.contains_key(name)
        })
    }
}

fn write_all(out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        write_field(out, name.as_str(), value.as_bytes());
    }
}

// === impl Address ===

impl Address {
    pub(super) fn new(whole: Uri) -> Self {
        let target = match whole.query() {
            Some(query) => format!("{}?{query}", whole.path()),
            None => whole.path().to_owned(),
        };
        Self { target, whole }
    }

    pub(super) fn whole(&self) -> &Uri {
        &self.whole
    }
}
