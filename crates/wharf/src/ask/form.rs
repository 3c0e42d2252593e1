//! The forms of elicitation: a flat object of simple fields, with defaults and checks.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::text::Foreign;
use crate::wire::Json;

/// A form that a server wants filled in.
#[derive(Clone, Debug)]
pub struct Form {
    /// Why it asks.
    pub message: Foreign,
    /// The fields, in the server's order.
    pub fields: IndexMap<String, Field>,
}

/// One field.
#[derive(Clone, Debug)]
pub struct Field {
    /// What to call it.
    pub title: Option<Foreign>,
    /// What it is for.
    pub description: Option<Foreign>,
    /// Whether it must be filled in.
    pub required: bool,
    /// What it holds if nobody says otherwise.
    pub default: Option<Value>,
    /// What it may hold.
    pub kind: Kind,
}

/// What a field may hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// Text, of at least and at most so many characters, in a format.
    Text {
        /// Fewest characters.
        min: Option<usize>,
        /// Most characters.
        max: Option<usize>,
        /// `email`, `uri`, `date` or `date-time`. Others are not checked.
        format: Option<String>,
    },
    /// A number.
    Number {
        /// Only whole numbers.
        whole: bool,
        /// Smallest.
        min: Option<f64>,
        /// Largest.
        max: Option<f64>,
    },
    /// Yes or no.
    Flag,
    /// One of these values, each with a name for people.
    Choice(Vec<(String, Foreign)>),
    /// Some of these values.
    Choices {
        /// The values, each with a name for people.
        options: Vec<(String, Foreign)>,
        /// Fewest.
        min: Option<usize>,
        /// Most.
        max: Option<usize>,
    },
}

/// How many fields a form may have: somebody has to fill them in.
const MAX_FIELDS: usize = 256;

impl Form {
    /// Reads a `requestedSchema`. An error says which field is not a simple one.
    pub(super) fn read(message: Foreign, schema: &Json) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Shape {
            properties: Option<IndexMap<String, Value>>,
            #[serde(default)]
            required: Vec<String>,
        }
        let shape: Shape = schema.to().map_err(|e| format!("`requestedSchema` cannot be read: {e}"))?;
        let properties = shape.properties.unwrap_or_default();
        if properties.len() > MAX_FIELDS {
            return Err(format!(
                "a form of {} fields is too long: {MAX_FIELDS} is the most",
                properties.len()
            ));
        }
        let mut fields = IndexMap::new();
        for (name, property) in properties {
            let field = Field::read(&property, shape.required.contains(&name))
                .ok_or_else(|| format!("field `{name}` of the form is not a simple one"))?;
            fields.insert(name, field);
        }
        Ok(Self { message, fields })
    }

    /// The content with the default of every field that is not filled in. What is no object stays what it is.
    pub fn with_defaults(&self, content: &Json) -> Json {
        let Ok(mut filled) = content.to::<Map<String, Value>>() else {
            return content.clone();
        };
        let before = filled.len();
        for (name, field) in &self.fields {
            if let (None, Some(default)) = (filled.get(name), &field.default) {
                filled.insert(name.clone(), default.clone());
            }
        }
        if filled.len() == before { content.clone() } else { Json::of(&filled) }
    }

    /// Checks a filled form. The problems are sentences for whoever filled it in.
    pub fn check(&self, content: &Json) -> Result<(), Vec<String>> {
        let Ok(content) = content.to::<Map<String, Value>>() else {
            return Err(vec!["the content of a form is an object".into()]);
        };
        let mut problems: Vec<String> = content
            .keys()
            .filter(|name| !self.fields.contains_key(*name))
            .map(|name| format!("the form has no field `{name}`"))
            .collect();
        for (name, field) in &self.fields {
            match content.get(name) {
                None if field.required => problems.push(format!("field `{name}` must be filled in")),
                None => {}
                Some(value) => {
                    problems.extend(field.kind.problem(value).map(|p| format!("field `{name}` {p}")))
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

impl Field {
    fn read(property: &Value, required: bool) -> Option<Self> {
        let text = |key: &str| property.get(key).and_then(Value::as_str).map(Foreign::from);
        Some(Self {
            title: text("title"),
            description: text("description"),
            required,
            default: property.get("default").cloned(),
            kind: Kind::read(property)?,
        })
    }
}

impl Kind {
    fn read(property: &Value) -> Option<Self> {
        let size =
            |key: &str| property.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let number = |key: &str| property.get(key).and_then(Value::as_f64);
        match property.get("type")?.as_str()? {
            "string" => Some(match options(property) {
                Some(options) => Self::Choice(options),
                None => {
                    let format = property.get("format").and_then(Value::as_str).map(str::to_owned);
                    Self::Text { min: size("minLength"), max: size("maxLength"), format }
                }
            }),
            kind @ ("number" | "integer") => Some(Self::Number {
                whole: kind == "integer",
                min: number("minimum"),
                max: number("maximum"),
            }),
            "boolean" => Some(Self::Flag),
            "array" => {
                let options = options(property.get("items")?)?;
                Some(Self::Choices { options, min: size("minItems"), max: size("maxItems") })
            }
            _ => None,
        }
    }

    fn problem(&self, value: &Value) -> Option<String> {
        let among = |options: &[(String, Foreign)], value: &Value| {
            value.as_str().is_some_and(|v| options.iter().any(|(option, _)| option == v))
        };
        let list = |options: &[(String, Foreign)]| {
            options.iter().map(|(option, _)| format!("`{option}`")).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Text { min, max, format } => match value.as_str().map(|t| (t, t.chars().count())) {
                None => Some("is text".into()),
                Some((_, n)) if min.is_some_and(|min| n < min) => Some("is too short".into()),
                Some((_, n)) if max.is_some_and(|max| n > max) => Some("is too long".into()),
                Some((text, _)) => format.as_deref().and_then(|format| misfit(format, text)),
            },
            Self::Number { whole, min, max } => match value.as_f64() {
                None => Some("is a number".into()),
                Some(n) if *whole && n.fract() != 0.0 => Some("is a whole number".into()),
                Some(n) if min.is_some_and(|min| n < min) => Some("is too small".into()),
                Some(n) if max.is_some_and(|max| n > max) => Some("is too large".into()),
                Some(_) => None,
            },
            Self::Flag => (!value.is_boolean()).then(|| "is true or false".into()),
            Self::Choice(options) => (!among(options, value)).then(|| format!("is one of {}", list(options))),
            Self::Choices { options, min, max } => match value.as_array() {
                None => Some("is a list".into()),
                Some(chosen) if !chosen.iter().all(|v| among(options, v)) => {
                    Some(format!("is some of {}", list(options)))
                }
                Some(chosen) if min.is_some_and(|min| chosen.len() < min) => Some("has too few".into()),
                Some(chosen) if max.is_some_and(|max| chosen.len() > max) => Some("has too many".into()),
                Some(_) => None,
            },
        }
    }
}

/// What is wrong with a text of that format. Only what is certainly wrong is said to be.
fn misfit(format: &str, text: &str) -> Option<String> {
    let fits = match format {
        "email" => text.split_once('@').is_some_and(|(who, at)| {
            !who.is_empty() && !at.is_empty() && !text.contains(char::is_whitespace)
        }),
        "uri" => url::Url::parse(text).is_ok(),
        "date" => is_date(text),
        "date-time" => match text.split_once(['T', 't', ' ']) {
            Some((date, time)) => is_date(date) && is_time(time),
            None => false,
        },
        _ => true,
    };
    (!fits).then(|| match format {
        "date" => "is a date such as 2026-07-28".into(),
        "date-time" => "is a moment such as 2026-07-28T12:00:00Z".into(),
        other => format!("is of the format `{other}`"),
    })
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    matches!(parts[..], [year, month, day] if year.len() == 4 && in_range(year, 0, 9999)
        && in_range(month, 1, 12) && in_range(day, 1, 31))
}

/// Hours, minutes and seconds, and how far the clock is from Greenwich's.
fn is_time(text: &str) -> bool {
    let zone = text.find(['Z', 'z', '+', '-']).unwrap_or(text.len());
    let (clock, zone) = text.split_at(zone);
    let clock: Vec<&str> = clock.split('.').next().unwrap_or_default().split(':').collect();
    let is_clock =
        matches!(clock[..], [h, m, s] if in_range(h, 0, 23) && in_range(m, 0, 59) && in_range(s, 0, 60));
    let is_zone = matches!(zone, "Z" | "z")
        || zone
            .strip_prefix(['+', '-'])
            .and_then(|z| z.split_once(':'))
            .is_some_and(|(h, m)| in_range(h, 0, 23) && in_range(m, 0, 59));
    is_clock && is_zone
}

fn in_range(digits: &str, least: u16, most: u16) -> bool {
    let is_number = digits.len() >= 2 && digits.bytes().all(|b| b.is_ascii_digit());
    is_number && digits.parse().is_ok_and(|n: u16| (least..=most).contains(&n))
}

/// The values of `enum` (named by `enumNames`), or of `oneOf`/`anyOf` with `const` and `title`.
fn options(schema: &Value) -> Option<Vec<(String, Foreign)>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let names = schema.get("enumNames").and_then(Value::as_array);
        let name = |at: usize| names.and_then(|n| n.get(at)).and_then(Value::as_str);
        let named = values.iter().enumerate().map(|(at, value)| {
            let value = value.as_str()?;
            Some((value.to_owned(), Foreign::from(name(at).unwrap_or(value))))
        });
        return named.collect();
    }
    let branches = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    let named = branches.iter().map(|branch| {
        let value = branch.get("const")?.as_str()?;
        let title = branch.get("title").and_then(Value::as_str).unwrap_or(value);
        Some((value.to_owned(), Foreign::from(title)))
    });
    named.collect()
}
