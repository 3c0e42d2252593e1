//! What a server offers.
//!
//! In: a [`Connection`]. Out: its tools, resources and prompts, all pages of them, each read by itself: one that cannot
//! be used is left out with the reason and the others stay; and word of resources that change. What tools are called
//! for models, and who sees them, is the registry's business.

mod drift;
mod lockfile;
mod offered;
mod pages;
mod pinned;
pub mod scan;
mod tasks;
mod watch;

pub use drift::{Change, Drift, How, What, diff_lines};
pub use lockfile::{LOCKFILE_MAX, LockEntry, LockedCatalogs, Lockfile};
pub(crate) use offered::Part;
pub use offered::{Offered, prompts, resource_templates, resources};
pub use pinned::{
    CATALOGUE_MAX, CatalogMemory, CatalogStore, Catalogue, Definition, Definitions, PinKey, Pinned,
};
pub(crate) use tasks::{TaskNews, TaskWatchers};
pub use watch::{Subscription, Update, Watchers};

pub use crate::mcp::ListKind;
pub use crate::wire::fingerprint;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::mcp::{Tool, code, method};
use crate::names::ServerName;
use crate::text::Foreign;
use crate::wire::Json;
use pages::List;

/// What a server offers, as it said it when it was asked.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// The server.
    pub server: ServerName,
    /// Its tools, in its order.
    pub tools: Arc<[Arc<Tool>]>,
    /// Tools that cannot be used, and why.
    pub rejected: Vec<Rejected>,
    /// How long the server said that this may be kept, if it said so.
    pub ttl: Option<Duration>,
}

/// An entry of a list that was left out.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The name it goes by, if it has one.
    pub name: Foreign,
    /// Why it cannot be used.
    pub reason: String,
    /// The rule that keeps it from being used, where it is not its own fault.
    pub denied: Option<Box<Error>>,
}

const TOOLS: List = List { method: method::TOOLS_LIST, key: "tools", name: "name", what: "tools" };

impl Catalog {
    /// Asks for every page of the server's tools. A server without tools has an empty catalogue.
    pub async fn fetch(connection: &Connection, timeout: Duration) -> Result<Self> {
        let mut reading =
            Reading { http: matches!(connection.transport(), "http" | "sse"), ..Reading::default() };
        match TOOLS.walk(connection, timeout, |raw| reading.tool(raw)).await {
            // A server that has no tools may not know the question.
            Err(Error::Rpc { rpc, .. }) if rpc.code == code::METHOD_NOT_FOUND && reading.is_empty() => {}
            walked => reading.ttl = walked?,
        }
        Ok(reading.finish(connection.server().clone()))
    }
}

/// A catalogue under construction.
#[derive(Default)]
struct Reading {
    http: bool,
    tools: Vec<Arc<Tool>>,
    names: HashSet<String>,
    rejected: Vec<Rejected>,
    ttl: Option<Duration>,
}

impl Reading {
    fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.rejected.is_empty()
    }

    fn tool(&mut self, raw: Json) {
        let name = raw.member(TOOLS.name).and_then(|n| n.to::<String>().ok()).unwrap_or_default();
        let first = self.names.insert(name.clone());
        let usable = Tool::read(raw).and_then(|tool| match &tool.headers {
            _ if !first => Err("the server lists another tool of this name".into()),
            Err(reason) if self.http => Err(reason.clone()),
            _ => Ok(tool),
        });
        match usable {
            Ok(tool) => self.tools.push(Arc::new(tool)),
            Err(reason) => self.rejected.push(Rejected { name: name.into(), reason, denied: None }),
        }
    }

    fn finish(self, server: ServerName) -> Catalog {
        Catalog { server, tools: self.tools.into(), rejected: self.rejected, ttl: self.ttl }
    }
}
