//! What was said to tools and what they said, for those who listen: without its secrets.
//!
//! In: arguments and results as they are. Out: the same to look at, erased when somebody looks and not before.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::names::{CallerName, ServerName, ToolName};
use crate::secret::{Redactor, Secret, erase_credentials, is_credential_name, is_credential_value};
use crate::text::Escaped;
use crate::wire::Json;

/// A call that has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Invocation {
    /// Who called.
    pub caller: CallerName,
    /// The server, or the set of local tools.
    pub server: ServerName,
    /// The tool, by its original name.
    pub tool: ToolName,
    /// Whether it is a function of the program itself, and not a server's.
    pub local: bool,
    /// Whether it succeeded.
    pub success: bool,
    /// The kind of error, where there was one.
    pub error: Option<&'static str>,
    /// How long it took.
    pub took: Duration,
    pub(crate) exchange: Exchange,
}

/// What a tool was told and what it said, small enough to wait for whoever listens slowly.
#[derive(Clone)]
pub(crate) struct Exchange {
    told: Json,
    said: Json,
    redactor: Redactor,
    /// The eraser of what was said, where too much was told to be kept. Otherwise it is made when somebody looks.
    of_said: Option<Redactor>,
}

/// JSON that can only be seen without its secrets: values whose name or shape is a credential's, and the known secrets
/// of the server. It costs nothing until somebody looks.
#[derive(Clone)]
pub struct Redacted {
    pub(super) json: Json,
    pub(super) redactor: Redactor,
    /// What a tool was told before it said this: the secrets in it are secrets here too.
    told: Option<Json>,
}

/// The largest arguments and results that an event carries. Events wait for slow listeners: what they carry stays in
/// memory until then.
const KEPT: usize = 32 * 1024;
/// What stands where a secret stood.
const ERASED: &str = "***";

// === impl Invocation ===

impl Invocation {
    /// The arguments.
    pub fn arguments(&self) -> Redacted {
        let Exchange { told, redactor, .. } = &self.exchange;
        Redacted { json: told.clone(), redactor: redactor.clone(), told: None }
    }

    /// The result as it came; `null` where there is none. More than 32 KiB are left out, of the arguments too: an event
    /// says what happened, the outcome has it all.
    pub fn result(&self) -> Redacted {
        let Exchange { told, said, redactor, of_said } = &self.exchange;
        // A tool may say again what it was told.
        let (redactor, told) = match of_said {
            Some(eraser) => (eraser, None),
            None => (redactor, Some(told.clone())),
        };
        Redacted { json: said.clone(), redactor: redactor.clone(), told }
    }
}

// === impl Exchange ===

impl Exchange {
    pub(crate) fn new(arguments: &Json, result: &Json, redactor: Redactor) -> Self {
        let is_long = arguments.bytes().len() > KEPT;
        let of_said = is_long.then(|| Redacted::new(arguments.clone(), redactor.clone()).secrets());
        Self { told: kept(arguments), said: kept(result), redactor, of_said }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

// === impl Redacted ===

impl Redacted {
    /// Takes JSON, and the eraser of known secrets.
    pub fn new(json: Json, redactor: Redactor) -> Self {
        Self { json, redactor, told: None }
    }

    /// All of it, for what must be bound to exactly this. It is never shown.
    pub(crate) fn unredacted(&self) -> &Json {
        &self.json
    }

    /// Erases the known secrets, and those of what the tool was told.
    fn eraser(&self) -> Redactor {
        let mut secrets = Vec::new();
        if let Some(told) = &self.told {
            collect(&told.to().unwrap_or(Value::Null), false, &mut secrets);
        }
        match secrets.is_empty() {
            true => self.redactor.clone(),
            false => Redactor::of_all([self.redactor.clone(), Redactor::new(secrets)]),
        }
    }

    /// The JSON without its secrets.
    pub fn to_value(&self) -> Value {
        let mut value = self.json.to().unwrap_or(Value::Null);
        let eraser = self.eraser();
        let clean = |text: &str| erase_credentials(&eraser.redact(text)).into_owned();
        erase(&mut value, &clean, true);
        value
    }

    /// The JSON as text: the very text that it was, unless there are secrets in it.
    pub fn to_text(&self) -> String {
        let (before, after) = (self.json.to().unwrap_or(Value::Null), self.to_value());
        if before == after { self.json.as_str().to_owned() } else { after.to_string() }
    }

    /// Words about the JSON, without what is secret in it.
    pub fn redact(&self, words: &str) -> String {
        erase_credentials(&self.secrets().redact(words)).into_owned()
    }

    /// The eraser of known secrets, and of those that stand in this JSON under a credential's name.
    pub fn secrets(&self) -> Redactor {
        let mut secrets = Vec::new();
        collect(&self.json.to().unwrap_or(Value::Null), false, &mut secrets);
        match secrets.is_empty() {
            true => self.eraser(),
            false => Redactor::of_all([self.eraser(), Redactor::new(secrets)]),
        }
    }

    /// The JSON without the known secrets, and otherwise the very bytes that it was.
    pub fn to_json(&self) -> Json {
        let Ok(before) = self.json.to::<Value>() else { return self.json.clone() };
        let mut after = before.clone();
        let eraser = self.eraser();
        erase(&mut after, &|text| eraser.redact(text).into_owned(), false);
        if before == after { self.json.clone() } else { Json::from(after) }
    }
}

/// The same, small enough to wait for whoever listens slowly.
fn kept(json: &Json) -> Json {
    match json.bytes().len() {
        0..=KEPT => json.bare(),
        bytes => Json::of(&serde_json::json!({ "omitted": format!("{bytes} bytes") })),
    }
}

/// Erases every secret that `clean` finds, and by choice also what has the name or the shape of a credential.
fn erase(value: &mut Value, clean: &dyn Fn(&str) -> String, by_look: bool) {
    // The depth of the value was bounded when it was read.
    match value {
        Value::String(text) if by_look && is_credential_value(text) => *text = ERASED.into(),
        Value::String(text) => *text = inner(text, clean, by_look).unwrap_or_else(|| clean(text)),
        Value::Number(number) => {
            let text = number.to_string();
            if clean(&text) != text {
                *value = ERASED.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| erase(item, clean, by_look)),
        Value::Object(members) => {
            let cleaned = std::mem::take(members).into_iter().map(|(key, mut member)| {
                match member {
                    Value::Null | Value::Bool(_) => {}
                    _ if by_look && is_credential_name(&key) => member = ERASED.into(),
                    _ => erase(&mut member, clean, by_look),
                }
                // A secret may stand in a key, too.
                (clean(&key), member)
            });
            *members = cleaned.collect();
        }
        _ => {}
    }
}

/// JSON that stands in a text, as servers like to answer, without what has the name of a credential in it.
fn inner(text: &str, clean: &dyn Fn(&str) -> String, by_look: bool) -> Option<String> {
    let looks_so = by_look && text.trim_start().starts_with(['{', '[']);
    let before: Value = looks_so.then(|| serde_json::from_str(text).ok())??;
    let mut after = before.clone();
    erase(&mut after, clean, by_look);
    (before != after).then(|| after.to_string())
}

/// Every value that stands under the name of a credential.
fn collect(value: &Value, named: bool, found: &mut Vec<Secret>) {
    match value {
        Value::String(text) if named => found.push(Secret::new(text.as_str())),
        Value::Number(number) if named => found.push(Secret::new(number.to_string())),
        Value::Array(items) => items.iter().for_each(|item| collect(item, named, found)),
        Value::Object(members) => {
            members.iter().for_each(|(key, member)| collect(member, named || is_credential_name(key), found));
        }
        _ => {}
    }
}

impl fmt::Display for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.to_value().to_string()).fmt(f)
    }
}

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
