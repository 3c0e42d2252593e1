//! Objects: the names of their properties, which of them are required, and whether there may be more.

use serde_json::{Map, Value, json};

use super::walk::{Node, Walk, strings};
use super::words;
use crate::provider::loss::How;
use crate::provider::rules::{Names, Objects};

/// The longest name of a property where there is a limit.
const NAME_MAX: usize = 64;

impl Walk<'_> {
    /// Sees to the names. A required property that cannot be named makes the tool useless to this provider.
    pub(super) fn keys(&mut self, node: &mut Node) -> Result<(), String> {
        let required = strings(node.map.get("required"));
        if let Some(Value::Object(properties)) = node.map.get_mut("properties") {
            if properties.keys().any(|name| words::hides_text(name)) {
                return Err("its schema has a name with characters that cannot be seen".into());
            }
            let rule = self.dialect.property_names;
            let is_root = self.is_root();
            let bad: Vec<String> =
                properties.keys().filter(|name| !fits(name, rule, is_root)).cloned().collect();
            for name in bad {
                properties.shift_remove(&name);
                if required.contains(&name) {
                    return Err(format!(
                        "the provider takes no argument with the name {}",
                        words::short(&name)
                    ));
                }
                self.at(&["properties", &name], true, |walk| walk.lose("properties", How::Dropped, true));
            }
        }
        let has_patterns = node.map.contains_key("patternProperties");
        if has_patterns
            && !self.dialect.accepts("patternProperties")
            && let Some(rest) = node.map.shift_remove("additionalProperties")
        {
            // Without the patterns, it would count for what they take.
            self.give_up("additionalProperties", &rest, &mut node.words);
        }
        if self.dialect.required_declared {
            self.declare_required(node, &required)?;
        }
        Ok(())
    }

    /// What is required must be declared, if only as anything.
    fn declare_required(&mut self, node: &mut Node, required: &[String]) -> Result<(), String> {
        if required.is_empty() {
            return Ok(());
        }
        let rest = node.map.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
        let properties = node.map.entry("properties").or_insert_with(|| json!({}));
        let Value::Object(properties) = properties else { return Ok(()) };
        for name in required {
            if properties.contains_key(name) {
                continue;
            }
            if !fits(name, self.dialect.property_names, self.is_root()) || words::hides_text(name) {
                return Err(format!("the provider takes no argument with the name {}", words::short(name)));
            }
            let rest = self.copy(&rest)?;
            properties.insert(name.clone(), rest);
            self.lose("required", How::Rewritten, false);
        }
        Ok(())
    }

    /// Each property by itself; `false` where nothing but an object fits, and one is required that cannot be.
    pub(super) fn properties(
        &mut self,
        value: Value,
        required: &[String],
        is_object: bool,
    ) -> Result<Value, String> {
        let Value::Object(schemas) = value else { return Ok(value) };
        let mut properties = Map::new();
        for (name, schema) in schemas {
            let is_required = required.contains(&name);
            self.optional += usize::from(!is_required);
            let done = self.at(&["properties", &name], true, |walk| walk.schema(schema));
            self.optional -= usize::from(!is_required);
            match done? {
                Value::Bool(_) if is_required && is_object => return Ok(Value::Bool(false)),
                Value::Bool(_) if is_required || self.dialect.accepts("not") => {
                    let nothing = self.at(&["properties", &name], true, |walk| walk.nothing("properties"));
                    properties.insert(name, nothing);
                }
                Value::Bool(_) => {
                    self.at(&["properties", &name], true, |walk| {
                        let widens = !walk.dialect.is_strict();
                        walk.lose("properties", How::Dropped, widens);
                    });
                }
                done => drop(properties.insert(name, done)),
            }
        }
        Ok(Value::Object(properties))
    }

    /// What the dialect asks of an object, once it is written.
    pub(super) fn finish_object(&mut self, out: &mut Map<String, Value>) {
        let is_empty = out.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        if self.dialect.openapi {
            if is_empty {
                out.shift_remove("properties");
            }
            if out.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
                out.shift_remove("required");
            }
        } else if self.is_root() && is_empty {
            out.insert("properties".into(), json!({}));
        }
        let is_object = out
            .get("type")
            .is_some_and(|ty| *ty == "object" || ty.as_array().is_some_and(|l| l.contains(&"object".into())));
        if self.dialect.objects == Objects::Open || !(is_object || out.contains_key("properties")) {
            return;
        }
        match out.get("additionalProperties") {
            None if !is_empty || self.is_root() => {
                out.insert("additionalProperties".into(), Value::Bool(false));
            }
            Some(Value::Bool(false)) => {}
            _ => self.fits = false,
        }
        if self.dialect.objects == Objects::ClosedAndRequired {
            let required = strings(out.get("required"));
            let names = out.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
            self.fits &= names.into_iter().all(|name| required.contains(name));
            if required.is_empty() {
                out.insert("required".into(), json!([]));
            }
        }
    }
}

fn fits(name: &str, rule: Names, is_root: bool) -> bool {
    let plain = |more: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    let is_long = name.is_empty() || name.len() > NAME_MAX;
    match rule {
        Names::Any => true,
        Names::PlainAtRoot => !is_root || (!is_long && plain("_.-")),
        Names::Identifiers => !is_long && plain("_") && !name.starts_with(|c: char| c.is_ascii_digit()),
    }
}
