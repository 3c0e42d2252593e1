//! `wharf tools`: what the servers offer.

use clap::Args;
use clap_complete::ArgValueCandidates;
use serde_json::{Value, json};
use wharf::config::Connect;
use wharf::host::Listing;
use wharf::registry::Route;

use super::completions::server_names;
use crate::app::{App, starting};
use crate::arguments;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::json as shapes;

/// List the tools of all servers, or of one
///
/// A server that fails is reported, and the others are listed all the same. Servers that are set to connect by hand
/// (`connect = "manual"`) are only asked when they are named.
#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    /// Only this server
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: Option<String>,
    /// Show how each tool is called, and the schema of its arguments
    #[arg(long)]
    schema: bool,
}

impl ToolsArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let mut setup = app.setup()?;
        setup.settle(app, self.server.as_deref())?;
        setup.report(app, self.server.as_deref())?;
        let servers: Vec<_> = match self.server {
            Some(_) => setup.config.servers.values().cloned().collect(),
            None => setup.listed().filter(|s| s.connect != Connect::Manual).cloned().collect(),
        };
        let asked = servers.iter().filter(|server| server.enabled).count();
        if self.server.is_none() && asked == 0 && !setup.config.problems.is_empty() {
            return Err(Failure::Said(Exit::Config));
        }
        let waiting = match (&self.server, &servers[..]) {
            (None, [one]) => starting(one),
            (None, _) => format!("asking {asked} servers"),
            (Some(name), _) => format!("asking {}", wharf::text::Escaped(name)),
        };
        app.with_host(&setup, servers, async |host| {
            let asking = async {
                match &self.server {
                    Some(server) => host.tools_of(server).await,
                    None => Ok(host.tools().await),
                }
            };
            let listing = app.ui.wait(waiting, asking).await?;
            self.show(app, &listing)?;
            report(app, listing, asked)
        })
        .await
    }

    fn show(&self, app: &App, listing: &Listing) -> Result<()> {
        let routes = listing.snapshot.tools();
        if app.ui.json {
            return Ok(app.ui.document(&document(listing))?);
        }
        if self.schema {
            routes.iter().try_for_each(|route| show_schema(app, route))?;
            return Ok(());
        }
        let rows: Vec<_> = routes.iter().map(row).collect();
        if rows.is_empty() && listing.failed.is_empty() {
            app.ui.note("no tools");
        }
        Ok(app.ui.rows(&HEAD, &rows)?)
    }
}

/// The head of the table of tools.
pub(crate) const HEAD: [&str; 3] = ["server", "tool", "description"];

/// A tool as a row of it.
pub(crate) fn row(route: &Route) -> Vec<String> {
    let description = route.tool.description.as_ref().map(|d| d.raw().trim()).unwrap_or_default();
    vec![route.server.to_string(), route.tool.name.to_string(), in_a_line(description)]
}

/// A tool as JSON.
pub(crate) fn shape(route: &Route) -> Value {
    let definition: Value = route.tool.raw.to().unwrap_or_default();
    json!({ "server": route.server.as_str(), "publicName": &*route.public, "tool": definition })
}

/// Line breaks and runs of spaces say nothing in a table.
fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn show_schema(app: &App, route: &Route) -> Result<()> {
    let schema: Value = route.tool.input_schema.to().unwrap_or_default();
    let schema = serde_json::to_string_pretty(&schema).unwrap_or_default();
    let description = route.tool.description.as_ref().map(|d| format!("{}\n", d.lines())).unwrap_or_default();
    let (server, name, usage) = (&route.server, &route.tool.name, arguments::usage(&route.tool));
    let text = format!("wharf call {server} {name}{usage}\n{description}{}\n\n", shapes::safe(&schema));
    Ok(app.ui.data(text.as_bytes())?)
}

fn document(listing: &Listing) -> Value {
    let failed = |(server, error): &(wharf::names::ServerName, wharf::Error)| json!({ "server": server.as_str(), "error": shapes::failure(&error.clone().into()) });
    json!({
        "tools": listing.snapshot.tools().iter().map(shape).collect::<Vec<_>>(),
        "failed": listing.failed.iter().map(failed).collect::<Vec<_>>(),
        "skipped": left_out(listing).into_iter().map(|(server, tool, reason)| {
            json!({ "server": server, "tool": tool, "reason": reason })
        }).collect::<Vec<_>>(),
    })
}

/// Tools that cannot be used: server, tool, reason.
fn left_out(listing: &Listing) -> Vec<(String, String, String)> {
    let rejected = listing
        .rejected
        .iter()
        .map(|(server, rejected)| (server.to_string(), rejected.name.to_string(), rejected.reason.clone()));
    let skipped = listing.snapshot.skipped().iter().map(|skipped| {
        let tool = skipped.tool.as_ref().map(ToString::to_string).unwrap_or_default();
        (skipped.server.to_string(), tool, skipped.reason.clone())
    });
    rejected.chain(skipped).collect()
}

/// What went wrong goes to standard error; it is a failure of the command only if nothing worked.
fn report(app: &App, listing: Listing, asked: usize) -> Result<()> {
    if !app.ui.json {
        for (server, tool, reason) in left_out(&listing) {
            app.ui.warn(format_args!("server `{server}`: tool `{tool}` is left out: {reason}"));
        }
    }
    let all_failed = asked > 0 && listing.failed.len() == asked;
    let mut exit = Exit::Unreachable;
    for (_, error) in listing.failed {
        let failure = Failure::from(error);
        exit = failure.exit();
        // In JSON they are part of the document.
        if !app.ui.json {
            app.ui.fail(&failure);
        }
    }
    if all_failed { Err(Failure::Said(if asked == 1 { exit } else { Exit::Unreachable })) } else { Ok(()) }
}
