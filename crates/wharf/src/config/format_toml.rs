//! TOML text becomes the neutral tree.
//!
//! In: the text of a `wharf.toml`. Out: its tree, or the first thing that is not TOML and where. Keys that stand
//! twice are refused by the TOML reader itself, and so is nesting beyond its own limit.

use toml_edit::{Document, Item, Key, TableLike, Value as TomlValue};

use super::node::{DEPTH_MAX, Entry, Node, Span, Value};

/// Reads a whole file.
pub(super) fn parse(text: &str) -> Result<Node, (Span, String)> {
    let document = Document::parse(text).map_err(|error| {
        let end = text.len();
        (error.span().unwrap_or(end..end), format!("this is not valid TOML: {}", error.message()))
    })?;
    table(document.as_table(), 0..text.len(), DEPTH_MAX)
}

fn table(table: &dyn TableLike, span: Span, depth: usize) -> Result<Node, (Span, String)> {
    let mut entries = Vec::new();
    for (name, item) in table.iter() {
        let key_span = table.key(name).and_then(Key::span);
        let item_span = item.span();
        let key_span = key_span.or_else(|| item_span.clone()).unwrap_or_else(|| span.clone());
        let item_span = item_span.unwrap_or_else(|| key_span.clone());
        if depth == 0 {
            return Err((key_span, format!("the file nests deeper than {DEPTH_MAX} levels")));
        }
        entries.push(Entry { key: name.to_owned(), key_span, node: item_node(item, item_span, depth - 1)? });
    }
    Ok(Node { span, value: Value::Table(entries) })
}

fn item_node(item: &Item, span: Span, depth: usize) -> Result<Node, (Span, String)> {
    match item {
        Item::None => Ok(Node { span, value: Value::Null }),
        Item::Value(value) => value_node(value, span, depth),
        Item::Table(inner) => table(inner, span, depth),
        Item::ArrayOfTables(tables) => {
            let nodes = tables.iter().map(|t| table(t, t.span().unwrap_or_else(|| span.clone()), depth));
            let nodes = nodes.collect::<Result<_, _>>()?;
            Ok(Node { span, value: Value::List(nodes) })
        }
    }
}

fn value_node(value: &TomlValue, span: Span, depth: usize) -> Result<Node, (Span, String)> {
    let value = match value {
        TomlValue::String(text) => Value::Text(text.value().clone()),
        TomlValue::Integer(number) => Value::Number(*number.value() as f64, number.value().to_string()),
        TomlValue::Float(number) => Value::Number(*number.value(), number.value().to_string()),
        TomlValue::Boolean(flag) => Value::Bool(*flag.value()),
        TomlValue::Datetime(_) => Value::Date,
        TomlValue::InlineTable(inner) => return table(inner, span, depth),
        TomlValue::Array(items) => {
            if depth == 0 {
                return Err((span, format!("the file nests deeper than {DEPTH_MAX} levels")));
            }
            let nodes =
                items.iter().map(|v| value_node(v, v.span().unwrap_or_else(|| span.clone()), depth - 1));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
    };
    Ok(Node { span, value })
}
