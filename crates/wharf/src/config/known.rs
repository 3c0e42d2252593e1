//! The fields of a server, and those of other clients that are known by name.
//!
//! In: a key as written. Out: the field it means, or what is to be said about it. The tables are the whole
//! knowledge; `fields` does the reading.

use super::edit::Format;
use super::problem::nearest;

/// For which servers a field has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    Any,
    Program,
    Endpoint,
    Socket,
}

/// A field, its other spellings, and the spellings that only `.mcp.json` knows.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    also: &'static [&'static str],
    in_json: &'static [&'static str],
    pub(super) of: For,
}

const fn field(name: &'static str, of: For) -> Field {
    Field { name, also: &[], in_json: &[], of }
}

static FIELDS: [Field; 28] = [
    field("command", For::Program),
    field("args", For::Program),
    Field { also: &["environment"], ..field("env", For::Program) },
    Field { in_json: &["envPassthrough"], ..field("env_passthrough", For::Program) },
    field("cwd", For::Program),
    Field { in_json: &["serverUrl"], ..field("url", For::Endpoint) },
    field("headers", For::Endpoint),
    field("oauth", For::Endpoint),
    field("path", For::Socket),
    Field { also: &["type"], ..field("transport", For::Any) },
    field("enabled", For::Any),
    Field { in_json: &["disabled"], ..field("\u{0}disabled", For::Any) },
    field("debug", For::Any),
    Field { in_json: &["request_timeout_ms"], ..field("timeout", For::Any) },
    Field { also: &["startup_timeout"], in_json: &["startupTimeout"], ..field("start_timeout", For::Any) },
    Field { in_json: &["toolPrefix"], ..field("tool_prefix", For::Any) },
    Field { in_json: &["enabledTools", "includeTools"], ..field("enabled_tools", For::Any) },
    Field { in_json: &["disabledTools", "excludeTools"], ..field("disabled_tools", For::Any) },
    field("share", For::Any),
    field("sandbox", For::Program),
    field("connect", For::Any),
    field("breaker", For::Any),
    field("idempotent", For::Any),
    field("retries", For::Any),
    Field { in_json: &["healthCheck"], ..field("health_check", For::Any) },
    field("instances", For::Program),
    field("replicas", For::Endpoint),
    field("balance", For::Any),
];

/// The field that only other clients have, under a name that no file can spell.
pub(super) const DISABLED: &str = "\u{0}disabled";

/// Other clients' fields that change nothing here: what they say is about that client.
const SILENT: [&str; 16] = [
    "$schema",
    "alwaysLoad",
    "description",
    "displayName",
    "name",
    "title",
    "note",
    "icon",
    "autoApprove",
    "alwaysAllow",
    "dev",
    "trust",
    "source",
    "keep_alive",
    "gallery",
    "version",
];

/// Other clients' fields that would have changed what happens, and what to do instead.
const EXPLAINED: [(&str, &str); 12] = [
    ("headersHelper", "is not supported: give the headers in `headers`, with `${VAR}` for a secret"),
    ("envFile", "is not supported: give the variables in `env`, or name them in `env_passthrough`"),
    ("auth", "has no effect: log in with `wharf login`, or give a token in `headers`"),
    ("authentication", "has no effect: log in with `wharf login`, or give a token in `headers`"),
    ("authProviderType", "has no effect: log in with `wharf login`, or give a token in `headers`"),
    ("apiKey", "is not supported: give the key in `headers`, with `${VAR}` for the secret"),
    ("requestOptions", "is not supported: give the headers in `headers`"),
    ("sandboxEnabled", "is another client's sandbox and has no effect here"),
    ("tools", "is not supported: use `enabled_tools` and `disabled_tools`"),
    ("include_tags", "is not supported: use `enabled_tools`"),
    ("exclude_tags", "is not supported: use `disabled_tools`"),
    ("sse_read_timeout", "is not supported: use `timeout`"),
];

/// Fields that are never taken, in any file, and why.
const REFUSED: [(&str, &str, &str); 1] = [(
    "method",
    "`method` is not taken: MCP over HTTP posts every message, and a GET only opens the server's own stream",
    "remove it",
)];

/// What a key is.
#[derive(Debug)]
pub(super) enum Known {
    /// A field of ours.
    Field(&'static Field),
    /// Another client's field that changes nothing.
    Silent,
    /// Another client's field that would have changed something: how it is to be replaced.
    Explained(&'static str),
    /// Never taken: why, and the next step.
    Refused(&'static str, &'static str),
    /// Nobody's: what may have been meant.
    Unknown(Option<String>),
}

/// Looks a key up.
pub(super) fn look_up(key: &str, format: Format) -> Known {
    let json = format == Format::Json;
    let spelt = |f: &&Field| f.name == key || f.also.contains(&key) || (json && f.in_json.contains(&key));
    if let Some(field) = FIELDS.iter().find(spelt) {
        return Known::Field(field);
    }
    if let Some((_, reason, hint)) = REFUSED.iter().find(|(name, ..)| *name == key) {
        return Known::Refused(reason, hint);
    }
    if json && SILENT.contains(&key) {
        return Known::Silent;
    }
    if let Some((_, instead)) = EXPLAINED.iter().find(|(name, _)| json && *name == key) {
        return Known::Explained(instead);
    }
    Known::Unknown(suggestion(key))
}

/// What a key may have meant: another client's spelling by meaning, a slip of the pen by nearness.
fn suggestion(key: &str) -> Option<String> {
    let meant = match key {
        "disabled" => return Some("write `enabled = false`".into()),
        "cmd" => "command",
        "arguments" => "args",
        "envs" => "env",
        "uri" | "httpUrl" | "endpoint" | "serverUrl" => "url",
        "http_headers" => "headers",
        "env_vars" | "env_keys" => "env_passthrough",
        "tool_timeout_sec" => "timeout",
        "startup_timeout_sec" | "startup_timeout_ms" => "start_timeout",
        "prefix" => "tool_prefix",
        "socket" | "socket_path" | "socketPath" => "path",
        "shared" => "share",
        "urls" => "replicas",
        "circuit_breaker" => "breaker",
        "retry" => "retries",
        "heartbeat" | "ping" | "ping_interval" => "health_check",
        _ => {
            let names = FIELDS.iter().flat_map(|f| std::iter::once(f.name).chain(f.also.iter().copied()));
            let snake: String = key.chars().flat_map(snake_case).collect();
            nearest(&snake, names.filter(|name| *name != DISABLED))?
        }
    };
    Some(format!("did you mean `{meant}`?"))
}

fn snake_case(c: char) -> impl Iterator<Item = char> {
    let underscore = c.is_ascii_uppercase().then_some('_');
    underscore.into_iter().chain(c.to_lowercase())
}

/// The names of all fields, for a message.
pub(super) fn names() -> String {
    let names = FIELDS.iter().map(|f| f.name).filter(|name| *name != DISABLED);
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
