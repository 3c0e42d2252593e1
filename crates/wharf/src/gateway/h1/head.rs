//! The head of a request: its verb, its target, its fields, and where its body ends.
//!
//! In: what has arrived. Out: a head, once it is whole. What can be read in two ways is refused, so that nobody on the
//! way sees another request than we do.

use std::fmt;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Uri};

use super::HEAD;
use super::lines::{First, Lines, Span, Unread};
use crate::wire::http1::{has_word, length as number};

/// A request up to its body. Fields are asked for by their names in small letters.
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
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) enum Usual {
    Host,
    Accept,
    Origin,
    Name,
    Method,
    TraceParent,
    ContentType,
    Authorization,
    Session,
    ContentEncoding,
    Version,
}

/// What they are called, in the same order.
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
        // A head that is too large is not looked through for its end.
        let within = &arrived[..arrived.len().min(HEAD)];
        let mut lines = Lines::new(within);
        match Self::read(within, &mut lines) {
            Ok(mut head) => {
                let length = lines.end();
                head.text = arrived.split_to(length).freeze();
                Ok(Some(head))
            }
            Err(Unread::Partial) if arrived.len() < HEAD => Ok(None),
            Err(Unread::Partial | Unread::TooMany) => Err(BadHead::TooLarge),
            Err(Unread::Malformed) => Err(BadHead::Malformed),
        }
    }

    /// Everything but the text.
    fn read(within: &[u8], lines: &mut Lines<'_>) -> Result<Self, Unread> {
        let First { method, target, is_new } = lines.first()?;
        let (path, query, authority) = target_of(target, within).ok_or(Unread::Malformed)?;
        let mut head = Self {
            text: Bytes::new(),
            method: method_of(method.within(within)).ok_or(Unread::Malformed)?,
            path,
            query,
            authority,
            usual: [None; USUAL.len()],
            repeated: 0,
            others: Vec::new(),
            framing: Framing::Length(0),
            keeps_alive: is_new,
            waits: false,
            knows_chunks: is_new,
        };
        let (mut framing, mut left) = (None, MOST);
        while let Some((usual, name, value)) = lines.field(which)? {
            left = left.checked_sub(1).ok_or(Unread::TooMany)?;
            match usual.and_then(|which| head.usual.get_mut(which)) {
                Some(place @ None) => *place = Some(value),
                _ => head.add((usual, name, value), within, &mut framing).ok_or(Unread::Malformed)?,
            }
        }
        head.framing = framing.unwrap_or(Framing::Length(0));
        Ok(head)
    }

    /// One more field, which is not usual or stands there already. `None` if it says in another way what was said.
    fn add(
        &mut self,
        (usual, own, at): (Option<usize>, Span, Span),
        within: &[u8],
        framing: &mut Option<Framing>,
    ) -> Option<()> {
        let (name, value) = (own.within(within), at.within(within));
        if let Some(which) = usual {
            self.repeated |= 1 << which;
        }
        let (is_new, is) = (self.knows_chunks, |known: &str| name.eq_ignore_ascii_case(known.as_bytes()));
        match name.len() {
            10 if is("connection") => self.keeps_alive &= !has_word(value, "close"),
            6 if is("expect") => self.waits = is_new && value.eq_ignore_ascii_case(b"100-continue"),
            // Once, and only one of the two. Nobody asks for them as fields.
            14 if is("content-length") => {
                return framing.replace(Framing::Length(number(value)?)).is_none().then_some(());
            }
            17 if is("transfer-encoding") => {
                let known = is_new && value.eq_ignore_ascii_case(b"chunked");
                return (known && framing.replace(Framing::Chunked).is_none()).then_some(());
            }
            _ => {}
        }
        self.others.push((own, at));
        Some(())
    }

    pub(in crate::gateway) fn method(&self) -> &Method {
        &self.method
    }

    pub(in crate::gateway) fn path(&self) -> &str {
        self.text(self.path).unwrap_or_default()
    }

    /// The same for whoever only compares it.
    pub(in crate::gateway) fn path_bytes(&self) -> &[u8] {
        self.slice(self.path)
    }

    pub(in crate::gateway) fn query(&self) -> Option<&str> {
        self.query.and_then(|query| self.text(query))
    }

    /// Whether nothing comes behind it, to a caller who could be told of another protocol.
    pub(in crate::gateway) fn can_switch(&self) -> bool {
        self.knows_chunks && self.framing == Framing::Length(0)
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
            return self.once(which).and_then(|value| self.text(value));
        }
        let mut values = self.others(name);
        let value = values.next()?;
        if values.next().is_some() { None } else { self.text(value) }
    }

    /// The bytes of a usual field that stands there once, for whoever only compares them.
    pub(in crate::gateway) fn usual(&self, field: Usual) -> Option<&[u8]> {
        self.once(field as usize).map(|value| self.slice(value))
    }

    /// The same as [`Head::one`].
    pub(in crate::gateway) fn usual_text(&self, field: Usual) -> Option<&str> {
        self.once(field as usize).and_then(|value| self.text(value))
    }

    /// Whether a usual field is there, whatever it says.
    pub(in crate::gateway) fn has_usual(&self, field: Usual) -> bool {
        self.usual[field as usize].is_some()
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
        self.all(name).any(|value| has_word(self.slice(value), word))
    }

    /// Every line of a field that is a list: several of them mean the same as one with commas between. What is not text
    /// is left out.
    pub(in crate::gateway) fn lines(&self, name: &str) -> impl Iterator<Item = &str> {
        self.all(name).filter_map(|value| self.text(value))
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

    fn once(&self, which: usize) -> Option<Span> {
        self.usual[which].filter(|_| self.repeated & (1 << which) == 0)
    }

    /// A field as often as it stands there.
    fn all(&self, name: &str) -> impl Iterator<Item = Span> {
        let first = which(name.as_bytes()).and_then(|which| self.usual[which]);
        first.into_iter().chain(self.others(name))
    }

    fn others(&self, name: &str) -> impl Iterator<Item = Span> {
        let is = move |span: Span| self.slice(span).eq_ignore_ascii_case(name.as_bytes());
        self.others.iter().filter(move |(own, _)| is(*own)).map(|(_, value)| *value)
    }

    fn slice(&self, span: Span) -> &[u8] {
        span.within(&self.text)
    }

    /// Plain text only: what has other bytes in it means something else to everybody. Blanks around it are gone already.
    fn text(&self, span: Span) -> Option<&str> {
        std::str::from_utf8(self.slice(span)).ok().filter(|text| text.is_ascii())
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its fields are secrets.
        f.debug_struct("Head")
            .field("method", &self.method)
            .field("path", &self.path())
            .finish_non_exhaustive()
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

fn method_of(method: &[u8]) -> Option<Method> {
    Some(match method {
        b"POST" => Method::POST,
        b"GET" => Method::GET,
        method => Method::from_bytes(method).ok()?,
    })
}

/// The path, the query and the host of a target.
fn target_of(at: Span, within: &[u8]) -> Option<(Span, Option<Span>, Option<String>)> {
    let target = at.within(within);
    let (mut path, mut authority) = (at, None);
    if !target.starts_with(b"/") {
        let uri: Uri = std::str::from_utf8(target).ok()?.parse().ok()?;
        authority = uri.authority().map(ToString::to_string);
        // Nothing here is about a host as a whole, nor about `*`.
        let after = target.windows(3).position(|part| part == b"://").map_or(0, |scheme| scheme + 3);
        // A host may be followed by a query at once: then what looks like a path is none.
        let end = target[after..].iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        path = at.from(end.map_or(target.len(), |end| after + end));
    }
    let is = |mark: u8| move |byte: &u8| *byte == mark;
    if let Some(fragment) = path.within(within).iter().position(is(b'#')) {
        path = path.to(fragment);
    }
    match path.within(within).iter().position(is(b'?')) {
        Some(mark) => Some((path.to(mark), Some(path.from(mark + 1)), authority)),
        None => Some((path, None, authority)),
    }
}
