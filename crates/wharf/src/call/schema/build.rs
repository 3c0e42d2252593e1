//! A schema becomes a validator.
//!
//! In: the schema as its server wrote it. Out: a [`Compiled`] with its cost known, or the reason it is not used.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use super::graph::Cost;
use super::index::Index;
use super::measure::{BYTES_MAX, Size};
use super::{Misfit, words};
use crate::wire::Json;

/// A schema that can be used.
#[derive(Debug)]
pub(super) struct Compiled {
    validator: Validator,
    cost: Cost,
    /// For naming the fields that it knows.
    schema: Json,
}

/// The largest program of one regular expression, in bytes.
const PATTERN_PROGRAM_MAX: usize = 1 << 20;
/// Steps back that a regular expression with look-around may take.
const BACKTRACKS_MAX: usize = 10_000;
/// Work, in subschemas times values, that is done on the spot.
const LIGHT: u64 = 200_000;
/// Work that is not done at all.
const HEAVY: u64 = 500_000_000;
/// Work up to which every problem is collected. Beyond it the problems themselves could fill the memory.
const EXPLAINED: u64 = 500_000;
/// Recursion that fits the stack of any thread.
const SHALLOW: usize = 128;

/// Builds a validator. Runs on a deep stack.
pub(super) fn compile(text: &Json) -> Result<Compiled, String> {
    let len = text.bytes().len();
    if len > BYTES_MAX {
        return Err(format!("it is too large ({len} bytes, the limit is {BYTES_MAX})"));
    }
    let strict = Json::parse_strict(text.bytes().clone(), 127).map_err(|e| words::short(&e.to_string()))?;
    let mut schema: Value = strict.to().map_err(|e| format!("it cannot be read: {e}"))?;
    Size::of(&schema).refuse()?;
    let Some(root) = schema.as_object_mut() else {
        return Err("it is not an object".into());
    };
    let draft = match root.shift_remove("$schema") {
        None => Draft::Draft202012,
        Some(Value::String(named)) => {
            dialect(&named).ok_or_else(|| format!("its dialect {} is not known", words::short(&named)))?
        }
        Some(_) => return Err("its `$schema` is not a text".into()),
    };
    let index = Index::of(&schema, draft)?;
    let cost = Cost::of(&schema, &index)?;
    let validator = validator(&schema, draft)?;
    Ok(Compiled { validator, cost, schema: text.clone() })
}

/// The dialect that an address stands for.
pub(super) fn dialect(address: &str) -> Option<Draft> {
    let plain = address.trim_end_matches('#').trim_start_matches("https://").trim_start_matches("http://");
    match plain {
        "json-schema.org/draft-04/schema" => Some(Draft::Draft4),
        "json-schema.org/draft-06/schema" => Some(Draft::Draft6),
        "json-schema.org/draft-07/schema" => Some(Draft::Draft7),
        "json-schema.org/draft/2019-09/schema" => Some(Draft::Draft201909),
        "json-schema.org/draft/2020-12/schema" => Some(Draft::Draft202012),
        _ => None,
    }
}

/// With the engine whose time is linear; with the one that knows look-around only where a pattern needs it.
fn validator(schema: &Value, draft: Draft) -> Result<Validator, String> {
    let options = || jsonschema::options().offline().with_draft(draft).should_validate_formats(false);
    let linear = PatternOptions::regex().size_limit(PATTERN_PROGRAM_MAX).dfa_size_limit(PATTERN_PROGRAM_MAX);
    options().with_pattern_options(linear).build(schema).or_else(|_| {
        let backtracking = PatternOptions::fancy_regex()
            .backtrack_limit(BACKTRACKS_MAX)
            .size_limit(PATTERN_PROGRAM_MAX)
            .dfa_size_limit(PATTERN_PROGRAM_MAX);
        options().with_pattern_options(backtracking).build(schema).map_err(|e| {
            let place = words::path(e.instance_path());
            let place = if place.is_empty() { String::new() } else { format!(" (at `{place}`)") };
            format!("it is not a valid schema: {}{place}", words::cut(&e.to_string(), 200))
        })
    })
}

// === impl Compiled ===

impl Compiled {
    /// Whether these arguments can be checked on the spot.
    pub(super) fn is_light(&self, arguments: &Value, bytes: usize) -> bool {
        let size = Size::of(arguments);
        let work = self.work(&size, bytes);
        self.cost.stack(size.depth) <= SHALLOW && work.is_some_and(|work| work <= LIGHT)
    }

    /// Checks arguments.
    pub(super) fn judge(&self, arguments: &Value, bytes: usize) -> Result<(), Misfit> {
        let size = Size::of(arguments);
        let Some(work) = self.work(&size, bytes).filter(|work| *work <= HEAVY) else {
            let reason = "its branches multiply with the depth and size of the arguments, and these are too large for it";
            return Err(Misfit::Schema { reason: reason.into() });
        };
        if self.validator.is_valid(arguments) {
            return Ok(());
        }
        if work > EXPLAINED {
            return Err(Misfit::arguments(
                "the arguments do not fit the schema; they are too large to say where",
            ));
        }
        let schema = self.schema.to().unwrap_or(Value::Null);
        Err(Misfit::Arguments { problems: words::problems(&self.validator, arguments, &schema) })
    }

    /// How much work it is, or `None` for more than is bearable. Patterns look at every byte.
    fn work(&self, size: &Size, bytes: usize) -> Option<u64> {
        let values = (size.nodes + bytes / 1024) as u64;
        self.cost.at(size.depth).map(|cost| cost.saturating_mul(values))
    }
}
