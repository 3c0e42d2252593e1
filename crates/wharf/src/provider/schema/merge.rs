//! Several schemas that must all hold become one, as far as that can be said.

use serde_json::{Map, Value, json};

use super::keywords::{TYPES, is_note, is_same};
use super::refs::take_reference;
use super::walk::{Node, Walk};
use crate::provider::loss::How;

/// Keywords that only mean something together: where both sides have some, theirs cannot be joined with ours.
const TOGETHER: [&[&str]; 3] = [
    &["if", "then", "else"],
    &["contains", "minContains", "maxContains"],
    &["prefixItems", "items", "unevaluatedItems"],
];
/// Keywords about properties, which look at each other.
const ABOUT_PROPERTIES: [&str; 4] =
    ["properties", "additionalProperties", "patternProperties", "unevaluatedProperties"];

type Object = Map<String, Value>;

impl Walk<'_> {
    /// Joins what must hold as well into the schema itself: what references lead to, and `allOf` where the dialect has
    /// none. What cannot be joined stays in `allOf`, or in words.
    pub(super) fn flatten(&mut self, node: &mut Node) -> Result<(), String> {
        let keeps_all_of = self.keeps_all_of();
        if !keeps_all_of && let Some(Value::Array(all)) = node.map.shift_remove("allOf") {
            node.also.extend(all);
        }
        let mut waiting: Vec<Value> = std::mem::take(&mut node.also);
        waiting.reverse();
        while let Some(schema) = waiting.pop() {
            let mut theirs = match schema {
                Value::Bool(true) => continue,
                Value::Object(map) => map,
                _ => {
                    node.impossible = true;
                    continue;
                }
            };
            self.spell(&mut theirs)?;
            if let Some(reference) = take_reference(&mut theirs)? {
                let mut inner = Node::default();
                inner.map.insert("$ref".into(), reference.into());
                self.follow_into(node, inner, &mut waiting)?;
            }
            if !keeps_all_of && let Some(Value::Array(all)) = theirs.shift_remove("allOf") {
                waiting.extend(all.into_iter().rev());
            }
            let left = self.join(&mut node.map, theirs)?;
            self.keep_left(node, left, keeps_all_of);
        }
        // Nothing is of no type, and nothing is one of no values.
        let is_empty = |keyword: &str| node.map.get(keyword).is_some_and(|list| *list == json!([]));
        node.impossible |= is_empty("type") || is_empty("enum");
        Ok(())
    }

    fn keeps_all_of(&self) -> bool {
        self.dialect.accepts("allOf") && !self.is_root()
    }

    /// Follows a reference that stands among the schemas to be joined.
    fn follow_into(
        &mut self,
        node: &mut Node,
        mut inner: Node,
        waiting: &mut Vec<Value>,
    ) -> Result<(), String> {
        // A reference that stays cannot be joined, so it is cut.
        match self.follow(&mut inner)? {
            Some(_) => {
                self.lose("$ref", How::Dropped, true);
                node.words.push("of the same form as what it is part of".into());
            }
            None => {
                node.words.append(&mut inner.words);
                waiting.append(&mut inner.also);
                if let Some(kept) = inner.map.shift_remove("$ref") {
                    waiting_or_all_of(node, kept);
                }
                waiting.push(Value::Object(inner.map));
            }
        }
        Ok(())
    }

    fn keep_left(&mut self, node: &mut Node, left: Object, keeps_all_of: bool) {
        if left.is_empty() {
            return;
        }
        if keeps_all_of {
            return add_all_of(&mut node.map, Value::Object(left));
        }
        for (keyword, value) in left {
            self.give_up(&keyword, &value, &mut node.words);
        }
    }

    /// Joins their keywords into ours. Gives back those that cannot be.
    pub(super) fn join(&mut self, ours: &mut Object, mut theirs: Object) -> Result<Object, String> {
        let mut left = Object::new();
        for group in TOGETHER {
            let has = |map: &Object| group.iter().any(|keyword| map.contains_key(*keyword));
            let differ = group.iter().any(|keyword| ours.get(*keyword) != theirs.get(*keyword));
            let only_items =
                |map: &Object| !map.contains_key("prefixItems") && !map.contains_key("unevaluatedItems");
            let is_items = group.contains(&"items") && only_items(ours) && only_items(&theirs);
            if has(ours) && has(&theirs) && differ && !is_items {
                left.extend(group.iter().filter_map(|k| Some(((*k).to_owned(), theirs.shift_remove(*k)?))));
            }
        }
        self.join_properties(ours, &mut theirs, &mut left);
        for (keyword, their) in theirs {
            let Some(our) = ours.get_mut(&keyword) else {
                ours.insert(keyword, their);
                continue;
            };
            if *our == their || is_note(&keyword) {
                continue;
            }
            match joined(&keyword, our, &their) {
                Some(both) => *our = both,
                None if keyword == "anyOf" => {
                    let both = self.product(our.take(), &their)?;
                    ours.insert(keyword, both);
                }
                None => drop(left.insert(keyword, their)),
            }
        }
        Ok(left)
    }

    /// One of these and one of those: each of these, with one of those.
    fn product(&mut self, these: Value, those: &Value) -> Result<Value, String> {
        let Value::Array(these) = these else { return Ok(these) };
        let mut both = Vec::with_capacity(these.len());
        for this in these {
            let those = self.copy(those)?;
            both.push(json!({ "allOf": [this, { "anyOf": those }] }));
        }
        Ok(Value::Array(both))
    }

    /// A property that only one side names is, for the other, an additional one.
    fn join_properties(&mut self, ours: &mut Object, theirs: &mut Object, left: &mut Object) {
        let has = |map: &Object| ABOUT_PROPERTIES.iter().any(|keyword| map.contains_key(*keyword));
        if !has(ours) || !has(theirs) {
            return;
        }
        let is_plain = |map: &Object| {
            !map.contains_key("patternProperties") && !map.contains_key("unevaluatedProperties")
        };
        let are_plain = is_plain(ours) && is_plain(theirs);
        if !are_plain {
            // What looks at each other stays together where it can.
            let apart = if self.keeps_all_of() { &ABOUT_PROPERTIES[..] } else { &ABOUT_PROPERTIES[1..] };
            for keyword in apart {
                if let Some(their) = theirs.shift_remove(*keyword) {
                    left.insert((*keyword).to_owned(), their);
                }
            }
            if self.keeps_all_of() {
                return;
            }
            // Their properties become ours, whether or not they were additional ones: a pattern may take them.
            if ours.contains_key("additionalProperties") && theirs.contains_key("properties") {
                self.lose("additionalProperties", How::Dropped, true);
            }
        }
        let (our_rest, their_rest) = (ours.get("additionalProperties"), theirs.get("additionalProperties"));
        let mut properties = take_object(theirs.get("properties").cloned());
        for (name, their) in &mut properties {
            let our = ours.get("properties").and_then(|p| p.get(name));
            if let Some(other) = our.or(our_rest.filter(|_| are_plain)).filter(|other| *other != their) {
                *their = both(other, their);
            }
        }
        for (name, our) in take_object(ours.get("properties").cloned()) {
            let joined = match their_rest.filter(|_| !properties.contains_key(&name)) {
                Some(rest) => both(rest, &our),
                None => properties.shift_remove(&name).unwrap_or(our),
            };
            properties.insert(name, joined);
        }
        let rest = match (our_rest, their_rest) {
            (Some(our), Some(their)) if our != their => Some(both(our, their)),
            (our, their) => our.or(their).cloned(),
        };
        for map in [&mut *ours, theirs] {
            map.shift_remove("properties");
            map.shift_remove("additionalProperties");
        }
        if !properties.is_empty() {
            ours.insert("properties".into(), Value::Object(properties));
        }
        if let Some(rest) = rest {
            ours.insert("additionalProperties".into(), rest);
        }
    }
}

fn take_object(value: Option<Value>) -> Object {
    match value {
        Some(Value::Object(map)) => map,
        _ => Object::new(),
    }
}

/// A schema for what fits both.
fn both(one: &Value, other: &Value) -> Value {
    match (one, other) {
        (Value::Bool(true), other) => other.clone(),
        (one, Value::Bool(true)) => one.clone(),
        (Value::Bool(false), _) | (_, Value::Bool(false)) => Value::Bool(false),
        (one, other) => json!({ "allOf": [one, other] }),
    }
}

fn add_all_of(map: &mut Object, schema: Value) {
    match map.get_mut("allOf") {
        Some(Value::Array(all)) => all.push(schema),
        _ => drop(map.insert("allOf".into(), json!([schema]))),
    }
}

fn waiting_or_all_of(node: &mut Node, reference: Value) {
    add_all_of(&mut node.map, json!({ "$ref": reference }));
}

/// One value for a keyword that says what both say.
fn joined(keyword: &str, our: &Value, their: &Value) -> Option<Value> {
    let larger = |pick_their: bool| Some(if pick_their { their.clone() } else { our.clone() });
    let is_less = || Some(our.as_f64()? < their.as_f64()?);
    match keyword {
        "type" => Some(common_types(our, their)),
        "enum" => {
            let (our, their) = (our.as_array()?, their.as_array()?);
            Some(
                our.iter().filter(|value| their.iter().any(|other| is_same(value, other))).cloned().collect(),
            )
        }
        "required" => {
            let (our, their) = (our.as_array()?, their.as_array()?);
            let more = their.iter().filter(|name| !our.contains(name));
            Some(our.iter().chain(more).cloned().collect())
        }
        "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => larger(is_less()?),
        "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => larger(!is_less()?),
        "uniqueItems" => Some(Value::Bool(true)),
        "items" | "propertyNames" => Some(both(our, their)),
        "not" => Some(json!({ "anyOf": [our, their] })),
        _ => None,
    }
}

/// The types on both lists; an empty list where there is none.
fn common_types(our: &Value, their: &Value) -> Value {
    let has = |types: &Value, ty: &str| match types {
        Value::Array(list) => list.iter().any(|t| t == ty),
        one => one == ty,
    };
    let takes = |types: &Value, ty: &str| has(types, ty) || (ty == "integer" && has(types, "number"));
    let common: Vec<&str> = TYPES.into_iter().filter(|ty| takes(our, ty) && takes(their, ty)).collect();
    let common: Vec<&str> =
        common.iter().filter(|ty| **ty != "integer" || !common.contains(&"number")).copied().collect();
    match common[..] {
        [one] => one.into(),
        _ => common.into(),
    }
}
