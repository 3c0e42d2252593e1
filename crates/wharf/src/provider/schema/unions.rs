//! One of several schemas: `oneOf`, `anyOf`, and null among them.

use serde_json::{Map, Value, json};

use super::keywords::{is_note, is_same};
use super::walk::{Node, Walk, strings};
use crate::provider::loss::How;

impl Walk<'_> {
    /// Puts a choice between schemas into the dialect's form.
    pub(super) fn unions(&mut self, node: &mut Node) -> Result<(), String> {
        loop {
            self.one_of_as_any_of(node);
            let Some(Value::Array(branches)) = node.map.get("anyOf") else { return Ok(()) };
            if !self.dialect.accepts("anyOf") {
                return Ok(());
            }
            let only = match &branches[..] {
                [only] => Some(only.clone()),
                _ => self.take_null(node),
            };
            let Some(only) = only else { break };
            // A choice of one is none.
            node.map.shift_remove("anyOf");
            node.also.push(only);
            self.flatten(node)?;
            if node.impossible {
                return Ok(());
            }
        }
        let has_one_of = node.map.contains_key("oneOf") && !self.dialect.accepts("oneOf");
        let has_more = node.map.keys().any(|keyword| keyword != "anyOf" && !is_note(keyword));
        let stands_alone = self.dialect.openapi || self.dialect.is_strict();
        if has_one_of || (stands_alone && has_more) {
            self.distribute(node)?;
        }
        Ok(())
    }

    fn one_of_as_any_of(&mut self, node: &mut Node) {
        if self.dialect.accepts("oneOf") || node.map.contains_key("anyOf") || !self.dialect.accepts("anyOf") {
            return;
        }
        let Some(Value::Array(branches)) = node.map.get("oneOf") else { return };
        let widens = !self.are_disjoint(&branches.clone());
        if let Some(branches) = node.map.shift_remove("oneOf") {
            node.map.insert("anyOf".into(), branches);
        }
        if widens {
            node.words.push("exactly one of the forms must fit".into());
        }
        self.lose("oneOf", if widens { How::Described } else { How::Rewritten }, widens);
    }

    /// Null as one of the forms is `nullable` in OpenAPI. Gives the other form if there is only one.
    fn take_null(&mut self, node: &mut Node) -> Option<Value> {
        if !self.dialect.openapi {
            return None;
        }
        let Some(Value::Array(branches)) = node.map.get_mut("anyOf") else { return None };
        let before = branches.len();
        branches.retain(|branch| !is_null(branch));
        let (after, only) = (branches.len(), branches.first().cloned());
        if after == before || after == 0 {
            return None;
        }
        node.nullable |= allows_null(&node.map);
        // What else is said of it is said of the forms that are not null.
        drop_null(&mut node.map);
        self.lose("anyOf", How::Rewritten, false);
        only.filter(|_| after == 1)
    }

    /// What stands beside the forms is put into each of them: it must hold with whichever fits.
    fn distribute(&mut self, node: &mut Node) -> Result<(), String> {
        let Some(Value::Array(branches)) = node.map.shift_remove("anyOf") else { return Ok(()) };
        let (notes, rest): (Map<_, _>, Map<_, _>) =
            std::mem::take(&mut node.map).into_iter().partition(|(keyword, _)| is_note(keyword));
        let rest = Value::Object(rest);
        node.map = notes;
        let mut whole = Vec::with_capacity(branches.len());
        for branch in branches {
            whole.push(json!({ "allOf": [self.copy(&rest)?, branch] }));
        }
        node.map.insert("anyOf".into(), Value::Array(whole));
        self.lose("anyOf", How::Rewritten, false);
        Ok(())
    }

    /// Whether no value fits two of the schemas, as far as types and constants show it.
    fn are_disjoint(&mut self, schemas: &[Value]) -> bool {
        // Looking at all pairs is for the few; long lists are not worth it.
        if schemas.len() > 32 {
            return false;
        }
        let mut plain: Vec<Value> = Vec::new();
        for schema in schemas {
            let reference = schema.get("$ref").and_then(Value::as_str).map(str::to_owned);
            let target =
                reference.and_then(|reference| self.resolve(&reference).ok()).map(|(_, target)| target);
            let Ok(schema) = self.copy(target.unwrap_or(schema)) else { return false };
            plain.push(schema);
        }
        plain.iter().enumerate().all(|(i, one)| plain[i + 1..].iter().all(|other| exclude(one, other)))
    }
}

/// Whether no value fits both.
fn exclude(one: &Value, other: &Value) -> bool {
    let types = |schema: &Value| match schema.get("type") {
        Some(Value::String(ty)) => vec![ty.clone()],
        list => strings(list),
    };
    let (these, those) = (types(one), types(other));
    let overlap =
        |a: &str, b: &str| a == b || matches!((a, b), ("integer", "number") | ("number", "integer"));
    let typed = !these.is_empty() && !those.is_empty();
    if typed && !these.iter().any(|a| those.iter().any(|b| overlap(a, b))) {
        return true;
    }
    if differ(one, other) {
        return true;
    }
    // A property that both demand, with values that are never the same, tells them apart. Both must be objects for it.
    let objects = these == ["object"] && those == ["object"];
    let (need, needed) = (strings(one.get("required")), strings(other.get("required")));
    objects
        && need.iter().filter(|name| needed.contains(name)).any(|name| {
            let property = |schema: &Value| schema.get("properties").and_then(|p| p.get(name)).cloned();
            property(one).zip(property(other)).is_some_and(|(a, b)| differ(&a, &b))
        })
}

/// Whether both list their values and have none in common.
fn differ(one: &Value, other: &Value) -> bool {
    let values = |schema: &Value| match (schema.get("const"), schema.get("enum")) {
        (Some(only), _) => Some(vec![only.clone()]),
        (None, Some(Value::Array(list))) => Some(list.clone()),
        _ => None,
    };
    values(one)
        .zip(values(other))
        .is_some_and(|(a, b)| !a.iter().any(|value| b.iter().any(|other| is_same(value, other))))
}

/// A schema that only null fits.
pub(super) fn is_null(schema: &Value) -> bool {
    let Some(map) = schema.as_object() else { return false };
    let only_null = |value: &Value| {
        value.is_null() || *value == "null" || *value == json!([null]) || *value == json!(["null"])
    };
    let says_null = match (map.get("type"), map.get("enum"), map.get("const")) {
        (Some(ty), None, None) => *ty == "null" || *ty == json!(["null"]),
        (None, Some(list), None) => only_null(list) && list.is_array(),
        (None, None, Some(value)) => value.is_null(),
        _ => false,
    };
    says_null && map.keys().all(|k| is_note(k) || matches!(k.as_str(), "type" | "enum" | "const"))
}

/// Whether what a schema says beside its forms lets null through.
fn allows_null(map: &Map<String, Value>) -> bool {
    let has =
        |list: &Value, wanted: &Value| list == wanted || list.as_array().is_some_and(|l| l.contains(wanted));
    map.get("type").is_none_or(|ty| has(ty, &"null".into()))
        && map.get("enum").is_none_or(|list| has(list, &Value::Null))
        && !["const", "not", "oneOf", "if", "allOf"].iter().any(|keyword| map.contains_key(*keyword))
}

/// Takes null out of the types and values.
fn drop_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|ty| ty != "null");
    }
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}
