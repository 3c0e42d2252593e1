//! The same text without what hides in it.

use std::borrow::Cow;

use serde_json::Value;

use crate::text::is_unsafe_to_show;
use crate::wire::Json;

/// A text without characters that cannot be seen or drive a terminal. Line breaks and tabs stay, and so do the joiners and
/// selectors that emoji and scripts are written with.
pub fn stripped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(goes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut escape = text.chars().peekable();
    while let Some(c) = escape.next() {
        match c {
            // A sequence goes with its parameters.
            '\u{1b}' if escape.peek() == Some(&'[') => {
                skip(&mut escape, |c| ('@'..='~').contains(&c) && c != '[')
            }
            '\u{1b}' if escape.peek() == Some(&']') => skip(&mut escape, |c| c == '\u{7}' || c == '\\'),
            '\u{9b}' => skip(&mut escape, |c| ('@'..='~').contains(&c)),
            c if goes(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The same for every string of a value, keys included. A value in which nothing hides stays byte for byte as it is.
pub fn strip(raw: &Json) -> Json {
    let hides = |text: &str| text.chars().any(goes);
    // Escapes may stand for anything.
    if !hides(raw.as_str()) && !raw.as_str().contains("\\u") {
        return raw.clone();
    }
    let Ok(value) = raw.to::<Value>() else { return raw.clone() };
    let mut found = false;
    let read = super::strings::each(raw, |_, text| found |= hides(text));
    if found && read.is_ok() { Json::of(&clean(value)) } else { raw.clone() }
}

fn clean(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(stripped(&text).into_owned()),
        Value::Array(items) => Value::Array(items.into_iter().map(clean).collect()),
        Value::Object(members) => {
            members.into_iter().map(|(key, value)| (stripped(&key).into_owned(), clean(value))).collect()
        }
        other => other,
    }
}

fn goes(c: char) -> bool {
    is_unsafe_to_show(c) && !matches!(c, '\n' | '\t' | '\r' | '\u{200c}' | '\u{200d}')
}

/// Leaves out everything up to the end of a sequence.
fn skip(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, ends: impl Fn(char) -> bool) {
    // What never ends is cut like a sequence of ordinary length.
    const LONGEST: usize = 256;
    for _ in 0..LONGEST {
        match rest.next() {
            Some(c) if ends(c) => return,
            Some(_) => {}
            None => return,
        }
    }
}
