//! A server, and a tool, as values.

use std::sync::Arc;

use super::{CallOptions, Host};
use crate::config::ServerConfig;
use crate::connect::Connection;
use crate::error::Result;
use crate::mcp::{ServerInfo, Tool};
use crate::outcome::Outcome;
use crate::registry::Route;
use crate::wire::Json;

/// One server as a value: its tools by their original names, its configuration, its connection.
#[derive(Clone, Debug)]
pub struct Ensemble {
    host: Host,
    config: Arc<ServerConfig>,
    connection: Connection,
    routes: Vec<Route>,
}

/// One tool as a value that can be called.
#[derive(Clone, Debug)]
pub struct Callable {
    host: Host,
    route: Route,
}

// === impl Ensemble ===

impl Ensemble {
    pub(super) async fn open(host: &Host, name: &str) -> Result<Self> {
        let server = host.scope.server(name)?;
        let listing = host.tools_of(name).await?;
        let connection = server.berth.connection().await?;
        let routes =
            listing.snapshot.tools().iter().filter(|r| r.is_of(&server.config.name)).cloned().collect();
        Ok(Self { host: host.clone(), config: Arc::clone(&server.config), connection, routes })
    }

    /// How the server was configured.
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// What the server told about itself.
    pub fn info(&self) -> &ServerInfo {
        self.connection.info()
    }

    /// The live connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Its tools, by their original names, in the server's order.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.routes.iter().map(|route| &*route.tool)
    }

    /// One of its tools as a value.
    pub fn tool(&self, name: &str) -> Option<Callable> {
        let route = self.routes.iter().find(|route| route.tool.name.as_str() == name)?;
        Some(Callable::new(self.host.clone(), route.clone()))
    }

    /// Calls one of its tools by its original name.
    pub async fn call(&self, tool: &str, arguments: impl Into<Json>) -> Outcome {
        self.host.call_tool(self.config.name.as_str(), tool, arguments, CallOptions::default()).await
    }

    /// Closes the server's connection. It is made again when it is needed.
    pub async fn disconnect(&self) -> Result<()> {
        self.host.scope.server(self.config.name.as_str())?.berth.disconnect().await;
        Ok(())
    }
}

// === impl Callable ===

impl Callable {
    pub(super) fn new(host: Host, route: Route) -> Self {
        Self { host, route }
    }

    /// The tool.
    pub fn tool(&self) -> &Tool {
        &self.route.tool
    }

    /// The name that models use for it.
    pub fn public_name(&self) -> &str {
        &self.route.public
    }

    /// Calls it.
    pub async fn call(&self, arguments: impl Into<Json>) -> Outcome {
        self.call_with(arguments, CallOptions::default()).await
    }

    /// Calls it, with options.
    pub async fn call_with(&self, arguments: impl Into<Json>, options: CallOptions<'_>) -> Outcome {
        self.host.run(&self.route, &arguments.into(), options).await
    }
}
