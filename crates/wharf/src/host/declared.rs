//! What servers declare that they have beside tools.
//!
//! In: the servers that can be seen from here. Out: their capabilities, from their connections where there are any. Only
//! a server of which nothing is known is connected for it, and not for long.

use std::time::Duration;

use futures_util::StreamExt;

use super::{Host, STARTING};
use crate::catalog::Part;
use crate::connect::Connection;
use crate::names::ServerName;
use crate::registry::NameRules;

/// What a server has beside tools, or several have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
    pub(crate) subscriptions: bool,
    pub(crate) completions: bool,
    pub(crate) logging: bool,
}

// === impl Host ===

impl Host {
    /// What each server declares, in the order of the configuration. `None` for one that is not connected and is either
    /// known to whoever asks, or could not be connected in this time.
    pub(crate) async fn declared(
        &self,
        patience: Duration,
        is_known: impl Fn(&ServerName) -> bool,
    ) -> Vec<(ServerName, Option<Declared>)> {
        let servers = self.scope.all_servers().into_iter().filter(|server| server.config.enabled);
        let looks = servers.map(|server| {
            let live = server.berth.live();
            let ask = live.is_none() && !is_known(&server.config.name);
            async move {
                let connection = match ask {
                    true => tokio::time::timeout(patience, server.berth.connection()).await.ok(),
                    false => live.map(Ok),
                };
                let declared = connection.and_then(Result::ok).map(|c| Declared::of(&c));
                (server.config.name.clone(), declared)
            }
        });
        futures_util::stream::iter(looks.collect::<Vec<_>>()).buffered(STARTING).collect().await
    }

    /// How public names are made.
    pub(crate) fn name_rules(&self) -> NameRules {
        self.scope.registry.rules()
    }
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
        }
    }
}
