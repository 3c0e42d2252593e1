//! Taking in many tools at once: chosen servers, chosen tools, demands of one's own.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::de::DeserializeOwned;

use super::docking::Opening;
use super::server::Demand;
use super::{Host, ServerRef, unknown_of};
use crate::catalog::Rejected;
use crate::config::ServerConfig;
use crate::error::{Error, Result};
use crate::names::{ServerName, ToolName};
use crate::policy::is_visible;
use crate::registry::ServerTools;
use crate::wire::Json;

/// One server to take in.
pub struct Load {
    server: ServerRef,
    tools: Option<Vec<String>>,
    demands: Vec<(String, Demand)>,
    update: bool,
}

/// Several servers to take in, as a configuration has them.
#[derive(Clone, Debug, Default)]
pub struct LoadAll {
    servers: Vec<ServerConfig>,
    only: Option<Vec<String>>,
    update: bool,
}

// === impl Host ===

impl Host {
    /// Takes in a server's tools, and gives the names that callers use, in the server's order. If anything is not as it
    /// was asked for, nothing is taken in.
    pub async fn load(&self, load: Load) -> Result<Vec<Arc<str>>> {
        let (mut config, replace) = self.meant(load.server, load.update)?;
        if let Some(tools) = &load.tools {
            config.enabled_tools = Some(narrowed(&config, tools)?);
        }
        let mut demands = HashMap::new();
        for (tool, demand) in load.demands {
            let tool = ToolName::parse(&tool).map_err(|e| Error::config(e.to_string()))?;
            demands.insert(tool, demand);
        }
        let needed: Vec<String> = load.tools.into_iter().flatten().collect();
        let needed = needed.iter().map(String::as_str).chain(demands.keys().map(ToolName::as_str));
        // Nobody sees it until it is as it was asked for: what is there stays as it is until then.
        let opening = Opening::new(&self.scope, config)?;
        let server = Arc::clone(&opening.server);
        let looked = server.look(None).await;
        let offered = match looked.and_then(|seen| complete(seen.offered, &seen.rejected, needed)) {
            Ok(offered) => offered,
            Err(error) => {
                opening.give_up().await;
                return Err(error);
            }
        };
        server.demands.put(Arc::new(demands));
        if !self.scope.put(&server, replace) {
            opening.give_up().await;
            return Err(taken(&server.config.name));
        }
        self.scope.publish(&server, offered);
        if let Err(closed) = self.scope.open() {
            self.scope.remove(&server).await;
            return Err(closed);
        }
        let snapshot = self.scope.snapshot();
        let own = snapshot.tools().iter().filter(|route| route.is_of(&server.config.name));
        Ok(own.map(|route| Arc::clone(&route.public)).collect())
    }

    /// Takes in several servers side by side. Each is reported by itself: one that fails does not keep the others out.
    pub async fn load_all(&self, load: LoadAll) -> IndexMap<ServerName, Result<Vec<Arc<str>>>> {
        let LoadAll { servers, only, update } = load;
        // As a person writes them, like the names in a configuration.
        let same = |wanted: &String, name: &ServerName| ServerName::parse(wanted).as_ref() == Ok(name);
        let wanted = |name: &ServerName| only.as_ref().is_none_or(|only| only.iter().any(|n| same(n, name)));
        let loads = servers.into_iter().filter(|config| wanted(&config.name)).map(|config| async move {
            let name = config.name.clone();
            let load = Load { update, ..Load::new(config) };
            (name, self.load(load).await)
        });
        let mut loaded: IndexMap<_, _> = futures_util::future::join_all(loads).await.into_iter().collect();
        for name in only.iter().flatten() {
            if let Ok(parsed) = ServerName::parse(name) {
                let missing = || {
                    Err(Error::UnknownServer {
                        name: name.clone(),
                        hint: "it is not in the configuration".into(),
                    })
                };
                loaded.entry(parsed).or_insert_with(missing);
            }
        }
        loaded
    }

    /// The configuration that is meant, and whether it may stand in the place of one of its name.
    fn meant(&self, server: ServerRef, update: bool) -> Result<(ServerConfig, bool)> {
        match server {
            // It is there already, and this says which of its tools, and how.
            ServerRef::Named(name) => Ok((ServerConfig::clone(&self.scope.server(&name)?.config), true)),
            ServerRef::Inline(config) => {
                self.scope.admit(&config)?;
                if !update && self.scope.servers.load().contains_key(&config.name) {
                    return Err(taken(&config.name));
                }
                Ok((*config, update))
            }
        }
    }
}

fn taken(name: &ServerName) -> Error {
    Error::Config {
        message: format!("server `{name}` is registered already"),
        hint: Some("use `update` to put this one in its place, or another name".into()),
    }
}

/// What a server offers, if every tool that is needed is in it.
fn complete<'a>(
    offered: ServerTools,
    rejected: &[Rejected],
    mut needed: impl Iterator<Item = &'a str>,
) -> Result<ServerTools> {
    let config = &offered.config;
    let names = || offered.tools.iter().map(|tool| &tool.name).filter(|name| is_visible(config, name));
    match needed.find(|needed| !names().any(|name| name.as_str() == *needed)) {
        Some(missing) => Err(unknown_of(&config.name, missing, rejected.iter(), names())),
        None => Ok(offered),
    }
}

/// The chosen tools, none of which the configuration hides.
fn narrowed(config: &ServerConfig, tools: &[String]) -> Result<Vec<String>> {
    for tool in tools {
        let name = ToolName::parse(tool).map_err(|e| Error::config(e.to_string()))?;
        if !is_visible(config, &name) {
            return Err(Error::Denied {
                what: format!("tool `{name}` of server `{}`", config.name),
                rule: format!("the lists of tools of server `{}`", config.name),
                hint: "change `enabled_tools` or `disabled_tools` first".into(),
            });
        }
    }
    Ok(tools.to_vec())
}

// === impl Load ===

impl Load {
    /// A server of the host by its name, or one described on the spot. All its tools are taken in.
    pub fn new(server: impl Into<ServerRef>) -> Self {
        Self { server: server.into(), tools: None, demands: Vec::new(), update: false }
    }

    /// Only these tools, by their original names.
    #[must_use]
    pub fn tools<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.tools = Some(tools.into_iter().map(Into::into).collect());
        self
    }

    /// Demands of one's own on a tool's arguments, after the server's schema: an error keeps the call from being sent.
    #[must_use]
    pub fn demand(
        mut self,
        tool: impl Into<String>,
        demand: impl Fn(&Json) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.demands.push((tool.into(), Arc::new(demand)));
        self
    }

    /// The same by a type: the arguments must be readable as one.
    #[must_use]
    pub fn demand_type<T: DeserializeOwned>(self, tool: impl Into<String>) -> Self {
        self.demand(tool, |arguments| arguments.to::<T>().map(drop).map_err(|e| e.to_string()))
    }

    /// Puts it in the place of a server of its name. Without this, that is refused.
    #[must_use]
    pub fn update(mut self) -> Self {
        self.update = true;
        self
    }
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load")
            .field("server", &self.server)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

// === impl LoadAll ===

impl LoadAll {
    /// Every one of these servers.
    pub fn new(servers: impl IntoIterator<Item = ServerConfig>) -> Self {
        Self { servers: servers.into_iter().collect(), ..Self::default() }
    }

    /// Only the servers of these names.
    #[must_use]
    pub fn only<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.only = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Puts them in the place of servers of their names. Without this, that is refused.
    #[must_use]
    pub fn update(mut self) -> Self {
        self.update = true;
        self
    }
}
