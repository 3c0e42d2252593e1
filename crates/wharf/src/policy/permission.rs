//! What an agent may do without asking, and what must be asked.
//!
//! In: an agent's standing, and what it wants to call. Out: a permit, a [`Wanted`] that becomes one when somebody says
//! yes, or a refusal. Who is asked, and how, is not decided here.

use std::collections::{HashMap, HashSet};

use super::call::hidden;
use super::{CallPermit, CallerRules, FlowReason, Policy, Tainted};
use crate::config::ServerConfig;
use crate::error::{Error, Result};
use crate::mcp::Tool;
use crate::names::{CallerName, ServerName, ToolName};

/// How far an agent is trusted. Without any of these it may call nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Permission {
    /// It may call everything, and nobody is asked.
    Yolo,
    /// It may call local tools; at the first use of a server somebody is asked.
    Trusted,
    /// It may call local tools only: no MCP server.
    Sandboxed,
}

/// How far a yes reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// This one call.
    Once,
    /// Every call of this tool, as long as the scope lives.
    Tool,
    /// Every tool of this server.
    Server,
    /// Everything, but for servers that are asked tool by tool.
    Session,
}

/// What has been allowed so far. Immutable: every `with_…` returns a new one.
///
/// Servers are told apart by their whole configuration and not by name, so that a yes to one is no yes to another that
/// bears its name later.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    everything: bool,
    servers: HashSet<Identity>,
    tools: HashMap<Identity, HashSet<ToolName>>,
    tool_by_tool: HashSet<Identity>,
    /// Tools that may be called though something private was read, or though they destroy.
    flows: HashMap<Identity, HashSet<ToolName>>,
    /// Taken back, so that a yes to everything from before does not reach them.
    revoked: HashSet<Identity>,
}

/// What makes a server the same server: [`ServerConfig::identity`], or the name of a local set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// An MCP server.
    Server([u8; 32]),
    /// A set of the program's own functions.
    Local(ServerName),
}

/// An agent, as far as decisions depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a, 'now> {
    /// Who it is.
    pub caller: &'a CallerName,
    /// How far it is trusted.
    pub permission: Option<Permission>,
    /// What it has been allowed so far.
    pub grants: &'now Grants,
    /// What it is given of all there is; `None`: everything.
    pub rules: Option<&'now CallerRules>,
    /// What private thing it has read.
    pub taint: Option<&'now Tainted>,
}

/// What is to be called.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A tool of a server.
    Server {
        /// The server.
        config: &'a ServerConfig,
        /// Its identity, which is dear to make.
        identity: &'a Identity,
        /// The tool as its server describes it now. A lock permits nothing without it.
        definition: Option<&'a Tool>,
    },
    /// A function of the program itself.
    Local {
        /// The set it belongs to.
        set: &'a ServerName,
        /// Whether somebody must be asked first.
        ask: bool,
    },
}

/// What policy says to a call.
#[derive(Debug)]
pub enum Decision<'a> {
    /// Yes.
    Permit(CallPermit<'a>),
    /// Only if somebody says so.
    Ask(Box<Wanted<'a>>),
}

/// A permit that waits for somebody's yes.
#[derive(Debug)]
pub struct Wanted<'a> {
    permit: CallPermit<'a>,
    identity: Identity,
    reaches: &'static [Reach],
    /// Why it must be asked for though it is consented to.
    flow: Option<FlowReason>,
}

// === impl Policy ===

impl Policy {
    /// May this agent call this tool? The same question is asked at every call, not only when tools are listed.
    pub fn judge_call<'a>(
        &self,
        who: &Standing<'a, '_>,
        what: &Subject<'a>,
        tool: &'a ToolName,
    ) -> Result<Decision<'a>> {
        if let Subject::Server { config, definition, .. } = what {
            hidden(config, tool)?;
            self.permit_tool(config, tool, *definition)?;
        }
        given(who, what.name(), |rules| rules.gives_tool(what.name(), tool))?;
        let asked = self.rules.asked.iter().any(|rule| rule.fits(what.name().as_str(), tool.as_str()))
            || who.rules.is_some_and(|rules| rules.asks_for(what.name(), tool));
        let flow = self.judge_flow(who.taint, what.name(), Some(tool));
        self.judge(who, what, tool, (asked, flow))
    }

    /// Somebody is asked where a rule wants it, where what was read must not leave, or where the agent is not trusted so
    /// far.
    fn judge<'a>(
        &self,
        who: &Standing<'a, '_>,
        what: &Subject<'a>,
        tool: &'a ToolName,
        (asked, flow): (bool, Option<FlowReason>),
    ) -> Result<Decision<'a>> {
        let identity = what.identity();
        let permit = CallPermit { caller: who.caller, server: what.name(), tool };
        let ask = match what {
            Subject::Server { config, .. } => {
                self.admit(who, Some(config))?;
                who.permission != Some(Permission::Yolo)
            }
            Subject::Local { ask, .. } => {
                self.admit(who, None)?;
                *ask && who.permission != Some(Permission::Yolo)
            }
        };
        let allows = |tools: &HashSet<ToolName>| tools.contains(tool);
        let flow = flow.filter(|_| !who.grants.flows.get(&identity).is_some_and(allows));
        if let Some(flow) = flow {
            // Whoever says yes to this says yes to the call.
            return Ok(Decision::Ask(Box::new(Wanted::flowing(permit, identity, flow))));
        }
        if !(ask || asked) || who.grants.covers(&identity, tool) {
            return Ok(Decision::Permit(permit));
        }
        let reaches: &[Reach] = match (what, who.grants.tool_by_tool.contains(&identity)) {
            (Subject::Local { .. }, _) | (_, true) => &[Reach::Once, Reach::Tool],
            _ => &[Reach::Once, Reach::Tool, Reach::Server, Reach::Session],
        };
        Ok(Decision::Ask(Box::new(Wanted { permit, identity, reaches, flow: None })))
    }

    /// May this agent use a server for something that is no tool, named by its method? Consent to a tool is none to
    /// this, whatever the tool is called.
    pub fn judge_use<'a>(
        &self,
        who: &Standing<'a, '_>,
        what: &Subject<'a>,
        method: &'a ToolName,
    ) -> Result<Decision<'a>> {
        given(who, what.name(), |rules| rules.gives_server(what.name()))?;
        let no_tools = Grants { tools: HashMap::new(), ..who.grants.clone() };
        let who = Standing { grants: &no_tools, ..*who };
        let flow = self.judge_flow(who.taint, what.name(), None);
        match self.judge(&who, what, method, (false, flow))? {
            Decision::Ask(wanted) => {
                let reaches: &[Reach] = match wanted.reaches.contains(&Reach::Server) {
                    true => &[Reach::Once, Reach::Server, Reach::Session],
                    false => &[Reach::Once],
                };
                Ok(Decision::Ask(Box::new(Wanted { reaches, ..*wanted })))
            }
            permit => Ok(permit),
        }
    }

    /// May this agent have to do with a server at all, or, without one, with the program's own functions?
    pub fn admit(&self, who: &Standing<'_, '_>, server: Option<&ServerConfig>) -> Result<()> {
        if let Some(server) = server {
            given(who, &server.name, |rules| rules.may_give(&server.name))?;
        }
        let what = || match server {
            Some(server) => format!("server `{}`", server.name),
            None => "local tools".into(),
        };
        match (who.permission, server) {
            (None, _) => Err(Error::Denied {
                what: what(),
                rule: format!("the permission of `{}`: it was given none", who.caller),
                hint: "give it one with `SessionBuilder::permission`".into(),
            }),
            (Some(Permission::Sandboxed), Some(_)) => Err(Error::Denied {
                what: what(),
                rule: format!("the permission of `{}`: sandboxed, so no MCP server", who.caller),
                hint: "`Permission::Trusted` lets it ask for servers".into(),
            }),
            _ => Ok(()),
        }
    }
}

/// Whether a caller's rules give it something of a server. They need not be told apart from there being none.
fn given(
    who: &Standing<'_, '_>,
    server: &ServerName,
    gives: impl FnOnce(&CallerRules) -> bool,
) -> Result<()> {
    if who.rules.is_none_or(gives) {
        return Ok(());
    }
    Err(Error::Denied {
        what: format!("server `{server}`"),
        rule: format!("the rules of caller `{}`, which do not give it", who.caller),
        hint: format!("give it in `[callers.{}]`", who.caller),
    })
}

// === impl Subject ===

impl<'a> Subject<'a> {
    pub(super) fn identity(&self) -> Identity {
        match *self {
            Self::Server { identity, .. } => identity.clone(),
            Self::Local { set, .. } => Identity::Local(set.clone()),
        }
    }

    /// The name of the server, or of the set.
    pub(super) fn name(&self) -> &'a ServerName {
        match *self {
            Self::Server { config, .. } => &config.name,
            Self::Local { set, .. } => set,
        }
    }
}

// === impl Grants ===

impl Grants {
    /// The same, with a yes that reaches so far. `Once` is not remembered.
    #[must_use]
    pub fn with(&self, identity: &Identity, tool: &ToolName, reach: Reach) -> Self {
        let mut grants = self.clone();
        match reach {
            Reach::Once => {}
            Reach::Tool => {
                grants.tools.entry(identity.clone()).or_default().insert(tool.clone());
            }
            Reach::Server => {
                grants.servers.insert(identity.clone());
            }
            Reach::Session => {
                grants.everything = true;
                grants.revoked.clear();
            }
        }
        grants
    }

    /// The same, with a tool that may be called though something private was read, or though it destroys.
    #[must_use]
    pub fn with_flow(&self, identity: &Identity, tool: &ToolName) -> Self {
        let mut grants = self.clone();
        grants.flows.entry(identity.clone()).or_default().insert(tool.clone());
        grants.with(identity, tool, Reach::Tool)
    }

    /// The same, with every tool of a server allowed.
    #[must_use]
    pub fn with_server(&self, identity: Identity) -> Self {
        let mut grants = self.clone();
        grants.tool_by_tool.remove(&identity);
        grants.servers.insert(identity);
        grants
    }

    /// The same, with every tool of a server to be asked for by itself.
    #[must_use]
    pub fn tool_by_tool(&self, identity: Identity) -> Self {
        let mut grants = self.without(&identity);
        grants.tool_by_tool.insert(identity);
        grants
    }

    /// The same, with a server to be asked for again, whatever was allowed before.
    #[must_use]
    pub fn revoked(&self, identity: &Identity) -> Self {
        let mut grants = self.without(identity);
        if self.tool_by_tool.contains(identity) {
            grants.tool_by_tool.insert(identity.clone());
        }
        grants.revoked.insert(identity.clone());
        grants
    }

    /// The same, with nothing remembered of a server.
    #[must_use]
    pub fn without(&self, identity: &Identity) -> Self {
        let mut grants = self.clone();
        grants.servers.remove(identity);
        grants.tool_by_tool.remove(identity);
        grants.tools.remove(identity);
        grants.flows.remove(identity);
        grants
    }

    fn covers(&self, identity: &Identity, tool: &ToolName) -> bool {
        let everything = self.everything && !self.revoked.contains(identity);
        let widely = everything || self.servers.contains(identity);
        let local = matches!(identity, Identity::Local(_));
        (widely && !local && !self.tool_by_tool.contains(identity))
            || self.tools.get(identity).is_some_and(|tools| tools.contains(tool))
    }
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    pub(super) fn flowing(permit: CallPermit<'a>, identity: Identity, flow: FlowReason) -> Self {
        Self { permit, identity, reaches: &[Reach::Once, Reach::Tool], flow: Some(flow) }
    }

    /// Who wants it.
    pub fn caller(&self) -> &'a CallerName {
        self.permit.caller()
    }

    /// The server, or the set of local tools.
    pub fn server(&self) -> &'a ServerName {
        self.permit.server()
    }

    /// The tool, by its original name.
    pub fn tool(&self) -> &'a ToolName {
        self.permit.tool()
    }

    /// What a yes is remembered for.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Why it must be asked for though it is consented to.
    pub fn flow(&self) -> Option<&FlowReason> {
        self.flow.as_ref()
    }

    /// How far a yes may reach.
    pub fn reaches(&self) -> &'static [Reach] {
        self.reaches
    }

    /// Somebody said yes, and how far it reaches. A reach that was not offered is a no.
    pub fn allowed(self, reach: Reach) -> Result<CallPermit<'a>> {
        if self.reaches.contains(&reach) { Ok(self.permit) } else { Err(self.refused()) }
    }

    /// Nobody said yes.
    pub fn refused(&self) -> Error {
        if let Some(flow) = &self.flow {
            return flow.refused(self.server(), self.tool());
        }
        Error::Denied {
            what: format!("tool `{}` of `{}`", self.tool(), self.server()),
            rule: format!("consent: nobody allowed `{}` to call it", self.caller()),
            hint: "allow it when asked, connect the server with everything allowed, or give the session an asker"
                .into(),
        }
    }
}

// === impl Reach ===

impl Reach {
    /// What a yes of this reach allows, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Once => "this call",
            Self::Tool => "this tool from now on",
            Self::Server => "every tool of this server",
            Self::Session => "everything in this session",
        }
    }
}
