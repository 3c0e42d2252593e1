//! Where names lead.
//!
//! In: a public name, or a server and a tool's own name. Out: the route, as it is known; servers of which nothing is known
//! are asked first. What may not be seen is not there.

use std::sync::Arc;
use std::time::Duration;

use super::server::{Seen, Server};
use super::{Host, Listing, unknown_of};
use crate::error::{Error, Result};
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
        let listing = self.known_tools().await;
        if let Some(route) = listing.snapshot.route(name) {
            return Ok(route.clone());
        }
        if let Some(route) = self.awaited(name).await {
            return Ok(route);
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

    /// Where a name leads that may be one of a server whose tools nobody knows yet. Whoever calls it waits as long as the
    /// server may take.
    pub(super) async fn awaited(&self, name: &str) -> Option<Route> {
        let looks = self.meant_by(name).filter_map(|server| self.scope.sought::<Seen>(&server));
        let looks: Vec<_> = looks.map(|look| look.within(Duration::MAX)).collect();
        if looks.is_empty() {
            return None;
        }
        futures_util::future::join_all(looks).await;
        self.scope.snapshot().route(name).cloned()
    }

    /// The servers among those that can be seen from here to which a name may lead.
    fn meant_by(&self, name: &str) -> impl Iterator<Item = Arc<Server>> {
        let rules = self.scope.registry.names();
        let is_meant = move |server: &Arc<Server>| {
            let config = &server.config;
            let rest = rules.rest_of(name, (&config.name, config.tool_prefix.as_deref()));
            // What is given is looked at by its own name, which only the server can tell where names are others here.
            let given = |rest: &str| match ToolName::parse(rest) {
                Ok(tool) => self.scope.gives(|rules| rules.gives_tool(&config.name, &tool)),
                Err(_) => false,
            };
            config.enabled && rest.is_some_and(given)
        };
        self.scope.all_servers().into_iter().filter(is_meant)
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
