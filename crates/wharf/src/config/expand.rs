//! `${VAR}` becomes its value.
//!
//! In: a value as written and the environment that was handed in. Out: the text, and the values that went into it,
//! or which variable is missing. `$VAR` and `%VAR%` are left alone, `$${` is a literal `${`, and what a variable
//! holds is never looked at again.

use std::collections::BTreeMap;

use crate::secret::Secret;

use super::edit::Format;

/// A value with its variables filled in. Not `Debug`: it may hold secrets.
pub(super) struct Expanded {
    /// The text.
    pub(super) text: String,
    /// The variables that were named, in order.
    pub(super) names: Vec<String>,
    /// What they, or their defaults, put in.
    pub(super) values: Vec<Secret>,
}

/// Why a value cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A variable is not set, and there is no default.
    Missing(String),
    /// Something that starts like a variable and is none.
    Malformed { reason: &'static str, hint: &'static str },
}

/// Fills in the variables of a value.
pub(super) fn expand(
    text: &str,
    env: &BTreeMap<String, String>,
    format: Format,
) -> Result<Expanded, Trouble> {
    let mut out = Expanded { text: String::new(), names: Vec::new(), values: Vec::new() };
    if let Some(name) = whole_reference(text) {
        let value = env.get(name).ok_or_else(|| Trouble::Missing(name.to_owned()))?;
        out.put(name, value);
        return Ok(out);
    }
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out.text.push_str(before);
            out.text.push_str("${");
            rest = &from[2..];
            continue;
        }
        out.text.push_str(before);
        let reference = Reference::read(&from[2..], format)?;
        let set = env.get(reference.name).map(String::as_str);
        let value = match reference.default {
            // As in a shell: with `:-`, an empty variable counts as not set.
            Some(default) => set.filter(|value| !value.is_empty()).unwrap_or(default),
            None => set.ok_or_else(|| Trouble::Missing(reference.name.to_owned()))?,
        };
        out.put(reference.name, value);
        rest = &from[2 + reference.length..];
    }
    out.text.push_str(rest);
    Ok(out)
}

/// The variables that a value names, without looking them up.
pub(super) fn names(text: &str, format: Format) -> Vec<String> {
    if let Some(name) = whole_reference(text) {
        return vec![name.to_owned()];
    }
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let escaped = rest[..at].ends_with('$');
        rest = &rest[at + 2..];
        if let (false, Ok(reference)) = (escaped, Reference::read(rest, format)) {
            found.push(reference.name.to_owned());
        }
    }
    found
}

/// `env:VAR` as a whole value.
fn whole_reference(text: &str) -> Option<&str> {
    text.strip_prefix("env:").filter(|name| is_variable_name(name))
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What stands between `${` and `}`.
struct Reference<'a> {
    name: &'a str,
    default: Option<&'a str>,
    /// Bytes up to and with the closing brace.
    length: usize,
}

// === impl Reference ===

impl<'a> Reference<'a> {
    fn read(text: &'a str, format: Format) -> Result<Self, Trouble> {
        const LITERAL: &str = "write `$${` for a `${` that is meant literally";
        let Some(end) = text.find('}') else {
            return Err(Trouble::Malformed { reason: "`${` is never closed", hint: LITERAL });
        };
        let inner = &text[..end];
        let inner = match inner.strip_prefix("env:") {
            Some(name) if format == Format::Json => name,
            Some(_) => {
                let hint = "write `${VAR}`, or `env:VAR` as the whole value";
                return Err(Trouble::Malformed { reason: "`${env:…}` is another client's spelling", hint });
            }
            None => inner,
        };
        if inner.starts_with("input:") {
            let hint = "put the value into an environment variable and write `${VAR}`";
            return Err(Trouble::Malformed {
                reason: "`${input:…}` asks a person, which is not supported",
                hint,
            });
        }
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        if !is_variable_name(name) {
            let reason = "what stands in `${…}` is not the name of a variable";
            return Err(Trouble::Malformed { reason, hint: LITERAL });
        }
        if default.is_some_and(|default| default.contains("${")) {
            let hint = "give the inner variable its own entry";
            return Err(Trouble::Malformed { reason: "a default cannot hold another variable", hint });
        }
        Ok(Self { name, default, length: end + 1 })
    }
}

// === impl Expanded ===

impl Expanded {
    fn put(&mut self, name: &str, value: &str) {
        self.text.push_str(value);
        self.names.push(name.to_owned());
        if !value.is_empty() {
            self.values.push(Secret::new(value));
        }
    }
}
