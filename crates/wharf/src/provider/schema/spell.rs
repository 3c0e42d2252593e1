//! Older drafts, in the spelling of 2020-12.

use serde_json::{Map, Value};

/// Keywords that say nothing about a value. References are followed in the schema as it came, so what they lead to need
/// not be kept.
const BOOKKEEPING: [&str; 12] = [
    "$schema",
    "$id",
    "$comment",
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$vocabulary",
    "$defs",
    "definitions",
    "id",
    "additionalItems",
    "contentSchema",
];
/// Ways to refer to another schema.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Spells one schema, not those within it, in the way of 2020-12. Gives the keywords that were spelt otherwise.
pub(super) fn modern(map: &mut Map<String, Value>) -> Vec<&'static str> {
    let mut changed = Vec::new();
    if map.get("items").is_some_and(Value::is_array) {
        let first = map.shift_remove("items").unwrap_or_default();
        if first.as_array().is_some_and(|list| !list.is_empty()) {
            map.insert("prefixItems".into(), first);
        }
        if let Some(rest) = map.shift_remove("additionalItems") {
            map.insert("items".into(), rest);
        }
        changed.push("items");
    }
    for (exclusive, plain) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        let Some(Value::Bool(is_exclusive)) = map.get(exclusive) else { continue };
        let is_exclusive = *is_exclusive;
        map.shift_remove(exclusive);
        if is_exclusive && let Some(limit) = map.shift_remove(plain) {
            map.insert(exclusive.into(), limit);
        }
        changed.push(exclusive);
    }
    if let Some(Value::Object(dependencies)) = map.shift_remove("dependencies") {
        for (name, needs) in dependencies {
            let keyword = if needs.is_array() { "dependentRequired" } else { "dependentSchemas" };
            let entry = map.entry(keyword).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(entry) = entry {
                entry.insert(name, needs);
            }
        }
        changed.push("dependencies");
    }
    for keyword in BOOKKEEPING {
        map.shift_remove(keyword);
    }
    changed
}
