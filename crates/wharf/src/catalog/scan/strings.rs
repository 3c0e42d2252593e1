//! Every string of a JSON value, keys included, with its place.

use serde_json::Value;

use crate::wire::Json;

/// Visits every string: its JSON pointer, and the string itself. A key has the pointer of its value.
pub(super) fn each(raw: &Json, mut visit: impl FnMut(&str, &str)) {
    match raw.to::<Value>() {
        Ok(value) => walk(&value, &mut String::new(), &mut visit),
        // What no value of ours can hold, a lone half of a pair, is looked at as it is spelt.
        Err(_) => visit("", raw.as_str()),
    }
}

fn walk(value: &Value, at: &mut String, visit: &mut impl FnMut(&str, &str)) {
    let length = at.len();
    match value {
        Value::String(text) => visit(at, text),
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                at.push_str(&format!("/{number}"));
                walk(item, at, visit);
                at.truncate(length);
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                at.push('/');
                at.push_str(&key.replace('~', "~0").replace('/', "~1"));
                visit(at, key);
                walk(value, at, visit);
                at.truncate(length);
            }
        }
        _ => {}
    }
}
