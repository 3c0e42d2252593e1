//! What can be called at one moment: public names, and where each leads.

use std::collections::HashMap;
use std::sync::Arc;

use super::names::Claimant;
use super::{NameRules, RESERVED_PREFIX, ServerTools, TOOLS_MAX};
use crate::config::ServerConfig;
use crate::error::Error;
use crate::mcp::Tool;
use crate::names::{ServerName, ToolName};
use crate::policy::is_visible;
use crate::text::Escaped;

/// Every tool that is shown, with its public name. Immutable.
#[derive(Debug, Default)]
pub struct Snapshot {
    routes: Vec<Route>,
    by_name: HashMap<Arc<str>, usize>,
    by_identity: HashMap<ServerName, HashMap<ToolName, usize>>,
    skipped: Vec<Skipped>,
}

/// Where a public name leads.
#[derive(Clone, Debug)]
pub struct Route {
    /// The name that callers use.
    pub public: Arc<str>,
    /// The server, by its configured name.
    pub server: ServerName,
    /// The tool, as its server describes it.
    pub tool: Arc<Tool>,
    /// What kind of tool it is.
    pub source: Source,
}

/// What kind of tool a route leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A tool of an MCP server.
    Mcp,
}

/// A tool that was offered and cannot be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The server.
    pub server: ServerName,
    /// The tool; `None` where it is about the server's list as a whole.
    pub tool: Option<ToolName>,
    /// Why.
    pub reason: String,
}

/// How many names are suggested for one that is not there.
const SUGGESTIONS: usize = 3;
/// How much alike a suggestion must be, from 0 to 1.
const ALIKE: f64 = 0.75;

// === impl Snapshot ===

impl Snapshot {
    /// Tools in the order given, the servers' own order within.
    pub(super) fn build<'a>(servers: impl Iterator<Item = &'a ServerTools>, rules: &NameRules) -> Self {
        let mut snapshot = Self::default();
        let mut shown: Vec<(&ServerConfig, &Arc<Tool>)> = Vec::new();
        for offered in servers.filter(|s| s.config.enabled) {
            snapshot.take_visible(offered, &mut shown);
        }
        let claimants: Vec<_> =
            shown.iter().map(|(config, tool)| Claimant { config, tool: &tool.name }).collect();
        for ((config, tool), public) in shown.iter().zip(rules.assign(&claimants)) {
            snapshot.add(config, tool, public);
        }
        snapshot
    }

    fn take_visible<'a>(
        &mut self,
        offered: &'a ServerTools,
        shown: &mut Vec<(&'a ServerConfig, &'a Arc<Tool>)>,
    ) {
        let config = &*offered.config;
        if offered.tools.len() > TOOLS_MAX {
            let reason =
                format!("it offers {} tools; only the first {TOOLS_MAX} are taken", offered.tools.len());
            self.skipped.push(Skipped { server: config.name.clone(), tool: None, reason });
        }
        let mut seen = std::collections::HashSet::new();
        for tool in offered.tools.iter().take(TOOLS_MAX).filter(|t| is_visible(config, &t.name)) {
            if seen.insert(&tool.name) {
                shown.push((config, tool));
            } else {
                self.skip(config, tool, "its server lists the name twice; the first is kept".into());
            }
        }
    }

    fn add(&mut self, config: &ServerConfig, tool: &Arc<Tool>, public: Option<String>) {
        let Some(public) = public else {
            return self.skip(config, tool, "its public name cannot be told from another tool's".into());
        };
        if public.get(..RESERVED_PREFIX.len()).is_some_and(|p| p.eq_ignore_ascii_case(RESERVED_PREFIX)) {
            let reason =
                format!("its public name `{public}` starts with `{RESERVED_PREFIX}`, which is Wharf's own");
            return self.skip(config, tool, reason);
        }
        let public: Arc<str> = public.into();
        let place = self.routes.len();
        self.by_name.insert(Arc::clone(&public), place);
        self.by_identity.entry(config.name.clone()).or_default().insert(tool.name.clone(), place);
        let (server, tool) = (config.name.clone(), Arc::clone(tool));
        self.routes.push(Route { public, server, tool, source: Source::Mcp });
    }

    fn skip(&mut self, config: &ServerConfig, tool: &Tool, reason: String) {
        self.skipped.push(Skipped { server: config.name.clone(), tool: Some(tool.name.clone()), reason });
    }

    /// Every tool that can be called: servers in the order of the configuration, tools in their servers' order.
    pub fn tools(&self) -> &[Route] {
        &self.routes
    }

    /// What was offered and cannot be called, and why. Tools that the configuration hides are not among them.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Where a public name leads.
    pub fn route(&self, public_name: &str) -> Option<&Route> {
        self.by_name.get(public_name).map(|&place| &self.routes[place])
    }

    /// A tool by its server and its original name.
    pub fn find(&self, server: &str, tool: &str) -> Option<&Route> {
        self.by_identity.get(server)?.get(tool).map(|&place| &self.routes[place])
    }

    /// Like [`Snapshot::route`], with an error that says what may have been meant.
    pub fn expect_route(&self, public_name: &str) -> Result<&Route, Error> {
        self.route(public_name).ok_or_else(|| {
            let meant = self.suggest(public_name);
            let hint = match &meant[..] {
                [] => "list the tools to see their names".into(),
                names => format!(
                    "did you mean {}?",
                    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(" or ")
                ),
            };
            let shown: String = public_name.chars().take(super::NAME_MAX_WIDE).collect();
            Error::UnknownTool { name: Escaped(&shown).to_string(), hint }
        })
    }

    /// The public names most like one that is not there, the most alike first.
    pub fn suggest(&self, name: &str) -> Vec<String> {
        let wanted: String = name.chars().take(super::NAME_MAX_WIDE).collect::<String>().to_ascii_lowercase();
        let mut alike: Vec<(f64, &str)> = self
            .routes
            .iter()
            .map(|route| {
                let public = strsim::jaro_winkler(&wanted, &route.public.to_ascii_lowercase());
                let own = strsim::jaro_winkler(&wanted, &route.tool.name.as_str().to_ascii_lowercase());
                (public.max(own), &*route.public)
            })
            .filter(|(score, _)| *score >= ALIKE)
            .collect();
        alike.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        alike.into_iter().take(SUGGESTIONS).map(|(_, name)| name.to_owned()).collect()
    }
}
