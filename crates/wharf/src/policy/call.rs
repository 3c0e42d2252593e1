//! In: a caller, a server's lists and a tool's original name. Out: whether the tool is there for anybody at all.
//! Listing and calling ask the same question here, so that a hidden tool cannot be called either.

use super::{CallPermit, Decision, FlowReason, Policy, Subject, Tainted, Wanted};
use crate::config::ServerConfig;
use crate::error::{Error, Result};
use crate::mcp::{ListKind, Tool};
use crate::names::{CallerName, ToolName};

/// Whether a server's lists let a tool be seen: in `enabled_tools` if there is one, and not in `disabled_tools`.
pub fn is_visible(server: &ServerConfig, tool: &ToolName) -> bool {
    hidden_by(server, tool).is_none()
}

impl Policy {
    /// May this caller call this tool of this server? `definition` is the tool as its server describes it now; a lock
    /// permits nothing without it.
    pub fn permit_call<'a>(
        &self,
        caller: &'a CallerName,
        server: &'a ServerConfig,
        tool: &'a ToolName,
        definition: Option<&Tool>,
    ) -> Result<CallPermit<'a>> {
        hidden(server, tool)?;
        self.permit_tool(server, tool, definition)?;
        Ok(CallPermit { caller, server: &server.name, tool })
    }

    /// May the program itself, or a caller it speaks for, call this tool? It is asked nothing but whether something
    /// private may get out.
    pub fn judge_program<'a>(
        &self,
        caller: &'a CallerName,
        subject: &Subject<'a>,
        tool: &'a ToolName,
        taint: Option<&Tainted>,
    ) -> Result<Decision<'a>> {
        let permit = match *subject {
            Subject::Server { config, definition, .. } => {
                self.permit_call(caller, config, tool, definition)?
            }
            Subject::Local { set, .. } => CallPermit { caller, server: set, tool },
        };
        Ok(self.unless_flows(permit, subject, taint, Some(tool)))
    }

    /// The same for what is no tool, named by its method.
    pub fn judge_program_use<'a>(
        &self,
        caller: &'a CallerName,
        subject: &Subject<'a>,
        method: &'a ToolName,
        taint: Option<&Tainted>,
    ) -> Decision<'a> {
        let permit = CallPermit { caller, server: subject.name(), tool: method };
        self.unless_flows(permit, subject, taint, None)
    }

    fn unless_flows<'a>(
        &self,
        permit: CallPermit<'a>,
        subject: &Subject<'a>,
        taint: Option<&Tainted>,
        tool: Option<&ToolName>,
    ) -> Decision<'a> {
        match self.judge_flow(taint, subject.name(), tool) {
            Some(reason @ FlowReason::OpenWorld(_)) => {
                Decision::Ask(Box::new(Wanted::flowing(permit, subject.identity(), reason)))
            }
            _ => Decision::Permit(permit),
        }
    }
}

impl Policy {
    /// Whether a tool's definition is the accepted one, where only accepted ones may be called.
    pub(super) fn permit_tool(
        &self,
        server: &ServerConfig,
        tool: &ToolName,
        definition: Option<&Tool>,
    ) -> Result<()> {
        let live = || definition.map(|tool| tool.fingerprint().to_owned()).unwrap_or_default();
        self.permit_definition(&server.name, ListKind::Tools, tool.as_str(), live)
    }
}

/// Whether the configuration keeps a tool from everyone, and how to change that.
pub(super) fn hidden(server: &ServerConfig, tool: &ToolName) -> Result<()> {
    if !server.enabled {
        return Err(Error::Denied {
            what: format!("tool `{tool}` of server `{}`", server.name),
            rule: format!("`enabled = false` of server `{}`", server.name),
            hint: format!("set `enabled = true` for `{}`", server.name),
        });
    }
    if let Some((list, hint)) = hidden_by(server, tool) {
        return Err(Error::Denied {
            what: format!("tool `{tool}` of server `{}`", server.name),
            rule: format!("`{list}` of server `{}`", server.name),
            hint,
        });
    }
    Ok(())
}

/// The list that hides a tool, and how to change it. The blocklist speaks after the allowlist.
fn hidden_by(server: &ServerConfig, tool: &ToolName) -> Option<(&'static str, String)> {
    let names = |list: &[String]| list.iter().any(|name| name == tool.as_str());
    if names(&server.disabled_tools) {
        return Some(("disabled_tools", format!("take `{tool}` out of `disabled_tools`")));
    }
    match &server.enabled_tools {
        Some(list) if !names(list) => Some(("enabled_tools", format!("add `{tool}` to `enabled_tools`"))),
        _ => None,
    }
}
