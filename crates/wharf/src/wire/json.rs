//! JSON text that was checked once and is passed on as the same bytes.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::duplicates;
use super::scan::{Bad, NOT_UTF8, Scanner};
use crate::text::{Escaped, beginning};

/// A well-formed JSON value as its sender wrote it: key order, number spelling and unknown members included.
/// Cloning shares the bytes.
#[derive(Clone)]
pub struct Json {
    text: Bytes,
    /// Where the members of an object lie, if a walk has already shown it. Looking them up then costs no walk. Their keys
    /// have no escapes.
    outline: Option<Arc<[Member]>>,
}

/// A member of an object: the place of its key, quotes included, and of its value.
pub(super) type Member = (Range<usize>, Range<usize>);

/// Where a part of a value lies in its text.
pub(crate) type Place = Range<usize>;

/// What was looked for in an object: where it lies, and whether there is anything else.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<const N: usize> {
    pub(crate) found: [Option<Place>; N],
    pub(crate) others: bool,
}

/// The members of an object are remembered if there are no more. Those of the protocol have a handful.
pub(super) const OUTLINE: usize = 16;

/// Why bytes are not an acceptable JSON value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not UTF-8.
    #[error("not UTF-8 at byte {0}")]
    Utf8(usize),
    /// Not JSON, or nested too deeply.
    #[error("{what} at byte {at}")]
    Syntax {
        /// What was found or missing.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// The same key twice in one object.
    #[error("the key `{}` appears twice in one object", Escaped(.0))]
    DuplicateKey(String),
}

// === impl Json ===

impl Json {
    /// Checks bytes from outside: UTF-8, one value, no deeper than `max_depth`.
    pub fn parse(bytes: impl Into<Bytes>, max_depth: usize) -> Result<Self, JsonError> {
        let bytes = bytes.into();
        let place = Scanner::of_bytes(&bytes, max_depth).whole()?;
        Ok(Self::plain(bytes.slice(place)))
    }

    /// Like [`Json::parse`], and refuses a key that stands twice in any object, so that what is checked is what is sent.
    pub fn parse_strict(bytes: impl Into<Bytes>, max_depth: usize) -> Result<Self, JsonError> {
        let json = Self::parse(bytes, max_depth)?;
        json.refuse_duplicates()?;
        Ok(json)
    }

    /// Refuses a key that stands twice in any object of this value.
    pub fn refuse_duplicates(&self) -> Result<(), JsonError> {
        duplicates::refuse(&self.text)
    }

    /// How many members the objects of this value have together, at any depth: a map made of it that has fewer has lost
    /// some to a key that stands twice. `None` if it has keys with escapes or `$`, for which that does not hold.
    pub fn count_members(&self) -> Option<usize> {
        duplicates::count_members(&self.text)
    }

    /// Writes a value as JSON. For values that cannot be written (a map with keys that are no strings) it is `null`.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Self {
        Self::plain(serde_json::to_vec(value).map_or_else(|_| Bytes::from_static(b"null"), Bytes::from))
    }

    /// `null`.
    pub fn null() -> Self {
        Self::plain(Bytes::from_static(b"null"))
    }

    /// Whether it may be the id of a request: a string or a number.
    pub(crate) fn is_id(&self) -> bool {
        matches!(self.text.first(), Some(b'"' | b'-' | b'0'..=b'9'))
    }

    /// `{}`.
    pub fn empty_object() -> Self {
        Self::plain(Bytes::from_static(b"{}"))
    }

    /// A text put together from checked parts.
    pub(super) fn joined(text: Vec<u8>) -> Self {
        Self::plain(text.into())
    }

    /// A part of a text that was checked as a whole.
    pub(super) fn part(frame: &Bytes, place: Range<usize>) -> Self {
        Self::plain(frame.slice(place))
    }

    /// The members of an object that starts at `start` of a text, from their places in that text.
    pub(super) fn outline(start: usize, members: &[Member]) -> Arc<[Member]> {
        let shift = |range: &Range<usize>| range.start - start..range.end - start;
        members.iter().map(|(key, value)| (shift(key), shift(value))).collect()
    }

    /// The same of a text that nobody needs any more, with its members where they are known.
    pub(super) fn cut(mut frame: Bytes, place: Range<usize>, outline: Option<Arc<[Member]>>) -> Self {
        frame.truncate(place.end);
        frame.advance(place.start);
        Self { text: frame, outline }
    }

    /// The same value, looked through once: members are found without another walk from now on.
    #[must_use]
    pub fn with_outline(mut self) -> Self {
        if self.outline.is_some() || !self.is_object() {
            return self;
        }
        let (mut members, mut plain) = (Vec::new(), true);
        let walked = Scanner::of_checked(&self.text, 127).members(|key, value| {
            plain &= members.len() < OUTLINE && memchr::memchr(b'\\', &self.text[key.clone()]).is_none();
            if !plain {
                return Err(Bad { what: "found", at: 0 });
            }
            members.push((key, value));
            Ok(())
        });
        if plain && walked.is_ok() {
            self.outline = Some(members.into());
        }
        self
    }

    /// The same value, without what is known of its members: for those who mostly do not look.
    pub(crate) fn bare(&self) -> Self {
        Self::plain(self.text.clone())
    }

    fn plain(text: Bytes) -> Self {
        Self { text, outline: None }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Checked when it was made; checking again is cheap and keeps this crate free of `unsafe`.
        std::str::from_utf8(&self.text).unwrap_or("null")
    }

    /// The bytes, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.text
    }

    /// Reads the value into a type.
    pub fn to<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.text)
    }

    /// Reads the value into a type that borrows from it.
    pub fn view<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_str())
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.text.first() == Some(&b'{')
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        &self.text[..] == b"null"
    }

    /// Looks at every member of this object, the key without its quotes and the value as written, until one is not liked.
    /// False too if it is no object, or a key has escapes.
    pub fn each_member(&self, mut like: impl FnMut(&[u8], &[u8]) -> bool) -> bool {
        let mut look = |key: &Range<usize>, value: &Range<usize>| {
            let key = &self.text[key.start + 1..key.end - 1];
            let liked = memchr::memchr(b'\\', key).is_none() && like(key, &self.text[value.clone()]);
            if liked { Ok(()) } else { Err(Bad { what: "found", at: 0 }) }
        };
        if !self.is_object() {
            return false;
        }
        match &self.outline {
            Some(members) => members.iter().try_for_each(|(key, value)| look(key, value)).is_ok(),
            None => Scanner::of_checked(&self.text, 127).members(|key, value| look(&key, &value)).is_ok(),
        }
    }

    /// The text that this is, without quotes and escapes. `None` if it is something else.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        text_of(&self.text)
    }

    /// Looks at every member of this object: its key, and the whole member as it is written, key included.
    pub fn each_as_written(&self, mut look: impl FnMut(&[u8], &[u8])) {
        if !self.is_object() {
            return;
        }
        if let Some(members) = &self.outline {
            let plain = |key: &Range<usize>| &self.text[key.start + 1..key.end - 1];
            return members
                .iter()
                .for_each(|(key, value)| look(plain(key), &self.text[key.start..value.end]));
        }
        // The text was checked when it was made, so the walk reaches its end.
        let _ = Scanner::of_checked(&self.text, 127).members(|key, value| {
            let written = std::str::from_utf8(&self.text[key.clone()]).unwrap_or_default();
            look(unquote(written).as_bytes(), &self.text[key.start..value.end]);
            Ok(())
        });
    }

    /// All members of this object as they are written, if none of them has one of these keys and it is known where they
    /// lie.
    pub(super) fn members_if_none(&self, keys: &[&str]) -> Option<&[u8]> {
        let members = self.outline.as_ref()?;
        let is_one = |key: &Range<usize>| keys.iter().any(|k| is_plain_key(&self.text[key.clone()], k));
        let (first, last) = (members.first()?, members.last()?);
        let none = !members.iter().any(|(key, _)| is_one(key));
        none.then(|| &self.text[first.0.start..last.1.end])
    }

    /// The first member of this object with that key, however the key is spelt. Later members are not looked at.
    pub fn member(&self, key: &str) -> Option<Self> {
        let [found] = self.pick([key]);
        found
    }

    /// Several members of this object in one walk; of a key that stands twice, the first.
    pub fn pick<const N: usize>(&self, keys: [&str; N]) -> [Option<Self>; N] {
        self.places(keys).map(|place| place.map(|place| Self::part(&self.text, place)))
    }

    /// Where members of this object lie, and whether it has any other.
    pub(crate) fn sort_out<const N: usize>(&self, keys: [&str; N]) -> Sorted<N> {
        let mut sorted = Sorted { found: [const { None }; N], others: false };
        self.look_for(&keys, |which, value| sorted.add(which, value.clone()));
        sorted
    }

    /// The same of an object that is a part of this value, as if it stood alone.
    pub(crate) fn sort_out_at<const N: usize>(&self, place: &Place, keys: [&str; N]) -> Sorted<N> {
        let mut sorted = Sorted { found: [const { None }; N], others: false };
        let part = &self.text[place.clone()];
        // Checked with the whole of it. What is no object has no members.
        let _ = Scanner::of_checked(part, 127)
            .members(|key, value| sorted.add(which_key(&keys, &part[key]), value));
        sorted
    }

    /// A part of this value.
    pub(crate) fn at(&self, place: &Place) -> Self {
        if self.text[place.clone()] == *b"{}" {
            // As many are; and what is always the same need not be counted.
            return Self::empty_object();
        }
        Self::part(&self.text, place.clone())
    }

    /// The same as [`Json::pick`], only to look at: as they are written.
    pub fn peek<const N: usize>(&self, keys: [&str; N]) -> [Option<&[u8]>; N] {
        self.places(keys).map(|place| place.map(|place| &self.text[place]))
    }

    /// Shows each member of this object, which of these keys it has and where its value lies, until one is the last wanted.
    fn look_for(&self, keys: &[&str], mut look: impl FnMut(Option<usize>, &Range<usize>) -> Result<(), Bad>) {
        // The text was checked when it was made: only whoever looks ends the walk.
        let _ = match &self.outline {
            Some(members) => members
                .iter()
                .try_for_each(|(key, value)| look(which_plain_key(keys, &self.text[key.clone()]), value)),
            None => Scanner::of_checked(&self.text, 127)
                .members(|key, value| look(which_key(keys, &self.text[key]), &value)),
        };
    }

    fn places<const N: usize>(&self, keys: [&str; N]) -> [Option<Range<usize>>; N] {
        let mut found = [const { None }; N];
        let mut left = N;
        self.look_for(&keys, |which, value| {
            if let Some(i) = which
                && found[i].is_none()
            {
                found[i] = Some(value.clone());
                left -= 1;
            }
            // The walk ends early with an error of our own; the text itself was checked when it was made.
            if left == 0 { Err(Bad { what: "found", at: 0 }) } else { Ok(()) }
        });
        found
    }
}

// === impl Sorted ===

impl<const N: usize> Sorted<N> {
    /// The same of an object that begins there.
    pub(crate) fn beginning_at(&self, start: usize) -> Self {
        let moved = |place: &Place| start + place.start..start + place.end;
        Self { found: self.found.each_ref().map(|place| place.as_ref().map(moved)), others: self.others }
    }

    fn add(&mut self, which: Option<usize>, value: Place) -> Result<(), Bad> {
        match which {
            Some(i) if self.found[i].is_none() => self.found[i] = Some(value),
            Some(_) => {}
            None => self.others = true,
        }
        Ok(())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Json {}

impl Hash for Json {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// Which of these keys this is, as it is written, quotes included.
fn which_key(keys: &[&str], written: &[u8]) -> Option<usize> {
    let plain = which_plain_key(keys, written);
    if plain.is_some() || !written.contains(&b'\\') {
        return plain;
    }
    let key = unquote(std::str::from_utf8(written).ok()?);
    keys.iter().position(|k| *k == key)
}

/// The same for one without escapes, as nearly all are.
fn which_plain_key(keys: &[&str], written: &[u8]) -> Option<usize> {
    keys.iter().position(|k| is_plain_key(written, k))
}

/// Whether a key without escapes, as it is written, is this one.
fn is_plain_key(written: &[u8], key: &str) -> bool {
    written.get(1..written.len().saturating_sub(1)) == Some(key.as_bytes())
}

/// The text that a value is, without quotes and escapes. `None` if it is something else.
pub(crate) fn text_of(value: &[u8]) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr(b'\\', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice(value).ok().map(Cow::Owned)
}

/// A key or a string without its quotes and escapes.
pub(super) fn unquote(string: &str) -> Cow<'_, str> {
    if string.contains('\\') {
        return serde_json::from_str::<String>(string).map_or(Cow::Borrowed(string), Cow::Owned);
    }
    Cow::Borrowed(string.get(1..string.len().saturating_sub(1)).unwrap_or_default())
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and results may hold anything: a debug print says how much there is, not what.
        write!(f, "Json({} bytes)", self.text.len())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(self.as_str()).fmt(f)
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.as_str()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self::plain(Bytes::from(String::from(Box::<str>::from(raw)))))
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        Self::of(value)
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self::of(&value)
    }
}

// === impl JsonError ===

impl JsonError {
    /// A key that stands twice. Of a very long one the beginning is enough.
    pub(super) fn twice(key: &str) -> Self {
        Self::DuplicateKey(beginning(key, 64).to_owned())
    }
}

impl From<Bad> for JsonError {
    fn from(bad: Bad) -> Self {
        match bad.what {
            NOT_UTF8 => Self::Utf8(bad.at),
            what => Self::Syntax { what, at: bad.at },
        }
    }
}
