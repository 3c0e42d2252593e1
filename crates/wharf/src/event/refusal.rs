//! A call that a rule refused, for whoever watches. Every call is on the record; this is for a log.

use crate::names::{CallerName, ServerName, ToolName};

/// A call that was not made, because a rule said no or somebody must say yes first.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// Who called.
    pub caller: CallerName,
    /// The server, or the set of local tools; `None` where none was found.
    pub server: Option<ServerName>,
    /// The tool, by its original name; `None` where none was found.
    pub tool: Option<ToolName>,
    /// The kind of error.
    pub kind: &'static str,
    /// The rule, in words.
    pub reason: String,
}
