//! The head of an answer: its status, its fields, and where its body ends.
//!
//! In: what has arrived from a server. Out: a head, once it is whole. What can be read in two ways is refused, so that
//! no answer can hide another. The body is `body.rs`.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use httparse::{ParserConfig, Status};

use crate::wire::http1::{Span, has_word, length};

/// What a server says before the body.
pub(crate) struct Head {
    status: StatusCode,
    fields: Fields,
}

enum Fields {
    /// Their names and values, in the text that came.
    Text {
        text: Bytes,
        places: Vec<(Span, Span)>,
    },
    Map(HeaderMap),
}

/// A head that was read off a connection, and what it means for that.
pub(super) struct Taken {
    pub(super) head: Head,
    pub(super) framing: Framing,
    /// Whether another request may follow.
    pub(super) keeps: bool,
}

/// Where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    /// With the connection.
    Open,
}

/// The largest head: every place in it has a small number.
pub(super) const LARGEST: usize = u16::MAX as usize;
/// How many fields it may have.
const MOST: usize = 100;

const TOO_LARGE: &str = "its head is too large";
const TWO_ENDS: &str = "it says in two ways where it ends";

// === impl Head ===

impl Head {
    pub(super) fn of_map(status: StatusCode, map: HeaderMap) -> Self {
        Self { status, fields: Fields::Map(map) }
    }

    /// Takes a head off what has arrived; `None` while there is more to come. An error says what is wrong with it. The
    /// answer to a request that wants no body has none.
    pub(super) fn take(arrived: &mut BytesMut, bodyless: bool) -> Result<Option<Taken>, &'static str> {
        let mut fields = [const { MaybeUninit::uninit() }; MOST];
        let mut read = httparse::Response::new(&mut []);
        // A head that is too large is not looked through for its end.
        let within = &arrived[..arrived.len().min(LARGEST)];
        if within.starts_with(b"\r") || within.starts_with(b"\n") {
            return Err("it is no HTTP");
        }
        let parsed =
            ParserConfig::default().parse_response_with_uninit_headers(&mut read, within, &mut fields);
        let length = match parsed {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if arrived.len() >= LARGEST => return Err(TOO_LARGE),
            Ok(Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err("its head has too many fields"),
            Err(httparse::Error::Version | httparse::Error::Status) => return Err("it is no HTTP"),
            Err(_) => return Err("its head is malformed"),
        };
        if has_half_ends(&within[..length]) {
            return Err("a line of its head ends in half");
        }
        let mut taken = Self::of(&read, within, bodyless)?;
        let whole = arrived.split_to(length).freeze();
        if let Fields::Text { text, .. } = &mut taken.head.fields {
            *text = whole;
        }
        Ok(Some(taken))
    }

    /// Everything but the text.
    fn of(read: &httparse::Response<'_, '_>, within: &[u8], bodyless: bool) -> Result<Taken, &'static str> {
        let status = read.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or("its status is none")?;
        let is_new = read.version == Some(1);
        let (mut told, mut chunked, mut keeps) = (None, false, is_new);
        let mut places = Vec::with_capacity(read.headers.len());
        for field in &*read.headers {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                10 if is("connection") => keeps &= !has_word(field.value, "close"),
                14 if is("content-length") => {
                    let length = length(field.value).ok_or("its length is no number")?;
                    if told.replace(length).is_some_and(|other| other != length) {
                        return Err("it has two lengths");
                    }
                }
                17 if is("transfer-encoding") => {
                    if !is_new || chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                        return Err("it is encoded in a way that nobody asked for");
                    }
                    chunked = true;
                }
                _ => {}
            }
            let (name, value) = (Span::of(field.name.as_bytes(), within), Span::of(field.value, within));
            places.push((name.ok_or(TOO_LARGE)?, value.ok_or(TOO_LARGE)?));
        }
        let framing = match told {
            Some(_) if chunked => return Err(TWO_ENDS),
            _ if bodyless || has_no_body(status) => Framing::Length(0),
            Some(length) => Framing::Length(length),
            None if chunked => Framing::Chunked,
            None => Framing::Open,
        };
        // What has no body and says that it has one may send it all the same.
        let announced = chunked || told.is_some_and(|length| length > 0);
        keeps &= framing != Framing::Open && !(announced && has_no_body(status));
        let fields = Fields::Text { text: Bytes::new(), places };
        Ok(Taken { head: Self { status, fields }, framing, keeps })
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The value of a field, the first if there are several.
    pub(crate) fn get(&self, name: HeaderName) -> Option<&[u8]> {
        match &self.fields {
            Fields::Map(map) => map.get(name).map(HeaderValue::as_bytes),
            Fields::Text { text, places } => {
                let name = name.as_str().as_bytes();
                let is = |own: &Span| own.len() == name.len() && own.in_text(text).eq_ignore_ascii_case(name);
                let (_, value) = places.iter().find(|(own, _)| is(own))?;
                Some(value.in_text(text))
            }
        }
    }

    /// The same for whoever sends it back: in a place of its own.
    pub(crate) fn value(&self, name: HeaderName) -> Option<HeaderValue> {
        self.get(name).and_then(|value| HeaderValue::from_bytes(value).ok())
    }

    /// All fields.
    pub(crate) fn to_map(&self) -> HeaderMap {
        match &self.fields {
            Fields::Map(map) => map.clone(),
            Fields::Text { text, places } => {
                let read = |(name, value): &(Span, Span)| {
                    let name = HeaderName::from_bytes(name.in_text(text)).ok()?;
                    Some((name, HeaderValue::from_bytes(value.in_text(text)).ok()?))
                };
                let mut map = HeaderMap::with_capacity(places.len());
                for (name, value) in places.iter().filter_map(read) {
                    map.append(name, value);
                }
                map
            }
        }
    }
}

/// Whether a line ends without a carriage return: to others that may be a part of the line.
fn has_half_ends(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|end| end == 0 || head[end - 1] != b'\r')
}

fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}
