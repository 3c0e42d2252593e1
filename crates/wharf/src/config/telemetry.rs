//! The `[telemetry]` table: where traces go.
//!
//! In: the table of a `wharf.toml`. Out: plain settings for the `gateway` room. Only the user's own file and one that is
//! named on the command line may have it: what calls there are is not for a project to send anywhere.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};
use indexmap::IndexMap;
use url::Url;

use super::expand;
use super::node::{Entry, Node, Value};
use super::problem::{Problem, nearest, shown};
use super::source::Source;
use crate::secret::Secret;

/// What `[telemetry]` says.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetrySettings {
    /// Where a collector takes OTLP over HTTP, without `/v1/traces`. `None`: no traces are made.
    pub otlp: Option<Url>,
    /// Which part of the traces that begin here are recorded, from 0 to 1. Defaults to all. A trace that a caller began
    /// is recorded if the caller records it.
    pub sample: f64,
    /// By which name the spans go. Defaults to `wharf`.
    pub service: String,
    /// What the collector is shown with every batch, such as a token.
    pub headers: IndexMap<String, Secret>,
}

const KEYS: [&str; 4] = ["otlp", "sample", "service", "headers"];

type Read<T> = Result<T, Box<Problem>>;

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self { otlp: None, sample: 1.0, service: "wharf".to_owned(), headers: IndexMap::new() }
    }
}

impl TelemetrySettings {
    /// Applies the table. On an error nothing was changed.
    pub(super) fn apply(&mut self, node: &Node, source: &Source, env: &BTreeMap<String, String>) -> Read<()> {
        let Some(entries) = node.as_table() else {
            let message = format!("`telemetry` must be a table, not {}", node.kind());
            return Err(Box::new(source.problem(&node.span, message)));
        };
        let mut next = self.clone();
        for entry in entries {
            match entry.key.as_str() {
                "otlp" => next.otlp = Some(address(entry, source)?),
                "sample" => next.sample = share(entry, source)?,
                "service" => next.service = name(entry, source)?,
                "headers" => next.headers = headers(entry, source, env)?,
                unknown => {
                    let message = format!("unknown key {} in `[telemetry]`", shown(unknown));
                    let problem = source.problem(&entry.key_span, message);
                    return Err(Box::new(problem.hint(match nearest(unknown, KEYS) {
                        Some(name) => format!("did you mean `{name}`?"),
                        None => format!("the keys are `{}`", KEYS.join("`, `")),
                    })));
                }
            }
        }
        *self = next;
        Ok(())
    }
}

fn wrong<T>(entry: &Entry, source: &Source, message: &str, hint: &str) -> Read<T> {
    Err(Box::new(source.problem(&entry.node.span, message).hint(hint)))
}

fn address(entry: &Entry, source: &Source) -> Read<Url> {
    let fits = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    match entry.node.as_text().and_then(|text| Url::parse(text.trim()).ok()).filter(fits) {
        Some(url) => Ok(url),
        None => wrong(entry, source, "`otlp` must be an address", "write \"http://127.0.0.1:4318\""),
    }
}

fn share(entry: &Entry, source: &Source) -> Read<f64> {
    match entry.node.value {
        Value::Number(share, _) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => wrong(entry, source, "`sample` must be a number from 0 to 1", "0.1 records one in ten"),
    }
}

fn name(entry: &Entry, source: &Source) -> Read<String> {
    match entry.node.as_text().map(str::trim) {
        Some(name) if !name.is_empty() && name.len() <= 255 => Ok(name.to_owned()),
        _ => wrong(entry, source, "`service` must be a name", "write \"wharf\""),
    }
}

/// Each value is a secret, whether it was written or comes from the environment.
fn headers(entry: &Entry, source: &Source, env: &BTreeMap<String, String>) -> Read<IndexMap<String, Secret>> {
    const HINT: &str = "write { Authorization = \"env:OTLP_TOKEN\" }, with a variable that is set";
    let Some(entries) = entry.node.as_table() else {
        return wrong(entry, source, "`headers` must be a table", HINT);
    };
    let mut headers = IndexMap::new();
    for header in entries {
        let value = header.node.as_text().and_then(|text| expand::expand(text, env, source.format).ok());
        let value = value.map(|value| value.text).filter(|value| HeaderValue::from_str(value).is_ok());
        match (HeaderName::from_bytes(header.key.as_bytes()), value) {
            (Ok(_), Some(value)) => drop(headers.insert(header.key.clone(), Secret::new(value))),
            (Ok(_), None) => return wrong(header, source, "this is not the value of a header", HINT),
            (Err(_), _) => {
                let message = format!("{} is not the name of a header", shown(&header.key));
                return Err(Box::new(source.problem(&header.key_span, message).hint(HINT)));
            }
        }
    }
    Ok(headers)
}
