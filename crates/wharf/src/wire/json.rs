//! JSON text that was checked once and is passed on as the same bytes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::duplicates;
use super::scan::{Bad, Scanner};
use crate::text::{Escaped, beginning};

/// A well-formed JSON value as its sender wrote it: key order, number spelling and unknown members included.
/// Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

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
        let text = std::str::from_utf8(&bytes).map_err(|e| JsonError::Utf8(e.valid_up_to()))?;
        let place = Scanner::new(text, max_depth).whole()?;
        Ok(Self(bytes.slice(place)))
    }

    /// Like [`Json::parse`], and refuses a key that stands twice in any object, so that what is checked is what is sent.
    pub fn parse_strict(bytes: impl Into<Bytes>, max_depth: usize) -> Result<Self, JsonError> {
        let json = Self::parse(bytes, max_depth)?;
        duplicates::refuse(&json.0)?;
        Ok(json)
    }

    /// Writes a value as JSON. For values that cannot be written (a map with keys that are no strings) it is `null`.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Self {
        Self(serde_json::to_vec(value).map_or_else(|_| Bytes::from_static(b"null"), Bytes::from))
    }

    /// `{}`.
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// A text put together from checked parts.
    pub(super) fn joined(text: Vec<u8>) -> Self {
        Self(text.into())
    }

    /// A part of a text that was checked as a whole.
    pub(super) fn part(frame: &Bytes, place: Range<usize>) -> Self {
        Self(frame.slice(place))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Checked when it was made; checking again is cheap and keeps this crate free of `unsafe`.
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// The bytes, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Reads the value into a type.
    pub fn to<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.0)
    }

    /// Reads the value into a type that borrows from it.
    pub fn view<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_str())
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        &self.0[..] == b"null"
    }

    /// The first member of this object with that key, however the key is spelt. Later members are not looked at.
    pub fn member(&self, key: &str) -> Option<Self> {
        let text = self.as_str();
        let mut found = None;
        // The walk ends early with an error of our own; the text itself was checked when it was made.
        let _ = Scanner::new(text, 127).members(|k, value| {
            if unquote(&text[k]) == key {
                found = Some(Self::part(&self.0, value));
                return Err(Bad { what: "found", at: 0 });
            }
            Ok(())
        });
        found
    }

    /// Several members of this object in one walk; of a key that stands twice, the first.
    pub fn pick<const N: usize>(&self, keys: [&str; N]) -> [Option<Self>; N] {
        let wanted = keys.map(Self::of);
        let mut found = [const { None }; N];
        let _ = Scanner::new(self.as_str(), 127).members(|k, value| {
            if let Some(i) = wanted.iter().position(|w| self.0[k.clone()] == w.0[..])
                && found[i].is_none()
            {
                found[i] = Some(Self::part(&self.0, value));
            }
            Ok(())
        });
        found
    }
}

/// A key or a string without its quotes and escapes.
pub(super) fn unquote(string: &str) -> Cow<'_, str> {
    if string.contains('\\') {
        return serde_json::from_str::<String>(string).map_or(Cow::Borrowed(string), Cow::Owned);
    }
    Cow::Borrowed(string.trim_matches('"'))
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and results may hold anything: a debug print says how much there is, not what.
        write!(f, "Json({} bytes)", self.0.len())
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
        Ok(Self(Bytes::from(String::from(Box::<str>::from(raw)))))
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
        Self::Syntax { what: bad.what, at: bad.at }
    }
}
