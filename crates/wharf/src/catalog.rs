//! What a server offers.
//!
//! In: a [`Connection`]. Out: its tools, all pages of them, each read by itself: one that cannot be used is left out
//! with the reason and the others stay. What they are called for models, and who sees them, is the registry's business.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use crate::connect::{Connection, Request};
use crate::error::{Error, Result};
use crate::mcp::{Tool, code, method};
use crate::names::ServerName;
use crate::text::Foreign;
use crate::wire::{Json, Members};

/// What a server offers, as it said it when it was asked.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// The server.
    pub server: ServerName,
    /// Its tools, in its order.
    pub tools: Arc<[Arc<Tool>]>,
    /// Tools that cannot be used, and why.
    pub rejected: Vec<Rejected>,
}

/// A tool that was left out.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The name it goes by, if it has one.
    pub name: Foreign,
    /// Why it cannot be used.
    pub reason: String,
}

/// How much a list may hold before it is refused as a whole.
const MAX_TOOLS: usize = 10_000;
const MAX_PAGES: usize = 1_000;
/// All pages together must come within this many timeouts.
const MAX_TIMEOUTS: u32 = 4;

impl Catalog {
    /// Asks for every page of the server's tools. A server without tools has an empty catalogue.
    pub async fn fetch(connection: &Connection, timeout: Duration) -> Result<Self> {
        let server = connection.server().clone();
        let mut catalog = Reading { http: connection.transport() != "stdio", ..Reading::default() };
        let mut cursor: Option<Json> = None;
        let mut seen = HashSet::new();
        let mut left = timeout.saturating_mul(MAX_TIMEOUTS);
        for _ in 0..MAX_PAGES {
            let mut params = Members::new();
            if let Some(cursor) = &cursor {
                params.json("cursor", cursor);
            }
            let asked = Instant::now();
            let request = Request::new(method::TOOLS_LIST, params, left.min(timeout));
            let page = match connection.request(request).await {
                Ok(page) => page,
                // A server that has no tools may not know the question.
                Err(Error::Rpc { rpc, .. }) if rpc.code == code::METHOD_NOT_FOUND && cursor.is_none() => {
                    break;
                }
                Err(error) => return Err(error),
            };
            left = left.saturating_sub(asked.elapsed());
            cursor = catalog.page(&page).map_err(|reason| broken(connection, reason))?;
            if catalog.listed > MAX_TOOLS {
                let reason = format!("its list of tools has more than {MAX_TOOLS} entries");
                return Err(broken(connection, reason));
            }
            let Some(next) = &cursor else { return Ok(catalog.finish(server)) };
            if !seen.insert(next.clone()) {
                return Err(broken(
                    connection,
                    "its list of tools goes round in circles: a cursor came twice".into(),
                ));
            }
            if left.is_zero() {
                break;
            }
        }
        if cursor.is_some() {
            return Err(broken(
                connection,
                format!("its list of tools does not end ({} so far)", catalog.listed),
            ));
        }
        Ok(catalog.finish(server))
    }
}

/// A catalogue under construction.
#[derive(Default)]
struct Reading {
    http: bool,
    /// How many entries came, usable or not.
    listed: usize,
    tools: Vec<Arc<Tool>>,
    names: HashSet<String>,
    rejected: Vec<Rejected>,
}

impl Reading {
    /// Reads a page; gives the cursor of the next one.
    fn page(&mut self, page: &Json) -> Result<Option<Json>, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            tools: Vec<Json>,
            next_cursor: Option<Json>,
        }
        let shape: Shape = page.to().map_err(|e| format!("its list of tools cannot be read: {e}"))?;
        shape.tools.into_iter().for_each(|raw| self.tool(raw));
        Ok(shape.next_cursor.filter(|cursor| !cursor.is_null()))
    }

    fn tool(&mut self, raw: Json) {
        self.listed += 1;
        if self.listed > MAX_TOOLS {
            return;
        }
        let name = raw.member("name").and_then(|n| n.to::<String>().ok()).unwrap_or_default();
        let first = self.names.insert(name.clone());
        let usable = Tool::read(raw).and_then(|tool| match &tool.headers {
            _ if !first => Err("the server lists another tool of this name".into()),
            Err(reason) if self.http => Err(reason.clone()),
            _ => Ok(tool),
        });
        match usable {
            Ok(tool) => self.tools.push(Arc::new(tool)),
            Err(reason) => self.rejected.push(Rejected { name: name.into(), reason }),
        }
    }

    fn finish(self, server: ServerName) -> Catalog {
        Catalog { server, tools: self.tools.into(), rejected: self.rejected }
    }
}

fn broken(connection: &Connection, reason: String) -> Error {
    Error::Protocol { server: connection.server().clone(), reason, stderr: connection.stderr() }
}
