//! `x-mcp-header`: arguments that an HTTP client repeats as headers (SEP-2243).

use std::collections::HashSet;

use serde_json::Value;

use crate::wire::Json;

/// One argument that is repeated as `Mcp-Param-{name}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    /// What follows `Mcp-Param-`.
    pub name: String,
    /// The way to the argument, through `properties`.
    pub path: Vec<String>,
}

/// The keyword of a schema by which a tool says so.
pub(crate) const HEADER_ANNOTATION: &str = "x-mcp-header";

/// Integers beyond this are not the same number to everyone.
const SAFE_INTEGER: i64 = (1 << 53) - 1;

/// Reads the annotations of an input schema. An error says why the tool may not be used over HTTP.
pub(super) fn read_rules(schema: &Json) -> Result<Vec<HeaderRule>, String> {
    if memchr::memmem::find(schema.bytes(), HEADER_ANNOTATION.as_bytes()).is_none() {
        return Ok(Vec::new());
    }
    let schema: Value = schema.to().map_err(|e| e.to_string())?;
    let mut walk = Walk { rules: Vec::new(), seen: HashSet::new() };
    walk.schema(&schema, &mut Vec::new(), true)?;
    Ok(walk.rules)
}

struct Walk {
    rules: Vec<HeaderRule>,
    seen: HashSet<String>,
}

impl Walk {
    /// `reachable` is false below anything but a chain of `properties`: an annotation there has no fixed place.
    fn schema(&mut self, schema: &Value, path: &mut Vec<String>, reachable: bool) -> Result<(), String> {
        let Value::Object(members) = schema else { return Ok(()) };
        if let Some(annotation) = members.get("x-mcp-header") {
            self.rule(annotation, members, path, reachable)?;
        }
        for (key, value) in members {
            match (key.as_str(), value) {
                // Data, not schemas.
                ("enum" | "const" | "default" | "examples" | "x-mcp-header", _) => {}
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        path.push(name.clone());
                        self.schema(property, path, reachable)?;
                        path.pop();
                    }
                }
                (_, Value::Object(_)) => self.schema(value, path, false)?,
                (_, Value::Array(items)) => {
                    items.iter().try_for_each(|item| self.schema(item, path, false))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn rule(
        &mut self,
        annotation: &Value,
        members: &serde_json::Map<String, Value>,
        path: &[String],
        reachable: bool,
    ) -> Result<(), String> {
        let name = annotation.as_str().filter(|name| is_token(name));
        let name = name.ok_or_else(|| format!("`x-mcp-header` is not a header name: {annotation}"))?;
        if !reachable || path.is_empty() {
            return Err(format!("`x-mcp-header` `{name}` stands where its argument has no fixed place"));
        }
        let kind = members.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err(format!(
                "`x-mcp-header` `{name}` is on an argument that is no string, integer or boolean"
            ));
        }
        if !self.seen.insert(name.to_ascii_lowercase()) {
            return Err(format!("`x-mcp-header` `{name}` appears twice"));
        }
        self.rules.push(HeaderRule { name: name.to_owned(), path: path.to_vec() });
        Ok(())
    }
}

/// RFC 9110: `1*tchar`.
fn is_token(name: &str) -> bool {
    let other = "!#$%&'*+-.^_`|~";
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || other.contains(c))
}

impl HeaderRule {
    /// The header's value for these arguments; `None` where the argument is absent or null.
    pub fn value(&self, arguments: &Value) -> Option<String> {
        let mut at = arguments;
        for step in &self.path {
            at = at.get(step)?;
        }
        match at {
            Value::String(text) => Some(text.clone()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Number(number) => {
                let whole = number
                    .as_i64()
                    .or_else(|| number.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64));
                whole.filter(|n| n.abs() <= SAFE_INTEGER).map(|n| n.to_string())
            }
            _ => None,
        }
    }
}
