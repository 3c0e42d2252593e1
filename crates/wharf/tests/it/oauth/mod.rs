//! Logging in at servers: an authorization server and a guarded MCP server on loopback, and somebody who consents.

mod door;
mod hostile;
mod login;
mod renewal;
mod store;
mod transports;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use url::Url;
use wharf::config::ServerConfig;
use wharf::connect::{Page, TokenMemory, TokenStore, Visiting, Visitor};
use wharf::names::ServerName;
use wharf::secret::Secret;
use wharf::{CallOptions, Error, Host, Outcome, Result};
use wharf_testkit::HttpPuppet;
use wharf_testkit::http::honest_modern;
use wharf_testkit::oauth::{self, Authority, Guard};

/// A server with one tool, `echo`, and another, `write`, behind a guard.
pub(super) fn guarded(guard: Guard) -> HttpPuppet {
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let handler = guard.before(honest_modern(vec![tool("echo"), tool("write")]));
    HttpPuppet::start(move |request| handler(request))
}

/// The config of a server named `srv`.
pub(super) fn config(url: &str) -> ServerConfig {
    ServerConfig::http(ServerName::parse("srv").unwrap(), url).unwrap()
}

/// A host with that server, whose logins are kept there.
pub(super) async fn host_with(config: ServerConfig, store: Arc<dyn TokenStore>) -> Host {
    Host::builder().server(config).tokens(store).start().await.unwrap()
}

/// The same, with logins in memory.
pub(super) async fn host(server: &HttpPuppet) -> Host {
    host_with(config(&server.url()), Arc::new(TokenMemory::default())).await
}

/// Calls a tool with a number, which must come back.
pub(super) async fn call(host: &Host, tool: &str) -> Result<()> {
    let outcome: Outcome = host.call_tool("srv", tool, json!({ "n": 7 }), CallOptions::default()).await;
    let text = outcome.to_text();
    outcome.into_result()?;
    assert!(text.contains("7"), "{text}");
    Ok(())
}

/// Logs in as somebody who consents.
pub(super) async fn log_in(host: &Host) -> Result<wharf::connect::Outline> {
    host.login("srv", &Person::new(), &[]).await
}

/// Somebody who consents, and remembers which pages they saw.
#[derive(Default)]
pub(super) struct Person {
    pages: Mutex<Vec<Url>>,
    /// What they do with the address they come back with.
    twist: Option<fn(String) -> String>,
}

impl Person {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn who(twist: fn(String) -> String) -> Self {
        Self { twist: Some(twist), ..Self::default() }
    }

    pub(super) fn pages(&self) -> Vec<Url> {
        self.pages.lock().unwrap().clone()
    }

    /// A parameter of the last page.
    pub(super) fn asked(&self, name: &str) -> Option<String> {
        let page = self.pages().last()?.clone();
        let found = page.query_pairs().find(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned())
    }
}

impl Visitor for Person {
    fn returns_to(&self) -> Url {
        "http://127.0.0.1:9/callback".parse().unwrap()
    }

    fn visit<'a>(&'a self, page: &'a Page) -> Visiting<'a> {
        Box::pin(async move {
            self.pages.lock().unwrap().push(page.url().clone());
            let back = oauth::consent(page.url().as_str()).await;
            let back = back.ok_or_else(|| Error::Internal("the page leads nowhere".into()))?;
            Ok(Secret::new(self.twist.map_or(back.clone(), |twist| twist(back))))
        })
    }
}

/// What a server was shown with its requests for a method, one each.
pub(super) fn shown(server: &HttpPuppet, method: &str) -> Vec<Option<String>> {
    let asked = server.requests().into_iter().filter(|request| request.rpc_method() == method);
    asked.map(|request| request.header("authorization").map(str::to_owned)).collect()
}

/// Metadata with one member replaced.
pub(super) fn with(name: &'static str, value: Value) -> oauth::Edit {
    Arc::new(move |metadata| metadata[name] = value.clone())
}

/// An honest authorization server, and a server behind it.
pub(super) fn honest() -> (Authority, HttpPuppet) {
    let authority = Authority::start();
    let server = guarded(authority.guard());
    (authority, server)
}
