//! `wharf resources`: what can be read, and reading it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use serde_json::json;
use wharf::CallOptions;
use wharf::call::ResourceRead;
use wharf::host::Everywhere;
use wharf::mcp::{Body, Resource, ResourceContents, ResourceTemplate};
use wharf::text::{Escaped, EscapedLines, Foreign};

use super::completions::server_names;
use super::offered::{Asking, Noun, document, in_a_line, only};
use crate::app::App;
use crate::failure::{Failure, Result};
use crate::output::{json as shapes, result::size};

/// List the resources of all servers, or of one; read one
///
/// A server that fails is reported, and the others are listed all the same. Servers that are set to connect by hand
/// (`connect = "manual"`) are only asked when they are named.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  wharf resources
  wharf resources demo --templates
  wharf resources read demo demo://greeting
  wharf resources read demo demo://dot.png --output dot.png"
)]
pub(crate) struct ResourcesArgs {
    /// Only this server
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: Option<String>,
    /// List the templates of addresses instead
    #[arg(long)]
    templates: bool,
    #[command(subcommand)]
    command: Option<ResourcesCommand>,
}

#[derive(Debug, Subcommand)]
enum ResourcesCommand {
    Read(ReadArgs),
}

/// Read a resource of a server
///
/// Text is written as it is, and escaped at a terminal. Bytes go to a pipe or a file, never to a terminal.
#[derive(Debug, Args)]
struct ReadArgs {
    /// The server, as `wharf servers` names it
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: String,
    /// The resource's address, as `wharf resources SERVER` shows it
    uri: String,
    /// Write it to this file, which is replaced if it is there
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ResourcesArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        match self.command {
            Some(ResourcesCommand::Read(read)) => read.run(app).await,
            None if self.templates => list_templates(app, self.server.as_deref()).await,
            None => list(app, self.server.as_deref()).await,
        }
    }
}

async fn list(app: &App, server: Option<&str>) -> Result<()> {
    let asking = Asking::prepare(app, server)?;
    let ask = async |host: &wharf::Host| match server {
        Some(server) => Ok(only(server, host.resources(server).await?)),
        None => Ok::<_, wharf::Error>(host.all_resources().await),
    };
    let show = |found: &Everywhere<Resource>| {
        let row = |r: &Resource| row(&r.uri, r.mime_type.as_ref(), [&r.description, &r.title], &r.name);
        let noun = Noun("resource", "resources");
        if app.ui.json {
            return app.ui.document(&document(found, noun, |resource| &resource.raw));
        }
        app.ui.rows(&["server", "resource", "type", "description"], &rows(found, row))
    };
    asking
        .with_host(app, async |host| {
            let found = app.ui.wait(asking.waiting.clone(), ask(host)).await?;
            show(&found)?;
            asking.report(app, found, Noun("resource", "resources"))
        })
        .await
}

async fn list_templates(app: &App, server: Option<&str>) -> Result<()> {
    let asking = Asking::prepare(app, server)?;
    let ask = async |host: &wharf::Host| match server {
        Some(server) => Ok(only(server, host.resource_templates(server).await?)),
        None => Ok::<_, wharf::Error>(host.all_resource_templates().await),
    };
    let show = |found: &Everywhere<ResourceTemplate>| {
        let row = |t: &ResourceTemplate| {
            row(&t.uri_template, t.mime_type.as_ref(), [&t.description, &t.title], &t.name)
        };
        if app.ui.json {
            return app
                .ui
                .document(&document(found, Noun("template", "templates"), |template| &template.raw));
        }
        app.ui.rows(&["server", "template", "type", "description"], &rows(found, row))
    };
    asking
        .with_host(app, async |host| {
            let found = app.ui.wait(asking.waiting.clone(), ask(host)).await?;
            show(&found)?;
            asking.report(app, found, Noun("template", "templates"))
        })
        .await
}

fn rows<T>(found: &Everywhere<T>, row: impl Fn(&T) -> [String; 3]) -> Vec<Vec<String>> {
    let of = |(server, offered): &(wharf::names::ServerName, wharf::catalog::Offered<T>)| {
        let line = |item: &T| [&[server.to_string()][..], &row(item)].concat();
        offered.items.iter().map(line).collect::<Vec<_>>()
    };
    found.offered.iter().flat_map(of).collect()
}

fn row(uri: &Foreign, mime: Option<&Foreign>, about: [&Option<Foreign>; 2], name: &Foreign) -> [String; 3] {
    let about = about.into_iter().flatten().next().unwrap_or(name);
    [uri.raw().to_owned(), mime.map(|m| m.raw().to_owned()).unwrap_or_default(), in_a_line(about.raw())]
}

// === impl ReadArgs ===

impl ReadArgs {
    async fn run(self, app: &App) -> Result<()> {
        let asking = Asking::prepare(app, Some(&self.server))?;
        asking
            .with_host(app, async |host| {
                let timeout = app.globals.timeout;
                let options = CallOptions { timeout, hard_timeout: timeout, ..CallOptions::default() };
                let reading = host.read_resource_with(&self.server, &self.uri, options);
                let read = app.ui.wait(asking.waiting.clone(), reading).await?;
                self.show(app, &read)
            })
            .await
    }

    fn show(&self, app: &App, read: &ResourceRead) -> Result<()> {
        for rejected in &read.rejected {
            app.ui.warn(format_args!("a part of `{}` is left out: {}", Escaped(&self.uri), rejected.reason));
        }
        if read.contents.is_empty() {
            let why = format!("server `{}` gave nothing of `{}`", Escaped(&self.server), Escaped(&self.uri));
            return Err(Failure::general(why).hint("see what it says with `-vv`"));
        }
        if let Some(file) = &self.output {
            return self.keep(app, read, file);
        }
        if app.ui.json {
            let text = read.raw.as_str();
            let text = if app.ui.terminals.stdout { shapes::safe(text) } else { text.to_owned() };
            return Ok(app.ui.data(format!("{text}\n").as_bytes())?);
        }
        if app.ui.terminals.stdout {
            refuse_bytes(&read.contents)?;
        }
        read.contents.iter().try_for_each(|part| show_part(app, part))
    }

    fn keep(&self, app: &App, read: &ResourceRead, file: &std::path::Path) -> Result<()> {
        let all: Vec<u8> = read.contents.iter().flat_map(|part| part.bytes().iter().copied()).collect();
        let path = app.world.cwd.join(file);
        let shown = app.world.show(&path);
        std::fs::write(&path, &all)
            .map_err(|error| Failure::general(format!("cannot write {shown}: {error}")))?;
        let note = format_args!("wrote {shown} ({})", size(all.len()));
        Ok(app.ui.done(&json!({ "file": path, "bytes": all.len() }), note)?)
    }
}

/// What a terminal would make of bytes is nobody's wish.
fn refuse_bytes(contents: &[ResourceContents]) -> Result<()> {
    let bytes = contents.iter().find(|part| matches!(part.body, Body::Blob(_)));
    let Some(part) = bytes else { return Ok(()) };
    let mime = part.mime_type.as_ref().map_or_else(|| "no known type".to_owned(), Foreign::to_string);
    let what =
        format!("`{}` is {} of {mime}, which a terminal cannot show", part.uri, size(part.bytes().len()));
    Err(Failure::general(what).hint("keep it in a file with `--output FILE`, or send it through a pipe"))
}

fn show_part(app: &App, part: &ResourceContents) -> Result<()> {
    match &part.body {
        Body::Text(text) if app.ui.terminals.stdout => {
            let mut shown = EscapedLines(text.raw()).to_string();
            if !shown.ends_with('\n') {
                shown.push('\n');
            }
            Ok(app.ui.data(shown.as_bytes())?)
        }
        _ => Ok(app.ui.data(part.bytes())?),
    }
}
