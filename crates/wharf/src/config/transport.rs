//! How a server is started or reached, out of its fields.
//!
//! In: the fields of one entry. Out: a [`Transport`] with its variables filled in, or the complaints. Without
//! `transport`, a `command` is stdio, a `path` is a Unix socket, and a `url` is what its scheme says: WebSocket, a Unix
//! socket, or Streamable HTTP, and HTTP+SSE if its path ends in `/sse`.

use http::{HeaderName, HeaderValue};
use indexmap::IndexMap;
use url::Url;

use crate::secret::{Secret, SecretUrl};

use super::args;
use super::expand::{self, Expanded, Trouble};
use super::fields::{Fields, Reader};
use super::node::{Entry, Node, Span, Value};
use super::problem::shown;
use super::server::{Remote, Stdio, Transport, UnixSocket};

/// The transports by every name they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stdio,
    Http,
    Sse,
    WebSocket,
    Unix,
}

const KINDS: [(&str, Kind); 8] = [
    ("stdio", Kind::Stdio),
    ("http", Kind::Http),
    ("streamable-http", Kind::Http),
    ("streamable_http", Kind::Http),
    ("sse", Kind::Sse),
    ("ws", Kind::WebSocket),
    ("websocket", Kind::WebSocket),
    ("unix", Kind::Unix),
];

const WEB: [&str; 2] = ["https", "http"];
const WEBSOCKET: [&str; 2] = ["wss", "ws"];

/// Reads the transport of an entry; `name` is where to complain about what is missing.
pub(super) fn read(reader: &mut Reader<'_>, fields: &Fields<'_>, name: &Span) -> Option<Transport> {
    let kind = match fields.get("transport") {
        Some(entry) => Some(kind(reader, fields, entry)?),
        None => None,
    };
    let given = ["command", "url", "path"].map(|name| fields.get(name).copied());
    match (given, kind) {
        ([None, None, None], _) => {
            let hint =
                "a nearer file replaces a server whole; only `enabled` alone switches one of a farther file";
            reader.wrong_with(name, "the server has neither `command` nor `url`", hint)
        }
        ([Some(command), None, None], None | Some(Kind::Stdio)) => {
            stdio(reader, fields, command).map(Transport::Stdio)
        }
        ([None, None, Some(path)], None | Some(Kind::Unix)) => {
            let text = filled(reader, fields, "path")?;
            unix(reader, "path", text, &path.node.span)
        }
        ([None, Some(url), None], kind) => reached(reader, fields, url, kind),
        ([Some(entry), None, None], Some(_)) => reader.wrong_with(
            &entry.key_span,
            "`command` does not go with this transport",
            "use `url`, or \"stdio\"",
        ),
        ([None, None, Some(entry)], Some(_)) => reader.wrong_with(
            &entry.key_span,
            "`path` is the path of a Unix socket, and does not go with this transport",
            "use \"unix\", or `url`",
        ),
        (several, _) => {
            let mut several = several.into_iter().flatten();
            let (first, second) = (several.next()?, several.next()?);
            let message = format!(
                "{} and {} exclude each other: a server is started or reached, and in one way",
                shown(&first.key),
                shown(&second.key)
            );
            reader.wrong_with(&second.key_span, message, "remove one of them")
        }
    }
}

/// A server with a `url`: its scheme says how it is spoken with, where nothing else does.
fn reached(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    url: &Entry,
    kind: Option<Kind>,
) -> Option<Transport> {
    let text = url.node.as_text().unwrap_or_default();
    let expanded = expand::expand(text, reader.env.0, reader.source.format).ok();
    let scheme = expanded.and_then(|e| Some(e.text.trim().split_once(':')?.0.to_ascii_lowercase()));
    let kind = kind.or(match scheme.as_deref() {
        Some("ws" | "wss") => Some(Kind::WebSocket),
        Some("unix") => Some(Kind::Unix),
        _ => None,
    });
    match kind {
        None => {
            let remote = remote(reader, fields, url, WEB)?;
            let is_sse = remote.url.expose().path().trim_end_matches('/').ends_with("/sse");
            Some(if is_sse { Transport::Sse(remote) } else { Transport::Http(remote) })
        }
        Some(Kind::Http) => remote(reader, fields, url, WEB).map(Transport::Http),
        Some(Kind::Sse) => remote(reader, fields, url, WEB).map(Transport::Sse),
        Some(Kind::WebSocket) => remote(reader, fields, url, WEBSOCKET).map(Transport::WebSocket),
        Some(Kind::Unix) => {
            let text = filled(reader, fields, "url")?;
            let span = &url.node.span;
            let Some(path) = text.trim().strip_prefix("unix://").filter(|path| path.starts_with('/')) else {
                let hint = "write `unix:///run/server.sock`, or use `path`";
                return reader.wrong_with(span, "`url` does not name a Unix socket", hint);
            };
            if path.contains(['#', '?', '%']) {
                // Elsewhere the part after `#` is a path of HTTP.
                let message = "HTTP is not spoken over a Unix socket, only messages, one a line";
                return reader.wrong_with(span, message, "give the socket's own path, nothing after it");
            }
            unix(reader, "url", path, span)
        }
        Some(Kind::Stdio) => {
            reader.wrong_with(&url.key_span, "`url` does not go with \"stdio\"", "use `command`, or \"http\"")
        }
    }
}

fn unix(reader: &mut Reader<'_>, field: &str, path: &str, span: &Span) -> Option<Transport> {
    let path = verbatim(reader, field, path, span)?;
    if !path.starts_with('/') {
        let message = "the path of a Unix socket must be absolute";
        return reader.wrong_with(span, message, "write it from `/` on");
    }
    Some(Transport::Unix(UnixSocket { path: path.into() }))
}

fn kind(reader: &mut Reader<'_>, fields: &Fields<'_>, entry: &Entry) -> Option<Kind> {
    match entry.node.as_text() {
        Some(later @ "pipe") => {
            let message = format!("the transport `{later}` is not supported yet");
            reader.wrong_with(&entry.node.span, message, "use \"stdio\", \"http\" or \"unix\"")
        }
        Some(other @ ("local" | "remote")) => {
            let name = if other == "local" { "stdio" } else { "http" };
            let message = format!("`{other}` is another client's word for a transport");
            reader.wrong_with(&entry.node.span, message, format!("write \"{name}\""))
        }
        _ => reader.choice(fields, "transport", &KINDS),
    }
}

fn stdio(reader: &mut Reader<'_>, fields: &Fields<'_>, entry: &Entry) -> Option<Stdio> {
    let mut words: Vec<(&str, &Span)> = match &entry.node.value {
        Value::Text(_) => vec![(reader.text(fields, "command")?, &entry.node.span)],
        Value::List(_) => reader.texts(fields, "command")?,
        _ => {
            let message =
                format!("`command` must be a string or a list of strings, not {}", entry.node.kind());
            return reader.wrong(&entry.node.span, message);
        }
    };
    if words.is_empty() || words[0].0.trim().is_empty() {
        return reader.wrong(&entry.node.span, "`command` is empty");
    }
    let (command, place) = words.remove(0);
    let is_path = command.contains(['/', '\\']);
    if command.contains(char::is_whitespace) && !is_path {
        let hint = "put the arguments into `args`, one string each";
        return reader.wrong_with(place, "`command` names one program, without its arguments", hint);
    }
    verbatim(reader, "command", command, place)?;
    // Everything is read before anything fails, so that one look shows all that is wrong.
    let more = if fields.contains_key("args") { reader.texts(fields, "args") } else { Some(Vec::new()) };
    let args = more.and_then(|more| arguments(reader, words.into_iter().chain(more).collect()));
    let env = environment(reader, fields);
    let env_passthrough = passthrough(reader, fields);
    let cwd = match fields.get("cwd") {
        Some(entry) => {
            let text = filled(reader, fields, "cwd")?;
            Some(verbatim(reader, "cwd", text, &entry.node.span)?.into())
        }
        None => None,
    };
    let base = reader.base.clone();
    Some(Stdio {
        command: command.to_owned(),
        args: args?,
        env: env?,
        env_passthrough: env_passthrough?,
        cwd,
        base,
    })
}

/// A text that must not be empty.
fn filled<'e>(reader: &mut Reader<'_>, fields: &Fields<'e>, name: &str) -> Option<&'e str> {
    let text = reader.text(fields, name)?;
    if text.is_empty() {
        let span = &fields.get(name)?.node.span;
        return reader.wrong(span, format!("`{name}` is empty"));
    }
    Some(text)
}

/// What decides which program runs where is taken as it stands: an environment must not be able to change it.
fn verbatim<'t>(reader: &mut Reader<'_>, field: &str, text: &'t str, span: &Span) -> Option<&'t str> {
    if text.contains("${") || text.starts_with("env:") {
        let message = format!("variables are not expanded in `{field}`");
        return reader.wrong_with(span, message, "write the value itself");
    }
    Some(text)
}

fn arguments(reader: &mut Reader<'_>, words: Vec<(&str, &Span)>) -> Option<Vec<String>> {
    const HINT: &str =
        "every process can read the arguments of another: give it in `env` and let the server read it there";
    let mut args = Vec::with_capacity(words.len());
    for (word, span) in &words {
        let expanded = expand(reader, word, span)?;
        if let Some(name) = expanded.names.iter().find(|name| args::names_credential(name)) {
            let place = reader.source.narrow(span, name);
            let message =
                format!("the variable `{name}` looks like a credential, which may not stand in `args`");
            return reader.wrong_with(&place, message, HINT);
        }
        args.push(expanded.text);
    }
    match args::find_credential(&args) {
        Some(at) => {
            let message = format!("argument {} carries what looks like a credential", at + 1);
            reader.wrong_with(words[at].1, message, HINT)
        }
        None => Some(args),
    }
}

fn environment(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<IndexMap<String, Secret>> {
    let Some(entry) = fields.get("env") else {
        return Some(IndexMap::new());
    };
    let entries = table(reader, entry)?;
    let mut env = IndexMap::new();
    let mut complete = Some(());
    for entry in entries {
        if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
            complete =
                reader.wrong(&entry.key_span, format!("{} is not the name of a variable", shown(&entry.key)));
            continue;
        }
        let value = match &entry.node.value {
            // Other clients write `null` for "not set".
            Value::Null => continue,
            Value::Number(_, spelling) => Some(Secret::new(spelling.as_str())),
            Value::Bool(flag) => Some(Secret::new(flag.to_string())),
            _ => secret(reader, entry),
        };
        match value {
            Some(value) => drop(env.insert(entry.key.clone(), value)),
            None => complete = None,
        }
    }
    complete.map(|()| env)
}

fn passthrough(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Vec<String>> {
    if !fields.contains_key("env_passthrough") {
        return Some(Vec::new());
    }
    let names = reader.texts(fields, "env_passthrough")?;
    for (name, span) in &names {
        if name.is_empty() || name.contains(['=', '$']) || name.contains(char::is_whitespace) {
            return reader.wrong_with(
                span,
                format!("{} is not the name of a variable", shown(name)),
                "`env_passthrough` lists bare names, such as \"HOME\"",
            );
        }
    }
    Some(names.into_iter().map(|(name, _)| name.to_owned()).collect())
}

fn remote(reader: &mut Reader<'_>, fields: &Fields<'_>, entry: &Entry, schemes: [&str; 2]) -> Option<Remote> {
    let text = filled(reader, fields, "url");
    let url = text.and_then(|text| address(reader, "url", (text, &entry.node.span), schemes));
    let headers = headers(reader, fields);
    Some(Remote { url: url?, headers: headers? })
}

/// The schemes of an endpoint's addresses.
pub(super) fn schemes(transport: &Transport) -> Option<[&'static str; 2]> {
    match transport {
        Transport::Http(_) | Transport::Sse(_) => Some(WEB),
        Transport::WebSocket(_) => Some(WEBSOCKET),
        Transport::Stdio(_) | Transport::Unix(_) => None,
    }
}

/// An address that stands in a field.
pub(super) fn address(
    reader: &mut Reader<'_>,
    field: &str,
    (text, span): (&str, &Span),
    schemes: [&str; 2],
) -> Option<SecretUrl> {
    let expanded = expand(reader, text, span)?;
    let written = expanded.text.trim();
    if is_ambiguous(written) {
        let message = format!("`{field}` can be read in more than one way");
        let hint = "write it as `https://host/path`, without blanks, line breaks and backslashes";
        return reader.wrong_with(span, message, hint);
    }
    let url = match Url::parse(written) {
        Ok(url) => url,
        Err(error) => return reader.wrong(span, format!("`{field}` is not an address: {error}")),
    };
    let [secure, plain] = schemes;
    match url.scheme() {
        scheme if schemes.contains(&scheme) => Some(SecretUrl::with_secrets(url, expanded.values)),
        "pipe" => {
            let message = "addresses with `pipe:` are not supported yet";
            reader.wrong_with(span, message, "use an address with `https:` or `http:`")
        }
        "ws" | "wss" | "http" | "https" | "unix" => {
            let message =
                format!("`{field}` must start with `{secure}://` or `{plain}://` with this transport");
            reader.wrong_with(span, message, "leave `transport` out: the address says enough")
        }
        _ => reader.wrong(span, format!("`{field}` must start with `{secure}://` or `{plain}://`")),
    }
}

/// What some programs cut out, turn round or make up, so that another host is reached than a person reads.
fn is_ambiguous(url: &str) -> bool {
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    let (scheme, rest) = url.split_once(':').unwrap_or_default();
    let known = WEB.iter().chain(&WEBSOCKET).any(|known| scheme.eq_ignore_ascii_case(known));
    // What is no address of ours at all is told as that.
    url.contains(odd) || (known && (!rest.starts_with("//") || rest.starts_with("///")))
}

fn headers(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<IndexMap<String, Secret>> {
    let Some(entry) = fields.get("headers") else {
        return Some(IndexMap::new());
    };
    let entries = table(reader, entry)?;
    let mut headers: IndexMap<String, Secret> = IndexMap::new();
    let mut complete = Some(());
    for entry in entries {
        if HeaderName::from_bytes(entry.key.as_bytes()).is_err() {
            complete =
                reader.wrong(&entry.key_span, format!("{} is not the name of a header", shown(&entry.key)));
        } else if headers.keys().any(|known| known.eq_ignore_ascii_case(&entry.key)) {
            complete = reader.wrong(&entry.key_span, format!("header {} stands twice", shown(&entry.key)));
        } else if let Some(value) = secret(reader, entry) {
            if HeaderValue::from_str(value.expose()).is_err() {
                let message = format!(
                    "the value of header {} has characters that no header can carry",
                    shown(&entry.key)
                );
                complete = reader.wrong(&entry.node.span, message);
            }
            headers.insert(entry.key.clone(), value);
        } else {
            complete = None;
        }
    }
    complete.map(|()| headers)
}

fn table<'e>(reader: &mut Reader<'_>, entry: &'e Entry) -> Option<&'e [Entry]> {
    let Node { span, .. } = &entry.node;
    match entry.node.as_table() {
        Some(entries) => Some(entries),
        None => {
            reader.wrong(span, format!("{} must be a table, not {}", shown(&entry.key), entry.node.kind()))
        }
    }
}

/// A value of `env` or `headers`: a secret, whether it was written or expanded.
pub(super) fn secret(reader: &mut Reader<'_>, entry: &Entry) -> Option<Secret> {
    if entry.node.as_text().is_none() {
        return reader.wrong(
            &entry.node.span,
            format!("{} must be a string, not {}", shown(&entry.key), entry.node.kind()),
        );
    }
    let (text, span) = reader.item(&entry.key, &entry.node)?;
    let expanded = expand(reader, text, span)?;
    Some(Secret::new(expanded.text))
}

fn expand(reader: &mut Reader<'_>, text: &str, span: &Span) -> Option<Expanded> {
    match expand::expand(text, reader.env.0, reader.source.format) {
        Ok(expanded) => Some(expanded),
        Err(Trouble::Missing(name)) => {
            let place = reader.source.narrow(span, &name);
            let hint = match name.as_str() {
                "workspaceFolder" | "userHome" => {
                    "this is an editor's own variable: write the path itself".to_owned()
                }
                _ => format!("set {name}, or write `${{{name}:-default}}`"),
            };
            reader.wrong_with(&place, format!("the environment variable `{name}` is not set"), hint)
        }
        Err(Trouble::Malformed { reason, hint }) => {
            reader.wrong_with(&reader.source.narrow(span, "${"), reason, hint)
        }
    }
}
