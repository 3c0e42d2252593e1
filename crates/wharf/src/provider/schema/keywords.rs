//! The keywords of JSON Schema: what they hold, and for which values they count.

use serde_json::Value;

/// What a keyword holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A schema.
    One,
    /// A list of schemas.
    Many,
    /// Schemas by name.
    Named,
    /// Something that values are held to.
    Limit,
    /// Something that is only told.
    Note,
}

/// The types of JSON Schema.
pub(super) const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// What a keyword of 2020-12 holds; `None` for one that is not known.
pub(super) fn kind(keyword: &str) -> Option<Kind> {
    Some(match keyword {
        "additionalProperties"
        | "propertyNames"
        | "unevaluatedProperties"
        | "items"
        | "contains"
        | "unevaluatedItems"
        | "not"
        | "if"
        | "then"
        | "else" => Kind::One,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Kind::Many,
        "properties" | "patternProperties" | "dependentSchemas" => Kind::Named,
        "type" | "enum" | "const" | "required" | "minProperties" | "maxProperties" | "dependentRequired"
        | "minContains" | "maxContains" | "minItems" | "maxItems" | "uniqueItems" | "minLength"
        | "maxLength" | "pattern" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"
        | "multipleOf" => Kind::Limit,
        "title" | "description" | "default" | "examples" | "deprecated" | "readOnly" | "writeOnly"
        | "format" | "contentEncoding" | "contentMediaType" => Kind::Note,
        _ => return None,
    })
}

/// Whether a keyword only tells something, to people or to tools.
pub(super) fn is_note(keyword: &str) -> bool {
    matches!(kind(keyword), Some(Kind::Note) | None) && keyword != "$ref"
}

/// The one type that a keyword is about; `None` where it counts for every value.
fn about(keyword: &str) -> Option<&'static str> {
    Some(match keyword {
        "properties"
        | "required"
        | "additionalProperties"
        | "patternProperties"
        | "propertyNames"
        | "minProperties"
        | "maxProperties"
        | "dependentRequired"
        | "dependentSchemas"
        | "unevaluatedProperties" => "object",
        "items" | "prefixItems" | "contains" | "minContains" | "maxContains" | "minItems" | "maxItems"
        | "uniqueItems" | "unevaluatedItems" => "array",
        "minLength" | "maxLength" | "pattern" | "contentEncoding" | "contentMediaType" => "string",
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => "number",
        _ => return None,
    })
}

/// Whether a keyword can make a difference for values of a type.
pub(super) fn counts_for(keyword: &str, ty: &str) -> bool {
    about(keyword).is_none_or(|about| about == ty || (about == "number" && ty == "integer"))
}

/// The type that a schema without one must be about, by its keywords.
pub(super) fn implied<'k>(mut keywords: impl Iterator<Item = &'k str>) -> Option<&'static str> {
    keywords.find_map(about)
}

/// Whether a value is of a type.
pub(super) fn is_of(value: &Value, ty: &str) -> bool {
    match value {
        Value::Null => ty == "null",
        Value::Bool(_) => ty == "boolean",
        Value::String(_) => ty == "string",
        Value::Array(_) => ty == "array",
        Value::Object(_) => ty == "object",
        Value::Number(n) => ty == "number" || (ty == "integer" && is_whole(n)),
    }
}

/// Whether two values are the same one: 1 and 1.0 are.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.is_f64() != b.is_f64() && a.as_f64() == b.as_f64())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
        }
        _ => one == other,
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|f| f.fract() == 0.0)
}

/// Whether a keyword's value is of the form that the standard asks for.
pub(super) fn is_well_formed(keyword: &str, value: &Value) -> bool {
    let is_schema = |v: &Value| v.is_object() || v.is_boolean();
    let is_text_list = |v: &Value| v.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let is_type = |v: &Value| v.as_str().is_some_and(|ty| TYPES.contains(&ty));
    match (keyword, kind(keyword)) {
        (_, Some(Kind::One)) => is_schema(value),
        (_, Some(Kind::Many)) => {
            value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_schema))
        }
        (_, Some(Kind::Named)) => value.as_object().is_some_and(|map| map.values().all(is_schema)),
        ("type", _) => {
            is_type(value) || value.as_array().is_some_and(|l| !l.is_empty() && l.iter().all(is_type))
        }
        ("enum", _) => value.is_array(),
        ("required", _) => is_text_list(value),
        ("dependentRequired", _) => value.as_object().is_some_and(|map| map.values().all(is_text_list)),
        ("uniqueItems" | "deprecated" | "readOnly" | "writeOnly", _) => value.is_boolean(),
        ("pattern" | "title" | "description" | "format" | "contentEncoding" | "contentMediaType", _) => {
            value.is_string()
        }
        ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", _) => value.is_number(),
        ("multipleOf", _) => value.as_f64().is_some_and(|n| n > 0.0),
        ("examples", _) => value.is_array(),
        ("const" | "default", _) | (_, Some(Kind::Note) | None) => true,
        (_, Some(Kind::Limit)) => value.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0),
    }
}
