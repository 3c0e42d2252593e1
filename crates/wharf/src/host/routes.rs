//! Where names lead.
//!
//! In: a public name, or a server and a tool's own name. Out: the route, as it is known; servers of which nothing is known
//! are asked first. What may not be seen is not there.

use std::sync::Arc;
use std::time::Duration;

use super::looks::{PATIENCE, Sought};
use super::server::{Seen, Server};
use super::{Host, Listing, unknown_of};
use crate::catalog::Offered;
use crate::error::{Error, Result, StderrTail};
use crate::mcp::Prompt;
use crate::names::ToolName;
use crate::registry::{Route, Source};

impl Host {
    /// Where a public name leads. Servers of which nothing is known are asked now.
    pub async fn route(&self, name: &str) -> Result<Route> {
        if let Some(route) = self.scope.snapshot().route(name) {
            if !self.scope.has_changed(route) {
                return Ok(route.clone());
            }
            // Only the server itself is asked: another one's trouble is not this call's.
            self.tools_of(route.server.as_str()).await?;
            if let Some(route) = self.scope.snapshot().route(name) {
                return Ok(route.clone());
            }
        }
        let mut listing = self.known_tools().await;
        if listing.snapshot.route(name).is_none() && self.look_at::<Seen>(self.meant_by(name)).await {
            listing = self.known_tools().await;
        }
        if let Some(route) = listing.snapshot.route(name) {
            return Ok(route.clone());
        }
        self.why_kept_back(&listing, name)?;
        self.why_hidden(|shared| shared.route(name).cloned())?;
        Err(listing.unknown(name))
    }

    /// A tool by its server and its original name, or a local one by its set and its name. The server is asked if it
    /// was not yet.
    pub async fn find(&self, server: &str, tool: &str) -> Result<Route> {
        let fresh = |server: &str| {
            let snapshot = self.scope.snapshot();
            snapshot.find(server, tool).filter(|route| !self.scope.has_changed(route)).cloned()
        };
        if let Some(route) = fresh(server) {
            return Ok(route);
        }
        self.why_hidden(|shared| shared.find(server, tool).cloned())?;
        let known = self.scope.server(server).map_err(|error| self.unknown_in_set(server, tool, error))?;
        if let Some(route) = fresh(known.config.name.as_str()) {
            return Ok(route);
        }
        let listing = self.tools_of(server).await?;
        if let Some(route) = listing.snapshot.find(known.config.name.as_str(), tool) {
            return Ok(route.clone());
        }
        Err(listing.unknown_of(&known.config, tool))
    }

    /// Whether a public name leads somewhere, as far as is known without asking anybody, and where it leads is liked.
    pub(crate) fn knows(&self, name: &str, like: impl FnOnce(&Route) -> bool) -> bool {
        let snapshot = self.scope.snapshot();
        snapshot.route(name).is_some_and(|route| !self.scope.has_changed(route) && like(route))
    }

    /// Why a tool that would bear this name is not shown, if a rule keeps it back.
    fn why_kept_back(&self, listing: &Listing, name: &str) -> Result<()> {
        for (server, rejected) in listing.rejected.iter().filter(|(_, rejected)| rejected.denied.is_some()) {
            let Ok(tool) = ToolName::parse(rejected.name.raw()) else { continue };
            let servers = self.scope.all_servers();
            let config = servers.iter().find(|known| known.config.name == *server).map(|known| &known.config);
            let prefix = config.and_then(|config| config.tool_prefix.as_deref());
            let public = self.scope.registry.names().names(std::iter::once((server, prefix, &tool)));
            if let (Some(denied), [Some(public)]) = (&rejected.denied, &public[..])
                && public == name
            {
                return Err(Error::clone(denied));
            }
        }
        Ok(())
    }

    /// The same for a prompt that nobody knows. True if there was any server to look at.
    pub(crate) async fn look_for_prompt(&self, name: &str) -> bool {
        self.look_at::<Offered<Prompt>>(self.wholly_meant_by(name)).await
    }

    /// Why it cannot be said whether there is a tool of this name: a server that may have it could not be asked.
    pub(crate) fn unreached_tool(&self, name: &str) -> Option<Error> {
        self.meant_by(name).find_map(|server| self.unreached::<Seen>(&server))
    }

    /// The same for a prompt.
    pub(crate) fn unreached_prompt(&self, name: &str) -> Option<Error> {
        self.wholly_meant_by(name).find_map(|server| self.unreached::<Offered<Prompt>>(&server))
    }

    /// Looks at servers, as far as it is not known what they have. True if there is any. For one that nobody has seen
    /// whoever calls waits as long as it may take; for what is from an earlier run not so long, and not often.
    async fn look_at<V: Sought>(&self, servers: impl Iterator<Item = Arc<Server>>) -> bool {
        let looks = servers.filter_map(|server| {
            let is_old = V::is_recalled(&server);
            // What is new at a server that is held to what was accepted could not be used.
            let is_due = || is_old && !server.is_locked() && server.is_due();
            let again = || is_due().then(|| self.scope.seek::<V>(&server));
            let look = self.scope.sought::<V>(&server).or_else(again)?;
            Some(look.within(if is_old { PATIENCE } else { Duration::MAX }))
        });
        let looks: Vec<_> = looks.collect();
        let any = !looks.is_empty();
        futures_util::future::join_all(looks).await;
        any
    }

    /// The servers to which the name of a tool may lead, if that tool is given here. Where names are others than at the
    /// server only the server can tell what is given: there nothing is.
    fn meant_by(&self, name: &str) -> impl Iterator<Item = Arc<Server>> {
        self.named_in(name, self.scope.all_servers()).filter_map(move |(server, rest)| {
            let tool = ToolName::parse(&rest).ok()?;
            self.scope.gives(|rules| rules.gives_tool(&server.config.name, &tool)).then_some(server)
        })
    }

    /// The servers to which the name of something else may lead: they are given as a whole.
    fn wholly_meant_by(&self, name: &str) -> impl Iterator<Item = Arc<Server>> {
        self.named_in(name, self.scope.whole_servers()).map(|(server, _)| server)
    }

    /// Those of these servers that a name may be of, and what is left of it there.
    fn named_in(
        &self,
        name: &str,
        servers: Vec<Arc<Server>>,
    ) -> impl Iterator<Item = (Arc<Server>, String)> + use<> {
        let (rules, name) = (self.scope.registry.names(), name.to_owned());
        servers.into_iter().filter(|server| server.config.enabled).filter_map(move |server| {
            let config = &server.config;
            let rest = rules.rest_of(&name, (&config.name, config.tool_prefix.as_deref()))?.to_owned();
            Some((server, rest))
        })
    }

    fn unreached<V: Sought>(&self, server: &Arc<Server>) -> Option<Error> {
        let is_sought = || self.scope.sought::<V>(server).is_some();
        let is_lost = match server.trouble() {
            // That is nothing which another try would change.
            Some(Error::Denied { .. } | Error::CommandNotAllowed { .. } | Error::NotConnected { .. }) => {
                false
            }
            trouble => trouble.is_some() || (server.live().is_none() && is_sought()),
        };
        is_lost.then(|| Error::Connection {
            server: server.config.name.clone(),
            transport: server.config.transport_name(),
            reason: "it cannot be reached, so nobody knows whether it has that".into(),
            stderr: StderrTail::default(),
            retryable: true,
        })
    }

    /// What is no server may be a set of local tools that lacks this one.
    fn unknown_in_set(&self, set: &str, tool: &str, error: Error) -> Error {
        let snapshot = self.scope.snapshot();
        let in_set = |route: &&Route| route.source == Source::Local && route.server.as_str() == set;
        match (error, snapshot.tools().iter().find(in_set)) {
            (Error::UnknownServer { .. }, Some(route)) => {
                let known = snapshot.tools().iter().filter(in_set).map(|route| &route.tool.name);
                unknown_of(&route.server, tool, std::iter::empty(), known)
            }
            (error, _) => error,
        }
    }
}
