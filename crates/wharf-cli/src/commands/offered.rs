//! What `wharf resources` and `wharf prompts` have in common: which servers are asked, what could not be listed, and one
//! request to one server.

use serde_json::{Value, json};
use wharf::Host;
use wharf::catalog::Offered;
use wharf::config::{Connect, ServerConfig};
use wharf::host::Everywhere;
use wharf::names::ServerName;
use wharf::text::Escaped;
use wharf::wire::Json;

use crate::app::{App, Setup, starting};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::json as shapes;

/// The servers that are asked, and what is said meanwhile.
pub(super) struct Asking {
    pub(super) setup: Setup,
    pub(super) servers: Vec<ServerConfig>,
    pub(super) waiting: String,
    asked: usize,
}

/// What was listed, in words: `resource`, `resources`.
#[derive(Clone, Copy)]
pub(super) struct Noun(pub(super) &'static str, pub(super) &'static str);

impl Asking {
    /// Sees to the configuration. Without a name all servers are asked but those that are connected by hand.
    pub(super) fn prepare(app: &App, server: Option<&str>) -> Result<Self> {
        let mut setup = app.setup()?;
        setup.settle(app, server)?;
        setup.report(app, server)?;
        let servers: Vec<ServerConfig> = match server {
            Some(_) => setup.config.servers.values().cloned().collect(),
            None => setup.listed().filter(|s| s.connect != Connect::Manual).cloned().collect(),
        };
        let asked = servers.iter().filter(|server| server.enabled).count();
        if server.is_none() && asked == 0 && !setup.config.problems.is_empty() {
            return Err(Failure::Said(Exit::Config));
        }
        let named = server.and_then(|name| ServerName::parse(name).ok());
        let named = named.and_then(|name| setup.config.servers.get(&name));
        let waiting = match (server, named, &servers[..]) {
            (None, _, [one]) | (_, Some(one), _) => starting(one),
            (None, ..) => format!("asking {asked} servers"),
            (Some(name), ..) => format!("asking {}", Escaped(name)),
        };
        Ok(Self { setup, servers, waiting, asked })
    }

    /// Runs something with a host of these servers.
    pub(super) async fn with_host<T>(
        &self,
        app: &App,
        work: impl AsyncFnOnce(&Host) -> Result<T>,
    ) -> Result<T> {
        app.with_host(&self.setup, self.servers.clone(), async |host| work(host).await).await
    }

    /// What went wrong goes to standard error; it is a failure of the command only if nothing worked.
    pub(super) fn report<T>(&self, app: &App, found: Everywhere<T>, noun: Noun) -> Result<()> {
        if !app.ui.json {
            for (server, offered) in &found.offered {
                for rejected in &offered.rejected {
                    let (what, name, reason) = (noun.0, &rejected.name, &rejected.reason);
                    app.ui.warn(format_args!("server `{server}`: {what} `{name}` is left out: {reason}"));
                }
            }
            if found.failed.is_empty() && found.offered.iter().all(|(_, offered)| offered.items.is_empty()) {
                app.ui.note(format_args!("no {}", noun.1));
            }
        }
        let all_failed = self.asked > 0 && found.failed.len() == self.asked;
        let mut exit = Exit::Unreachable;
        for (_, error) in found.failed {
            let failure = Failure::from(error);
            exit = failure.exit();
            // In JSON they are part of the document.
            if !app.ui.json {
                app.ui.fail(&failure);
            }
        }
        match all_failed {
            true => Err(Failure::Said(if self.asked == 1 { exit } else { Exit::Unreachable })),
            false => Ok(()),
        }
    }
}

/// One server's answer, as if all had been asked.
pub(super) fn only<T>(server: &str, offered: Offered<T>) -> Everywhere<T> {
    // It was just found under this name, so it is one.
    let name = ServerName::parse(server).ok();
    Everywhere { offered: name.map(|name| (name, offered)).into_iter().collect(), failed: Vec::new() }
}

/// The document that programs read: every definition as its server wrote it.
pub(super) fn document<T>(found: &Everywhere<T>, noun: Noun, raw: impl Fn(&T) -> &Json) -> Value {
    let (mut items, mut skipped) = (Vec::new(), Vec::new());
    for (server, offered) in &found.offered {
        for item in &offered.items {
            let definition: Value = raw(item).to().unwrap_or_default();
            items.push(json!({ "server": server.as_str(), noun.0: definition }));
        }
        for rejected in &offered.rejected {
            let name = rejected.name.to_string();
            skipped.push(json!({ "server": server.as_str(), noun.0: name, "reason": rejected.reason }));
        }
    }
    let failed: Vec<Value> = found
        .failed
        .iter()
        .map(|(server, error)| {
            json!({ "server": server.as_str(), "error": shapes::failure(&error.clone().into()) })
        })
        .collect();
    json!({ noun.1: items, "failed": failed, "skipped": skipped })
}

/// Line breaks and runs of spaces say nothing in a table.
pub(super) fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
