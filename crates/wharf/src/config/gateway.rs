//! The `[gateway]` table: how callers are received.
//!
//! In: the table of a `wharf.toml`. Out: plain settings for the `gateway` room. Only the user's own file and one that
//! is named on the command line may have it.

use url::Url;

use super::node::{Entry, Node, Value};
use super::policy::texts_at;
use super::problem::{Problem, nearest, shown};
use super::source::Source;
use crate::names::{BadName, CallerName, ServerName};

/// What `[gateway]` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewaySettings {
    /// Where callers reach the gateway, if that is not where it listens: `https://tools.example.org/mcp`.
    pub url: Option<Url>,
    /// Whose tokens are taken.
    pub jwt: Option<JwtSettings>,
    /// How much callers may ask for.
    pub limits: CallLimits,
    /// Callers who may see how the whole is. `None`: everyone who is let in, where none is given less than the whole.
    pub operators: Option<Vec<CallerName>>,
    /// Servers without which the gateway is not ready.
    pub required: Vec<ServerName>,
}

/// Whose tokens are taken, and what must stand in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// Who makes them, exactly as it stands in the tokens.
    pub issuer: Url,
    /// The issuer as it was written, which is what tokens are compared with.
    pub issuer_text: String,
    /// Whom they must be made for: one of these. Empty: the gateway's own address.
    pub audience: Vec<String>,
    /// Where the issuer's keys are. `None`: its metadata says so.
    pub jwks_url: Option<Url>,
    /// The claim that names the caller. Defaults to `sub`.
    pub caller: String,
    /// The scopes that every token must have.
    pub scopes: Vec<String>,
}

/// How much callers may ask for at a time. What is beyond waits its turn, and what is beyond that is refused at once.
#[derive(Clone, Debug, PartialEq)]
pub struct CallLimits {
    /// Calls of one caller that are under way. Defaults to 1024; at most half as many as `calls_per_server` of them at
    /// one server, where callers have names and something must be left for the others.
    pub calls_per_caller: usize,
    /// Calls to one server that are under way. Defaults to 256.
    pub calls_per_server: usize,
    /// Calls that wait, in all; at most an eighth of them of one caller for one server. Defaults to 1024.
    pub waiting: usize,
    /// Requests of one caller in a second. Defaults to as many as it likes.
    pub requests_per_second: Option<f64>,
    /// How many of them may come at once. Defaults to those of two seconds.
    pub burst: Option<usize>,
    /// Calls to one server in a second, of all callers. Defaults to as many as there are.
    pub server_calls_per_second: Option<f64>,
}

const KEYS: [&str; 5] = ["url", "jwt", "limits", "operators", "required"];
const JWT_KEYS: [&str; 5] = ["issuer", "audience", "jwks_url", "caller", "scopes"];
const LIMIT_KEYS: [&str; 6] = [
    "calls_per_caller",
    "calls_per_server",
    "waiting",
    "requests_per_second",
    "burst",
    "server_calls_per_second",
];
/// More of anything is no limit.
const MOST: f64 = 1_000_000.0;

type Read<T> = Result<T, Box<Problem>>;

// === impl JwtSettings ===

impl JwtSettings {
    /// Tokens of this issuer, with every default.
    pub fn new(issuer: Url, as_written: impl Into<String>) -> Self {
        Self {
            issuer,
            issuer_text: as_written.into(),
            audience: Vec::new(),
            jwks_url: None,
            caller: "sub".to_owned(),
            scopes: Vec::new(),
        }
    }
}

// === impl CallLimits ===

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            calls_per_caller: 1024,
            calls_per_server: 256,
            waiting: 1024,
            requests_per_second: None,
            burst: None,
            server_calls_per_second: None,
        }
    }
}

// === impl GatewaySettings ===

impl GatewaySettings {
    /// Applies the table. On an error nothing was changed.
    pub(super) fn apply(&mut self, node: &Node, source: &Source) -> Read<()> {
        let mut next = self.clone();
        for entry in table(node, "gateway", source)? {
            match entry.key.as_str() {
                "url" => next.url = Some(url(entry, source)?.0),
                "jwt" => next.jwt = Some(jwt(entry, source)?),
                "limits" => limits(entry, source, &mut next.limits)?,
                "operators" => next.operators = Some(names(entry, source, CallerName::parse)?),
                "required" => next.required = names(entry, source, ServerName::parse)?,
                _ => return Err(unknown(entry, "gateway", &KEYS, source)),
            }
        }
        *self = next;
        Ok(())
    }
}

fn jwt(at: &Entry, source: &Source) -> Read<JwtSettings> {
    let entries = table(&at.node, "gateway.jwt", source)?;
    let Some(issuer) = entries.iter().find(|entry| entry.key == "issuer") else {
        let problem = source.problem(&at.key_span, "`[gateway.jwt]` needs an `issuer`");
        return Err(Box::new(problem.hint("write the address that its tokens have as `iss`")));
    };
    let (issuer, as_written) = url(issuer, source)?;
    let mut jwt = JwtSettings::new(issuer, as_written);
    for entry in entries {
        match entry.key.as_str() {
            "issuer" => {}
            "audience" if entry.node.as_text().is_some() => jwt.audience = vec![text(entry, source)?],
            "audience" => jwt.audience = list(entry, source)?,
            "jwks_url" => jwt.jwks_url = Some(url(entry, source)?.0),
            "caller" => jwt.caller = text(entry, source)?,
            "scopes" => jwt.scopes = list(entry, source)?,
            _ => return Err(unknown(entry, "gateway.jwt", &JWT_KEYS, source)),
        }
    }
    Ok(jwt)
}

fn limits(at: &Entry, source: &Source, to: &mut CallLimits) -> Read<()> {
    for entry in table(&at.node, "gateway.limits", source)? {
        let whole = || number(entry, true, source).map(|number| number as usize);
        match entry.key.as_str() {
            "calls_per_caller" => to.calls_per_caller = whole()?,
            "calls_per_server" => to.calls_per_server = whole()?,
            "waiting" => to.waiting = whole()?,
            "requests_per_second" => to.requests_per_second = Some(number(entry, false, source)?),
            "burst" => to.burst = Some(whole()?),
            "server_calls_per_second" => to.server_calls_per_second = Some(number(entry, false, source)?),
            _ => return Err(unknown(entry, "gateway.limits", &LIMIT_KEYS, source)),
        }
    }
    Ok(())
}

fn table<'e>(node: &'e Node, name: &str, source: &Source) -> Read<&'e [Entry]> {
    node.as_table().ok_or_else(|| {
        Box::new(source.problem(&node.span, format!("`{name}` must be a table, not {}", node.kind())))
    })
}

fn unknown(entry: &Entry, table: &str, keys: &[&'static str], source: &Source) -> Box<Problem> {
    let message = format!("unknown key {} in `[{table}]`", shown(&entry.key));
    let hint = match nearest(&entry.key, keys.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => {
            format!("the keys are {}", keys.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", "))
        }
    };
    Box::new(source.problem(&entry.key_span, message).hint(hint))
}

fn text(entry: &Entry, source: &Source) -> Read<String> {
    match entry.node.as_text().map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => Ok(text.to_owned()),
        None => {
            let message = format!("`{}` must be a text", entry.key);
            Err(Box::new(source.problem(&entry.node.span, message)))
        }
    }
}

fn list(entry: &Entry, source: &Source) -> Read<Vec<String>> {
    Ok(texts_at(entry, source)?.into_iter().map(|(text, _)| text.to_owned()).collect())
}

fn names<T>(entry: &Entry, source: &Source, parse: fn(&str) -> Result<T, BadName>) -> Read<Vec<T>> {
    let parse = |(text, span)| parse(text).map_err(|bad| Box::new(source.problem(span, bad.to_string())));
    texts_at(entry, source)?.into_iter().map(parse).collect()
}

/// An address that can be one of a server, and its spelling.
fn url(entry: &Entry, source: &Source) -> Read<(Url, String)> {
    let written = text(entry, source)?;
    let fits = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none()
            && url.query().is_none()
    };
    match Url::parse(&written) {
        Ok(url) if fits(&url) => Ok((url, written)),
        _ => {
            let message = format!("`{}` must be an address like `https://example.org/path`", entry.key);
            Err(Box::new(source.problem(&entry.node.span, message)))
        }
    }
}

fn number(entry: &Entry, whole: bool, source: &Source) -> Read<f64> {
    let fits = |number: f64| number > 0.0 && number <= MOST && (!whole || number.fract() == 0.0);
    match entry.node.value {
        Value::Number(number, _) if fits(number) => Ok(number),
        _ => {
            let kind = if whole { "whole number from 1" } else { "number above 0 and" };
            let message = format!("`{}` must be a {kind} up to {MOST}", entry.key);
            Err(Box::new(source.problem(&entry.node.span, message)))
        }
    }
}
