//! The head of a request: its verb, its target, its fields, and where its body ends.
//!
//! In: what has arrived. Out: a head, once it is whole. What can be read in two ways is refused, so that nobody on the
//! way sees another request than we do.

use bytes::{Buf as _, BytesMut};
use http::{Method, StatusCode, Uri};
use httparse::Status;
use std::mem::MaybeUninit;

use super::HEAD;

/// A request up to its body. Fields are asked for by their names in small letters.
#[derive(Debug)]
pub(in crate::gateway) struct Head {
    /// As it came, but for names in small letters, and bytes beyond ASCII: in their places stands what can stand nowhere.
    text: String,
    /// Whether there are any.
    is_foreign: bool,
    method: Method,
    path: Span,
    query: Option<Span>,
    /// The host that the target names, if it names one.
    authority: Option<String>,
    fields: Vec<(Span, Span)>,
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

/// A part of a head. Heads are small.
#[derive(Clone, Copy, Debug)]
struct Span(u16, u16);

/// How many fields a head may have.
const MOST: usize = 100;
/// No head has this in it: it is a control character.
const FOREIGN: u8 = 0x7f;

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
        head.text = head.plain(&arrived[..length]).ok_or(BadHead::Malformed)?;
        arrived.advance(length);
        Ok(Some(head))
    }

    /// Everything but the text. `None` if it can be read in two ways.
    fn of(read: &httparse::Request<'_, '_>, within: &[u8]) -> Option<Self> {
        let (method, target) = (read.method?, read.path?);
        let is_new = read.version == Some(1);
        let (path, query, authority) = target_of(target, within)?;
        let mut framing = None;
        let (mut keeps_alive, mut waits) = (is_new, false);
        let mut fields = Vec::with_capacity(read.headers.len());
        for field in &*read.headers {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                10 if is("connection") => keeps_alive &= !has_word(field.value, "close"),
                6 if is("expect") => waits = is_new && field.value.eq_ignore_ascii_case(b"100-continue"),
                // Once, and only one of the two.
                14 if is("content-length") => {
                    let length = Framing::Length(number(field.value)?);
                    framing.replace(length).is_none().then_some(())?;
                }
                17 if is("transfer-encoding") => {
                    let known = is_new && field.value.eq_ignore_ascii_case(b"chunked");
                    (known && framing.replace(Framing::Chunked).is_none()).then_some(())?;
                }
                _ => {}
            }
            fields.push((Span::of(field.name.as_bytes(), within)?, Span::of(field.value, within)?));
        }
        Some(Self {
            text: String::new(),
            is_foreign: false,
            method: method_of(method)?,
            path,
            query,
            authority,
            fields,
            framing: framing.unwrap_or(Framing::Length(0)),
            keeps_alive,
            waits,
            knows_chunks: is_new,
        })
    }

    /// The text of a head whose places are known: names as we write them, so that comparing them is comparing bytes.
    fn plain(&mut self, bytes: &[u8]) -> Option<String> {
        let mut text = bytes.to_vec();
        self.is_foreign = !bytes.is_ascii();
        if self.is_foreign {
            text.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = FOREIGN);
        }
        for (name, _) in &self.fields {
            text[usize::from(name.0)..usize::from(name.1)].make_ascii_lowercase();
        }
        String::from_utf8(text).ok()
    }

    pub(in crate::gateway) fn method(&self) -> &Method {
        &self.method
    }

    pub(in crate::gateway) fn path(&self) -> &str {
        self.slice(self.path)
    }

    pub(in crate::gateway) fn query(&self) -> Option<&str> {
        self.query.map(|query| self.slice(query))
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
        let mut values = self.values(name);
        let value = values.next()?;
        if values.next().is_some() { None } else { self.text(value) }
    }

    /// Whether a field is there, whatever it says.
    pub(in crate::gateway) fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Whether a list in a field has this word.
    pub(in crate::gateway) fn lists(&self, name: &str, word: &str) -> bool {
        self.values(name).any(|value| has_word(self.slice(value).as_bytes(), word))
    }

    /// The fields whose names begin like this: the rest of their names, and their values where those are text.
    pub(in crate::gateway) fn beginning(&self, mark: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
        let marked = move |(name, value): &(Span, Span)| {
            let rest = self.slice(*name).strip_prefix(mark)?;
            Some((rest, self.text(*value)))
        };
        self.fields.iter().filter_map(marked)
    }

    fn values(&self, name: &str) -> impl Iterator<Item = Span> {
        let is = move |span: Span| span.len() == name.len() && self.slice(span) == name;
        self.fields.iter().filter(move |(own, _)| is(*own)).map(|(_, value)| *value)
    }

    fn slice(&self, span: Span) -> &str {
        self.text.get(usize::from(span.0)..usize::from(span.1)).unwrap_or_default()
    }

    /// Plain text only: what has other bytes in it means something else to everybody. Blanks around it are gone already.
    fn text(&self, span: Span) -> Option<&str> {
        Some(self.slice(span)).filter(|text| !self.is_foreign || !text.as_bytes().contains(&FOREIGN))
    }
}

// === impl Span ===

impl Span {
    fn of(part: &[u8], within: &[u8]) -> Option<Self> {
        let start = (part.as_ptr() as usize).checked_sub(within.as_ptr() as usize)?;
        Some(Self(u16::try_from(start).ok()?, u16::try_from(start + part.len()).ok()?))
    }

    fn len(self) -> usize {
        usize::from(self.1 - self.0)
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
    let path = if path.is_empty() { Span(0, 0) } else { Span::of(path.as_bytes(), within)? };
    Some((path, query, authority))
}

/// Digits and nothing else.
fn number(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if digits { std::str::from_utf8(value).ok()?.parse().ok() } else { None }
}

fn has_word(list: &[u8], word: &str) -> bool {
    list.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}
