//! One server of the host: its place, and what it was last seen to offer.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::peer::HostPeer;
use crate::catalog::{Catalog, Rejected};
use crate::config::ServerConfig;
use crate::connect::{Berth, Pool};
use crate::error::{Error, Result};
use crate::names::ToolName;
use crate::policy::Identity;
use crate::registry::ServerTools;
use crate::secret::Redactor;
use crate::wire::Json;

/// A server of the host.
pub(super) struct Server {
    pub(super) config: Arc<ServerConfig>,
    /// What consent to it is remembered for.
    pub(super) identity: Identity,
    /// Erases its secrets.
    pub(super) redactor: Redactor,
    /// What the program itself demands of a call, by tool.
    pub(super) demands: ArcSwap<HashMap<ToolName, Demand>>,
    pub(super) berth: Berth,
    /// Held while the server is asked, so that it is asked once however many want to know.
    seen: Mutex<Option<Seen>>,
}

/// Judges arguments: what is wrong with them, in words.
pub(super) type Demand = Arc<dyn Fn(&Json) -> Result<(), String> + Send + Sync>;

/// What the server offered, and over which connection it said so.
struct Seen {
    connection: u64,
    offered: ServerTools,
    rejected: Vec<Rejected>,
}

impl Server {
    pub(super) fn new(config: Arc<ServerConfig>, pool: &Pool) -> Self {
        let berth = pool.berth(&config);
        let (identity, redactor) = (Identity::Server(config.identity()), pool.dock().redactor(&config));
        Self { config, identity, redactor, demands: ArcSwap::default(), berth, seen: Mutex::new(None) }
    }

    /// What the program itself demands of a call to this tool.
    pub(super) fn demand(&self, tool: &ToolName, arguments: &Json) -> Result<()> {
        let demands = self.demands.load();
        let Some(demand) = demands.get(tool) else { return Ok(()) };
        demand(arguments).map_err(|problem| Error::Arguments {
            server: self.config.name.clone(),
            tool: tool.clone(),
            problems: vec![problem],
        })
    }

    /// What the server offers now, and what of it cannot be used. It is asked again only if it told the peer that
    /// something changed, or if it was connected anew.
    pub(super) async fn look(&self, peer: Option<&HostPeer>) -> Result<(ServerTools, Vec<Rejected>)> {
        let connection = self.berth.connection().await?;
        let mut seen = self.seen.lock().await;
        let changed = peer.is_some_and(|peer| peer.take_changed(&self.config.name));
        if let Some(seen) = seen.as_ref().filter(|s| !changed && s.connection == connection.number()) {
            return Ok((seen.offered.clone(), seen.rejected.clone()));
        }
        let catalog = match Catalog::fetch(&connection, self.config.timeout).await {
            Ok(catalog) => catalog,
            Err(error) => {
                if let (true, Some(peer)) = (changed, peer) {
                    peer.mark_changed(&self.config.name);
                }
                return Err(error);
            }
        };
        let fingerprint = fingerprint(&catalog);
        let offered = ServerTools { config: Arc::clone(&self.config), tools: catalog.tools, fingerprint };
        let rejected = catalog.rejected;
        let connection = connection.number();
        *seen = Some(Seen { connection, offered: offered.clone(), rejected: rejected.clone() });
        Ok((offered, rejected))
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
