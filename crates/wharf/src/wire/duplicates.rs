//! Refuses a key that stands twice in one object, at any depth, however it is spelt (`"a"` and `"\u0061"` are one key).
//!
//! It walks text that the scanner has accepted, so it need not check again: a string before a colon is a key, and it
//! belongs to the innermost object that is open.

use std::borrow::Cow;

use super::JsonError;
use super::json::unquote;

pub(super) fn refuse(json: &[u8]) -> Result<(), JsonError> {
    // The keys of all open objects in one row, and where in it each object begins.
    let mut keys: Vec<Cow<'_, str>> = Vec::new();
    let mut objects: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let end = string_end(json, at);
                let after = json[end..].iter().find(|b| !b.is_ascii_whitespace());
                if after == Some(&b':') {
                    let key = unquote(std::str::from_utf8(&json[at - 1..end]).unwrap_or_default());
                    if key.starts_with(LIBRARY) {
                        return Err(JsonError::Syntax {
                            what: "a key of the JSON library's own",
                            at: at - 1,
                        });
                    }
                    keys.push(key);
                }
                at = end;
            }
            b'{' => objects.push(keys.len()),
            b'}' => {
                let own = objects.pop().unwrap_or_default();
                keys[own..].sort_unstable();
                if let Some(pair) = keys[own..].windows(2).find(|pair| pair[0] == pair[1]) {
                    return Err(JsonError::twice(&pair[0]));
                }
                keys.truncate(own);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Keys that begin like this mean something to `serde_json`: it would read another value than the one that is sent.
const LIBRARY: &str = "$serde_json::private::";

/// How many members all objects have together: as many as there are colons outside of strings. `None` if a key might
/// be other than it looks.
pub(super) fn count_members(json: &[u8]) -> Option<usize> {
    if memchr::memchr2(b'\\', b'$', json).is_some() {
        return None;
    }
    let (mut at, mut members) = (0, 0);
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(json, at),
            b':' => members += 1,
            _ => {}
        }
    }
    Some(members)
}

/// The place after the closing quote of a string whose inside starts at `at`.
fn string_end(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', &json[at..]) {
        at += found + 1;
        if json[at - 1] == b'"' {
            return at;
        }
        // What a backslash escapes cannot end the string.
        at = (at + 1).min(json.len());
    }
    json.len()
}
