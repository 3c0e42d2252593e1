//! What is wrong with arguments, in words that a model can act on.
//!
//! In: the validator's errors. Out: at most [`PROBLEMS_MAX`] sentences that name the field, what was expected and what
//! was there. Everything from the schema or the arguments is escaped and cut.

use std::fmt::Write as _;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::paths::{Location, LocationSegment};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use crate::text::Escaped;

/// The most sentences before `and N more`.
const PROBLEMS_MAX: usize = 10;
/// The longest value, name or pattern that is shown, in characters.
const SHOWN_MAX: usize = 80;
/// The most values or names that are listed.
const LISTED_MAX: usize = 20;
/// Problems of the closest branch that are told.
const BRANCH_MAX: usize = 3;
/// Branches within branches are explained this deep.
const NESTING_MAX: usize = 3;
/// How much alike a known field must be to be suggested, from 0 to 1.
const ALIKE: f64 = 0.8;

pub(super) fn problems(validator: &Validator, arguments: &Value, schema: &Value) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    let mut more = 0;
    for error in validator.iter_errors(arguments) {
        if sentences.len() < PROBLEMS_MAX {
            sentences.push(sentence(&error, schema, 0));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        sentences.push(format!("and {more} more"));
    }
    sentences
}

/// A place in the arguments: `a.b[2]`; empty for the arguments as a whole.
pub(super) fn path(location: &Location) -> String {
    let mut path = String::new();
    for segment in location.segments() {
        match segment {
            LocationSegment::Index(i) => drop(write!(path, "[{i}]")),
            LocationSegment::Property(name) => push_name(&mut path, &name),
        }
    }
    if path.chars().count() > 2 * SHOWN_MAX {
        let end: Vec<char> = path.chars().rev().take(2 * SHOWN_MAX).collect();
        path = format!("…{}", end.iter().rev().collect::<String>());
    }
    path
}

/// A text in quotes, escaped and cut.
pub(super) fn short(text: &str) -> String {
    format!("`{}`", cut(text, SHOWN_MAX))
}

/// A text escaped, and cut at so many characters.
pub(super) fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", Escaped(&text[..end])),
        None => Escaped(text).to_string(),
    }
}

fn push_name(path: &mut String, name: &str) {
    let plain =
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-' || c == '$');
    match (plain, path.is_empty()) {
        (true, true) => path.push_str(&cut(name, SHOWN_MAX)),
        (true, false) => drop(write!(path, ".{}", cut(name, SHOWN_MAX))),
        (false, _) => drop(write!(path, "[\"{}\"]", cut(name, SHOWN_MAX))),
    }
}

fn sentence(error: &ValidationError<'_>, schema: &Value, nesting: usize) -> String {
    let place = path(error.instance_path());
    let subject = if place.is_empty() { "the arguments".to_owned() } else { format!("field `{place}`") };
    let field = |name: &str| {
        let mut whole = place.clone();
        push_name(&mut whole, name);
        whole
    };
    let kind = error.kind();
    match kind {
        ValidationErrorKind::Required { property } => {
            format!("missing required field `{}`", field(property.as_str().unwrap_or_default()))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = known_fields(error, schema);
            let each = unexpected.iter().take(PROBLEMS_MAX);
            let each: Vec<_> = each.map(|name| unknown_field(&field(name), name, &known)).collect();
            let more = unexpected.len().saturating_sub(PROBLEMS_MAX);
            let more = if more > 0 { format!("; and {more} more unknown fields") } else { String::new() };
            format!("{}{more}", each.join("; "))
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            format!("{subject}: {}", no_branch(error, context, schema, nesting))
        }
        ValidationErrorKind::PropertyNames { error } => {
            format!("{subject}: a field's name is not allowed: {}", expectation(error))
        }
        _ => format!("{subject}: {}", expectation(error)),
    }
}

/// What was expected and what was there, for the kinds that are about one value.
fn expectation(error: &ValidationError<'_>) -> String {
    let got = shown(error.instance());
    let length = match &**error.instance() {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    };
    match error.kind() {
        ValidationErrorKind::Type { kind } => format!("expected {}, got {got}", types(kind)),
        ValidationErrorKind::Enum { options } => format!("expected {}, got {got}", one_of(options)),
        ValidationErrorKind::Constant { expected_value } => {
            format!("expected {}, got {got}", plain(expected_value))
        }
        ValidationErrorKind::Minimum { limit } => format!("expected at least {}, got {got}", plain(limit)),
        ValidationErrorKind::Maximum { limit } => format!("expected at most {}, got {got}", plain(limit)),
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            format!("expected more than {}, got {got}", plain(limit))
        }
        ValidationErrorKind::ExclusiveMaximum { limit } => {
            format!("expected less than {}, got {got}", plain(limit))
        }
        ValidationErrorKind::MultipleOf { multiple_of } => {
            format!("expected a multiple of {multiple_of}, got {got}")
        }
        ValidationErrorKind::MinLength { limit } => {
            format!("expected at least {limit} characters, got {length}")
        }
        ValidationErrorKind::MaxLength { limit } => {
            format!("expected at most {limit} characters, got {length}")
        }
        ValidationErrorKind::MinItems { limit } => format!("expected at least {limit} items, got {length}"),
        ValidationErrorKind::MaxItems { limit } => format!("expected at most {limit} items, got {length}"),
        ValidationErrorKind::AdditionalItems { limit } => {
            format!("expected at most {limit} items, got {length}")
        }
        ValidationErrorKind::UnevaluatedItems { .. } => "has more items than are allowed".into(),
        ValidationErrorKind::MinProperties { limit } => {
            format!("expected at least {limit} fields, got {length}")
        }
        ValidationErrorKind::MaxProperties { limit } => {
            format!("expected at most {limit} fields, got {length}")
        }
        ValidationErrorKind::UniqueItems => "has an item twice, and each may stand only once".into(),
        ValidationErrorKind::Contains => "lacks an item of the kind that must be in it".into(),
        ValidationErrorKind::Pattern { pattern } => {
            format!("expected a text that matches the pattern {}, got {got}", short(pattern))
        }
        ValidationErrorKind::Format { format } => format!("expected the format {}, got {got}", short(format)),
        ValidationErrorKind::FalseSchema => format!("is not allowed here, got {got}"),
        ValidationErrorKind::Not { .. } => format!("is of a form that is not allowed, got {got}"),
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            format!("fits more than one of the allowed forms and must fit exactly one, got {got}")
        }
        ValidationErrorKind::BacktrackLimitExceeded { .. }
        | ValidationErrorKind::RegexEngineFailure { .. } => {
            "cannot be checked against its pattern: it takes too long; try a shorter text".into()
        }
        _ => cut(&error.to_string(), 2 * SHOWN_MAX),
    }
}

/// Explains the branch that the value comes closest to.
fn no_branch(
    error: &ValidationError<'_>,
    branches: &[Vec<ValidationError<'static>>],
    schema: &Value,
    nesting: usize,
) -> String {
    let root = error.instance_path().as_str();
    let closest = branches.iter().enumerate().min_by_key(|(_, errors)| distance(errors, root));
    let Some((at, errors)) = closest.filter(|(_, e)| !e.is_empty() && nesting < NESTING_MAX) else {
        return format!("fits none of the {} allowed forms, got {}", branches.len(), shown(error.instance()));
    };
    // Where every branch only wants another type or value, the list of them says it all.
    if branches
        .iter()
        .all(|b| matches!(&b[..], [one] if is_plain(one) && one.instance_path().as_str() == root))
    {
        let mut wanted: Vec<String> = Vec::new();
        for branch in branches.iter().flatten() {
            let wants = expectation(branch);
            let wants =
                wants.split(", got ").next().unwrap_or_default().trim_start_matches("expected ").to_owned();
            if !wanted.contains(&wants) {
                wanted.push(wants);
            }
        }
        wanted.truncate(LISTED_MAX);
        return format!("expected {}, got {}", wanted.join(" or "), shown(error.instance()));
    }
    let told: Vec<_> = errors.iter().take(BRANCH_MAX).map(|e| sentence(e, schema, nesting + 1)).collect();
    let more = if errors.len() > BRANCH_MAX { ", and more" } else { "" };
    format!(
        "fits none of the {} allowed forms; for the closest (number {}): {}{more}",
        branches.len(),
        at + 1,
        told.join(", and ")
    )
}

fn is_plain(error: &ValidationError<'_>) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        ValidationErrorKind::Type { .. }
            | ValidationErrorKind::Constant { .. }
            | ValidationErrorKind::Enum { .. }
    )
}

/// How far a value is from a branch. A wrong type at the root is far; a wrong constant means another variant was meant.
fn distance(errors: &[ValidationError<'_>], root: &str) -> usize {
    errors
        .iter()
        .map(|e| match e.kind() {
            ValidationErrorKind::Type { .. } if e.instance_path().as_str() == root => 1000,
            ValidationErrorKind::FalseSchema => 1000,
            ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. } => 100,
            ValidationErrorKind::AdditionalProperties { unexpected } => 1 + unexpected.len(),
            _ => 1,
        })
        .sum()
}

fn unknown_field(whole: &str, name: &str, known: &[&str]) -> String {
    let likeness = |other: &&&str| strsim::jaro_winkler(&name.to_lowercase(), &other.to_lowercase());
    let likeliest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match likeliest {
        Some(meant) if likeness(&meant) >= ALIKE => {
            format!("unknown field `{whole}`; did you mean {}?", short(meant))
        }
        Some(_) => {
            let mut names: Vec<_> = known.iter().take(LISTED_MAX).map(|n| short(n)).collect();
            if known.len() > LISTED_MAX {
                names.push("…".into());
            }
            format!("unknown field `{whole}`; the known ones are {}", names.join(", "))
        }
        None => format!("unknown field `{whole}`; no fields are taken here"),
    }
}

/// The fields that stand in the schema beside the keyword that refused one.
fn known_fields<'s>(error: &ValidationError<'_>, schema: &'s Value) -> Vec<&'s str> {
    let keyword = error.schema_path().as_str();
    let beside = keyword.rsplit_once('/').and_then(|(parent, _)| schema.pointer(parent));
    let properties = beside.and_then(|s| s.get("properties")).and_then(Value::as_object);
    properties.into_iter().flat_map(|p| p.keys().map(String::as_str)).collect()
}

fn types(kind: &TypeKind) -> String {
    let name = |ty: &str| match ty {
        "null" => "null".to_owned(),
        "integer" => "a whole number".to_owned(),
        "array" => "a list".to_owned(),
        "object" => "an object".to_owned(),
        other => format!("a {other}"),
    };
    match kind {
        TypeKind::Single(one) => name(one.as_str()),
        TypeKind::Multiple(many) => many.iter().map(|t| name(t.as_str())).collect::<Vec<_>>().join(" or "),
    }
}

fn one_of(options: &Value) -> String {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut listed: Vec<_> = options.iter().take(LISTED_MAX).map(plain).collect();
    if options.len() > LISTED_MAX {
        listed.push(format!("{} others", options.len() - LISTED_MAX));
    }
    match listed.len() {
        1 => listed.remove(0),
        _ => format!("one of {}", listed.join(", ")),
    }
}

/// A value with the name of its kind: `the string "x"`.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) | Value::Number(_) => plain(value),
        Value::String(_) => format!("the string {}", plain(value)),
        Value::Array(items) if items.is_empty() => "an empty list".into(),
        Value::Array(_) => format!("the list {}", plain(value)),
        Value::Object(_) => format!("the object {}", plain(value)),
    }
}

/// A value as JSON, escaped and cut.
fn plain(value: &Value) -> String {
    match value {
        // Only the beginning of a long text is written out.
        Value::String(text) => match text.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => format!("{}…", Escaped(&Value::from(&text[..end]).to_string())),
            None => Escaped(&value.to_string()).to_string(),
        },
        _ => cut(&value.to_string(), SHOWN_MAX),
    }
}
