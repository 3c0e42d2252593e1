//! `wharf render`: the inventory as text for a prompt or a page.

use std::path::PathBuf;

use clap::Args;
use clap_complete::ArgValueCandidates;
use serde_json::json;
use wharf::config::{Connect, ServerConfig};
use wharf::names::ServerName;
use wharf::render::{self, Template};

use super::completions::server_names;
use super::tools::report;
use crate::app::{App, Setup, starting};
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Write the tools of all servers, or of some, as Markdown or by a template
///
/// Text from servers is cut to 200 characters and escaped, so that it can be put into a prompt or a page. A server that
/// fails is reported, and the others are written all the same.
#[derive(Debug, Args)]
#[command(after_help = "\
A template has ${server_names}, ${tool_count} and tools_by_server, the tools of each server with
name, tool, title and description:

  {% for server, tools in tools_by_server|items %}
  ${server}:
  {% for tool in tools %}
  * ${tool.name}: ${tool.description}
  {% endfor %}
  {% endfor %}")]
pub(crate) struct RenderArgs {
    /// Only these servers
    #[arg(value_name = "SERVER", add = ArgValueCandidates::new(server_names))]
    servers: Vec<String>,
    /// Fill this file instead
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
}

impl RenderArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        // A mistake in the template is told before anything is started.
        let template = self.template(app)?;
        let mut setup = app.setup()?;
        let wanted: Vec<Option<&str>> = match &self.servers[..] {
            [] => vec![None],
            names => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        for name in &wanted {
            setup.settle(app, *name)?;
            setup.report(app, *name)?;
        }
        let servers = self.chosen(&setup);
        let asked = servers.iter().filter(|server| server.enabled).count();
        if self.servers.is_empty() && asked == 0 && !setup.config.problems.is_empty() {
            return Err(Failure::Said(Exit::Config));
        }
        let waiting = match &servers[..] {
            [one] => starting(one),
            _ => format!("asking {asked} servers"),
        };
        app.with_host(&setup, servers, async |host| {
            // A name that is nobody's is a mistake, not a server that fails.
            self.servers.iter().try_for_each(|name| host.berth(name.as_str()).map(drop))?;
            let listing = app.ui.wait(waiting, host.tools()).await;
            let routes = listing.snapshot.tools();
            let text = match &template {
                Some(template) => template.render(routes)?,
                None => render::markdown(routes),
            };
            match app.ui.json {
                true => app.ui.document(&json!({ "text": text, "toolCount": routes.len() }))?,
                false => app.ui.data(text.as_bytes())?,
            }
            report(app, listing, asked)
        })
        .await
    }

    fn template(&self, app: &App) -> Result<Option<Template>> {
        let Some(file) = &self.template else { return Ok(None) };
        let text = std::fs::read_to_string(app.world.cwd.join(file))
            .map_err(|error| Failure::general(format!("cannot read {}: {error}", app.world.show(file))))?;
        Ok(Some(Template::parse(&text)?))
    }

    /// The servers that are named, or all. With a name among them that is nobody's, all too: the error tells them apart.
    fn chosen(&self, setup: &Setup) -> Vec<ServerConfig> {
        let all = || setup.config.servers.values();
        if self.servers.is_empty() {
            return setup.listed().filter(|server| server.connect != Connect::Manual).cloned().collect();
        }
        let names: Vec<_> = self.servers.iter().filter_map(|name| ServerName::parse(name).ok()).collect();
        let is_known = |name: &ServerName| setup.config.servers.contains_key(name);
        if names.len() < self.servers.len() || !names.iter().all(is_known) {
            return all().cloned().collect();
        }
        all().filter(|server| names.contains(&server.name)).cloned().collect()
    }
}
