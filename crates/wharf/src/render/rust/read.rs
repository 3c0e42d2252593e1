//! A JSON Schema becomes types.
//!
//! In: a schema from a server. Out: a [`Type`], its items in the module, and a note wherever a type says less than the
//! schema. Limits that types cannot say (lengths, patterns, `if`) are left to the check that every call goes through.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use super::RustNote;
use super::comment::span;
use super::ident::pascal;
use super::shape::{Field, Item, Kind, Module, Type};
use crate::mcp::Tool;
use crate::names::ToolName;

/// Which way the values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Arguments,
    /// A server may send more than it says, and must not be misread.
    Result,
}

/// Reads the schemas of one tool.
#[derive(Debug)]
pub(super) struct Reader<'m> {
    pub(super) module: &'m mut Module,
    notes: &'m mut Vec<RustNote>,
    tool: ToolName,
    pub(super) side: Side,
    /// How many schemas may still be read: `allOf` and `$ref` can multiply.
    pub(super) budget: usize,
    /// What was read, by where the schema lies.
    pub(super) done: HashMap<*const Value, Type>,
    /// What is being read, and the item it will be.
    pub(super) open: HashSet<*const Value>,
    pub(super) reserved: HashMap<*const Value, usize>,
}

/// Where in the schema we are.
#[derive(Clone, Debug)]
pub(super) struct Place<'s> {
    /// The whole schema, for `$ref`.
    pub(super) root: &'s Value,
    /// The name that a type here would like.
    pub(super) name: String,
    /// The way here: `arguments.filter`.
    pub(super) path: String,
    pub(super) depth: usize,
}

/// Schemas that are read for one tool.
const BUDGET: usize = 20_000;
/// How deep schemas may lie in one another, `$ref` included.
const DEPTH: usize = 48;
/// The largest tuple that has a `Default`.
const TUPLE_MAX: usize = 12;

// === impl Reader ===

impl<'m> Reader<'m> {
    pub(super) fn new(module: &'m mut Module, notes: &'m mut Vec<RustNote>, tool: &Tool) -> Self {
        Self {
            module,
            notes,
            tool: tool.name.clone(),
            side: Side::Arguments,
            budget: BUDGET,
            done: HashMap::new(),
            open: HashSet::new(),
            reserved: HashMap::new(),
        }
    }

    /// What a tool takes; `None` if it takes nothing.
    pub(super) fn arguments(&mut self, root: &Value) -> Option<Type> {
        let members = root.as_object();
        let has = |key: &str| members.is_some_and(|m| m.contains_key(key));
        let properties = root.get("properties").and_then(Value::as_object);
        let closed = root.get("additionalProperties") == Some(&Value::Bool(false));
        let open = has("additionalProperties") && !closed;
        let more = ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "patternProperties", "required"];
        let none = properties.map_or(closed, Map::is_empty) && !open && !more.into_iter().any(has);
        (!none).then(|| self.whole(root, Side::Arguments))
    }

    /// The type of a whole schema.
    pub(super) fn whole(&mut self, root: &Value, side: Side) -> Type {
        // Where schemas lie means something within one root only.
        self.done.clear();
        self.open.clear();
        self.reserved.clear();
        self.side = side;
        let (suffix, path) = match side {
            Side::Arguments => ("", "arguments"),
            Side::Result => ("Result", "result"),
        };
        let tool = pascal(self.tool.as_str());
        let tool = if tool.is_empty() { "Tool".to_owned() } else { tool };
        let place = Place { root, name: format!("{tool}{suffix}"), path: path.to_owned(), depth: 0 };
        self.once(root, &place)
    }

    /// Whose schemas are read.
    pub(super) fn tool_name(&self) -> &str {
        self.tool.as_str()
    }

    /// Says that a type is less exact than its schema.
    pub(super) fn note(&mut self, path: &str, reason: impl Into<String>) {
        let note = RustNote::new(&self.tool, path, reason);
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Anything, because of this.
    pub(super) fn any(&mut self, place: &Place<'_>, reason: impl Into<String>) -> Type {
        self.note(&place.path, reason);
        Type::Any
    }

    /// The type of a schema.
    pub(super) fn read<'s>(&mut self, schema: &'s Value, place: &Place<'s>) -> Type {
        if self.budget == 0 || place.depth > DEPTH {
            return self.any(place, "the schema is too large or too deep to be written as types");
        }
        self.budget -= 1;
        let members = match schema {
            Value::Bool(true) => return Type::Any,
            Value::Object(members) => members,
            _ => return self.any(place, "the schema allows nothing, or is none"),
        };
        let of = self.read_members(schema, members, place);
        if members.get("nullable") == Some(&Value::Bool(true)) { of.or_null() } else { of }
    }

    fn read_members<'s>(
        &mut self,
        schema: &'s Value,
        members: &'s Map<String, Value>,
        place: &Place<'s>,
    ) -> Type {
        if members.contains_key("$dynamicRef") || members.contains_key("$recursiveRef") {
            return self.any(place, "dynamic references have no type");
        }
        if members.contains_key("$ref") || members.contains_key("allOf") {
            return self.combined(schema, members, place);
        }
        self.plain(schema, members, place)
    }

    /// The type of what a schema says itself, whatever else it points to.
    pub(super) fn plain<'s>(
        &mut self,
        schema: &'s Value,
        members: &'s Map<String, Value>,
        place: &Place<'s>,
    ) -> Type {
        if let Some(value) = members.get("const") {
            return self.enumeration(std::slice::from_ref(value), schema, place);
        }
        if let Some(Value::Array(values)) = members.get("enum") {
            return self.enumeration(values, schema, place);
        }
        if let Some(Value::Array(branches)) = members.get("anyOf").or_else(|| members.get("oneOf")) {
            if !members.contains_key("properties") {
                return self.choice(schema, branches, place);
            }
            if branches.iter().any(|branch| branch.get("properties").is_some()) {
                self.note(&place.path, "what depends on `anyOf` or `oneOf` is not in the type");
            }
        }
        match members.get("type") {
            Some(Value::Array(types)) => self.type_list(types, schema, members, place),
            Some(Value::String(name)) => self.one_type(name, schema, members, place),
            _ => match implied(members) {
                Some(name) => self.one_type(name, schema, members, place),
                None => Type::Any,
            },
        }
    }

    /// `"type": ["string", "null"]`.
    fn type_list<'s>(
        &mut self,
        types: &'s [Value],
        schema: &'s Value,
        members: &'s Map<String, Value>,
        place: &Place<'s>,
    ) -> Type {
        let names: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
        let others: Vec<&str> = names.iter().copied().filter(|name| *name != "null").collect();
        let of = match others[..] {
            [] if names.is_empty() => Type::Any,
            [] => Type::Null,
            [one] => self.one_type(one, schema, members, place),
            _ => {
                let item = self.reserve(schema, place, Kind::Choice(Vec::new()));
                let mut parts = Vec::new();
                for name in others {
                    let here = place.named(format!("{}{}", place.name, pascal(name)));
                    parts.push((String::new(), self.one_type(name, schema, members, &here)));
                }
                self.reserved.insert(schema, item);
                self.one_of(parts, item, place)
            }
        };
        if names.contains(&"null") { of.or_null() } else { of }
    }

    fn one_type<'s>(
        &mut self,
        name: &str,
        schema: &'s Value,
        members: &'s Map<String, Value>,
        place: &Place<'s>,
    ) -> Type {
        match name {
            "string" => Type::Text,
            "boolean" => Type::Bool,
            "null" => Type::Null,
            "number" => Type::Number,
            "integer" if is_natural(members) => Type::Unsigned,
            "integer" => Type::Integer,
            "array" => self.array(members, place),
            "object" => self.object(&[schema], schema, place),
            other => {
                let reason = format!("the type {} is unknown", span(other));
                self.any(place, reason)
            }
        }
    }

    fn array<'s>(&mut self, members: &'s Map<String, Value>, place: &Place<'s>) -> Type {
        let items = members.get("items").or_else(|| members.get("additionalItems"));
        let first = members.get("prefixItems").or_else(|| members.get("items").filter(|i| i.is_array()));
        if let Some(Value::Array(parts)) = first {
            let count = |key: &str| members.get(key).and_then(Value::as_u64);
            let ends = items == Some(&Value::Bool(false)) || count("maxItems") == Some(parts.len() as u64);
            let fixed = ends && count("minItems") == Some(parts.len() as u64);
            if fixed && (1..=TUPLE_MAX).contains(&parts.len()) {
                let part = |(n, part): (usize, &'s Value)| self.read(part, &place.within(&format!("{n}")));
                return Type::Tuple(parts.iter().enumerate().map(part).collect());
            }
            self.note(&place.path, "a list whose places have types of their own is a list of anything");
            return Type::List(Box::new(Type::Any));
        }
        let of = items.map_or(Type::Any, |items| self.read(items, &place.item()));
        Type::List(Box::new(of))
    }

    /// An object whose members are spread over several schemas.
    pub(super) fn object<'s>(&mut self, parts: &[&'s Value], schema: &'s Value, place: &Place<'s>) -> Type {
        let all = |key: &'static str| parts.iter().filter_map(move |part| part.get(key));
        let rest = all("additionalProperties").find(|rest| rest.is_object() || **rest == Value::Bool(true));
        let patterns: Vec<_> = all("patternProperties").filter_map(Value::as_object).flatten().collect();
        let closed =
            all("additionalProperties").any(|rest| *rest == Value::Bool(false)) && patterns.is_empty();
        let properties: Vec<_> = all("properties").filter_map(Value::as_object).flatten().collect();
        if properties.is_empty() && !closed {
            return match (rest, &patterns[..]) {
                (Some(rest), []) => Type::Map(Box::new(self.read(rest, &place.within("*")))),
                (None, [(_, one)]) => Type::Map(Box::new(self.read(one, &place.within("*")))),
                _ => Type::Map(Box::new(Type::Any)),
            };
        }
        // Until it is read it may hold anything.
        let unread = Kind::Struct { fields: Vec::new(), closed: false, rest: Some(Type::Any) };
        let item = self.reserve(schema, place, unread);
        let required: HashSet<&str> =
            all("required").filter_map(Value::as_array).flatten().filter_map(Value::as_str).collect();
        let mut fields: Vec<Field> = Vec::new();
        for (key, property) in properties {
            let here = place.within(key);
            let of = self.read(property, &here);
            match fields.iter().position(|field| field.key == *key) {
                Some(at) => fields[at].of = self.both(fields[at].of.clone(), of, &here),
                None => fields.push(field(key, property, required.contains(key.as_str()), of)),
            }
        }
        let rest = match rest {
            Some(rest) => Some(self.read(rest, &place.within("*"))),
            None => (!patterns.is_empty()).then_some(Type::Any),
        };
        // Those that must be there without a word about them are of the rest.
        let unsaid = |key: &&str| !fields.iter().any(|field| field.key == **key);
        let unsaid: BTreeSet<&str> = required.iter().copied().filter(unsaid).collect();
        let of = rest.clone().unwrap_or(Type::Any);
        fields.extend(unsaid.into_iter().map(|key| field(key, &Value::Null, true, of.clone())));
        self.module.items[item].kind = Kind::Struct { fields, closed, rest };
        Type::Named(item)
    }

    /// A member that is described twice: both must hold, so the narrower one says it all.
    fn both(&mut self, one: Type, other: Type, place: &Place<'_>) -> Type {
        match (one, other) {
            (one, other) if one == other => one,
            (Type::Any, known) | (known, Type::Any) => known,
            (Type::Text, words @ Type::Named(item)) | (words @ Type::Named(item), Type::Text)
                if matches!(self.module.items[item].kind, Kind::Words(_)) =>
            {
                words
            }
            _ => self.any(place, "it is described twice, and differently"),
        }
    }

    /// Adds an item; what lies in its schema may refer to it.
    pub(super) fn reserve(&mut self, schema: &Value, place: &Place<'_>, kind: Kind) -> usize {
        let item = self.module.items.len();
        self.reserved.insert(schema, item);
        self.module.items.push(Item {
            hint: place.name.clone(),
            tool: self.tool.clone(),
            place: place.path.clone(),
            description: schema.get("description").and_then(Value::as_str).map(str::to_owned),
            kind,
        });
        item
    }
}

/// What a schema without `type` must be about.
pub(super) fn implied(members: &Map<String, Value>) -> Option<&'static str> {
    let has = |keys: &[&str]| keys.iter().any(|key| members.contains_key(*key));
    match () {
        () if has(&["properties", "additionalProperties", "patternProperties", "required"]) => Some("object"),
        () if has(&["items", "prefixItems"]) => Some("array"),
        () => None,
    }
}

fn is_natural(members: &Map<String, Value>) -> bool {
    let at_least =
        |key: &str, least: f64| members.get(key).and_then(Value::as_f64).is_some_and(|n| n >= least);
    at_least("minimum", 0.0) || at_least("exclusiveMinimum", -1.0)
}

fn field(key: &str, schema: &Value, required: bool, of: Type) -> Field {
    let said = |key: &str| schema.get(key).and_then(Value::as_str);
    let mut facts = Vec::new();
    if let Some(format) = said("format") {
        facts.push(format!("Format: {}.", span(format)));
    }
    if let Some(Value::Array(values)) =
        schema.get("enum").filter(|_| matches!(of, Type::Integer | Type::Number))
    {
        let values: Vec<String> = values.iter().take(20).map(|value| span(&value.to_string())).collect();
        facts.push(format!("One of {}.", values.join(", ")));
    }
    if let Some(default) = schema.get("default") {
        facts.push(format!("Default: {}.", span(&default.to_string())));
    }
    let description = said("description").or_else(|| said("title")).map(str::to_owned);
    Field { key: key.to_owned(), required, of, description, facts }
}

// === impl Place ===

impl<'s> Place<'s> {
    /// A member.
    pub(super) fn within(&self, key: &str) -> Self {
        let path = format!("{}.{key}", self.path);
        Self { name: format!("{}{}", self.name, pascal(key)), path, ..self.deeper() }
    }

    /// What a list holds.
    pub(super) fn item(&self) -> Self {
        Self { name: format!("{}Item", self.name), path: format!("{}[]", self.path), ..self.deeper() }
    }

    /// One step on, in the same place.
    pub(super) fn deeper(&self) -> Self {
        Self { depth: self.depth + 1, ..self.clone() }
    }

    /// Under another name.
    pub(super) fn named(&self, name: String) -> Self {
        Self { name, ..self.deeper() }
    }
}
