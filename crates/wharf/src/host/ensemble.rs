//! A server, and a tool, as values.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CallOptions, Host};
use crate::config::ServerConfig;
use crate::connect::Connection;
use crate::error::{Error, Result, StderrTail};
use crate::mcp::{ServerInfo, Tool};
use crate::outcome::Outcome;
use crate::registry::Route;
use crate::text::Escaped;
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

/// How deep arguments of a type may be nested.
const ARGUMENTS_DEPTH: usize = 127;

// === impl Ensemble ===

impl Ensemble {
    pub(super) async fn open(host: &Host, name: &str) -> Result<Self> {
        let server = host.scope.server(name)?;
        let listing = host.tools_of(name).await?;
        let connection = server.any_connection().await?;
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
        self.host.scope.server(self.config.name.as_str())?.disconnect().await;
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

    /// Calls it with arguments of a type, and reads the structured result as one. Of a tool that sends none, the text
    /// is read instead, if it is JSON.
    ///
    /// # Errors
    /// What ended the call, the tool's own failure, or a result that does not fit the type. In the last case the tool
    /// has run.
    pub async fn call_as<A, R>(&self, arguments: &A) -> Result<R>
    where
        A: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        let arguments = serde_json::to_vec(arguments).map_err(|error| self.misfit(&error.to_string()))?;
        let arguments =
            Json::parse(arguments, ARGUMENTS_DEPTH).map_err(|error| self.misfit(&error.to_string()))?;
        let outcome = self.call(arguments).await.into_result()?;
        let misread = |why: String| Error::Protocol {
            server: self.route.server.clone(),
            reason: format!("the result of `{}` {why}", self.route.tool.name),
            sent: true,
            stderr: StderrTail::default(),
        };
        if let Some(structured) = outcome.raw.member("structuredContent") {
            match structured.to() {
                // `null` from a server that has nothing to say; a type that takes it has taken it.
                Err(_) if structured.is_null() => {}
                read => {
                    return read.map_err(|error| {
                        misread(format!(
                            "does not fit the type that is wanted: {}",
                            Escaped(&error.to_string())
                        ))
                    });
                }
            }
        }
        serde_json::from_str(&outcome.to_text())
            .map_err(|_| misread("has no structured content, and its text does not fit either".into()))
    }

    /// The same as a function value: what it gives is the outcome, in every case.
    pub fn into_fn(self) -> impl Fn(Json) -> BoxFuture<'static, Outcome> + Clone + Send + Sync + 'static {
        move |arguments| {
            let callable = self.clone();
            Box::pin(async move { callable.call(arguments).await })
        }
    }

    fn misfit(&self, why: &str) -> Error {
        Error::Arguments {
            server: self.route.server.clone(),
            tool: self.route.tool.name.clone(),
            problems: vec![format!("the arguments cannot be written as JSON: {}", Escaped(why))],
        }
    }
}
