//! The `[flow]` table: which servers and tools hold what is private, reach the open world, or destroy.
//!
//! In: the table of a `wharf.toml`. Out: labels that a person gave. What servers claim of themselves does not count. A
//! project's file may add labels and take none away. What follows from a label is `policy`'s.

use super::node::Node;
use super::policy::texts_at;
use super::problem::{Problem, nearest, shown};
use super::source::Source;
use crate::names::{ServerName, ToolName};

/// What is labelled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowSettings {
    /// What holds data that must not get out.
    pub private: Vec<FlowLabel>,
    /// What can carry data out, or bring in what strangers wrote.
    pub open_world: Vec<FlowLabel>,
    /// What cannot be undone.
    pub destructive: Vec<FlowLabel>,
}

/// A server as a whole, or one of its tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowLabel {
    server: ServerName,
    /// A tool's original name, or the beginning of one with `*`; `None` means everything of the server.
    tool: Option<String>,
}

const KEYS: [&str; 3] = ["private", "open-world", "destructive"];

// === impl FlowSettings ===

impl FlowSettings {
    /// Whether nothing is labelled.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Every server that is named.
    pub fn servers(&self) -> impl Iterator<Item = &ServerName> {
        self.private.iter().chain(&self.open_world).chain(&self.destructive).map(|label| &label.server)
    }

    /// Adds the labels of a table. On an error nothing was added.
    pub(super) fn apply(&mut self, node: &Node, source: &Source) -> Result<(), Box<Problem>> {
        let Some(entries) = node.as_table() else {
            let message = format!("`flow` must be a table, not {}", node.kind());
            return Err(Box::new(source.problem(&node.span, message)));
        };
        let mut next = self.clone();
        for entry in entries {
            let list = match entry.key.as_str() {
                "private" => &mut next.private,
                "open-world" | "open_world" => &mut next.open_world,
                "destructive" => &mut next.destructive,
                unknown => {
                    let message = format!("unknown label {} in `[flow]`", shown(unknown));
                    let problem = source.problem(&entry.key_span, message);
                    return Err(Box::new(match nearest(unknown, KEYS) {
                        Some(name) => problem.hint(format!("did you mean `{name}`?")),
                        None => problem.hint("the labels are `private`, `open-world` and `destructive`"),
                    }));
                }
            };
            for (text, span) in texts_at(entry, source)? {
                let label = FlowLabel::parse(text);
                list.push(label.map_err(|why| Box::new(source.problem(span, why)))?);
            }
        }
        *self = next;
        Ok(())
    }
}

// === impl FlowLabel ===

impl FlowLabel {
    /// A label as it is written: `mail`, `mail/send`, `mail/get_*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (server, tool) = match text.split_once('/') {
            Some((server, tool)) => (server, Some(tool)),
            None => (text, None),
        };
        let server = ServerName::parse(server).map_err(|bad| bad.to_string())?;
        let tool = match tool {
            Some("") => return Err("after the `/` belongs the name of a tool".into()),
            Some("*") | None => None,
            Some(tool) => Some(tool.to_owned()),
        };
        Ok(Self { server, tool })
    }

    /// Whether it is about this tool.
    pub fn covers(&self, server: &ServerName, tool: &ToolName) -> bool {
        self.server == *server
            && self.tool.as_deref().is_none_or(|own| match own.strip_suffix('*') {
                Some(beginning) => tool.as_str().starts_with(beginning),
                None => own == tool.as_str(),
            })
    }

    /// Whether it is about everything that a server has.
    pub fn covers_all(&self, server: &ServerName) -> bool {
        self.server == *server && self.tool.is_none()
    }
}
