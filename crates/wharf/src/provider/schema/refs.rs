//! References: kept, written out, or cut where they lead back to themselves.

use serde_json::{Map, Value, json};

use super::keywords::is_note;
use super::spell::REFERENCES;
use super::walk::{Node, Walk};
use super::{measure, words};
use crate::provider::loss::How;
use crate::provider::rules::Refs;

/// A reference that is being written out.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Where it leads, as a JSON pointer into the schema.
    place: String,
    /// What stood above it when it was opened.
    optional: usize,
    inward: usize,
}

/// A definition that something refers to.
#[derive(Debug)]
pub(super) struct Def {
    name: String,
    schema: Option<Value>,
}

/// References that only lead to another one, in a row.
const HOPS_MAX: usize = 32;

impl<'a> Walk<'a> {
    /// Follows the reference of a schema, if it has one. What it leads to must then hold as well, or the schema is
    /// done: a reference alone.
    pub(super) fn follow(&mut self, node: &mut Node) -> Result<Option<Value>, String> {
        lift_single(&mut node.map);
        let Some(reference) = take_reference(&mut node.map)? else { return Ok(None) };
        let (place, target) = self.resolve(&reference)?;
        let recursion = self.open.iter().rev().find(|open| open.place == place);
        if self.dialect.refs == Refs::Keep && !self.is_root() {
            if recursion.is_some_and(|open| open.inward == self.inward) {
                return Err(endless(&reference));
            }
            node.map.insert("$ref".into(), self.refer(&place));
            return Ok(None);
        }
        let Some(before) = recursion else {
            self.open.push(Open { place, optional: self.optional, inward: self.inward });
            let target = self.copy(target)?;
            node.also.push(target);
            return Ok(None);
        };
        let may_stay = match self.dialect.refs {
            Refs::Keep | Refs::Recursive => self.inward > before.inward,
            Refs::RecursiveOptional => self.optional > before.optional,
            Refs::Never => false,
        };
        if !may_stay || self.is_root() {
            self.cut(node, target);
            return Ok(None);
        }
        // Nothing else may stand beside it.
        for (keyword, _) in std::mem::take(&mut node.map) {
            let widens = !is_note(&keyword);
            self.lose(&keyword, How::Dropped, widens);
        }
        Ok(Some(json!({ "$ref": self.refer(&place) })))
    }

    /// Leaves out a reference that leads back to itself.
    pub(super) fn cut(&mut self, node: &mut Node, target: &Value) {
        self.lose("$ref", How::Dropped, true);
        node.words.push("of the same form as what it is part of".into());
        if let (Some(ty), None) = (target.get("type").filter(|ty| ty.is_string()), node.map.get("type")) {
            node.map.insert("type".into(), ty.clone());
        }
    }

    /// The definitions that are referred to, and those that they refer to.
    pub(super) fn definitions(&mut self) -> Result<Map<String, Value>, String> {
        let mut next = 0;
        while let Some((place, def)) = self.defs.get_index(next) {
            let (place, name) = (place.clone(), def.name.clone());
            let source = self.source.pointer(&place).unwrap_or(&Value::Null);
            let source = self.copy(source)?;
            self.open = vec![Open { place, optional: self.optional, inward: self.inward }];
            let done = self.definition(&name, |walk| walk.schema(source))?;
            let done = if done.is_object() { done } else { self.nothing("$ref") };
            self.defs[next].schema = Some(done);
            next += 1;
        }
        let defs = std::mem::take(&mut self.defs);
        Ok(defs.into_values().filter_map(|def| Some((def.name, def.schema?))).collect())
    }

    /// What refers to a place from now on.
    fn refer(&mut self, place: &str) -> Value {
        if !self.defs.contains_key(place) {
            let last = place.rsplit('/').next().unwrap_or_default();
            let plain: String =
                last.chars().filter(|c| c.is_ascii_alphanumeric() || "_-.".contains(*c)).take(64).collect();
            let plain = if plain.is_empty() { "root".to_owned() } else { plain };
            let is_taken = |name: &str| self.defs.values().any(|def| def.name == name);
            let name = (1..)
                .map(|n| if n == 1 { plain.clone() } else { format!("{plain}_{n}") })
                .find(|name| !is_taken(name))
                .unwrap_or_default();
            self.defs.insert(place.to_owned(), Def { name, schema: None });
        }
        format!("#/$defs/{}", self.defs[place].name).into()
    }

    /// Where a reference leads: the place, and what is there.
    pub(super) fn resolve(&mut self, reference: &str) -> Result<(String, &'a Value), String> {
        self.has_reference = true;
        let mut reference = reference.to_owned();
        for _ in 0..HOPS_MAX {
            let found = self.look_up(&reference);
            let Some((place, target)) = found else {
                return Err(format!("its schema refers to {}, which is not in it", words::short(&reference)));
            };
            // A reference to nothing but a reference leads on.
            match target.as_object().filter(|map| map.len() == 1).and_then(|map| map.get("$ref")) {
                Some(Value::String(on)) => reference.clone_from(on),
                _ => return Ok((place, target)),
            }
        }
        Err(endless(&reference))
    }

    fn look_up(&self, reference: &str) -> Option<(String, &'a Value)> {
        let own = self.source.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#'));
        let fragment = match own.and_then(|own| reference.strip_prefix(own)) {
            Some("") => "",
            Some(rest) if rest.starts_with('#') => &rest[1..],
            _ => reference.strip_prefix('#')?,
        };
        let fragment = percent_decoded(fragment)?;
        if fragment.is_empty() || fragment.starts_with('/') {
            let target = self.source.pointer(&fragment)?;
            return Some((fragment, target));
        }
        anchor(self.source, &fragment)
    }
}

/// The reference of a schema, taken out of it.
pub(super) fn take_reference(map: &mut Map<String, Value>) -> Result<Option<String>, String> {
    let mut found = None;
    for keyword in REFERENCES {
        match map.shift_remove(keyword) {
            Some(Value::String(reference)) if found.is_none() => found = Some(reference),
            None => {}
            Some(_) => {
                return Err("its schema is not valid: a reference that is none, or two in one place".into());
            }
        }
    }
    Ok(found)
}

/// `allOf` with one schema, and nothing but notes beside it, is that schema.
fn lift_single(map: &mut Map<String, Value>) {
    let beside = |keyword: &String| keyword == "allOf" || is_note(keyword);
    let is_plain = map.keys().all(|k| beside(k) && !REFERENCES.contains(&k.as_str()));
    let Some(Value::Array(list)) = map.get_mut("allOf").filter(|_| is_plain) else { return };
    let [Value::Object(only)] = &mut list[..] else { return };
    if !only.keys().any(|k| REFERENCES.contains(&k.as_str()))
        || only.keys().any(|k| !is_note(k) && k != "$ref")
    {
        return;
    }
    let only = std::mem::take(only);
    map.shift_remove("allOf");
    for (keyword, value) in only {
        map.entry(keyword).or_insert(value);
    }
}

fn endless(reference: &str) -> String {
    format!("its schema refers to itself without end at {}", words::short(reference))
}

/// The schema with that anchor, wherever it stands.
fn anchor<'v>(source: &'v Value, name: &str) -> Option<(String, &'v Value)> {
    let mut waiting = vec![(String::new(), source)];
    let mut left = measure(source).0;
    while let Some((place, value)) = waiting.pop() {
        left = left.checked_sub(1)?;
        let below = |key: &str| format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Object(map) => {
                let is_named = |keyword: &str| map.get(keyword).and_then(Value::as_str) == Some(name);
                let old = map.get("$id").and_then(Value::as_str).and_then(|id| id.strip_prefix('#'));
                if is_named("$anchor") || is_named("$dynamicAnchor") || old == Some(name) {
                    return Some((place, value));
                }
                waiting.extend(map.iter().map(|(key, value)| (below(key), value)));
            }
            Value::Array(list) => {
                waiting.extend(list.iter().enumerate().map(|(i, v)| (below(&i.to_string()), v)))
            }
            _ => {}
        }
    }
    None
}

fn percent_decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}
