//! The tree of a whole file becomes its parts.
//!
//! In: a file's tree. Out: its servers by name, its other tables, not yet read. A `wharf.toml` with a
//! key that nobody knows is refused whole, because the key may be a misspelt `policy`; an `.mcp.json`, which others
//! write too, gets a warning.

use indexmap::IndexMap;

use crate::names::ServerName;

use super::edit::Format;
use super::node::{Entry, Node, duplicate_key};
use super::problem::{Problem, nearest, shown};
use super::source::Source;

/// The parts of one file.
#[derive(Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) servers: IndexMap<ServerName, Named<'a>>,
    pub(super) policy: Option<&'a Node>,
    pub(super) limits: Option<&'a Node>,
    pub(super) callers: Option<&'a Entry>,
    pub(super) gateway: Option<&'a Entry>,
    pub(super) audit: Option<&'a Entry>,
    pub(super) approvals: Option<&'a Entry>,
    pub(super) telemetry: Option<&'a Entry>,
    pub(super) packages: Option<&'a Entry>,
    pub(super) flow: Option<&'a Node>,
    /// Names that are none.
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

/// A server's entry under a name.
#[derive(Debug)]
pub(super) enum Named<'a> {
    Once(&'a Entry),
    /// Two entries come to the same name: neither is taken.
    Twice(Problem),
}

/// Takes a file apart. The error is about the file as a whole.
pub(super) fn parts<'a>(tree: &'a Node, source: &Source) -> Result<Parts<'a>, Box<Problem>> {
    let Some(entries) = tree.as_table() else {
        let message = format!("the file must hold an object, not {}", tree.kind());
        return Err(Box::new(source.problem(&tree.span, message)));
    };
    if let Some((first, second)) = duplicate_key(entries) {
        let line = source.line_of(first.key_span.start);
        let message = format!("key {} stands twice, first on line {line}", shown(&second.key));
        return Err(Box::new(source.problem(&second.key_span, message)));
    }
    let mut parts = Parts::default();
    let mut strangers = Vec::new();
    for entry in entries {
        match (source.format, entry.key.as_str()) {
            (Format::Toml, "mcp") | (Format::Json, "mcpServers" | "servers") => {
                parts.servers(entry, source)?
            }
            (Format::Toml, "policy") => parts.policy = Some(&entry.node),
            (Format::Toml, "limits") => parts.limits = Some(&entry.node),
            (Format::Toml, "callers") => parts.callers = Some(entry),
            (Format::Toml, "gateway") => parts.gateway = Some(entry),
            (Format::Toml, "audit") => parts.audit = Some(entry),
            (Format::Toml, "approvals") => parts.approvals = Some(entry),
            (Format::Toml, "telemetry") => parts.telemetry = Some(entry),
            (Format::Toml, "packages") => parts.packages = Some(entry),
            (Format::Toml, "flow") => parts.flow = Some(&entry.node),
            (Format::Json, "callers" | "gateway" | "audit" | "approvals" | "telemetry") => {
                let message = format!("{} is not taken from an `.mcp.json`", shown(&entry.key));
                let hint = "say it in your own wharf.toml";
                return Err(Box::new(source.problem(&entry.key_span, message).hint(hint)));
            }
            (Format::Toml, unknown) => return Err(Box::new(unknown_table(entry, unknown, source))),
            (Format::Json, "$schema") => {}
            (Format::Json, "inputs" | "sandbox") => {
                let message = format!("{} is another client's and has no effect here", shown(&entry.key));
                parts.warnings.push(source.problem(&entry.key_span, message));
            }
            (Format::Json, _) => strangers.push(entry),
        }
    }
    if let Some(first) = strangers.first() {
        parts.warnings.push(unknown_keys(first, &strangers, source));
    }
    Ok(parts)
}

const TABLES: [&str; 10] =
    ["mcp", "policy", "limits", "callers", "gateway", "flow", "audit", "approvals", "telemetry", "packages"];

fn unknown_table(entry: &Entry, key: &str, source: &Source) -> Problem {
    let problem = source.problem(&entry.key_span, format!("unknown key {} in wharf.toml", shown(key)));
    match key {
        "mcp_servers" | "mcpServers" | "servers" => problem.hint("a server is a table `[mcp.NAME]`"),
        _ => match nearest(key, TABLES) {
            Some(name) => problem.hint(format!("did you mean `{name}`?")),
            None => problem.hint(
                "the file holds `[mcp.NAME]`, `[policy]`, `[limits]`, `[callers.NAME]`, `[gateway]`, `[flow]`, `[audit]`, `[approvals]`, `[telemetry]` and `[packages]`",
            ),
        },
    }
}

/// One warning for all of them: a client's own settings file has dozens.
fn unknown_keys(first: &Entry, all: &[&Entry], source: &Source) -> Problem {
    const SHOWN: usize = 5;
    let names: Vec<String> = all.iter().take(SHOWN).map(|entry| shown(&entry.key)).collect();
    let more = if all.len() > SHOWN { format!(" and {} more", all.len() - SHOWN) } else { String::new() };
    let message = format!("unknown key {}{more}; ignored", names.join(", "));
    let problem = source.problem(&first.key_span, message);
    match nearest(&first.key, ["mcpServers", "servers"]) {
        Some(name) => problem.hint(format!("did you mean `{name}`?")),
        None => problem.hint("the servers stand in `mcpServers` or `servers`"),
    }
}

// === impl Parts ===

impl<'a> Parts<'a> {
    fn servers(&mut self, entry: &'a Entry, source: &Source) -> Result<(), Box<Problem>> {
        let Some(entries) = entry.node.as_table() else {
            let message =
                format!("{} must be a table of servers, not {}", shown(&entry.key), entry.node.kind());
            return Err(Box::new(source.problem(&entry.node.span, message)));
        };
        for entry in entries {
            let name = match ServerName::parse(&entry.key) {
                Ok(name) => name,
                Err(bad) => {
                    let problem = source.problem(&entry.key_span, bad.to_string());
                    self.problems.push(Problem { server: Some(entry.key.clone()), ..problem });
                    continue;
                }
            };
            let named = match self.servers.get(&name) {
                None => Named::Once(entry),
                Some(Named::Once(first)) => {
                    let line = source.line_of(first.key_span.start);
                    let message = if first.key == entry.key {
                        format!("server {} stands twice, first on line {line}", shown(&entry.key))
                    } else {
                        let (first, second) = (shown(&first.key), shown(&entry.key));
                        format!("{first} (line {line}) and {second} come to the same name `{name}`")
                    };
                    let problem = source.problem(&entry.key_span, message).hint("rename one of them");
                    Named::Twice(Problem { server: Some(name.to_string()), ..problem })
                }
                Some(Named::Twice(_)) => continue,
            };
            self.servers.insert(name, named);
        }
        Ok(())
    }
}
