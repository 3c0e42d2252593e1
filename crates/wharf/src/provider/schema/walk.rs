//! The walk through a schema: each part is spelt anew, put into the dialect's form and written.
//!
//! Every step counts: what is copied or visited is paid from one budget, so neither references nor branches can
//! multiply without bound, and nothing recurses deeper than a schema may be nested.

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use super::keywords::{Kind, is_well_formed, kind};
use super::refs::{Def, Open};
use super::{Rewritten, measure, spell, strict, words};
use crate::provider::loss::{How, Loss};
use crate::provider::rules::Dialect;

/// Values that may be visited or copied for one schema.
const WORK_MAX: usize = 100_000;
/// Schemas within schemas, once references are written out. Each is two levels of JSON, of which readers take 128.
const LEVELS_MAX: usize = 48;
/// The most values that an `enum` lists.
const ENUM_MAX: usize = 1_000;
/// The most differences that are reported of one schema; the rest would not be read.
const LOSSES_MAX: usize = 1_000;

/// A schema on its way into a dialect.
pub(super) struct Walk<'a> {
    pub(super) dialect: &'a Dialect,
    pub(super) source: &'a Value,
    losses: Vec<Loss>,
    pub(super) fits: bool,
    path: String,
    depth: usize,
    work: usize,
    /// References that are being written out, from the outermost.
    pub(super) open: Vec<Open>,
    /// How many properties that are not required stand above.
    pub(super) optional: usize,
    /// How many steps into a value, rather than beside it, lie above.
    pub(super) inward: usize,
    pub(super) defs: IndexMap<String, Def>,
    pub(super) has_reference: bool,
    has_inner_address: bool,
    root_words: Vec<String>,
}

/// One schema while it is worked on.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) map: Map<String, Value>,
    /// Schemas that must hold as well.
    pub(super) also: Vec<Value>,
    /// What it can no longer say.
    pub(super) words: Vec<String>,
    pub(super) nullable: bool,
    /// The type is not its own: it was found by what the schema is about.
    pub(super) is_implied: bool,
    /// No value fits.
    pub(super) impossible: bool,
}

// === impl Walk ===

impl<'a> Walk<'a> {
    pub(super) fn new(source: &'a Value, dialect: &'a Dialect) -> Self {
        Self {
            dialect,
            source,
            losses: Vec::new(),
            fits: true,
            path: String::new(),
            depth: 0,
            work: 0,
            open: vec![Open::default()],
            optional: 0,
            inward: 0,
            defs: IndexMap::new(),
            has_reference: false,
            has_inner_address: false,
            root_words: Vec::new(),
        }
    }

    /// The whole schema, with the definitions that it still refers to.
    pub(super) fn whole(mut self) -> Result<Rewritten, String> {
        let source = self.copy(self.source)?;
        let mut schema = self.schema(source)?;
        if !schema.is_object() {
            return Err("no arguments can fit its schema".into());
        }
        let words = std::mem::take(&mut self.root_words);
        let defs = self.definitions()?;
        if self.has_reference && self.has_inner_address {
            return Err("its schema has parts with addresses (`$id`) of their own, and references".into());
        }
        if !defs.is_empty() {
            schema["$defs"] = Value::Object(defs);
        }
        if self.dialect.is_strict() && !strict::is_within_limits(&schema) {
            self.fits = false;
        }
        let words = (!words.is_empty()).then(|| words::join("", &words));
        Ok(Rewritten { schema, words, fits: self.fits, losses: self.losses })
    }

    /// One schema and everything in it. `false` where no value fits.
    pub(super) fn schema(&mut self, schema: Value) -> Result<Value, String> {
        self.pay(1)?;
        if self.depth >= LEVELS_MAX {
            return Err(format!("its schema, written out, is nested too deeply (the limit is {LEVELS_MAX})"));
        }
        self.depth += 1;
        let open = self.open.len();
        let (losses, fits) = (self.losses.len(), self.fits);
        let done = match schema {
            Value::Bool(false) => Ok(Value::Bool(false)),
            Value::Bool(true) => self.object(Map::new()),
            Value::Object(map) => self.object(map),
            _ => Err(format!("its schema has something else than a schema at {}", words::short(&self.path))),
        };
        self.open.truncate(open);
        self.depth -= 1;
        if matches!(done, Ok(Value::Bool(false))) {
            // What was lost of a schema that is not sent is no loss.
            self.losses.truncate(losses);
            self.fits = fits;
        }
        done
    }

    fn object(&mut self, map: Map<String, Value>) -> Result<Value, String> {
        let mut node = Node { map, ..Node::default() };
        self.spell(&mut node.map)?;
        if let Some(done) = self.follow(&mut node)? {
            return Ok(done);
        }
        self.form(&mut node)?;
        let (nullable, is_implied) = (node.nullable, node.is_implied);
        let done = if node.impossible { Value::Bool(false) } else { self.write(node)? };
        if is_implied && !done.is_object() {
            // No object fits, yet whatever is none does.
            let others = ["string", "number", "boolean"].map(|ty| json!({ "type": ty }));
            return Ok(json!({ "anyOf": others, "nullable": true }));
        }
        if done.is_object() || !nullable {
            return Ok(done);
        }
        // Only null fits: a text that may be null is the nearest there is.
        self.lose("type", How::Rewritten, true);
        Ok(json!({ "type": "string", "nullable": true }))
    }

    /// Puts a schema into the dialect's form, or finds that no value fits. What is then left of it means nothing.
    fn form(&mut self, node: &mut Node) -> Result<(), String> {
        self.flatten(node)?;
        if self.is_root() {
            self.plain_root(node)?;
        }
        if !node.impossible {
            self.unions(node)?;
        }
        if !node.impossible {
            self.values(node);
        }
        if !node.impossible {
            self.types(node)?;
        }
        if !node.impossible {
            self.numbers(node);
            self.arrays(node);
            self.keys(node)?;
        }
        Ok(())
    }

    /// Spells a schema in today's way, and sees that its keywords are what they must be.
    pub(super) fn spell(&mut self, map: &mut Map<String, Value>) -> Result<(), String> {
        self.has_inner_address |= self.depth > 1 && map.get("$id").is_some_and(Value::is_string);
        for keyword in spell::modern(map) {
            self.lose(keyword, How::Rewritten, false);
        }
        match map.iter().find(|(keyword, value)| !is_well_formed(keyword, value)) {
            Some((keyword, _)) => {
                Err(format!("its schema is not valid: `{keyword}` at {}", words::short(&self.path)))
            }
            None => Ok(()),
        }
    }

    fn write(&mut self, node: Node) -> Result<Value, String> {
        let Node { map, mut words, nullable, .. } = node;
        let required: Vec<String> = strings(map.get("required"));
        let is_object = map.get("type").is_some_and(|ty| ty == "object");
        let mut out = Map::new();
        for (keyword, value) in map {
            if keyword == "$ref" {
                out.insert(keyword, value);
                continue;
            }
            if !self.takes(&keyword, &value) {
                self.give_up(&keyword, &value, &mut words);
                continue;
            }
            let value = match kind(&keyword) {
                Some(Kind::One) => self.one(&keyword, value, &mut words)?,
                Some(Kind::Many) => self.many(&keyword, value)?,
                Some(Kind::Named) if keyword == "properties" => {
                    Some(self.properties(value, &required, is_object)?)
                }
                Some(Kind::Named) => self.named(&keyword, value)?,
                _ => self.plain(&keyword, value),
            };
            match value {
                // No form fits, or a required property cannot be.
                Some(Value::Bool(false)) if ["anyOf", "oneOf", "properties"].contains(&keyword.as_str()) => {
                    return Ok(Value::Bool(false));
                }
                Some(value) => drop(out.insert(keyword, value)),
                None => {}
            }
        }
        self.finish_object(&mut out);
        if nullable {
            out.insert("nullable".into(), Value::Bool(true));
        }
        if self.dialect.is_strict() && !strict::says_what_it_is(&out) {
            self.fits = false;
        }
        if self.is_root() {
            self.root_words = words;
        } else if !words.is_empty() {
            let before = out.get("description").and_then(Value::as_str).unwrap_or_default();
            let description = words::join(before, &words);
            out.insert("description".into(), description.into());
        }
        Ok(Value::Object(out))
    }

    /// Whether the dialect takes a keyword with this value.
    fn takes(&self, keyword: &str, value: &Value) -> bool {
        self.dialect.accepts(keyword)
            && match (keyword, value) {
                ("format", Value::String(format)) => {
                    self.dialect.formats.is_none_or(|known| known.contains(&format.as_str()))
                }
                ("minItems", least) => least.as_f64().is_some_and(|n| n <= self.dialect.min_items_max as f64),
                ("pattern", Value::String(pattern)) => {
                    let is_beyond = self.dialect.is_strict() && strict::looks_around(pattern);
                    !is_beyond && !words::hides_text(pattern)
                }
                ("enum", Value::Array(values)) => values.len() <= ENUM_MAX,
                ("default" | "examples", value) => !words::hides(value),
                _ => true,
            }
    }

    /// Leaves a keyword out, and puts it into words where that helps.
    pub(super) fn give_up(&mut self, keyword: &str, value: &Value, words: &mut Vec<String>) {
        let is_idle = match (keyword, value) {
            ("uniqueItems" | "deprecated" | "readOnly" | "writeOnly" | "nullable", value) => *value == false,
            ("additionalProperties" | "unevaluatedProperties" | "items" | "unevaluatedItems", value) => {
                *value == true || *value == json!({})
            }
            ("minItems" | "minLength" | "minProperties", value) => value.as_f64() == Some(0.0),
            _ => false,
        };
        if is_idle {
            return;
        }
        let widens = !matches!(kind(keyword), Some(Kind::Note) | None);
        let is_worth_words = match keyword {
            "title" | "contentEncoding" | "contentMediaType" | "readOnly" | "writeOnly" => false,
            // The model sees which properties there are.
            "additionalProperties" | "unevaluatedProperties" => value.is_object(),
            _ => kind(keyword).is_some(),
        };
        match words::tell(keyword, value).filter(|_| is_worth_words) {
            Some(told) => {
                words.push(told);
                self.lose(keyword, How::Described, widens);
            }
            None => self.lose(keyword, How::Dropped, widens),
        }
    }

    fn one(&mut self, keyword: &str, value: Value, words: &mut Vec<String>) -> Result<Option<Value>, String> {
        let may_be_bool = matches!(keyword, "additionalProperties" | "unevaluatedProperties");
        if may_be_bool && value.is_boolean() {
            return Ok(Some(value));
        }
        let is_inward = !matches!(keyword, "not" | "if" | "then" | "else");
        let done = self.at(&[keyword], is_inward, |walk| walk.schema(value))?;
        Ok(match done {
            Value::Bool(_) if may_be_bool => Some(Value::Bool(false)),
            // A schema that nothing fits, for those who read no `false`.
            Value::Bool(_) if self.dialect.accepts("not") => Some(json!({ "not": {} })),
            Value::Bool(_) => {
                self.give_up(keyword, &Value::Bool(false), words);
                None
            }
            done => Some(done),
        })
    }

    fn many(&mut self, keyword: &str, value: Value) -> Result<Option<Value>, String> {
        let Value::Array(schemas) = value else { return Ok(None) };
        let mut list: Vec<Value> = Vec::with_capacity(schemas.len());
        for (i, schema) in schemas.into_iter().enumerate() {
            let done =
                self.at(&[keyword, &i.to_string()], keyword == "prefixItems", |walk| walk.schema(schema))?;
            match done {
                Value::Bool(_) if keyword == "anyOf" || keyword == "oneOf" => {}
                Value::Bool(_) => list.push(self.nothing(keyword)),
                done if keyword == "anyOf" && list.contains(&done) => {}
                done => list.push(done),
            }
        }
        Ok(Some(if list.is_empty() { Value::Bool(false) } else { Value::Array(list) }))
    }

    fn named(&mut self, keyword: &str, value: Value) -> Result<Option<Value>, String> {
        let Value::Object(schemas) = value else { return Ok(None) };
        let mut named = Map::new();
        for (name, schema) in schemas {
            if words::hides_text(&name) {
                return Err("its schema has a name with characters that cannot be seen".into());
            }
            let done = self.at(&[keyword, &name], true, |walk| walk.schema(schema))?;
            let done = if done.is_object() { done } else { self.nothing(keyword) };
            named.insert(name, done);
        }
        Ok(Some(Value::Object(named)))
    }

    /// A schema that nothing fits, for those who read no `false`.
    pub(super) fn nothing(&mut self, keyword: &str) -> Value {
        if self.dialect.accepts("not") {
            return json!({ "not": {} });
        }
        self.lose(keyword, How::Dropped, true);
        self.any()
    }

    /// What holds no schema. Texts are rid of what cannot be seen.
    fn plain(&mut self, keyword: &str, value: Value) -> Option<Value> {
        let (
            Value::String(text),
            "description" | "title" | "format" | "contentEncoding" | "contentMediaType",
        ) = (&value, keyword)
        else {
            return Some(value);
        };
        let clean = words::clean(text);
        if clean == *text {
            return Some(value);
        }
        let clean = clean.into_owned();
        self.lose(keyword, How::Rewritten, false);
        Some(clean.into())
    }

    // --- bookkeeping ---

    /// Whether this is the schema of the arguments themselves.
    pub(super) fn is_root(&self) -> bool {
        self.depth == 1
    }

    /// Starts again below the root, for a definition.
    pub(super) fn definition<T>(&mut self, name: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        self.depth = 1;
        let done = self.at(&["$defs", name], false, work);
        self.depth = 0;
        done
    }

    /// Works at a place further in.
    pub(super) fn at<T>(&mut self, steps: &[&str], is_inward: bool, work: impl FnOnce(&mut Self) -> T) -> T {
        let end = self.path.len();
        for step in steps {
            self.path.push('/');
            self.path.push_str(&step.replace('~', "~0").replace('/', "~1"));
        }
        self.inward += usize::from(is_inward);
        let done = work(self);
        self.inward -= usize::from(is_inward);
        self.path.truncate(end);
        done
    }

    pub(super) fn lose(&mut self, keyword: &str, how: How, widens: bool) {
        self.fits &= !widens;
        if self.losses.len() < LOSSES_MAX {
            self.losses.push(Loss { path: self.path.clone(), keyword: keyword.to_owned(), how, widens });
        }
    }

    /// A copy that is paid for.
    pub(super) fn copy(&mut self, value: &Value) -> Result<Value, String> {
        self.pay(measure(value).0)?;
        Ok(value.clone())
    }

    fn pay(&mut self, nodes: usize) -> Result<(), String> {
        self.work = self.work.saturating_add(nodes);
        if self.work > WORK_MAX {
            return Err("its schema grows too large once its references and branches are written out".into());
        }
        Ok(())
    }
}

/// The texts of a list.
pub(super) fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
