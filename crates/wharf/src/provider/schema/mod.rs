//! A tool's schema, in the dialect of a provider.
//!
//! In: the schema as its server wrote it. Out: the same in a [`Dialect`], with a report of every difference, or why it
//! cannot be said. Schemas come from strangers: they are measured first, and the work on them is counted.

mod forms;
mod keywords;
mod merge;
mod objects;
mod refs;
mod root;
mod spell;
mod strict;
mod unions;
mod walk;
mod words;

use serde_json::Value;

use self::walk::Walk;
pub(super) use self::words::clean;
use super::loss::Loss;
use super::rules::Dialect;
use crate::call::limits::{BYTES_MAX, DEPTH_MAX, NODES_MAX};
use crate::wire::Json;

/// A schema in a provider's dialect.
#[derive(Debug)]
pub(super) struct Rewritten {
    /// An object schema.
    pub(super) schema: Value,
    /// What it no longer says about the arguments as a whole, in words.
    pub(super) words: Option<String>,
    pub(super) losses: Vec<Loss>,
    /// Whether it is all that the dialect asks for. Only a strict dialect asks for more than can always be given.
    pub(super) fits: bool,
}

/// Reads a schema, if it is not too large to be worked on. The bounds are those of the check of arguments: what is over
/// them could not be called anyway.
pub(super) fn read(text: &Json) -> Result<Value, String> {
    let len = text.bytes().len();
    if len > BYTES_MAX {
        return Err(format!("its schema is too large ({len} bytes, the limit is {BYTES_MAX})"));
    }
    let checked = Json::parse_strict(text.bytes().clone(), 127)
        .map_err(|e| format!("its schema cannot be read: {}", words::short(&e.to_string())))?;
    let schema: Value = checked.to().map_err(|e| format!("its schema cannot be read: {e}"))?;
    let (nodes, depth) = measure(&schema);
    if nodes > NODES_MAX {
        return Err(format!("its schema has too many parts ({nodes}, the limit is {NODES_MAX})"));
    }
    if depth > DEPTH_MAX {
        return Err(format!("its schema is nested too deeply ({depth}, the limit is {DEPTH_MAX})"));
    }
    Ok(schema)
}

/// Brings a schema that was read into a dialect.
pub(super) fn rewrite(schema: &Value, dialect: &Dialect) -> Result<Rewritten, String> {
    Walk::new(schema, dialect).whole()
}

/// How many values there are, and how deep the lists and objects stand.
fn measure(value: &Value) -> (usize, usize) {
    let (mut nodes, mut depth) = (0, 0);
    let mut waiting = vec![(value, 0)];
    while let Some((value, above)) = waiting.pop() {
        nodes += 1;
        match value {
            Value::Array(items) => waiting.extend(items.iter().map(|item| (item, above + 1))),
            Value::Object(members) => waiting.extend(members.values().map(|member| (member, above + 1))),
            _ => continue,
        }
        depth = depth.max(above + 1);
    }
    (nodes, depth)
}
