//! Arguments that a caller repeats in headers, so that whoever stands in between can route by them. They must say what
//! the body says.

use std::borrow::Cow;

use base64::Engine as _;
use serde_json::Value;

use super::h1::Head;
use crate::host::Host;
use crate::mcp::{HeaderRule, code};
use crate::registry::Route;
use crate::wire::{Json, RpcError};

/// The headers that repeat arguments, by their names without `mcp-param-`, as they came.
#[derive(Clone, Debug)]
pub(super) struct Mirrored(Vec<(String, Option<String>)>);

/// What the names of these headers begin with.
const MARK: &str = "mcp-param-";
/// So many of them go on to a server, and so much of them together.
const MOST: usize = 32;
const LONGEST: usize = 8 * 1024;

impl Mirrored {
    pub(super) fn of(head: &Head) -> Self {
        let own = head.beginning(MARK).map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
        Self(own.collect())
    }

    /// What goes on to a server, whose own affair it is what its tool does not know. One that says two things says nothing.
    pub(super) fn passed_on(&self) -> Vec<(String, String)> {
        let twice =
            |name: &str| self.0.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).count() > 1;
        let read = |(name, value): &(String, Option<String>)| {
            let value = decoded(value.as_deref()?)?.into_owned();
            (!twice(name)).then(|| (name.clone(), value))
        };
        let mut length = 0;
        let fits = |(name, value): &(String, String)| {
            length += name.len() + value.len();
            length <= LONGEST
        };
        self.0.iter().take(MOST).filter_map(read).take_while(fits).collect()
    }

    /// Compares them with the arguments, for a tool whose schema wants some repeated. What it does not know it ignores.
    pub(super) async fn check(&self, host: &Host, params: Option<&Json>) -> Result<(), RpcError> {
        let Some([Some(name), arguments]) = params.map(|params| params.pick(["name", "arguments"])) else {
            return Ok(());
        };
        let Some(name) = name.text() else { return Ok(()) };
        let is_plain = |route: &Route| route.tool.headers.as_ref().map_or(true, Vec::is_empty);
        if host.knows(&name, is_plain) {
            return Ok(());
        }
        // A tool that is not there is told of by whoever looks for it.
        let Ok(route) = Box::pin(host.route(&name)).await else { return Ok(()) };
        self.check_at(&route, arguments.as_ref())
    }

    /// The same for a tool that was looked up.
    pub(super) fn check_at(&self, route: &Route, arguments: Option<&Json>) -> Result<(), RpcError> {
        let Ok(rules) = &route.tool.headers else { return Ok(()) };
        if rules.is_empty() {
            return Ok(());
        }
        let arguments: Value = arguments.and_then(|arguments| arguments.to().ok()).unwrap_or_default();
        rules.iter().try_for_each(|rule| self.agrees(rule, &arguments))
    }

    fn agrees(&self, rule: &HeaderRule, arguments: &Value) -> Result<(), RpcError> {
        let mut told = self.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case(&rule.name));
        let (first, second) = (told.next(), told.next());
        let told = first.map(|(_, value)| value.as_deref().and_then(decoded));
        let wanted = rule.value(arguments);
        let same = match (&told, &wanted) {
            (None, None) => true,
            (Some(Some(told)), Some(wanted)) => told == wanted || is_same_number(told, wanted),
            _ => false,
        };
        if same && second.is_none() {
            return Ok(());
        }
        let why = format!("the header `Mcp-Param-{}` does not say what the body says", rule.name);
        Err(RpcError::new(code::HEADER_MISMATCH, why))
    }
}

/// Whether two spellings are of one whole number.
fn is_same_number(told: &str, wanted: &str) -> bool {
    let whole = |text: &str| text.parse::<f64>().ok().filter(|number| number.fract() == 0.0);
    wanted.parse::<i64>().is_ok() && whole(told).is_some() && whole(told) == whole(wanted)
}

/// What a value begins with that is not meant as it is written.
const CODED: &str = "=?base64?";

/// Whether a value may mean something else than it says.
pub(super) fn is_coded(value: &[u8]) -> bool {
    value.starts_with(CODED.as_bytes())
}

/// A value that plain ASCII cannot spell comes in base64.
pub(super) fn decoded(value: &str) -> Option<Cow<'_, str>> {
    let Some(inner) = value.strip_prefix(CODED).and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}
