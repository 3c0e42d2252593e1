//! JSON with comments becomes the neutral tree.
//!
//! In: the text of an `.mcp.json`, with comments and trailing commas if it likes; nothing else of JSON5, since the
//! file's other readers would not take it. Out: its tree with duplicate keys kept, or the first error and where.

use jsonc_parser::ParseOptions;
use jsonc_parser::ast::{self, ObjectPropName};
use jsonc_parser::common::{Range, Ranged as _};

use super::node::{DEPTH_MAX, Entry, Node, Span, Value};

/// What of JSON5 is taken: comments and trailing commas.
pub(super) fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Reads a whole file.
pub(super) fn parse(text: &str) -> Result<Node, (Span, String)> {
    let parsed = jsonc_parser::parse_to_ast(text, &Default::default(), &options()).map_err(|error| {
        let reason = error.kind().to_string();
        (span(error.range()), format!("this is not valid JSON: {}", lower_first(&reason)))
    })?;
    let Some(value) = parsed.value else {
        return Err((text.len()..text.len(), "the file is empty; the least it can hold is `{}`".into()));
    };
    node(value, DEPTH_MAX)
}

fn node(value: ast::Value<'_>, depth: usize) -> Result<Node, (Span, String)> {
    let span = span(value.range());
    if depth == 0 {
        return Err((span, format!("the file nests deeper than {DEPTH_MAX} levels")));
    }
    let value = match value {
        ast::Value::StringLit(text) => Value::Text(text.value.into_owned()),
        ast::Value::NumberLit(number) => {
            // The reader has checked the spelling; what overflows is not a number that any field takes.
            Value::Number(number.value.parse().unwrap_or(f64::INFINITY), number.value.to_owned())
        }
        ast::Value::BooleanLit(flag) => Value::Bool(flag.value),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::Array(array) => {
            let items = array.elements.into_iter().map(|element| node(element, depth - 1));
            Value::List(items.collect::<Result<_, _>>()?)
        }
        ast::Value::Object(object) => {
            let entries = object.properties.into_iter().map(|property| entry(property, depth - 1));
            Value::Table(entries.collect::<Result<_, _>>()?)
        }
    };
    Ok(Node { span, value })
}

fn entry(property: ast::ObjectProp<'_>, depth: usize) -> Result<Entry, (Span, String)> {
    let key_span = match &property.name {
        ObjectPropName::String(text) => span(text.range),
        ObjectPropName::Word(word) => span(word.range),
    };
    Ok(Entry { key: property.name.into_string(), key_span, node: node(property.value, depth)? })
}

fn span(range: Range) -> Span {
    range.start..range.end.max(range.start)
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
