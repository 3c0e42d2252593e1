//! What a model can be held to.

use serde_json::{Map, Value};

/// OpenAI's limits, which are the only ones that are known.
const PROPERTIES_MAX: usize = 5_000;
const LEVELS_MAX: usize = 10;
const CHARACTERS_MAX: usize = 120_000;
const VALUES_MAX: usize = 1_000;
/// An `enum` with more values than this may have only so many characters.
const LONG_ENUM: usize = 250;
const LONG_ENUM_CHARACTERS: usize = 15_000;

/// Whether a schema says which values it is for: a model cannot be held to anything.
pub(super) fn says_what_it_is(schema: &Map<String, Value>) -> bool {
    ["type", "anyOf", "enum", "const", "$ref"].iter().any(|keyword| schema.contains_key(*keyword))
}

/// Whether a pattern looks ahead or behind.
pub(super) fn looks_around(pattern: &str) -> bool {
    ["(?=", "(?!", "(?<"].iter().any(|look| pattern.contains(look))
}

/// Whether a written schema is small enough.
pub(super) fn is_within_limits(schema: &Value) -> bool {
    let (mut properties, mut levels, mut characters, mut values) = (0, 0, 0, 0);
    let mut waiting = vec![(schema, 1)];
    while let Some((schema, level)) = waiting.pop() {
        let Value::Object(map) = schema else { continue };
        levels = levels.max(level);
        for (keyword, value) in map {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(named)) => {
                    properties += named.len();
                    characters += named.keys().map(String::len).sum::<usize>();
                    waiting.extend(named.values().map(|schema| (schema, level + 1)));
                }
                ("$defs", Value::Object(named)) => {
                    characters += named.keys().map(String::len).sum::<usize>();
                    waiting.extend(named.values().map(|schema| (schema, level)));
                }
                ("enum", Value::Array(list)) => {
                    let long: usize = list.iter().map(|value| value.to_string().len()).sum();
                    values += list.len();
                    characters += long;
                    if list.len() > LONG_ENUM && long > LONG_ENUM_CHARACTERS {
                        return false;
                    }
                }
                ("const", value) => characters += value.to_string().len(),
                ("items", schema) => waiting.push((schema, level + 1)),
                ("anyOf", Value::Array(list)) => waiting.extend(list.iter().map(|schema| (schema, level))),
                _ => {}
            }
        }
    }
    properties <= PROPERTIES_MAX
        && levels <= LEVELS_MAX
        && characters <= CHARACTERS_MAX
        && values <= VALUES_MAX
}
