//! What is done about a server that fails: when it is left alone, what is tried again, how it is looked after, and how
//! many there are of it.
//!
//! In: the fields of one entry. Out: [`Resilience`], with a default for everything. Doing it is `connect`'s and `host`'s.

use std::time::Duration;

use crate::secret::SecretUrl;

use super::duration;
use super::fields::{Fields, Reader};
use super::node::{Entry, Value};
use super::problem::{nearest, shown};
use super::server::Transport;
use super::transport;

/// What is done about a server that fails.
#[derive(Clone, Debug)]
pub struct Resilience {
    /// When calls are refused at once because it fails again and again. `None`: never.
    pub breaker: Option<BreakerSettings>,
    /// Tools that may be run twice for one call, by original name; a name may end in `*`. Defaults to none: what a server
    /// says of its own tools does not count.
    pub idempotent: Vec<String>,
    /// How often a call of such a tool is sent again. Defaults to 2.
    pub retries: u32,
    /// How often a connection on which nothing is heard is asked for a sign of life.
    pub health_check: HealthCheck,
    /// How many processes there are of a program. Defaults to 1.
    pub instances: usize,
    /// Where the same server is reached as well.
    pub replicas: Vec<SecretUrl>,
    /// Which of several instances gets the next call.
    pub balance: Balance,
    /// Which of several instances this one is. `None` in what somebody wrote, which is all of them, and the first.
    pub(super) instance: Option<usize>,
}

/// When a server that fails is left alone, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// How many failures in a row it takes. Defaults to 5.
    pub failures: u32,
    /// How long the first pause is; each further one is twice as long, up to a minute. Defaults to 2 seconds.
    pub cool_down: Duration,
}

/// How often a connection is asked for a sign of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HealthCheck {
    /// As its transport needs it: every 30 seconds over WebSocket and HTTP+SSE, whose one connection can be dead without
    /// a word. Not at all elsewhere: a program and a socket tell their end, and over HTTP there is nothing that could die.
    #[default]
    ByTransport,
    /// Never.
    Off,
    /// That often.
    Every(Duration),
}

/// Which of several instances gets the next call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest calls under way.
    LeastInFlight,
}

/// The most instances that a server has.
const MOST_INSTANCES: usize = 64;
const MOST_RETRIES: usize = 10;
/// Where a connection can be dead without a word, it is asked that often.
const USUAL_CHECK: Duration = Duration::from_secs(30);

// === impl Resilience ===

impl Default for Resilience {
    fn default() -> Self {
        Self {
            breaker: Some(BreakerSettings::default()),
            idempotent: Vec::new(),
            retries: 2,
            health_check: HealthCheck::default(),
            instances: 1,
            replicas: Vec::new(),
            balance: Balance::default(),
            instance: None,
        }
    }
}

impl Resilience {
    /// Whether the operator says that a tool may be run twice.
    pub fn is_idempotent(&self, tool: &str) -> bool {
        self.idempotent.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => tool == pattern,
        })
    }

    /// Whether two say the same of the connections of a server.
    pub(crate) fn connects_like(&self, other: &Self) -> bool {
        let places = |one: &Self| one.replicas.iter().map(|url| url.expose().clone()).collect::<Vec<_>>();
        self.breaker == other.breaker
            && self.health_check == other.health_check
            && self.instances == other.instances
            && self.balance == other.balance
            && places(self) == places(other)
    }

    /// Whether two say the same of its calls.
    pub(crate) fn retries_like(&self, other: &Self) -> bool {
        self.idempotent == other.idempotent && self.retries == other.retries
    }
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures: 5, cool_down: Duration::from_secs(2) }
    }
}

impl HealthCheck {
    /// How often, with this transport.
    pub fn every(self, transport: &Transport) -> Option<Duration> {
        match (self, transport) {
            (Self::Every(time), _) => Some(time),
            (Self::ByTransport, Transport::WebSocket(_) | Transport::Sse(_)) => Some(USUAL_CHECK),
            (Self::ByTransport | Self::Off, _) => None,
        }
    }
}

/// Reads what an entry says. What it does not say has its default.
pub(super) fn read(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    transport: &Transport,
) -> Option<Resilience> {
    let mut read = Resilience::default();
    // Everything is read before anything fails, so that one look shows all that is wrong.
    let breaker = fields.get("breaker").map_or(Some(read.breaker), |entry| breaker(reader, entry));
    let idempotent = idempotent(reader, fields);
    let retries = number(reader, fields, "retries", 0..=MOST_RETRIES);
    let check = fields.get("health_check").map_or(Some(read.health_check), |entry| check(reader, entry));
    let instances = number(reader, fields, "instances", 1..=MOST_INSTANCES);
    let replicas = replicas(reader, fields, transport);
    let balances = [("round-robin", Balance::RoundRobin), ("least-in-flight", Balance::LeastInFlight)];
    read.balance = reader.choice(fields, "balance", &balances).unwrap_or_default();
    read.breaker = breaker?;
    read.idempotent = idempotent?;
    read.retries = retries?.and_then(|count| u32::try_from(count).ok()).unwrap_or(read.retries);
    read.health_check = check?;
    read.instances = instances?.unwrap_or(read.instances);
    read.replicas = replicas?;
    Some(read)
}

fn breaker(reader: &mut Reader<'_>, entry: &Entry) -> Option<Option<BreakerSettings>> {
    let mut settings = BreakerSettings::default();
    let entries = match &entry.node.value {
        Value::Bool(on) => return Some(on.then_some(settings)),
        Value::Table(entries) => entries,
        _ => {
            let message = format!("`breaker` must be true, false or a table, not {}", entry.node.kind());
            let hint = "write `breaker = { failures = 5, cool_down = \"2s\" }`";
            return reader.wrong_with(&entry.node.span, message, hint);
        }
    };
    for member in entries {
        match member.key.as_str() {
            "failures" => match whole(member).filter(|count| (1..=1000).contains(count)) {
                Some(count) => settings.failures = u32::try_from(count).unwrap_or(u32::MAX),
                None => {
                    let message = "`failures` of `breaker` must be a whole number from 1 to 1000";
                    return reader.wrong(&member.node.span, message);
                }
            },
            "cool_down" => match duration::read(&member.node, reader.source.format) {
                Ok(time) => settings.cool_down = time,
                Err((reason, hint)) => {
                    return reader.wrong_with(&member.node.span, format!("`cool_down`: {reason}"), hint);
                }
            },
            unknown => {
                const KEYS: [&str; 2] = ["failures", "cool_down"];
                let message = format!("unknown member {} of `breaker`", shown(unknown));
                let hint = match nearest(unknown, KEYS) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => format!("the members are {}", KEYS.map(|k| format!("`{k}`")).join(" and ")),
                };
                return reader.wrong_with(&member.key_span, message, hint);
            }
        }
    }
    Some(Some(settings))
}

fn idempotent(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Vec<String>> {
    if !fields.contains_key("idempotent") {
        return Some(Vec::new());
    }
    let names = reader.texts(fields, "idempotent")?;
    for (name, span) in &names {
        let beginning = name.strip_suffix('*').unwrap_or(name);
        if name.is_empty() || beginning.contains('*') {
            let hint = "name tools as the server names them; a `*` stands alone or at the end";
            return reader.wrong_with(span, format!("{} is not the name of a tool", shown(name)), hint);
        }
    }
    Some(names.into_iter().map(|(name, _)| name.to_owned()).collect())
}

fn check(reader: &mut Reader<'_>, entry: &Entry) -> Option<HealthCheck> {
    match &entry.node.value {
        Value::Bool(false) => Some(HealthCheck::Off),
        Value::Bool(true) => Some(HealthCheck::Every(USUAL_CHECK)),
        _ => match duration::read(&entry.node, reader.source.format) {
            Ok(time) if time >= Duration::from_secs(1) => Some(HealthCheck::Every(time)),
            Ok(_) => {
                let message = "`health_check`: more than once a second is a burden, not a check";
                reader.wrong_with(&entry.node.span, message, "write \"30s\", or `false` for never")
            }
            Err((reason, hint)) => {
                reader.wrong_with(&entry.node.span, format!("`health_check`: {reason}"), hint)
            }
        },
    }
}

fn number(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    name: &str,
    range: std::ops::RangeInclusive<usize>,
) -> Option<Option<usize>> {
    let Some(entry) = fields.get(name) else { return Some(None) };
    match whole(entry).filter(|number| range.contains(number)) {
        Some(number) => Some(Some(number)),
        None => {
            let message =
                format!("`{name}` must be a whole number from {} to {}", range.start(), range.end());
            reader.wrong(&entry.node.span, message)
        }
    }
}

fn whole(entry: &Entry) -> Option<usize> {
    match &entry.node.value {
        Value::Number(_, spelling) => spelling.parse().ok(),
        _ => None,
    }
}

/// Further addresses, of the kind that the first one is.
fn replicas(reader: &mut Reader<'_>, fields: &Fields<'_>, transport: &Transport) -> Option<Vec<SecretUrl>> {
    let Some(entry) = fields.get("replicas") else { return Some(Vec::new()) };
    let texts = reader.texts(fields, "replicas")?;
    if texts.len() >= MOST_INSTANCES {
        let message = format!("a server has at most {MOST_INSTANCES} instances");
        return reader.wrong(&entry.node.span, message);
    }
    let schemes = transport::schemes(transport)?;
    texts
        .into_iter()
        .map(|(text, span)| transport::address(reader, "replicas", (text, span), schemes))
        .collect()
}
