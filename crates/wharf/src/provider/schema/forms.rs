//! Values, types, numbers and lists, in the form that a dialect has for them.

use serde_json::{Number, Value, json};

use super::keywords::{TYPES, counts_for, implied, is_note, is_of, is_same};
use super::walk::{Node, Walk, strings};
use super::words;
use crate::provider::loss::How;
use crate::provider::rules::Enums;

/// The largest whole number that every reader of JSON takes as it is.
const SAFE: f64 = 9_007_199_254_740_992.0;

impl Walk<'_> {
    /// `const` and `enum`.
    pub(super) fn values(&mut self, node: &mut Node) {
        if let Some(only) = node.map.get("const") {
            let (hidden, accepted) = (words::hides(only), self.dialect.accepts("const"));
            if hidden {
                node.map.shift_remove("const");
                self.lose("const", How::Dropped, true);
            } else if !accepted && let Some(only) = node.map.shift_remove("const") {
                let is_listed = node
                    .map
                    .get("enum")
                    .and_then(Value::as_array)
                    .is_none_or(|list| list.iter().any(|value| is_same(value, &only)));
                let list = if is_listed { vec![only] } else { Vec::new() };
                node.map.insert("enum".into(), list.into());
                self.lose("const", How::Rewritten, false);
            }
        }
        let Some(Value::Array(mut list)) = node.map.get_mut("enum").map(Value::take) else { return };
        if let Some(types) = types_of(node) {
            list.retain(|value| types.iter().any(|ty| is_of(value, ty)));
        }
        node.impossible |= list.is_empty();
        let before = list.len();
        list.retain(|value| !words::hides(value));
        if list.len() < before {
            let how = if list.is_empty() { How::Dropped } else { How::Rewritten };
            self.lose("enum", how, list.is_empty());
        }
        if list.is_empty() {
            node.map.shift_remove("enum");
            return;
        }
        match self.dialect.enums {
            Enums::Any => drop(node.map.insert("enum".into(), list.into())),
            form => self.simple_values(node, list, form),
        }
    }

    /// Values for a dialect that lists only some kinds of them.
    fn simple_values(&mut self, node: &mut Node, mut list: Vec<Value>, form: Enums) {
        let has_null = list.iter().any(Value::is_null);
        list.retain(|value| !value.is_null());
        let types: Vec<&str> =
            TYPES.into_iter().filter(|ty| list.iter().any(|value| is_of(value, ty))).collect();
        let all_are = |ty: &str| list.iter().all(|value| is_of(value, ty));
        node.map.shift_remove("enum");
        if list.is_empty() {
            node.map.insert("type".into(), "null".into());
            return;
        }
        // The values say more about their types than the types do.
        let ty = TYPES.into_iter().rev().find(|ty| all_are(ty));
        let listed = match form {
            Enums::StringsAndNumbers => types.iter().all(|ty| ["string", "number", "integer"].contains(ty)),
            // An empty text is not taken.
            _ => all_are("string") && list.iter().any(|value| value != ""),
        };
        if has_null && form == Enums::StringsAndNumbers {
            let rest = json!({ "enum": list });
            node.map.shift_remove("type");
            return match node.map.contains_key("anyOf") {
                true => self.give_up("enum", &rest["enum"], &mut node.words),
                false => drop(node.map.insert("anyOf".into(), json!([rest, { "type": "null" }]))),
            };
        }
        node.nullable |= has_null;
        if let Some(ty) = ty {
            node.map.insert("type".into(), ty.into());
        }
        let is_both_bools = all_are("boolean") && list.contains(&true.into()) && list.contains(&false.into());
        if listed {
            if form == Enums::Strings && list.iter().any(|value| value == "") {
                list.retain(|value| value != "");
                self.lose("enum", How::Rewritten, false);
            }
            node.map.insert("enum".into(), list.into());
        } else if !is_both_bools {
            self.give_up("enum", &list.into(), &mut node.words);
        }
    }

    /// `type`: one or several, and null among them.
    pub(super) fn types(&mut self, node: &mut Node) -> Result<(), String> {
        let Some(mut types) = types_of(node) else { return self.untyped(node) };
        if types.iter().any(|ty| ty == "number") {
            types.retain(|ty| ty != "integer");
        }
        node.impossible |= types.is_empty();
        if self.dialect.openapi {
            let before = types.len();
            types.retain(|ty| ty != "null");
            if types.len() < before {
                node.nullable = true;
                self.lose("type", How::Rewritten, false);
            }
            if types.is_empty() {
                // Null alone: a text that may be null is the nearest there is.
                types.push("string".into());
                self.lose("type", How::Rewritten, true);
            }
        }
        node.map.retain(|keyword, _| types.iter().any(|ty| counts_for(keyword, ty)));
        match &types[..] {
            [one] => drop(node.map.insert("type".into(), one.as_str().into())),
            several if self.dialect.openapi => self.split(node, several)?,
            several => drop(node.map.insert("type".into(), several.into())),
        }
        Ok(())
    }

    /// Several types become several schemas, each with all that the schema says.
    fn split(&mut self, node: &mut Node, types: &[String]) -> Result<(), String> {
        let (notes, rest): (serde_json::Map<_, _>, serde_json::Map<_, _>) =
            std::mem::take(&mut node.map).into_iter().partition(|(keyword, _)| is_note(keyword));
        let rest = Value::Object(rest);
        let mut each = Vec::with_capacity(types.len());
        for ty in types {
            let mut one = self.copy(&rest)?;
            one["type"] = ty.as_str().into();
            each.push(one);
        }
        node.map = notes;
        node.map.insert("anyOf".into(), each.into());
        self.lose("type", How::Rewritten, false);
        Ok(())
    }

    /// A schema without a type. Where each must have one, it is found by what the schema is about, or all are listed.
    fn untyped(&mut self, node: &mut Node) -> Result<(), String> {
        let is_told = ["anyOf", "$ref"].iter().any(|keyword| node.map.contains_key(*keyword));
        if !self.dialect.openapi || is_told {
            return Ok(());
        }
        match implied(node.map.keys().map(String::as_str)) {
            Some(ty) => {
                node.map.insert("type".into(), ty.into());
                node.is_implied = true;
            }
            None => {
                node.map.extend(self.any().as_object().cloned().unwrap_or_default());
                node.nullable = true;
            }
        }
        self.lose("type", How::Rewritten, false);
        Ok(())
    }

    /// A schema for any value, or for most of them where each schema must have a type.
    pub(super) fn any(&self) -> Value {
        if !self.dialect.openapi {
            return json!({});
        }
        let each = ["string", "number", "boolean", "object"].map(|ty| json!({ "type": ty }));
        json!({ "anyOf": each })
    }

    /// Limits that a number must not reach, where only limits that it may reach can be said.
    pub(super) fn numbers(&mut self, node: &mut Node) {
        let is_whole = node.map.get("type").is_some_and(|ty| ty == "integer");
        for (exclusive, plain, step) in
            [("exclusiveMinimum", "minimum", 1.0), ("exclusiveMaximum", "maximum", -1.0)]
        {
            if self.dialect.accepts(exclusive) || !self.dialect.accepts(plain) {
                continue;
            }
            let Some(limit) = node.map.shift_remove(exclusive) else { continue };
            let inner = if is_whole { next_whole(&limit, step) } else { None };
            match &inner {
                Some(_) => self.lose(exclusive, How::Rewritten, false),
                None => self.give_up(exclusive, &limit, &mut node.words),
            }
            let limit = inner.unwrap_or(limit);
            let is_tighter = |old: &Value| {
                old.as_f64()
                    .zip(limit.as_f64())
                    .is_some_and(|(old, new)| if step > 0.0 { old >= new } else { old <= new })
            };
            if !node.map.get(plain).is_some_and(is_tighter) {
                node.map.insert(plain.into(), limit);
            }
        }
    }

    /// `items` and `prefixItems`.
    pub(super) fn arrays(&mut self, node: &mut Node) {
        let count = node.map.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
        if node.map.get("items") == Some(&Value::Bool(false)) && self.dialect.accepts("maxItems") {
            let max = node.map.get("maxItems").and_then(Value::as_f64).unwrap_or(f64::MAX);
            if max > count as f64 {
                node.map.insert("maxItems".into(), count.into());
            }
            node.map.shift_remove("items");
        }
        if count > 0 && !self.dialect.accepts("prefixItems") && self.dialect.accepts("items") {
            let Some(first) = node.map.shift_remove("prefixItems") else { return };
            self.give_up("prefixItems", &first, &mut node.words);
            let mut any = first.as_array().cloned().unwrap_or_default();
            any.extend(node.map.shift_remove("items"));
            node.map.insert("items".into(), json!({ "anyOf": any }));
        }
        let is_list = node.map.get("type").is_some_and(|ty| ty == "array");
        let is_told = ["items", "prefixItems"].iter().any(|keyword| node.map.contains_key(*keyword));
        if is_list && !is_told && self.dialect.accepts("items") {
            node.map.insert("items".into(), Value::Bool(true));
        }
    }
}

/// The types that a schema names.
fn types_of(node: &Node) -> Option<Vec<String>> {
    match node.map.get("type")? {
        Value::String(one) => Some(vec![one.clone()]),
        list => Some(strings(Some(list))),
    }
}

/// The next whole number above (`step` 1) or below (`step` -1) a limit.
fn next_whole(limit: &Value, step: f64) -> Option<Value> {
    let limit = limit.as_f64().filter(|limit| limit.abs() < SAFE)?;
    let next = if step > 0.0 { limit.floor() + step } else { limit.ceil() + step };
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the range")]
    let next = next as i64;
    Some(Value::Number(Number::from(next)))
}
