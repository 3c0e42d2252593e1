//! Reaching a server by its address: permit, era, handshake, and the older transport where nothing else answers.

use std::sync::Arc;
use std::time::SystemTime;

use super::{HttpLink, Target, headers};
use crate::config::{Remote, ServerConfig};
use crate::connect::berth::Dock;
use crate::connect::connection::{Connection, Wire};
use crate::connect::era;
use crate::connect::handshake::{self, Introduction, Probe, Turned};
use crate::connect::link::Link;
use crate::connect::sse::SseLink;
use crate::error::{Error, Result, StderrTail};
use crate::mcp::Era;

impl Dock {
    /// Connects over Streamable HTTP, in the era that the server speaks.
    pub(in crate::connect) async fn open_http(
        &self,
        config: &ServerConfig,
        remote: &Remote,
        intro: &Introduction,
    ) -> Result<Connection> {
        let target = self.target(config, remote).await?;
        let inbox = self.inbox(config);
        let link = HttpLink::new(target, headers::of_config(config, remote)?, Arc::clone(&inbox));
        let wire = Wire { server: config.name.clone(), transport: "http", link: Link::Http(link), inbox };
        let key = era::key(config);
        let known = self.eras.get(&key).filter(|v| v.is_fresh(SystemTime::now()));
        if known.is_none_or(|v| v.era != Era::Legacy) {
            match handshake::probe(&wire, intro).await? {
                Probe::Modern(info) => {
                    self.eras.put(&key, handshake::verdict(Era::Modern));
                    return Ok(handshake::modern(wire, info, intro));
                }
                Probe::Legacy | Probe::Silent | Probe::Gone => {}
            }
        }
        let connection = match handshake::try_initialize(wire, intro).await {
            Ok(connection) => connection,
            // Not a word of Streamable HTTP: perhaps it is older than that. If it is not, the first refusal says more.
            Err(Turned { error, refused: true }) => {
                let older = self.open_sse(config, remote, intro).await;
                older.map_err(|_| error)?
            }
            Err(Turned { error, .. }) => return Err(error),
        };
        self.eras.put(&key, handshake::verdict(Era::Legacy));
        Ok(connection)
    }

    /// Connects over HTTP+SSE.
    pub(in crate::connect) async fn open_sse(
        &self,
        config: &ServerConfig,
        remote: &Remote,
        intro: &Introduction,
    ) -> Result<Connection> {
        let target = self.target(config, remote).await?;
        let headers = headers::of_config(config, remote)?;
        let inbox = self.inbox(config);
        let opening = SseLink::open(target, remote.url.expose(), headers, Arc::clone(&inbox));
        let link = match tokio::time::timeout_at(intro.deadline, opening).await {
            Ok(opened) => opened?,
            Err(_) => {
                return Err(Error::Timeout {
                    server: config.name.clone(),
                    after: config.start_timeout,
                    sent: false,
                    stderr: StderrTail::default(),
                });
            }
        };
        let wire = Wire { server: config.name.clone(), transport: "sse", link: Link::Sse(link), inbox };
        handshake::initialize(wire, intro).await
    }

    /// Asks policy, and turns its permit into a place to send requests to.
    async fn target(&self, config: &ServerConfig, remote: &Remote) -> Result<Target> {
        let permit = self.policy.now().permit_connect(&config.name, remote, &config.origin)?;
        self.warn(config, permit.warnings());
        let endpoint = self.net.for_permit(&permit);
        if endpoint.host().is_none() {
            return Err(Error::config(format!("server `{}`: its `url` cannot be requested", config.name)));
        }
        let pass = self.pass(config);
        if let Some(pass) = &pass {
            Box::pin(pass.look_up()).await?;
        }
        Ok(Target { endpoint, uri: None, pass })
    }
}
