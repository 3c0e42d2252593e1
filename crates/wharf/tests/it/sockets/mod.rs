//! Unix sockets and WebSockets as transports: to servers, and for callers.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly, in its scenery too")]

mod client;
mod config;
mod doors;
mod hostile;
mod served;

use wharf::Host;
use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf_testkit::{Puppet, UnixPuppet, WsPuppet};

use crate::support::{at, folder, quick};

/// What a puppet is reached through.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Through {
    Unix,
    Ws,
}

const BOTH: [Through; 2] = [Through::Unix, Through::Ws];

/// A puppet that listens, until it is dropped.
struct Listening {
    config: ServerConfig,
    files: tempfile::TempDir,
    unix: Option<UnixPuppet>,
    ws: Option<WsPuppet>,
}

impl Through {
    async fn listen(self, script: &Puppet) -> Listening {
        let files = folder();
        let name = ServerName::parse("pup").unwrap();
        match self {
            Self::Unix => {
                let path = at(&files, "s");
                let unix = UnixPuppet::listen(&path, script);
                Listening { config: ServerConfig::unix(name, path), files, unix: Some(unix), ws: None }
            }
            Self::Ws => {
                let ws = WsPuppet::listen(script).await;
                let config = ServerConfig::websocket(name, &ws.url()).unwrap();
                Listening { config, files, unix: None, ws: Some(ws) }
            }
        }
    }
}

impl Listening {
    /// A host with this server, named `pup`, that loses patience soon.
    async fn host(&self) -> Host {
        quick().server(self.config.clone()).start().await.unwrap()
    }
}
