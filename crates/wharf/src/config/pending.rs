//! What an untrusted file would do, told without doing any of it.
//!
//! In: the tree of a file that has no say yet. Out: one line a server, escaped, with what looks like a credential
//! masked and no variable expanded, and the names of the variables it would be given.

use url::Url;

use crate::secret::SecretUrl;
use crate::text::Escaped;

use super::args::{carries_credential, is_credential_flag};
use super::edit::Format;
use super::expand;
use super::file::{Named, Parts};
use super::node::{Entry, Node, Value};
use super::trust::PendingServer;

/// Describes every server of a file.
pub(super) fn describe(parts: &Parts<'_>, format: Format) -> Vec<PendingServer> {
    let describe = |(name, named): (&crate::names::ServerName, &Named<'_>)| {
        let (does, reads, sets) = match named {
            Named::Once(entry) => (what(&entry.node), variables(&entry.node, format), settings(&entry.node)),
            Named::Twice(_) => ("stands there twice".to_owned(), Vec::new(), Vec::new()),
        };
        PendingServer { name: name.to_string(), does, reads, sets }
    };
    parts.servers.iter().map(describe).collect()
}

fn get<'a>(node: &'a Node, keys: &[&str]) -> Option<&'a Node> {
    let found = |entry: &&Entry| keys.contains(&entry.key.as_str());
    node.as_table().unwrap_or_default().iter().find(found).map(|entry| &entry.node)
}

fn what(node: &Node) -> String {
    let words = |node: Option<&Node>| -> Vec<String> {
        match node.map(|node| &node.value) {
            Some(Value::Text(text)) => vec![text.clone()],
            Some(Value::List(items)) => items.iter().filter_map(|i| i.as_text().map(str::to_owned)).collect(),
            _ => Vec::new(),
        }
    };
    let mut line = words(get(node, &["command"]));
    if !line.is_empty() {
        line.extend(words(get(node, &["args"])));
        return format!("runs `{}`{}", masked(&line), let_out(node));
    }
    if let Some(url) = get(node, &["url", "serverUrl"]).and_then(Node::as_text) {
        return match Url::parse(url) {
            Ok(url) => format!("reaches {}", Escaped(&SecretUrl::new(url).to_string())),
            Err(_) => "reaches an address that only its variables tell".to_owned(),
        };
    }
    if let Some(path) = get(node, &["path"]).and_then(Node::as_text) {
        return format!("reaches the socket {}", Escaped(path));
    }
    match get(node, &["enabled"]).map(|node| &node.value) {
        Some(Value::Bool(true)) => "turns on a server of a farther file".to_owned(),
        Some(Value::Bool(false)) => "turns off a server of a farther file".to_owned(),
        _ => "says neither what to run nor what to reach".to_owned(),
    }
}

/// What it would be given beside the default of the sandbox, whole: this is what a person is asked to trust.
fn let_out(node: &Node) -> String {
    match get(node, &["sandbox"]).map(|node| &node.value) {
        Some(Value::Bool(false)) => " without a sandbox".to_owned(),
        Some(Value::Table(entries)) => {
            let wanted = |key: &str, verb: &str| {
                let entry = entries.iter().find(|entry| entry.key == key)?;
                let list: Vec<&str> = entry.node.as_list()?.iter().filter_map(Node::as_text).collect();
                (!list.is_empty()).then(|| format!(", may {verb} {}", Escaped(&list.join(", "))))
            };
            let parts = [("read", "read"), ("write", "change"), ("domains", "reach")];
            parts.into_iter().filter_map(|(key, verb)| wanted(key, verb)).collect()
        }
        _ => String::new(),
    }
}

/// The names in `env` and `headers`; the values may be secrets.
fn settings(node: &Node) -> Vec<String> {
    let tables = ["env", "headers"].into_iter().filter_map(|key| get(node, &[key])?.as_table());
    tables.flatten().map(|entry| Escaped(&entry.key).to_string()).collect()
}

fn masked(line: &[String]) -> String {
    let word = |(at, word): (usize, &String)| {
        let after_flag = at > 0 && is_credential_flag(&line[at - 1]);
        if after_flag || carries_credential(word) { "***".to_owned() } else { word.clone() }
    };
    let text = line.iter().enumerate().map(word).collect::<Vec<_>>().join(" ");
    // Never cut: what a person is asked to trust could hide behind the cut.
    Escaped(&text).to_string()
}

fn variables(node: &Node, format: Format) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |name: String| {
        if !found.contains(&name) {
            found.push(name);
        }
    };
    walk(node, &mut |text| expand::names(text, format).into_iter().for_each(&mut add));
    for item in get(node, &["env_passthrough", "envPassthrough"]).and_then(Node::as_list).unwrap_or_default()
    {
        if let Some(name) = item.as_text() {
            add(Escaped(name).to_string());
        }
    }
    found
}

fn walk(node: &Node, see: &mut impl FnMut(&str)) {
    match &node.value {
        Value::Text(text) => see(text),
        Value::List(items) => items.iter().for_each(|item| walk(item, see)),
        Value::Table(entries) => entries.iter().for_each(|entry| walk(&entry.node, see)),
        _ => {}
    }
}
