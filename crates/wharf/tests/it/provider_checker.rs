//! A judge of what is sent to providers. It is written from their documents and knows nothing of the compiler.
//!
//! The rules are data: which keywords a form has, how a tool is wrapped, how long a name may be. A problem is a sentence.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use wharf::provider::Provider;

/// The rules of one provider.
struct Form {
    /// The way from an element of the list to the function, and the members it may have there.
    wrapper: &'static [&'static str],
    members: &'static [&'static str],
    schema: &'static [&'static str],
    name_max: usize,
    tools_max: usize,
    keywords: &'static str,
    /// Whether references are written out.
    without_refs: bool,
}

const CHAT: &[&str] = &["name", "description", "parameters", "strict"];
/// JSON Schema 2020-12: the vocabularies applicator, validation, unevaluated, format, content and meta-data, and the two
/// keywords of the core that a schema without a base address needs.
const DRAFT_2020_12: &str = "$ref $defs type title description enum const default examples deprecated readOnly writeOnly \
    properties required additionalProperties patternProperties propertyNames minProperties \
    maxProperties dependentRequired dependentSchemas unevaluatedProperties items prefixItems \
    contains minContains maxContains minItems maxItems uniqueItems unevaluatedItems minLength \
    maxLength pattern format contentEncoding contentMediaType minimum maximum exclusiveMinimum \
    exclusiveMaximum multipleOf allOf anyOf oneOf not if then else";
const GEMINI: &str = "$defs $ref type format title description enum items prefixItems minItems maxItems minimum \
    maximum anyOf properties additionalProperties required";
const OPENAPI: &str = "type format title description nullable enum items minItems maxItems properties required \
    minProperties maxProperties minimum maximum minLength maxLength pattern example anyOf default \
    propertyOrdering";
const SIMPLE: &str = "type description properties required items enum anyOf";
/// What OpenAI's strict mode is documented to take.
const STRICT_OPENAI: &str = "$defs $ref type title description enum const anyOf pattern format minimum maximum \
    exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems items properties required \
    additionalProperties";
const STRICT_ANTHROPIC: &str = "$defs $ref type title description enum const anyOf format minItems items properties required \
    additionalProperties";
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];
/// What no provider takes at the root.
const NOT_AT_ROOT: [&str; 6] = ["anyOf", "oneOf", "allOf", "not", "enum", "$ref"];

fn form(provider: Provider) -> Form {
    let chat = Form {
        wrapper: &["function"],
        members: CHAT,
        schema: &["parameters"],
        name_max: 64,
        tools_max: usize::MAX,
        keywords: DRAFT_2020_12,
        without_refs: false,
    };
    match provider {
        Provider::OpenAiChat => Form { tools_max: 128, ..chat },
        Provider::OpenAiResponses => Form {
            wrapper: &[],
            members: &["type", "name", "description", "parameters", "strict"],
            name_max: 128,
            ..chat
        },
        Provider::Anthropic => Form {
            wrapper: &[],
            members: &["name", "description", "input_schema", "strict"],
            schema: &["input_schema"],
            name_max: 128,
            ..chat
        },
        Provider::Gemini => Form {
            wrapper: &[],
            members: &["name", "description", "parametersJsonSchema"],
            schema: &["parametersJsonSchema"],
            name_max: 63,
            tools_max: 512,
            keywords: GEMINI,
            ..chat
        },
        Provider::GeminiOpenApi => Form {
            wrapper: &[],
            members: &["name", "description", "parameters"],
            name_max: 63,
            tools_max: 512,
            keywords: OPENAPI,
            ..chat
        },
        Provider::Mistral => Form { without_refs: true, ..chat },
        Provider::Bedrock => Form {
            wrapper: &["toolSpec"],
            members: &["name", "description", "inputSchema"],
            schema: &["inputSchema", "json"],
            without_refs: true,
            ..chat
        },
        Provider::Ollama => Form { keywords: SIMPLE, ..chat },
        other => panic!("no rules for {other:?}"),
    }
}

/// A tool as the provider reads it.
pub(crate) struct Sent {
    pub(crate) name: String,
    pub(crate) description: String,
    /// `None` where no arguments are declared.
    pub(crate) schema: Option<Value>,
    pub(crate) strict: Option<bool>,
}

/// The tools of a request, taken out of their wrappers.
pub(crate) fn sent(provider: Provider, tools: &Value) -> Vec<Sent> {
    let form = form(provider);
    let list = match provider {
        Provider::Gemini | Provider::GeminiOpenApi => {
            tools.get(0).map(|one| one["functionDeclarations"].clone()).unwrap_or(Value::Array(vec![]))
        }
        _ => tools.clone(),
    };
    list.as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            let function = form.wrapper.iter().fold(tool, |tool, step| &tool[*step]);
            let schema = form.schema.iter().try_fold(function, |value, step| value.get(*step));
            Sent {
                name: function["name"].as_str().unwrap_or_default().to_owned(),
                description: function["description"].as_str().unwrap_or_default().to_owned(),
                schema: schema.cloned(),
                strict: function.get("strict").and_then(Value::as_bool),
            }
        })
        .collect()
}

/// Everything that the provider would refuse.
pub(crate) fn problems(provider: Provider, tools: &Value) -> Vec<String> {
    let form = form(provider);
    let mut found = Vec::new();
    let list = match (provider, tools.as_array().map(Vec::as_slice)) {
        (Provider::Gemini | Provider::GeminiOpenApi, Some([one])) => {
            only(&mut found, one, &["functionDeclarations"]);
            one["functionDeclarations"].as_array().cloned().unwrap_or_default()
        }
        (Provider::Gemini | Provider::GeminiOpenApi, Some([])) => Vec::new(),
        (Provider::Gemini | Provider::GeminiOpenApi, _) => {
            return vec!["not one object of declarations".into()];
        }
        (_, Some(list)) => list.to_vec(),
        (_, None) => return vec!["not a list".into()],
    };
    if list.len() > form.tools_max {
        found.push(format!("{} tools", list.len()));
    }
    let mut names = HashSet::new();
    for tool in &list {
        let function = form.wrapper.iter().fold(tool, |tool, step| &tool[*step]);
        only(&mut found, function, form.members);
        let typed = form.members.contains(&"type") || form.wrapper == ["function"];
        if typed && tool["type"] != "function" {
            found.push("it is not of type function".into());
        }
        let name = function["name"].as_str().unwrap_or_default();
        let well = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !well || name.len() > form.name_max || !names.insert(name.to_ascii_lowercase()) {
            found.push(format!("the name `{name}`"));
        }
    }
    for tool in sent(provider, tools) {
        let wants_strict = matches!(provider, Provider::OpenAiChat | Provider::OpenAiResponses);
        if wants_strict && tool.strict.is_none() {
            found.push("strict is left to the provider".into());
        }
        hidden(&mut found, &tool.description);
        let Some(schema) = &tool.schema else {
            if provider != Provider::GeminiOpenApi {
                found.push("no schema".into());
            }
            continue;
        };
        let strict = tool.strict == Some(true);
        let keywords = match (strict, provider) {
            (true, Provider::Anthropic) => STRICT_ANTHROPIC,
            (true, _) => STRICT_OPENAI,
            _ => form.keywords,
        };
        let mut judge = Judge {
            provider,
            strict,
            keywords,
            without_refs: form.without_refs,
            root: schema,
            found: &mut found,
        };
        judge.root();
    }
    found
}

fn only(found: &mut Vec<String>, value: &Value, members: &[&str]) {
    match value.as_object() {
        Some(map) => {
            found.extend(
                map.keys().filter(|k| !members.contains(&k.as_str())).map(|k| format!("the member `{k}`")),
            );
        }
        None => found.push(format!("{value} is no object")),
    }
}

fn hidden(found: &mut Vec<String>, text: &str) {
    if text.chars().any(|c| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
    }) {
        found.push(format!("hidden characters in {text:?}"));
    }
}

/// One schema under judgement.
struct Judge<'a> {
    provider: Provider,
    strict: bool,
    keywords: &'a str,
    without_refs: bool,
    root: &'a Value,
    found: &'a mut Vec<String>,
}

impl Judge<'_> {
    fn root(&mut self) {
        let root = self.root;
        if root["type"] != "object" {
            self.say("", "the root is not of type object");
        }
        for keyword in NOT_AT_ROOT {
            if root.get(keyword).is_some() {
                self.say("", &format!("`{keyword}` at the root"));
            }
        }
        self.schema(root, "", 1);
        for (name, def) in root["$defs"].as_object().into_iter().flatten() {
            self.schema(def, &format!("$defs/{name}"), 1);
        }
        if self.provider == Provider::Gemini {
            self.cycles_are_optional();
        }
        let text = root.to_string();
        if text.len() > 4 << 20 {
            self.say("", "it is enormous");
        }
    }

    fn has(&self, keyword: &str) -> bool {
        let is_known = self.keywords.split_whitespace().any(|known| known == keyword);
        is_known && !(self.without_refs && keyword.starts_with('$'))
    }

    fn say(&mut self, at: &str, what: &str) {
        self.found.push(format!("{}: {at}: {what}", self.provider));
    }

    fn schema(&mut self, schema: &Value, at: &str, level: usize) {
        let Value::Object(map) = schema else {
            return self.say(at, &format!("`{schema}` is not an object"));
        };
        if self.strict && level > 10 {
            self.say(at, "more than 10 levels");
        }
        for keyword in map.keys().filter(|k| !self.has(k)).collect::<Vec<_>>() {
            self.say(at, &format!("unknown name `{keyword}`"));
        }
        self.reference(map, at);
        self.types(map, at);
        self.values(map, at);
        self.object(map, at);
        for keyword in ["description", "title"] {
            hidden(self.found, map.get(keyword).and_then(Value::as_str).unwrap_or_default());
        }
        if self.provider == Provider::GeminiOpenApi && map.contains_key("anyOf") {
            let beside = |k: &&String| {
                !["anyOf", "description", "title", "nullable", "default", "format"].contains(&k.as_str())
            };
            if let Some(beside) = map.keys().find(beside) {
                self.say(at, &format!("`{beside}` beside anyOf"));
            }
        }
        for keyword in ["properties", "patternProperties", "dependentSchemas"] {
            for (name, inner) in map.get(keyword).and_then(Value::as_object).into_iter().flatten() {
                self.schema(inner, &format!("{at}/{keyword}/{name}"), level + 1);
            }
        }
        for keyword in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            if map.get(keyword).is_some_and(|list| list.as_array().is_none_or(Vec::is_empty)) {
                self.say(at, &format!("`{keyword}` is no list of schemas"));
            }
            for inner in map.get(keyword).and_then(Value::as_array).into_iter().flatten() {
                self.schema(inner, &format!("{at}/{keyword}"), level);
            }
        }
        let single = ["items", "contains", "not", "if", "then", "else", "propertyNames", "unevaluatedItems"];
        for keyword in single.into_iter().filter(|keyword| map.contains_key(*keyword)) {
            self.schema(&map[keyword], &format!("{at}/{keyword}"), level + 1);
        }
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            if let Some(inner) = map.get(keyword).filter(|inner| !inner.is_boolean()) {
                self.schema(inner, &format!("{at}/{keyword}"), level + 1);
            }
        }
    }

    fn reference(&mut self, map: &Map<String, Value>, at: &str) {
        let Some(reference) = map.get("$ref") else { return };
        let target = reference.as_str().and_then(|r| r.strip_prefix('#')).and_then(|r| self.root.pointer(r));
        if target.is_none() || !reference.as_str().unwrap_or_default().starts_with("#/$defs/") {
            self.say(at, &format!("the reference {reference} leads nowhere"));
        }
        let alone = self.strict || self.provider == Provider::Gemini;
        if alone && map.keys().any(|k| !k.starts_with('$')) {
            self.say(at, "something beside a reference");
        }
    }

    fn types(&mut self, map: &Map<String, Value>, at: &str) {
        let known = |v: &Value| v.as_str().is_some_and(|ty| TYPES.contains(&ty));
        match map.get("type") {
            None if self.provider == Provider::GeminiOpenApi && !map.contains_key("anyOf") => {
                self.say(at, "no type");
            }
            None if self.strict
                && !["anyOf", "$ref", "enum", "const"].iter().any(|k| map.contains_key(*k)) =>
            {
                self.say(at, "no type in strict mode");
            }
            None => {}
            Some(ty) if self.provider == Provider::GeminiOpenApi && (ty == "null" || ty.is_array()) => {
                self.say(at, &format!("the type {ty} in OpenAPI"));
            }
            Some(ty @ Value::String(_)) if known(ty) => {}
            Some(Value::Array(list)) if list.len() > 1 && list.iter().all(known) => {}
            Some(other) => self.say(at, &format!("the type {other}")),
        }
    }

    fn values(&mut self, map: &Map<String, Value>, at: &str) {
        let Some(list) = map.get("enum") else { return };
        let Some(list) = list.as_array().filter(|list| !list.is_empty()) else {
            return self.say(at, "an enum without values");
        };
        let fits = |value: &Value| match self.provider {
            Provider::Gemini => value.is_string() || value.is_number(),
            Provider::GeminiOpenApi => value.as_str().is_some_and(|text| !text.is_empty()),
            _ => true,
        };
        if !list.iter().all(fits) {
            self.say(at, &format!("the values {list:?}"));
        }
    }

    fn object(&mut self, map: &Map<String, Value>, at: &str) {
        let declared = map.get("properties").and_then(Value::as_object);
        let required: Vec<&str> = map
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let gemini = matches!(self.provider, Provider::Gemini | Provider::GeminiOpenApi);
        let undeclared = required.iter().any(|name| !declared.is_some_and(|d| d.contains_key(*name)));
        if (gemini || self.strict) && undeclared {
            self.say(at, "a required property that is not declared");
        }
        if self.provider == Provider::GeminiOpenApi {
            if declared.is_some_and(Map::is_empty) {
                self.say(at, "no properties");
            }
            for name in declared.into_iter().flat_map(Map::keys) {
                let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                if !first || name.len() > 64 || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                    self.say(at, &format!("the property `{name}`"));
                }
            }
        }
        let is_object =
            declared.is_some() || map.get("type").is_some_and(|ty| ty.to_string().contains("\"object\""));
        if self.strict && is_object {
            if map.get("additionalProperties") != Some(&Value::Bool(false)) {
                self.say(at, "an open object in strict mode");
            }
            let all = declared.is_none_or(|d| d.keys().all(|name| required.contains(&name.as_str())));
            if self.provider != Provider::Anthropic && !all {
                self.say(at, "an optional property in strict mode");
            }
        }
    }

    /// Every circle of references must pass a property that is not required.
    fn cycles_are_optional(&mut self) {
        let mut edges: HashMap<String, Vec<String>> = HashMap::new();
        for (name, def) in self.root["$defs"].as_object().into_iter().flatten() {
            let mut out = Vec::new();
            needed(def, &mut out);
            edges.insert(format!("#/$defs/{name}"), out);
        }
        for start in edges.keys() {
            let (mut seen, mut waiting) = (HashSet::new(), edges[start].clone());
            while let Some(next) = waiting.pop() {
                if next == *start {
                    self.found.push(format!("a circle through what is required: {start}"));
                    break;
                }
                if seen.insert(next.clone()) {
                    waiting.extend(edges.get(&next).cloned().unwrap_or_default());
                }
            }
        }
    }
}

/// The references that a schema reaches without passing a property that is not required.
fn needed(schema: &Value, out: &mut Vec<String>) {
    let Value::Object(map) = schema else { return };
    out.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
    let required = map.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, inner) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if required.contains(&name.as_str().into()) {
            needed(inner, out);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        map.get(keyword).into_iter().for_each(|inner| needed(inner, out));
    }
    for keyword in ["anyOf", "prefixItems"] {
        map.get(keyword).and_then(Value::as_array).into_iter().flatten().for_each(|inner| needed(inner, out));
    }
}

/// A sent schema as plain JSON Schema, so that values can be checked against it: only OpenAPI says null in its own way.
pub(crate) fn as_json_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let mut plain: Map<String, Value> =
                map.iter().map(|(k, v)| (k.clone(), as_json_schema(v))).collect();
            let is_keyword = map.get("nullable") == Some(&Value::Bool(true))
                && (map.contains_key("type") || map.contains_key("anyOf"));
            if is_keyword {
                plain.remove("nullable");
                return serde_json::json!({ "anyOf": [plain, { "type": "null" }] });
            }
            Value::Object(plain)
        }
        Value::Array(list) => list.iter().map(as_json_schema).collect(),
        other => other.clone(),
    }
}
