//! A tool's arguments, as they are typed.
//!
//! In: words such as `title=Hello`, `count:=3` and `body=@letter.txt`, a JSON object, and the tool's input schema. Out:
//! the JSON object that is sent. A word is read as its schema wants it; whether it fits is the library's to say.

use std::path::Path;

use serde_json::Value;
use wharf::mcp::Tool;
use wharf::text::Escaped;
use wharf::wire::{Json, Members};

use crate::failure::{Failure, Result};

/// How deep typed JSON may be nested.
const MAX_DEPTH: usize = 120;
/// How many branches and references of a schema are followed to find what a field may hold.
const MAX_LOOKS: usize = 64;

/// The arguments before their schema is known.
#[derive(Debug, Default)]
pub(crate) struct Typed {
    whole: Option<Json>,
    words: Vec<Word>,
}

#[derive(Debug)]
struct Word {
    key: String,
    value: Given,
}

#[derive(Debug)]
enum Given {
    /// `k=v`: to be read as the schema wants it.
    Text(String),
    /// `k=@file`: text, or what the schema wants.
    File(String),
    /// `k:=json`: as it stands.
    Json(Json),
}

/// What a field may hold, as far as a typed word is concerned.
#[derive(Debug, Default)]
struct Wanted {
    text: bool,
    list: bool,
    other: bool,
    /// The values of `enum` and `const`.
    values: Vec<Value>,
}

// === impl Typed ===

impl Typed {
    /// Takes the words apart, and reads the files among them.
    pub(crate) fn read(whole: Option<&str>, words: &[String], folder: &Path) -> Result<Self> {
        let whole = whole.map(read_whole).transpose()?;
        let words = words.iter().map(|word| Word::read(word, folder)).collect::<Result<_>>()?;
        Ok(Self { whole, words })
    }

    /// The object for a tool.
    pub(crate) fn fit(self, tool: &Tool) -> Result<Json> {
        let schema: Value = tool.input_schema.to().unwrap_or_default();
        let mut fields: Vec<(String, Vec<Json>, bool)> = Vec::new();
        for word in self.words {
            let wanted = Wanted::of(field(&schema, &word.key), &schema);
            let (value, is_item) = word.value.fit(&wanted, || item_of(&schema, &word.key));
            match fields.iter_mut().find(|(key, ..)| *key == word.key) {
                None => fields.push((word.key, vec![value], is_item)),
                Some((_, values, true)) if is_item => values.push(value),
                Some(_) => {
                    return Err(Failure::usage(format!("`{}` is given twice", Escaped(&word.key))));
                }
            }
        }
        let mut object = Members::new();
        let typed = |key: &str| fields.iter().any(|(typed, ..)| typed == key);
        for (key, value) in self.whole.iter().flat_map(members) {
            if !typed(&key) {
                object.json_under(&key, &value);
            }
        }
        for (key, values, is_list) in &fields {
            match &values[..] {
                [value] if !is_list => object.json_under(key, value),
                values => object.json_under(key, &Json::of(values)),
            };
        }
        Ok(object.to_json())
    }
}

fn read_whole(text: &str) -> Result<Json> {
    let json = Json::parse_strict(text.to_owned(), MAX_DEPTH);
    match json {
        Ok(json) if json.is_object() => Ok(json),
        Ok(_) => Err(Failure::usage("the arguments must be a JSON object: {\"name\": \"value\"}")),
        Err(error) => Err(Failure::usage(format!("the arguments are not a JSON object: {error}"))),
    }
}

fn members(object: &Json) -> Vec<(String, Json)> {
    let shape: serde_json::Map<String, Value> = object.to().unwrap_or_default();
    // The values are taken from the text, so that every number keeps its spelling.
    shape.into_iter().filter_map(|(key, _)| object.member(&key).map(|value| (key, value))).collect()
}

// === impl Word ===

impl Word {
    fn read(word: &str, folder: &Path) -> Result<Self> {
        let wrong = || {
            Failure::usage(format!("`{}` is not an argument", Escaped(word)))
                .hint("write name=value, name:=json, name=@file or name:=@file")
        };
        let (key, value) = word.split_once('=').ok_or_else(wrong)?;
        let (key, is_json) = match key.strip_suffix(':') {
            Some(key) => (key, true),
            None => (key, false),
        };
        if key.is_empty() {
            return Err(wrong());
        }
        let file = value.strip_prefix('@').map(|path| read_file(&folder.join(path))).transpose()?;
        let value = match (file, is_json) {
            (None, false) => Given::Text(value.to_owned()),
            (Some(text), false) => Given::File(text),
            (text, true) => {
                let json = Json::parse_strict(text.unwrap_or_else(|| value.to_owned()), MAX_DEPTH);
                Given::Json(json.map_err(|error| {
                    Failure::usage(format!("`{}` is not JSON: {error}", Escaped(key)))
                        .hint(format!("for a text write {key}=value"))
                })?)
            }
        };
        Ok(Self { key: key.to_owned(), value })
    }
}

pub(crate) fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", Escaped(&path.to_string_lossy()))))
}

// === impl Given ===

impl Given {
    /// The value, and whether it is an item of a list rather than the whole field.
    fn fit(self, wanted: &Wanted, item: impl FnOnce() -> Wanted) -> (Json, bool) {
        match self {
            Self::Json(json) => (json, false),
            Self::File(text) if wanted.text || !(wanted.list || wanted.other) => (Json::of(&text), false),
            Self::File(text) => (parsed(&text).unwrap_or_else(|| Json::of(&text)), false),
            Self::Text(text) if wanted.list && !wanted.text && !text.trim_start().starts_with('[') => {
                (item().read(text), true)
            }
            Self::Text(text) => (wanted.read(text), false),
        }
    }
}

// === impl Wanted ===

impl Wanted {
    fn of(field: Option<&Value>, root: &Value) -> Self {
        let mut wanted = Self::default();
        if let Some(field) = field {
            wanted.look(field, root, &mut MAX_LOOKS.clone());
        }
        wanted
    }

    fn look(&mut self, schema: &Value, root: &Value, left: &mut usize) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        match schema.get("type") {
            Some(Value::String(kind)) => self.kind(kind),
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).for_each(|k| self.kind(k)),
            _ => {}
        }
        let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        self.values.extend(listed.chain(schema.get("const")).cloned());
        let branches = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema.get(key)?.as_array());
        branches.flatten().for_each(|branch| self.look(branch, root, left));
        if let Some(target) = referred(schema, root) {
            self.look(target, root, left);
        }
    }

    fn kind(&mut self, kind: &str) {
        match kind {
            "string" => self.text = true,
            "array" => self.list = true,
            _ => self.other = true,
        }
    }

    /// A text stays a text wherever one is allowed; otherwise it is read as JSON, if it is JSON.
    fn read(&self, text: String) -> Json {
        if self.values.iter().any(|value| value.as_str() == Some(&text)) {
            return Json::of(&text);
        }
        let among_values = || {
            let value: Value = serde_json::from_str(&text).ok()?;
            self.values.contains(&value).then(|| parsed(&text))?
        };
        if let Some(value) = among_values() {
            return value;
        }
        match self.text || !(self.list || self.other) {
            true => Json::of(&text),
            false => parsed(&text).unwrap_or_else(|| Json::of(&text)),
        }
    }
}

fn parsed(text: &str) -> Option<Json> {
    Json::parse_strict(text.to_owned(), MAX_DEPTH).ok()
}

/// The schema of a field, through the references and branches of the outermost object.
fn field<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let own = schema.get("properties").and_then(|properties| properties.get(key));
    own.or_else(|| {
        let branches = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|k| schema.get(k)?.as_array());
        branches.flatten().find_map(|branch| branch.get("properties")?.get(key))
    })
}

/// What an item of a list field may hold.
fn item_of(root: &Value, key: &str) -> Wanted {
    let mut schema = field(root, key);
    if let Some(target) = schema.and_then(|schema| referred(schema, root)) {
        schema = Some(target);
    }
    let items = schema.and_then(|schema| {
        schema.get("items").or_else(|| {
            let branches = ["anyOf", "oneOf"].into_iter().filter_map(|k| schema.get(k)?.as_array());
            branches.flatten().find_map(|branch| branch.get("items"))
        })
    });
    Wanted::of(items, root)
}

/// The target of a `$ref` within the schema.
fn referred<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

/// The names of a tool's arguments.
pub(crate) fn names(tool: &Tool) -> Vec<String> {
    let schema: Value = tool.input_schema.to().unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().cloned()).collect()
}

/// The values that an argument is known to take: those of `enum` and `const`, and a flag's.
pub(crate) fn values(tool: &Tool, key: &str) -> Vec<String> {
    let schema: Value = tool.input_schema.to().unwrap_or_default();
    let field = field(&schema, key);
    if field.and_then(|field| field.get("type")).and_then(Value::as_str) == Some("boolean") {
        return vec!["true".to_owned(), "false".to_owned()];
    }
    let values = Wanted::of(field, &schema).values.into_iter().chain(item_of(&schema, key).values);
    values.map(|value| plain(&value)).collect()
}

/// A text without its quotes, and anything else as JSON has it.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What a tool takes: ` a=NUMBER b=NUMBER`.
pub(crate) fn usage(tool: &Tool) -> String {
    const MOST: usize = 12;
    let schema: Value = tool.input_schema.to().unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |key: &str| required.is_some_and(|r| r.iter().any(|name| name.as_str() == Some(key)));
    let (needed, free): (Vec<_>, Vec<_>) = properties.partition(|(key, _)| is_required(key));
    let words: Vec<String> =
        needed.iter().chain(&free).map(|(key, field)| word(key, field, &schema)).collect();
    let mut line = String::new();
    for (at, word) in words.iter().take(MOST).enumerate() {
        line += &if at < needed.len() { format!(" {word}") } else { format!(" [{word}]") };
    }
    if words.len() > MOST {
        line += " …";
    }
    line
}

fn word(key: &str, field: &Value, root: &Value) -> String {
    const LISTED: usize = 5;
    let wanted = Wanted::of(Some(field), root);
    let key = Escaped(key);
    if !wanted.values.is_empty() && wanted.values.len() <= LISTED {
        let values: Vec<String> = wanted.values.iter().map(plain).collect();
        return format!("{key}={}", Escaped(&values.join("|")));
    }
    let kind = field.get("type").and_then(Value::as_str);
    match kind {
        _ if wanted.text => format!("{key}=TEXT"),
        Some("integer" | "number") => format!("{key}=NUMBER"),
        Some("boolean") => format!("{key}=true|false"),
        _ if wanted.list => format!("{key}=ITEM…"),
        Some("object") => format!("{key}:=JSON"),
        _ => format!("{key}=VALUE"),
    }
}

#[cfg(test)]
mod tests;
