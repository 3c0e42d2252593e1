//! A program on its way to be started: what policy says of it, and how far it is let out.
//!
//! In: a server whose program is ours to start. Out: its pipes, with a proxy of its own where its profile names hosts.

use std::sync::Arc;

use super::berth::Dock;
use super::connection::Wire;
use super::link::Link;
use super::pipe::PipeLink;
use super::program;
use super::stdio::{self, Unstarted, Yard};
use crate::config::{ServerConfig, Stdio};
use crate::error::{Error, Result, StderrTail};
use crate::policy::{Confinement, EgressRules, LaunchPermit};
use crate::sandbox::egress::{Egress, EgressOptions};
use crate::sandbox::{Sandbox, WayOut};

impl Dock {
    pub(super) async fn permit(&self, config: &ServerConfig, stdio: &Stdio) -> Result<LaunchPermit> {
        let found = program::find(&stdio.command, self.environment.get("PATH").map(String::as_str));
        let policy = self.policy.now();
        let hash = match &found {
            Some(found) if policy.is_locked(&config.name) => program::hash(found).await,
            _ => None,
        };
        let found = (found.as_deref(), hash.as_deref());
        policy.permit_launch(&program::request((config, stdio), found, &self.environment))
    }

    /// Fetches what it needs before it is started. That has a time of its own, which is not that of the handshake.
    pub(super) async fn prepare(&self, config: &ServerConfig, stdio: &Stdio) -> Result<()> {
        if self.packages.is_some() {
            self.provide(self.permit(config, stdio).await?).await?;
        }
        Ok(())
    }

    pub(super) async fn launch(&self, config: &ServerConfig, stdio: &Stdio) -> Result<Wire> {
        let permit = self.permit(config, stdio).await?;
        self.warn(config, permit.warnings());
        let permit = self.provide(permit).await?;
        let inbox = self.inbox(config);
        let yard = Yard {
            scratch: self.scratch.clone(),
            grace: self.grace,
            leaving: self.leaving.clone(),
            sandbox: self.sandbox.clone(),
            way_out: self.way_out(&permit)?,
            trail: self.trail.clone(),
        };
        let started = stdio::start(permit, yard, inbox.monitor.clone()).await;
        let started = started.map_err(|unstarted| match unstarted {
            Unstarted::Unconfined { reason, hint } => {
                Error::Sandbox { server: config.name.clone(), reason, hint }
            }
            Unstarted::Failed(reason) => Error::Connection {
                server: config.name.clone(),
                transport: "stdio",
                reason,
                stderr: StderrTail::default(),
                retryable: false,
            },
        })?;
        self.warn(config, &started.warnings);
        let link =
            Link::Pipe(PipeLink::start(started.child, started.stdin, started.stdout, Arc::clone(&inbox)));
        Ok(Wire { server: config.name.clone(), transport: "stdio", link, inbox })
    }

    /// Opens the one way to the network that a confined program has, if its profile names any host or it is to be learnt
    /// which it should name.
    fn way_out(&self, permit: &LaunchPermit) -> Result<Option<WayOut>> {
        let Confinement::Within(profile) = permit.confinement() else { return Ok(None) };
        let watched = self.sandbox.as_ref().and_then(Sandbox::watches_hosts);
        if profile.domains.is_empty() && watched.is_none() {
            return Ok(None);
        }
        let rules = EgressRules::parse(&profile.domains)?;
        let (rules, asked) = match watched {
            Some((asked, true)) => (rules.and_everywhere(), Some(asked)),
            Some((asked, false)) => (rules, Some(asked)),
            None => (rules, None),
        };
        let options = EgressOptions {
            net: self.egress.clone(),
            asked,
            ..EgressOptions::new(permit.server().clone(), rules, self.events.clone())
        };
        let folder = stdio::OwnFolder::new(permit.server(), &self.scratch);
        let folder =
            folder.map_err(|e| Error::Internal(format!("no folder for a socket can be had: {e}")))?;
        let egress = Egress::listen(&folder.path().join("egress.sock"), options)?;
        let socket = egress.path().to_path_buf();
        Ok(Some(WayOut { socket, _keeper: Arc::new((egress, folder)) }))
    }
}
