//! Schemas that point to others: `$ref` within the document, and `allOf`. A schema that points to itself becomes a type
//! that names itself; nothing outside the document is looked at.

use serde_json::{Map, Value};

use super::comment::span;
use super::ident::pascal;
use super::read::{Place, Reader, Side, implied};
use super::shape::Type;

/// Keywords that say what a value is; all others say more about it, or nothing.
const SPEAKING: [&str; 11] = [
    "properties",
    "additionalProperties",
    "patternProperties",
    "required",
    "items",
    "prefixItems",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "type",
];

impl Reader<'_> {
    /// The type of a schema that may point to itself: read once, however often it is pointed to.
    pub(super) fn once<'s>(&mut self, schema: &'s Value, place: &Place<'s>) -> Type {
        let at: *const Value = schema;
        if let Some(of) = self.done.get(&at) {
            return of.clone();
        }
        if self.open.contains(&at) {
            return match self.reserved.get(&at) {
                Some(&item) if is_nullable(schema) => Type::Named(item).or_null(),
                Some(&item) => Type::Named(item),
                None => self.any(place, "the schema is made of itself in a way that no type is"),
            };
        }
        self.open.insert(at);
        let of = self.read(schema, place);
        self.open.remove(&at);
        self.done.insert(at, of.clone());
        of
    }

    /// A schema with `$ref` or `allOf`: another one's type, or the members of several objects together.
    pub(super) fn combined<'s>(
        &mut self,
        schema: &'s Value,
        members: &'s Map<String, Value>,
        place: &Place<'s>,
    ) -> Type {
        let alone = !members.keys().any(|key| key != "type" && SPEAKING.contains(&key.as_str()));
        match (members.get("$ref"), members.get("allOf").and_then(Value::as_array)) {
            (Some(reference), None) if alone => return self.reference(reference, place),
            (None, Some(parts)) if alone && parts.len() == 1 && !members.contains_key("type") => {
                return self.read(&parts[0], &place.deeper());
            }
            _ => {}
        }
        let mut parts = Vec::new();
        if !self.gather(schema, place, &mut parts) {
            return self.any(place, "a part of `allOf` cannot be found or is too deep");
        }
        parts.retain(|part| says_something(part));
        match parts[..] {
            [] => Type::Any,
            [one] if std::ptr::eq(one, schema) => self.plain(schema, members, place),
            [one] => match one.as_object() {
                Some(members) => self.plain(one, members, &place.deeper()),
                None => self.read(one, &place.deeper()),
            },
            _ if parts.iter().all(|part| is_object(part)) => self.object(&parts, schema, place),
            _ => self.any(place, "`allOf` of schemas that are not all objects has no type"),
        }
    }

    /// The schema and all that it is made of. False if some of it cannot be had.
    fn gather<'s>(&mut self, schema: &'s Value, place: &Place<'s>, parts: &mut Vec<&'s Value>) -> bool {
        if self.budget == 0 || place.depth > 24 {
            return false;
        }
        self.budget -= 1;
        if parts.iter().any(|part| std::ptr::eq(*part, schema)) {
            return true;
        }
        parts.push(schema);
        let target = schema.get("$ref").map(|reference| target(reference, place.root));
        let all = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
        let deeper = place.deeper();
        !matches!(target, Some(None))
            && target.flatten().into_iter().chain(all).all(|part| self.gather(part, &deeper, parts))
    }

    fn reference<'s>(&mut self, reference: &'s Value, place: &Place<'s>) -> Type {
        let Some(target) = target(reference, place.root) else {
            let reason = format!("the reference {} leads nowhere", span(&reference.to_string()));
            return self.any(place, reason);
        };
        let last = reference.as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let tool = pascal(self.tool_name());
        let suffix = if self.side == Side::Result { "Result" } else { "" };
        self.once(target, &place.named(format!("{tool}{suffix}{}", pascal(last))))
    }
}

/// What a reference within the document points to.
fn target<'s>(reference: &Value, root: &'s Value) -> Option<&'s Value> {
    let pointer = reference.as_str()?.strip_prefix('#')?;
    root.pointer(&decoded(pointer)?)
}

/// A fragment with its `%25` and the like written out.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
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

/// Whether a part of `allOf` says what the value is, beside where its own parts are.
fn says_something(part: &Value) -> bool {
    match part {
        Value::Object(members) => members.keys().any(|key| SPEAKING.contains(&key.as_str())),
        other => *other != Value::Bool(true),
    }
}

fn is_object(part: &Value) -> bool {
    let Value::Object(members) = part else { return false };
    match members.get("type") {
        Some(name) => name == "object",
        None => implied(members) == Some("object"),
    }
}

/// Whether a schema names `null` beside its other type.
fn is_nullable(schema: &Value) -> bool {
    let listed =
        schema.get("type").and_then(Value::as_array).is_some_and(|types| types.iter().any(|t| t == "null"));
    let branches = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    let branch =
        branches.is_some_and(|branches| branches.iter().any(|b| b.get("type").is_some_and(|t| t == "null")));
    listed || branch || schema.get("nullable") == Some(&Value::Bool(true))
}
