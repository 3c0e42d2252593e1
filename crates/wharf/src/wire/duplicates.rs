//! Refuses a key that stands twice in one object, at any depth, however it is spelt (`"a"` and `"\u0061"` are one key).

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::JsonError;

/// Objects up to this many members are compared in a row; larger ones through a set.
const FEW: usize = 16;

pub(super) fn refuse(text: &str) -> Result<(), JsonError> {
    let mut twice = None;
    let mut reader = serde_json::Deserializer::from_str(text);
    match (Walk { twice: &mut twice }).deserialize(&mut reader) {
        Ok(()) => Ok(()),
        Err(e) => Err(match twice {
            Some(key) => JsonError::DuplicateKey(key),
            None => JsonError::Syntax { what: "not JSON", at: e.column() },
        }),
    }
}

/// Visits a value and everything in it; writes the first key seen twice into `twice`.
struct Walk<'t> {
    twice: &'t mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Walk { twice: &mut *self.twice })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut few: Vec<Cow<'de, str>> = Vec::new();
        let mut many: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(Key(key)) = members.next_key::<Key<'de>>()? {
            let seen = if many.is_empty() { few.contains(&key) } else { many.contains(&key) };
            if seen {
                *self.twice = Some(key.into_owned());
                return Err(A::Error::custom("duplicate key"));
            }
            if few.len() == FEW && many.is_empty() {
                many = few.drain(..).collect();
            }
            if many.is_empty() {
                few.push(key);
            } else {
                many.insert(key);
            }
            members.next_value_seed(Walk { twice: &mut *self.twice })?;
        }
        Ok(())
    }
}

/// A key, borrowed where it holds no escape.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
