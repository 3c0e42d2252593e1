//! The commands that begin with `/mcp`: servers listed, connected, disconnected, and their tools.

use std::collections::HashSet;

use serde_json::{Value, json};
use wharf::Error;
use wharf::config::ServerConfig;
use wharf::event::Circuit;
use wharf::host::Docking;
use wharf::names::ServerName;
use wharf::session::Visibility;

use super::line::{Connect, Consent};
use super::{Repl, did_you_mean, in_words_of_the_prompt};
use crate::app::starting;
use crate::commands::{servers, tools};
use crate::failure::{Failure, Result};

/// A server as `/mcp` shows it.
struct Seen {
    name: String,
    state: String,
    visibility: Option<Visibility>,
    tools: Option<usize>,
    what: String,
}

impl Repl<'_> {
    /// Every server that is configured or connected.
    pub(super) fn servers(&self) -> Result<()> {
        let ui = &self.app.ui;
        let seen = self.seen();
        if ui.json {
            let servers: Vec<Value> = seen.iter().map(Seen::to_json).collect();
            return Ok(ui.document(&json!({ "servers": servers }))?);
        }
        let rows: Vec<_> = seen.into_iter().map(Seen::into_row).collect();
        Ok(ui.rows(&["name", "state", "visibility", "tools", "what"], &rows)?)
    }

    fn seen(&self) -> Vec<Seen> {
        let connected = self.session.connections();
        let names: HashSet<ServerName> = connected.iter().map(|(config, _)| config.name.clone()).collect();
        let tools = self.session.snapshot();
        let up = connected.iter().map(|(config, visibility)| {
            let state = self.session.berth(config.name.as_str()).map(|berth| match berth.circuit() {
                Circuit::Closed => berth.state().as_str(),
                Circuit::Open | Circuit::HalfOpen => "left alone",
            });
            Seen {
                state: state.unwrap_or("disabled").to_owned(),
                visibility: Some(*visibility),
                tools: Some(tools.tools().iter().filter(|route| route.server == config.name).count()),
                ..Seen::of(config)
            }
        });
        let down = self.setup.listed().filter(|config| !names.contains(&config.name)).map(Seen::of);
        let pending = self.setup.config.pending.iter().flat_map(|file| &file.servers).map(|server| Seen {
            name: server.name.clone(),
            state: "not trusted".to_owned(),
            visibility: None,
            tools: None,
            what: server.does.clone(),
        });
        up.chain(down).chain(pending).collect()
    }

    pub(super) async fn connect(&self, wish: Connect) -> Result<()> {
        let (app, ui) = (self.app, &self.app.ui);
        let config = app.adjusted(self.configured(&wish.server)?.clone());
        let (name, waiting) = (config.name.clone(), starting(&config));
        let docking = Docking::new(config).visibility(wish.visibility);
        let docking = match wish.consent {
            Consent::AtFirstUse => docking,
            Consent::Never => docking.allow_all(),
            Consent::ToolByTool => docking.per_tool(),
        };
        let connected = ui.wait(waiting, self.session.connect(docking)).await;
        let tools = connected.map_err(in_words_of_the_prompt)?;
        if ui.json {
            let tools: Vec<&str> = tools.iter().map(|name| &**name).collect();
            let shape =
                json!({ "connected": name.as_str(), "visibility": word(wish.visibility), "tools": tools });
            return Ok(ui.document(&shape)?);
        }
        let asked = match wish.consent {
            Consent::AtFirstUse => "",
            Consent::Never => ", everything allowed",
            Consent::ToolByTool => ", every tool asked for by itself",
        };
        ui.note(format_args!(
            "connected {name}: {} ({}{asked})",
            counted(tools.len()),
            word(wish.visibility)
        ));
        Ok(())
    }

    pub(super) async fn disconnect(&self, server: &str) -> Result<()> {
        let ui = &self.app.ui;
        if !self.is_connected(server)
            && let Ok(config) = self.configured(server)
        {
            return Err(self.not_connected(config.name.as_str()));
        }
        let closing = self.session.disconnect(server);
        ui.wait("disconnecting".to_owned(), closing).await.map_err(in_words_of_the_prompt)?;
        if ui.json {
            return Ok(ui.document(&json!({ "disconnected": server }))?);
        }
        ui.note(format_args!("disconnected {}", wharf::text::Escaped(server)));
        Ok(())
    }

    pub(super) async fn tools(&self, server: Option<&str>) -> Result<()> {
        let ui = &self.app.ui;
        let asking = async {
            match server {
                Some(server) => self.session.tools_of(server).await,
                None => Ok(self.session.tools().await),
            }
        };
        if let Some(server) = server
            && !self.is_connected(server)
        {
            return Err(self.not_connected(self.configured(server)?.name.as_str()));
        }
        let listing = ui.wait("asking for tools".to_owned(), asking).await.map_err(in_words_of_the_prompt)?;
        let wanted = server.and_then(|name| ServerName::parse(name).ok());
        let routes = listing.snapshot.tools().iter();
        let routes: Vec<_> =
            routes.filter(|route| wanted.as_ref().is_none_or(|name| route.server == *name)).collect();
        if ui.json {
            let tools: Vec<Value> = routes.into_iter().map(tools::shape).collect();
            ui.document(&json!({ "tools": tools }))?;
        } else if routes.is_empty() && listing.failed.is_empty() {
            ui.note("no tools; `/mcp connect NAME` brings some");
        } else {
            let rows: Vec<_> = routes.into_iter().map(tools::row).collect();
            ui.rows(&tools::HEAD, &rows)?;
        }
        match listing.failed.into_iter().next() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Whether this session sees a server of that name.
    pub(super) fn is_connected(&self, server: &str) -> bool {
        let name = ServerName::parse(server).ok();
        name.is_some_and(|name| self.session.connections().iter().any(|(config, _)| config.name == name))
    }

    /// The configuration of a server that may be connected.
    pub(super) fn configured(&self, server: &str) -> Result<&ServerConfig> {
        let name = ServerName::parse(server).ok();
        self.setup.refuse_pending(self.app, name.as_ref())?;
        self.setup.report(self.app, Some(server))?;
        let servers = &self.setup.config.servers;
        let Some(config) = name.and_then(|name| servers.get(&name)) else {
            let known: Vec<&str> = servers.keys().map(ServerName::as_str).collect();
            let hint = did_you_mean(server, &known);
            return Err(Error::UnknownServer { name: server.to_owned(), hint }.into());
        };
        if config.enabled {
            return Ok(config);
        }
        let (what, rule) =
            (format!("server `{}`", config.name), "`enabled = false` in its configuration".into());
        Err(Error::Denied { what, rule, hint: "set `enabled = true` to use it".into() }.into())
    }

    pub(super) fn not_connected(&self, server: &str) -> Failure {
        Failure::usage(format!("server `{server}` is not connected"))
            .hint(format!("connect it: /mcp connect {server}"))
    }
}

// === impl Seen ===

impl Seen {
    /// A server that is not connected.
    fn of(config: &ServerConfig) -> Self {
        Self {
            name: config.name.to_string(),
            state: if config.enabled { "not connected" } else { "disabled" }.to_owned(),
            visibility: None,
            tools: None,
            what: servers::what(config),
        }
    }

    fn into_row(self) -> Vec<String> {
        let none = || "-".to_owned();
        let visibility = self.visibility.map_or_else(none, |visibility| word(visibility).to_owned());
        let tools = self.tools.map_or_else(none, |count| count.to_string());
        vec![self.name, self.state, visibility, tools, self.what]
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "state": self.state,
            "visibility": self.visibility.map(word),
            "tools": self.tools,
            "what": self.what,
        })
    }
}

fn word(visibility: Visibility) -> &'static str {
    match visibility {
        Visibility::Private => "private",
        Visibility::Shared => "shared",
    }
}

fn counted(tools: usize) -> String {
    match tools {
        1 => "1 tool".to_owned(),
        count => format!("{count} tools"),
    }
}
