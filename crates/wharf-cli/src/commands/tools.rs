//! `wharf tools`: what the servers offer.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap_complete::ArgValueCandidates;
use serde_json::{Value, json};
use wharf::config::Connect;
use wharf::host::Listing;
use wharf::provider::{Compiled, Compiler, How, Loss, Provider};
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
    /// Print the list that goes into a request to a model provider; what it loses is told on standard error
    #[arg(long, value_name = "NAME", value_parser = forms(), conflicts_with = "schema")]
    format: Option<Provider>,
    /// The same, in the form that this model wants: gpt-5, claude-opus-4-5, gemini-2.5-pro
    #[arg(long, value_name = "NAME", value_parser = of_model, conflicts_with_all = ["format", "schema"])]
    model: Option<Provider>,
}

/// The forms by their names.
fn forms() -> impl TypedValueParser<Value = Provider> {
    let value = |provider: Provider| match provider {
        Provider::OpenAiChat => PossibleValue::new(provider.name()).alias("openai-chat"),
        _ => PossibleValue::new(provider.name()),
    };
    PossibleValuesParser::new(Provider::ALL.map(value)).try_map(|name| name.parse::<Provider>())
}

fn of_model(name: &str) -> std::result::Result<Provider, String> {
    Provider::of_model(name).map_err(|error| match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    })
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
        if let Some(provider) = self.format.or(self.model) {
            return show_compiled(app, provider, listing);
        }
        if app.ui.json {
            return Ok(app.ui.document(&document(listing))?);
        }
        if self.schema {
            routes.iter().try_for_each(|route| show_schema(app, route))?;
            return Ok(());
        }
        let row = |route: &Route| {
            let description = route.tool.description.as_ref().map(|d| d.raw().trim()).unwrap_or_default();
            vec![route.server.to_string(), route.tool.name.to_string(), in_a_line(description)]
        };
        let rows: Vec<_> = routes.iter().map(row).collect();
        if rows.is_empty() && listing.failed.is_empty() {
            app.ui.note("no tools");
        }
        Ok(app.ui.rows(&["server", "tool", "description"], &rows)?)
    }
}

/// Line breaks and runs of spaces say nothing in a table.
fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn show_schema(app: &App, route: &Route) -> Result<()> {
    let schema: Value = route.tool.input_schema.to().unwrap_or_default();
    let schema = serde_json::to_string_pretty(&schema).unwrap_or_default();
    let description = route.tool.description.as_ref().map(|d| format!("{}\n", d.lines())).unwrap_or_default();
    let usage = arguments::usage(route.server.as_str(), &route.tool);
    let text = format!("{usage}\n{description}{}\n\n", shapes::safe(&schema));
    Ok(app.ui.data(text.as_bytes())?)
}

/// The list for the request, alone, so that it can be piped into one.
fn show_compiled(app: &App, provider: Provider, listing: &Listing) -> Result<()> {
    let compiled = Compiler::new().compile(provider, listing.snapshot.tools());
    let tools: Value = compiled.tools.to().unwrap_or_default();
    if app.ui.json {
        return Ok(app.ui.document(&compiled_document(provider, &compiled, tools, listing))?);
    }
    app.ui.document(&tools)?;
    for warning in &compiled.warnings {
        app.ui.warn(warning);
    }
    for left in &compiled.left_out {
        app.ui.warn(format_args!(
            "server `{}`: tool `{}` is left out: {}",
            left.server, left.tool, left.reason
        ));
    }
    for tool in &compiled.losses {
        // What is only said in another way is for those who want to know.
        let told = |loss: &&Loss| loss.how != How::Rewritten || loss.widens || app.ui.verbose > 0;
        for loss in tool.losses.iter().filter(told) {
            app.ui.note(format_args!("server `{}`: tool `{}`: {loss}", tool.server, tool.tool));
        }
    }
    Ok(())
}

fn compiled_document(provider: Provider, compiled: &Compiled, tools: Value, listing: &Listing) -> Value {
    let loss = |loss: &Loss| json!({ "path": loss.path, "keyword": loss.keyword, "how": loss.how.name(), "widens": loss.widens });
    let losses = compiled.losses.iter().map(|tool| {
        let losses: Vec<_> = tool.losses.iter().map(loss).collect();
        json!({ "server": tool.server.as_str(), "tool": tool.tool.as_str(), "losses": losses })
    });
    let left_out = compiled.left_out.iter().map(
        |left| json!({ "server": left.server.as_str(), "tool": left.tool.as_str(), "reason": left.reason }),
    );
    let mut document = document(listing);
    document["format"] = provider.name().into();
    document["tools"] = tools;
    document["losses"] = losses.collect();
    document["leftOut"] = left_out.collect();
    document["warnings"] = json!(compiled.warnings);
    document
}

fn document(listing: &Listing) -> Value {
    let tool = |route: &Route| {
        let definition: Value = route.tool.raw.to().unwrap_or_default();
        json!({ "server": route.server.as_str(), "publicName": &*route.public, "tool": definition })
    };
    let failed = |(server, error): &(wharf::names::ServerName, wharf::Error)| json!({ "server": server.as_str(), "error": shapes::failure(&error.clone().into()) });
    json!({
        "tools": listing.snapshot.tools().iter().map(tool).collect::<Vec<_>>(),
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
pub(super) fn report(app: &App, listing: Listing, asked: usize) -> Result<()> {
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
