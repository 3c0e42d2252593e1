//! A schema becomes a validator.
//!
//! In: the schema as its server wrote it. Out: a [`Compiled`] with its cost known, or the reason it is not used.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use super::flat::Flat;
use super::graph::Cost;
use super::index::Index;
use super::measure::{BYTES_MAX, Size};
use super::{Misfit, words};
use crate::wire::Json;

/// A schema that can be used.
#[derive(Debug)]
pub(super) struct Compiled {
    validator: Validator,
    /// The short way, if the schema is plain.
    flat: Option<Flat>,
    cost: Cost,
    pattern_states: u64,
    /// For naming the fields that it knows.
    schema: Json,
}

/// How much work it is to check some arguments.
#[derive(Debug)]
pub(super) struct Load {
    /// Subschemas that look at values.
    looking: u64,
    /// The same, and patterns that look at bytes.
    all: u64,
    /// How deep it may recurse.
    stack: usize,
}

/// The largest program of one regular expression, in bytes.
const PATTERN_PROGRAM_MAX: usize = 1 << 20;
/// Steps back that a regular expression with look-around may take.
const BACKTRACKS_MAX: usize = 10_000;
/// Work, in subschemas times values, that is done on the spot.
const LIGHT: u64 = 200_000;
/// Work that is not done at all.
const HEAVY: u64 = 1_000_000_000;
/// States of a pattern that cost as much, for each byte, as one subschema for a value. Few are alive at a time.
const STATES_A_STEP: u64 = 64;
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
    let size = Size::of(&schema);
    size.refuse()?;
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
    let flat = Flat::of(root);
    let index = Index::of(&schema, draft)?;
    let cost = Cost::of(&schema, &index)?;
    let validator = validator(&schema, draft)?;
    Ok(Compiled { validator, flat, cost, pattern_states: size.pattern_states, schema: text.clone() })
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
    /// Whether the arguments certainly fit, as far as a glance can tell.
    pub(super) fn fits_plainly(&self, arguments: &Json) -> bool {
        self.flat.as_ref().is_some_and(|flat| flat.fits(arguments))
    }

    /// How much work these arguments are. Pure counting.
    pub(super) fn weigh(&self, arguments: &Value, bytes: usize) -> Load {
        let size = Size::of(arguments);
        let matching = (bytes as u64).saturating_mul(self.pattern_states / STATES_A_STEP);
        let looking =
            self.cost.at(size.depth).map_or(u64::MAX, |cost| cost.saturating_mul(size.nodes as u64));
        Load { looking, all: looking.saturating_add(matching), stack: self.cost.stack(size.depth) }
    }

    /// Checks arguments whose load was weighed.
    pub(super) fn judge(&self, arguments: &Value, load: &Load) -> Result<(), Misfit> {
        if load.all > HEAVY {
            let reason = "checking these arguments would take too long: its branches multiply with their depth and size";
            return Err(Misfit::Schema { reason: reason.into() });
        }
        if self.validator.is_valid(arguments) {
            return Ok(());
        }
        if load.looking > EXPLAINED {
            return Err(Misfit::arguments(
                "the arguments do not fit the schema; they are too large to say where",
            ));
        }
        let schema = self.schema.to().unwrap_or(Value::Null);
        Err(Misfit::Arguments { problems: words::problems(&self.validator, arguments, &schema) })
    }
}

// === impl Load ===

impl Load {
    /// Whether it can be carried on the spot: soon done, and no deeper than any thread's stack.
    pub(super) fn is_light(&self) -> bool {
        self.all <= LIGHT && self.stack <= SHALLOW
    }
}
