//! What can be called at one moment: public names, and where each leads.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::names::{Claimant, is_reserved};
use super::{NameRules, Offer, Owner, RESERVED_PREFIX, ServerTools, TOOLS_MAX};
use crate::error::Error;
use crate::event::TallyPlace;
use crate::mcp::Tool;
use crate::names::{ServerName, ToolName};
use crate::policy::{CallerRules, is_visible};
use crate::text::Escaped;

/// Every tool that is shown, with its public name. Immutable.
#[derive(Debug, Default)]
pub struct Snapshot {
    routes: Vec<Route>,
    by_name: Places<Arc<str>, usize>,
    by_server: Places<ServerName, Places<ToolName, usize>>,
    by_set: Places<ServerName, Places<ToolName, usize>>,
    skipped: Vec<Skipped>,
    /// How long the servers that said so let their tools be kept.
    ttls: HashMap<ServerName, Duration>,
    /// Made when somebody asks.
    interfaces: OnceLock<Vec<(ServerName, String)>>,
}

/// Looked into at every call, so by a quick hash; it is seeded, so a server cannot choose names that collide.
type Places<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

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
    /// The scope it belongs to; `None` where everyone shares it.
    pub owner: Option<Owner>,
    /// Where its calls are counted.
    pub tally: TallyPlace,
}

/// What kind of tool a route leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// A tool of an MCP server.
    Mcp,
    /// A function of the program itself.
    Local,
}

impl Route {
    /// Whether it leads to a tool of this server, and not to a local set of its name.
    pub fn is_of(&self, server: &ServerName) -> bool {
        self.source == Source::Mcp && self.server == *server
    }
}

/// A tool on its way into the snapshot.
struct Shown<'a> {
    claimant: Claimant<'a>,
    tool: &'a Arc<Tool>,
    owner: Option<Owner>,
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
    /// Tools in the order given, the servers' own order within. Of two servers of one name the first is taken; of two
    /// local tools of one name in one set, the first. What is not `given` is as if it were not offered.
    pub(super) fn build<'a>(
        offers: impl Iterator<Item = (Option<Owner>, &'a Offer)>,
        names: &NameRules,
        given: Option<&CallerRules>,
    ) -> Self {
        let mut snapshot = Self::default();
        let mut shown: Vec<Shown<'_>> = Vec::new();
        let mut servers = HashSet::new();
        let mut functions = HashSet::new();
        for (owner, offer) in offers {
            match offer {
                Offer::Server(offered) | Offer::View(offered) if !servers.insert(&offered.config.name) => {}
                Offer::Server(offered) | Offer::View(offered) if !offered.config.enabled => {}
                Offer::Server(offered) | Offer::View(offered) => {
                    snapshot.take_visible(offered, owner, &mut shown)
                }
                Offer::Local { set, prefix, tools } => {
                    for tool in tools.iter().filter(|tool| functions.insert((set, &tool.name))) {
                        let prefix = Some(&**prefix);
                        let claimant = Claimant { server: set, prefix, tool: &tool.name, local: true };
                        shown.push(Shown { claimant, tool, owner });
                    }
                }
            }
        }
        if let Some(given) = given {
            // Before names are given out, so that nobody can tell by a name that there is another tool of it.
            shown.retain(|shown| given.gives_tool(shown.claimant.server, shown.claimant.tool));
            snapshot.skipped.retain(|s| match &s.tool {
                Some(tool) => given.gives_tool(&s.server, tool),
                None => given.may_give(&s.server),
            });
        }
        let names = names.assign(shown.iter().map(|shown| &shown.claimant));
        for (shown, public) in shown.iter().zip(names) {
            snapshot.add(shown, public);
        }
        snapshot
    }

    fn take_visible<'a>(
        &mut self,
        offered: &'a ServerTools,
        owner: Option<Owner>,
        shown: &mut Vec<Shown<'a>>,
    ) {
        let config = &*offered.config;
        let (server, prefix) = (&config.name, config.tool_prefix.as_deref());
        self.ttls.extend(offered.ttl.map(|ttl| (server.clone(), ttl)));
        if offered.tools.len() > TOOLS_MAX {
            let reason =
                format!("it offers {} tools; only the first {TOOLS_MAX} are taken", offered.tools.len());
            self.skipped.push(Skipped { server: server.clone(), tool: None, reason });
        }
        let mut seen = HashSet::new();
        for tool in offered.tools.iter().take(TOOLS_MAX).filter(|t| is_visible(config, &t.name)) {
            if seen.insert(&tool.name) {
                let claimant = Claimant { server, prefix, tool: &tool.name, local: false };
                shown.push(Shown { claimant, tool, owner });
            } else {
                self.skip(server, tool, "its server lists the name twice; the first is kept".into());
            }
        }
    }

    fn add(&mut self, shown: &Shown<'_>, public: Option<String>) {
        let (server, tool) = (shown.claimant.server, shown.tool);
        let Some(public) = public else {
            return self.skip(server, tool, "its public name cannot be told from another tool's".into());
        };
        if is_reserved(&public) {
            let reason =
                format!("its public name `{public}` starts with `{RESERVED_PREFIX}`, which is Wharf's own");
            return self.skip(server, tool, reason);
        }
        let public: Arc<str> = public.into();
        let place = self.routes.len();
        self.by_name.insert(Arc::clone(&public), place);
        let source = if shown.claimant.local { Source::Local } else { Source::Mcp };
        let identities = if shown.claimant.local { &mut self.by_set } else { &mut self.by_server };
        identities.entry(server.clone()).or_default().insert(tool.name.clone(), place);
        let (server, tool) = (server.clone(), Arc::clone(tool));
        self.routes.push(Route {
            public,
            server,
            tool,
            source,
            owner: shown.owner,
            tally: TallyPlace::default(),
        });
    }

    fn skip(&mut self, server: &ServerName, tool: &Tool, reason: String) {
        self.skipped.push(Skipped { server: server.clone(), tool: Some(tool.name.clone()), reason });
    }

    /// Every tool that can be called: servers in the order of the configuration, tools in their servers' order.
    pub fn tools(&self) -> &[Route] {
        &self.routes
    }

    /// The user interfaces that tools of servers name, if there are tools of several servers: each once.
    pub(crate) fn interfaces(&self) -> &[(ServerName, String)] {
        self.interfaces.get_or_init(|| {
            if self.by_server.len() < 2 {
                return Vec::new();
            }
            let of_servers = self.routes.iter().filter(|route| route.source == Source::Mcp);
            let named = of_servers.flat_map(|route| {
                route.tool.interfaces.iter().map(|address| (route.server.clone(), address.clone()))
            });
            named.collect::<indexmap::IndexSet<_>>().into_iter().collect()
        })
    }

    /// How long a list with these tools may be kept: the least that one of their servers said, if any did.
    pub(crate) fn ttl<'a>(&self, tools: impl IntoIterator<Item = &'a Route>) -> Option<Duration> {
        let of_servers = tools.into_iter().filter(|route| route.source == Source::Mcp);
        of_servers.filter_map(|route| self.ttls.get(&route.server)).min().copied()
    }

    /// What was offered and cannot be called, and why. Tools that the configuration hides are not among them.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Where a public name leads.
    pub fn route(&self, public_name: &str) -> Option<&Route> {
        self.by_name.get(public_name).map(|&place| &self.routes[place])
    }

    /// A tool by its server and its original name, or a local one by its set and its name.
    pub fn find(&self, server: &str, tool: &str) -> Option<&Route> {
        let in_server = self.by_server.get(server).and_then(|tools| tools.get(tool));
        in_server.map(|&place| &self.routes[place]).or_else(|| self.find_local(server, tool))
    }

    /// A local tool by its set and its name.
    pub fn find_local(&self, set: &str, tool: &str) -> Option<&Route> {
        let place = *self.by_set.get(set)?.get(tool)?;
        Some(&self.routes[place])
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
