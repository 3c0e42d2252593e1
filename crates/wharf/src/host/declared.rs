//! What servers declare that they have beside tools.
//!
//! In: the servers that can be seen from here. Out: their capabilities, from their connections where there are any, or
//! as they were last seen. Only a server of which nothing is known is connected for it, and not for long.

use std::time::Duration;

use futures_util::StreamExt;

use super::server::Server;
use super::{Host, STARTING};
use crate::catalog::Part;
use crate::connect::Connection;
use crate::mcp::{Era, extension};
use crate::names::ServerName;
use crate::registry::NameRules;
use crate::wire::Json;

/// What a server has beside tools, or several have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
    pub(crate) subscriptions: bool,
    pub(crate) completions: bool,
    pub(crate) logging: bool,
    pub(crate) tasks: bool,
}

// === impl Host ===

impl Host {
    /// What each server declares that is given here as a whole, in the order of the configuration. `None` for one that
    /// is not connected and is either known to whoever asks, or could not be connected in this time.
    pub(crate) async fn declared(
        &self,
        patience: Duration,
        is_known: impl Fn(&ServerName) -> bool,
    ) -> Vec<(ServerName, Option<Declared>)> {
        let servers = self.scope.whole_servers().into_iter().filter(|server| server.config.enabled);
        let looks = servers.map(|server| {
            let known = is_known(&server.config.name);
            async move {
                let name = server.config.name.clone();
                let look = async { declared_by(&*self.scope.settled(server).await, known).await };
                (name, tokio::time::timeout(patience, look).await.ok().flatten())
            }
        });
        futures_util::stream::iter(looks.collect::<Vec<_>>()).buffered(STARTING).collect().await
    }

    /// The servers that are given here as a whole.
    pub(crate) fn whole_servers(&self) -> Vec<ServerName> {
        self.scope.whole_servers().iter().map(|server| server.config.name.clone()).collect()
    }

    /// How public names are made.
    pub(crate) fn name_rules(&self) -> NameRules {
        self.scope.registry.names()
    }
}

/// From its connection, from what an earlier run saw, or from a new connection.
async fn declared_by(server: &Server, known: bool) -> Option<Declared> {
    if let Some(connection) = server.live() {
        return Some(Declared::of(&connection));
    }
    if let Some(pinned) = server.recalled() {
        return Some(Declared::said(&pinned.capabilities, pinned.revision.era()));
    }
    if known || server.recent_trouble().is_some() {
        return None;
    }
    Some(Declared::of(&server.connection().await.ok()?))
}

// === impl Declared ===

impl Declared {
    fn of(connection: &Connection) -> Self {
        let has = |part: Part| part.is_offered(connection);
        Self {
            prompts: has(Part::Prompts),
            resources: has(Part::Resources),
            subscriptions: has(Part::Subscriptions),
            completions: has(Part::Completions),
            logging: has(Part::Logging),
            tasks: has(Part::Tasks),
        }
    }

    /// What capabilities say, as a server wrote them.
    fn said(capabilities: &Json, era: Era) -> Self {
        let has = |name: &str| capabilities.member(name).is_some_and(|c| !c.is_null());
        let watch = capabilities.member("resources").and_then(|resources| resources.member("subscribe"));
        Self {
            prompts: has("prompts"),
            resources: has("resources"),
            subscriptions: watch.is_some_and(|flag| flag.as_str() == "true"),
            completions: has("completions"),
            logging: has("logging"),
            tasks: era == Era::Modern && extension::is_in(capabilities, extension::TASKS),
        }
    }

    /// What one of the two has, or both.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            prompts: self.prompts || other.prompts,
            resources: self.resources || other.resources,
            subscriptions: self.subscriptions || other.subscriptions,
            completions: self.completions || other.completions,
            logging: self.logging || other.logging,
            tasks: self.tasks || other.tasks,
        }
    }
}
