//! What a schema cannot say, in words; and words without anything hidden in them.

use std::borrow::Cow;

use serde_json::Value;

use crate::text::{Escaped, is_unsafe_to_show};

/// The longest value that is put into words, in bytes.
const WORDS_MAX: usize = 300;
/// The longest text from outside in a reason.
const SHOWN_MAX: usize = 80;

/// A text without what cannot be seen. Line breaks and tabs stay. A model reads every character, a person only the
/// visible ones: what only the model could read is not for it either.
pub(in crate::provider) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|&c| !is_hidden(c)).collect())
}

fn is_hidden(c: char) -> bool {
    is_unsafe_to_show(c) && c != '\n' && c != '\t'
}

/// Whether a value of the schema, which must be sent as it is, has something in it that cannot be seen. Line breaks are
/// ordinary in values, and joiners hold many an emoji together.
pub(super) fn hides(value: &Value) -> bool {
    let mut waiting = vec![value];
    while let Some(value) = waiting.pop() {
        match value {
            Value::String(text) if hides_text(text) => return true,
            Value::Array(items) => waiting.extend(items),
            Value::Object(members) if members.keys().any(|key| hides_text(key)) => return true,
            Value::Object(members) => waiting.extend(members.values()),
            _ => {}
        }
    }
    false
}

/// The same for a text.
pub(super) fn hides_text(text: &str) -> bool {
    text.chars().any(|c| is_hidden(c) && !matches!(c, '\r' | '\u{200c}' | '\u{200d}'))
}

/// A keyword and its value as words; `None` where they would be too long to help.
pub(super) fn tell(keyword: &str, value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) if text.len() <= WORDS_MAX => clean(text).into_owned(),
        Value::String(_) => return None,
        _ => value.to_string(),
    };
    (text.len() <= WORDS_MAX && !hides_text(&text)).then(|| format!("{keyword}: {text}"))
}

/// A description with more words behind it.
pub(super) fn join(description: &str, words: &[String]) -> String {
    let more = format!("({})", words.join("; "));
    if description.trim().is_empty() { more } else { format!("{description} {more}") }
}

/// A text from outside in quotes, escaped and cut.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("`{}…`", Escaped(&text[..end])),
        None => format!("`{}`", Escaped(text)),
    }
}
