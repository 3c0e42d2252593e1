//! One server of the host: its place, and what it was last seen to offer.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::peer::HostPeer;
use crate::catalog::{Catalog, Rejected};
use crate::config::ServerConfig;
use crate::connect::{Berth, Pool};
use crate::error::Result;
use crate::registry::{Registry, ServerTools};
use crate::wire::Json;

/// A server of the host.
pub(super) struct Server {
    pub(super) config: Arc<ServerConfig>,
    pub(super) berth: Berth,
    /// Held while the server is asked, so that it is asked once however many want to know.
    seen: Mutex<Option<Seen>>,
}

/// What the server offered, and over which connection it said so.
struct Seen {
    connection: u64,
    rejected: Vec<Rejected>,
}

impl Server {
    pub(super) fn new(config: Arc<ServerConfig>, pool: &Pool) -> Self {
        let berth = pool.berth(&config);
        Self { config, berth, seen: Mutex::new(None) }
    }

    /// Makes sure that the registry holds what the server offers now. It is asked again only if it said that something
    /// changed, or if it was connected anew.
    pub(super) async fn refresh(&self, peer: &HostPeer, registry: &Registry) -> Result<Vec<Rejected>> {
        let connection = self.berth.connection().await?;
        let mut seen = self.seen.lock().await;
        let changed = peer.take_changed(&self.config.name);
        if let Some(seen) = seen.as_ref().filter(|s| !changed && s.connection == connection.number()) {
            return Ok(seen.rejected.clone());
        }
        let new = seen.as_ref().is_none_or(|s| s.connection != connection.number());
        if new && connection.info().offers_flag("tools", "listChanged") {
            // A legacy server tells without being asked; a modern one wants to be.
            connection.listen(Json::of(&serde_json::json!({ "toolsListChanged": true })));
        }
        let catalog = match Catalog::fetch(&connection, self.config.timeout).await {
            Ok(catalog) => catalog,
            Err(error) => {
                if changed {
                    peer.mark_changed(&self.config.name);
                }
                return Err(error);
            }
        };
        let fingerprint = fingerprint(&catalog);
        registry.replace(ServerTools { config: Arc::clone(&self.config), tools: catalog.tools, fingerprint });
        *seen = Some(Seen { connection: connection.number(), rejected: catalog.rejected.clone() });
        Ok(catalog.rejected)
    }
}

/// The same tools, in the same order, byte for byte, give the same fingerprint.
fn fingerprint(catalog: &Catalog) -> [u8; 32] {
    let mut hash = Sha256::new();
    for tool in catalog.tools.iter() {
        hash.update((tool.raw.bytes().len() as u64).to_le_bytes());
        hash.update(tool.raw.bytes());
    }
    hash.finalize().into()
}
