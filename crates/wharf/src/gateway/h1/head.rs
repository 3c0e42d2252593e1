//! The head of a request: its verb, its target, its fields, and where its body ends.
//!
//! In: what has arrived. Out: a head, once it is whole. What can be read in two ways is refused, so that nobody on the
//! way sees another request than we do.

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Uri};
use httparse::Status;
use std::mem::MaybeUninit;

use super::HEAD;
use crate::wire::http1::{Span, has_word, length};

/// A request up to its body. Fields are asked for by their names in small letters.
#[derive(Debug)]
pub(in crate::gateway) struct Head {
    /// As it came.
    text: Bytes,
    method: Method,
    path: Span,
    query: Option<Span>,
    /// The host that the target names, if it names one.
    authority: Option<String>,
    /// The values of the fields that nearly every request is asked for.
    usual: [Option<Span>; USUAL.len()],
    /// Which of those stand there more than once: a bit for each.
    repeated: u16,
    /// The other fields, and what is repeated of the usual ones.
    others: Vec<(Span, Span)>,
    pub(super) framing: Framing,
    keeps_alive: bool,
    /// Whether the body is sent only after we said so.
    pub(super) waits: bool,
    /// Whether the caller knows chunks: those of HTTP/1.0 do not.
    pub(super) knows_chunks: bool,
}

/// Where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
}

/// Why a head is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum BadHead {
    Malformed,
    TooLarge,
}

/// How many fields a head may have.
const MOST: usize = 100;
/// Fields that are looked for in nearly every request: they are found while it is read.
const USUAL: [&str; 11] = [
    "host",
    "accept",
    "origin",
    "mcp-name",
    "mcp-method",
    "traceparent",
    "content-type",
    "authorization",
    "mcp-session-id",
    "content-encoding",
    "mcp-protocol-version",
];

// === impl BadHead ===

impl BadHead {
    pub(in crate::gateway) fn words(self) -> (StatusCode, &'static str) {
        match self {
            Self::Malformed => {
                (StatusCode::BAD_REQUEST, "that is no request that can be read in one way only")
            }
            Self::TooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the head of the request is too large")
            }
        }
    }
}

// === impl Head ===

impl Head {
    /// Takes a head off what has arrived; `None` while there is more to come.
    pub(super) fn take(arrived: &mut BytesMut) -> Result<Option<Self>, BadHead> {
        let mut fields = [const { MaybeUninit::uninit() }; MOST];
        let mut read = httparse::Request::new(&mut []);
        // A head that is too large is not looked through for its end.
        let within = &arrived[..arrived.len().min(HEAD)];
        let length = match read.parse_with_uninit_headers(within, &mut fields) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if arrived.len() >= HEAD => return Err(BadHead::TooLarge),
            Ok(Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(BadHead::TooLarge),
            Err(_) => return Err(BadHead::Malformed),
        };
        let mut head = Self::of(&read, within).ok_or(BadHead::Malformed)?;
        head.text = arrived.split_to(length).freeze();
        Ok(Some(head))
    }

    /// Everything but the text. `None` if it can be read in two ways.
    fn of(read: &httparse::Request<'_, '_>, within: &[u8]) -> Option<Self> {
        let (method, target) = (read.method?, read.path?);
        let is_new = read.version == Some(1);
        let (path, query, authority) = target_of(target, within)?;
        let mut framing = None;
        let (mut keeps_alive, mut waits) = (is_new, false);
        let (mut usual, mut repeated, mut others) = ([None; USUAL.len()], 0, Vec::new());
        for field in &*read.headers {
            let value = Span::of(field.value, within)?;
            if let Some(which) = which(field.name.as_bytes()) {
                if usual[which].is_none() {
                    usual[which] = Some(value);
                    continue;
                }
                repeated |= 1 << which;
            }
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                10 if is("connection") => keeps_alive &= !has_word(field.value, "close"),
                6 if is("expect") => waits = is_new && field.value.eq_ignore_ascii_case(b"100-continue"),
                // Once, and only one of the two. Nobody asks for them as fields.
                14 if is("content-length") => {
                    let length = Framing::Length(length(field.value)?);
                    framing.replace(length).is_none().then_some(())?;
                    continue;
                }
                17 if is("transfer-encoding") => {
                    let known = is_new && field.value.eq_ignore_ascii_case(b"chunked");
                    (known && framing.replace(Framing::Chunked).is_none()).then_some(())?;
                    continue;
                }
                _ => {}
            }
            others.push((Span::of(field.name.as_bytes(), within)?, value));
        }
        Some(Self {
            text: Bytes::new(),
            method: method_of(method)?,
            path,
            query,
            authority,
            usual,
            repeated,
            others,
            framing: framing.unwrap_or(Framing::Length(0)),
            keeps_alive,
            waits,
            knows_chunks: is_new,
        })
    }

    pub(in crate::gateway) fn method(&self) -> &Method {
        &self.method
    }

    pub(in crate::gateway) fn path(&self) -> &str {
        self.text(self.path).unwrap_or_default()
    }

    pub(in crate::gateway) fn query(&self) -> Option<&str> {
        self.query.and_then(|query| self.text(query))
    }

    /// Whether another request may follow on its connection.
    pub(in crate::gateway) fn may_go_on(&self) -> bool {
        self.keeps_alive
    }

    /// The host that the target itself names.
    pub(in crate::gateway) fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// A field's value, if it stands there once and is text.
    pub(in crate::gateway) fn one(&self, name: &str) -> Option<&str> {
        if let Some(which) = which(name.as_bytes()) {
            return self.usual[which]
                .filter(|_| self.repeated & (1 << which) == 0)
                .and_then(|it| self.text(it));
        }
        let mut values = self.others(name);
        let value = values.next()?;
        if values.next().is_some() { None } else { self.text(value) }
    }

    /// The bytes of a usual field that stands there once, for whoever only compares them.
    pub(in crate::gateway) fn bytes_of(&self, name: &str) -> Option<&[u8]> {
        let which = which(name.as_bytes())?;
        self.usual[which].filter(|_| self.repeated & (1 << which) == 0).map(|value| self.slice(value))
    }

    /// Whether a field is there, whatever it says.
    pub(in crate::gateway) fn has(&self, name: &str) -> bool {
        match which(name.as_bytes()) {
            Some(which) => self.usual[which].is_some(),
            None => self.others(name).next().is_some(),
        }
    }

    /// Whether a list in a field has this word.
    pub(in crate::gateway) fn lists(&self, name: &str, word: &str) -> bool {
        let first = which(name.as_bytes()).and_then(|which| self.usual[which]);
        first.into_iter().chain(self.others(name)).any(|value| has_word(self.slice(value), word))
    }

    /// The fields whose names begin like this, which none of the usual ones does: the rest of their names, and their
    /// values where those are text.
    pub(in crate::gateway) fn beginning(&self, mark: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
        let marked = move |(name, value): &(Span, Span)| {
            let (begin, rest) = self.slice(*name).split_at_checked(mark.len())?;
            begin.eq_ignore_ascii_case(mark.as_bytes()).then_some(())?;
            Some((std::str::from_utf8(rest).ok()?, self.text(*value)))
        };
        self.others.iter().filter_map(marked)
    }

    fn others(&self, name: &str) -> impl Iterator<Item = Span> {
        let is = move |span: Span| self.slice(span).eq_ignore_ascii_case(name.as_bytes());
        self.others.iter().filter(move |(own, _)| is(*own)).map(|(_, value)| *value)
    }

    fn slice(&self, span: Span) -> &[u8] {
        span.in_text(&self.text)
    }

    /// Plain text only: what has other bytes in it means something else to everybody. Blanks around it are gone already.
    fn text(&self, span: Span) -> Option<&str> {
        std::str::from_utf8(self.slice(span)).ok().filter(|text| text.is_ascii())
    }
}

/// Which of the usual fields has this name. Those that most callers write as we do are told by their bytes alone.
fn which(name: &[u8]) -> Option<usize> {
    let is = |which: usize| {
        let usual = USUAL[which].as_bytes();
        (name == usual || name.eq_ignore_ascii_case(usual)).then_some(which)
    };
    match name.len() {
        4 => is(0),
        6 => is(1).or_else(|| is(2)),
        8 => is(3),
        10 => is(4),
        11 => is(5),
        12 => is(6),
        13 => is(7),
        14 => is(8),
        16 => is(9),
        20 => is(10),
        _ => None,
    }
}

fn method_of(method: &str) -> Option<Method> {
    Some(match method {
        "POST" => Method::POST,
        "GET" => Method::GET,
        method => Method::from_bytes(method.as_bytes()).ok()?,
    })
}

/// The path, the query and the host of a target.
fn target_of(target: &str, within: &[u8]) -> Option<(Span, Option<Span>, Option<String>)> {
    let (mut rest, mut authority) = (target, None);
    if !target.starts_with('/') {
        let uri: Uri = target.parse().ok()?;
        authority = uri.authority().map(ToString::to_string);
        // Nothing here is about a host as a whole, nor about `*`.
        let after = target.find("://").map_or(0, |at| at + 3);
        rest = target[after..].find('/').map_or("", |at| &target[after + at..]);
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let query = match query {
        Some(query) => Some(Span::of(query.as_bytes(), within)?),
        None => None,
    };
    let path = if path.is_empty() { Span::NOTHING } else { Span::of(path.as_bytes(), within)? };
    Some((path, query, authority))
}
