//! Every string of a JSON value, keys included, with its place.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::wire::Json;

/// Visits every string: its JSON pointer, and the string itself. A key has the pointer of its value. No value is built for
/// it.
///
/// # Errors
/// Something in it is what no value of ours can hold, like a number that is too large. What was visited until then does
/// not count: the whole is to be looked at as it is spelt.
pub(super) fn each(raw: &Json, visit: impl FnMut(&str, &str)) -> serde_json::Result<()> {
    let mut walk = Walk { at: String::new(), visit };
    let mut reader = serde_json::Deserializer::from_str(raw.as_str());
    walk.deserialize(&mut reader)
}

/// A walk through a value.
struct Walk<F> {
    /// Where it is.
    at: String,
    visit: F,
}

/// A key of an object, at whose value the walk is then.
struct Key<'a, F>(&'a mut Walk<F>);

// === impl Walk ===

impl<'de, F: FnMut(&str, &str)> DeserializeSeed<'de> for &mut Walk<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&str, &str)> Visitor<'de> for &mut Walk<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        (self.visit)(&self.at, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let length = self.at.len();
        let mut number = 0usize;
        loop {
            // A string takes whatever is written into it.
            let _ = write!(self.at, "/{number}");
            let item = items.next_element_seed(&mut *self);
            self.at.truncate(length);
            if item?.is_none() {
                return Ok(());
            }
            number += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let length = self.at.len();
        while members.next_key_seed(Key(&mut *self))?.is_some() {
            members.next_value_seed(&mut *self)?;
            self.at.truncate(length);
        }
        Ok(())
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

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

// === impl Key ===

impl<'de, F: FnMut(&str, &str)> DeserializeSeed<'de> for Key<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<F: FnMut(&str, &str)> Visitor<'_> for Key<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<(), E> {
        let Walk { at, visit } = self.0;
        at.push('/');
        match key.contains(['~', '/']) {
            true => at.push_str(&key.replace('~', "~0").replace('/', "~1")),
            false => at.push_str(key),
        }
        visit(at, key);
        Ok(())
    }
}
