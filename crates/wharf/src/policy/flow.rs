//! What may go where.
//!
//! In: the labels that a person gave, what a session has read, and what it wants to call. Out: whether that is free, marks
//! the session, or must be asked for. Nothing a server says of itself is looked at. The mark itself is kept in `session`.

use super::Policy;
use crate::config::{FlowLabel, FlowSettings};
use crate::error::Error;
use crate::names::{ServerName, ToolName};

/// The first call by which something private came into a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tainted {
    /// The server.
    pub server: ServerName,
    /// The tool, or the method where it was none.
    pub tool: ToolName,
}

/// Why a call must be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowReason {
    /// Something private was read, and this reaches the open world.
    OpenWorld(Tainted),
    /// What it does cannot be undone.
    Destructive,
}

impl Policy {
    /// The same, with these labels.
    #[must_use]
    pub fn with_flow(&self, flow: FlowSettings) -> Self {
        self.with(|rules| rules.flow = flow)
    }

    /// Whether anything is labelled.
    pub fn has_flow(&self) -> bool {
        !self.rules.flow.is_empty()
    }

    /// Whether a call brings something private into a session. `tool` is `None` for what is no tool: then the label must be
    /// the server's.
    pub fn taints(&self, server: &ServerName, tool: Option<&ToolName>) -> bool {
        is_labelled(&self.rules.flow.private, server, tool)
    }

    /// Why a call must be asked for in a session that has read this, if it must.
    pub fn judge_flow(
        &self,
        taint: Option<&Tainted>,
        server: &ServerName,
        tool: Option<&ToolName>,
    ) -> Option<FlowReason> {
        let flow = &self.rules.flow;
        match taint {
            Some(taint) if is_labelled(&flow.open_world, server, tool) => {
                Some(FlowReason::OpenWorld(taint.clone()))
            }
            _ if is_labelled(&flow.destructive, server, tool) => Some(FlowReason::Destructive),
            _ => None,
        }
    }
}

fn is_labelled(labels: &[FlowLabel], server: &ServerName, tool: Option<&ToolName>) -> bool {
    labels.iter().any(|label| match tool {
        Some(tool) => label.covers(server, tool),
        None => label.covers_all(server),
    })
}

// === impl FlowReason ===

impl FlowReason {
    /// Why, in words.
    pub fn words(&self) -> String {
        match self {
            Self::OpenWorld(taint) => format!(
                "this session has read from `{}/{}`, which is private, and this reaches the open world",
                taint.server, taint.tool
            ),
            Self::Destructive => "what it does cannot be undone".into(),
        }
    }

    pub(super) fn refused(&self, server: &ServerName, tool: &ToolName) -> Error {
        let (rule, label) = match self {
            Self::OpenWorld(_) => ("flow.open-world", "open-world"),
            Self::Destructive => ("flow.destructive", "destructive"),
        };
        Error::Denied {
            what: format!("tool `{tool}` of `{server}`"),
            rule: format!("`{rule}`: {}, and nobody allowed it", self.words()),
            hint: format!(
                "allow it when asked, do it in a session that has read nothing private, or take `{server}` out of \
                 `{label}` under `[flow]` in your `wharf.toml`"
            ),
        }
    }
}
