//! The tree that every format is read into: values with their place in the text.
//!
//! In: nothing; the format readers build it. Out: one shape for `fields`, `policy` and `limits` to read, so that
//! TOML and JSON cannot come to mean different things. Duplicate keys stay, for whoever reads the table to refuse.

use std::ops::Range;

/// Bytes of the file, from and to.
pub(super) type Span = Range<usize>;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// A number, and its spelling.
    Number(f64, String),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// Something that only TOML has and no field wants.
    Date,
}

/// A key of a table and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) node: Node,
}

/// How deep a file may nest. Nothing that is meant goes beyond six.
pub(super) const DEPTH_MAX: usize = 32;

// === impl Node ===

impl Node {
    /// The kind of value in words, for "… must be a list, not a number".
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(..) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Date => "a date",
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    pub(super) fn as_list(&self) -> Option<&[Self]> {
        if let Value::List(items) = &self.value { Some(items) } else { None }
    }

    pub(super) fn as_table(&self) -> Option<&[Entry]> {
        if let Value::Table(entries) = &self.value { Some(entries) } else { None }
    }

    /// The first key that stands twice in one table, here or below, as (first, second).
    pub(super) fn duplicate(&self) -> Option<(&Entry, &Entry)> {
        match &self.value {
            Value::List(items) => items.iter().find_map(Self::duplicate),
            Value::Table(entries) => {
                duplicate_key(entries).or_else(|| entries.iter().find_map(|e| e.node.duplicate()))
            }
            _ => None,
        }
    }
}

/// The first key that stands twice in this table, as (first, second).
pub(super) fn duplicate_key(entries: &[Entry]) -> Option<(&Entry, &Entry)> {
    let mut seen = std::collections::HashMap::new();
    entries.iter().find_map(|entry| seen.insert(entry.key.as_str(), entry).map(|first| (first, entry)))
}
