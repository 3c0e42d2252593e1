//! `wharf sandbox`: what confined servers are let into, and what they would need.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use serde_json::{Value, json};
use wharf::Error;
use wharf::config::ServerConfig;
use wharf::connect::{LetIn, let_in};
use wharf::names::ServerName;

use super::completions::server_names;
use super::learn::{self, Lesson};
use crate::app::{App, Setup};
use crate::failure::Result;

/// Show what a server can read, change and reach in its sandbox, or learn what it needs
///
/// Servers that Wharf starts run in a sandbox: without your home folder, without your other files, without network, without
/// privileges. `sandbox` in a server's entry lets more in; see docs/sandbox.md.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf sandbox show github
  wharf sandbox learn github
  wharf sandbox learn files --call 'read_file {\"path\": \"/srv/note\"}'
  wharf sandbox learn weather --call 'today {\"at\": \"Kiel\"}' --allow-network")]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
enum SandboxCommand {
    /// Show what a server is let into
    Show {
        /// The server
        #[arg(add = ArgValueCandidates::new(server_names))]
        server: String,
    },
    /// Run a server in its sandbox, watched, and propose what it lacks
    ///
    /// It is started, called as you say, and ended. It sees nothing that it is not let into; nothing is written.
    Learn {
        /// The server
        #[arg(add = ArgValueCandidates::new(server_names))]
        server: String,
        /// A tool to call meanwhile, with its arguments as JSON
        #[arg(long = "call", value_name = "TOOL [JSON]", value_parser = call)]
        calls: Vec<(String, Value)>,
        /// Let it reach every public host that it asks for meanwhile, at ports 80 and 443
        ///
        /// Without this, hosts are noted and refused, and a server that stops at the first one tells of no other. With it,
        /// whatever the server was given can leave this machine. Private addresses stay out of reach.
        #[arg(long)]
        allow_network: bool,
    },
}

/// `read_file {"path": "/x"}`.
fn call(text: &str) -> std::result::Result<(String, Value), String> {
    let (tool, arguments) = text.split_once(' ').unwrap_or((text, "{}"));
    let arguments: Value =
        serde_json::from_str(arguments).map_err(|e| format!("the arguments are not JSON: {e}"))?;
    Ok((tool.to_owned(), arguments))
}

impl SandboxArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let (server, lesson) = match self.command {
            SandboxCommand::Show { server } => (server, None),
            SandboxCommand::Learn { server, calls, allow_network } => {
                (server, Some(Lesson { calls, lets_out: allow_network }))
            }
        };
        let setup = app.setup()?;
        setup.refuse_pending(app, ServerName::parse(&server).ok().as_ref())?;
        setup.report(app, Some(&server))?;
        let server = find(&setup, &server)?.clone();
        match lesson {
            None => show(app, &setup, &server),
            Some(lesson) => learn::learn(app, setup, &server, &lesson).await,
        }
    }
}

fn find<'a>(setup: &'a Setup, name: &str) -> Result<&'a ServerConfig> {
    let known = ServerName::parse(name).ok().and_then(|name| setup.config.servers.get(&name));
    known.ok_or_else(|| {
        let hint = "it is in none of the files that count here".to_owned();
        Error::UnknownServer { name: name.to_owned(), hint }.into()
    })
}

fn show(app: &App, setup: &Setup, server: &ServerConfig) -> Result<()> {
    let seen = let_in(server, &setup.policy, &app.world.env, &app.sandbox())?;
    let Some(seen) = seen else {
        let note = format_args!("`{}` is not confined", server.name);
        return Ok(app.ui.done(&json!({ "server": server.name.as_str(), "confined": false }), note)?);
    };
    if app.ui.json {
        return Ok(app.ui.document(&json!({
            "server": server.name.as_str(),
            "confined": true,
            "read": seen.read,
            "write": seen.write,
            "domains": seen.profile.domains,
            "unix_sockets": seen.profile.unix_sockets,
            "limits": {
                "memory": seen.profile.memory,
                "processes": seen.profile.processes,
                "open_files": seen.profile.open_files,
                "file_size": seen.profile.file_size,
                "scratch": seen.profile.scratch,
                "cpu_seconds": seen.profile.cpu_time.map(|time| time.as_secs()),
            },
            "warnings": seen.warnings,
        }))?);
    }
    app.ui.rows(&["may", "what"], &rows(app, &seen))?;
    seen.warnings.iter().for_each(|warning| app.ui.warn(warning));
    Ok(())
}

fn rows(app: &App, seen: &LetIn) -> Vec<Vec<String>> {
    let row = |may: &str, what: String| vec![may.to_owned(), what];
    let paths = |may: &str, paths: &[PathBuf]| -> Vec<Vec<String>> {
        paths.iter().map(|path| row(may, app.world.show(path))).collect()
    };
    let mut rows = paths("read", &seen.read);
    rows.extend(paths("change", &seen.write));
    rows.push(row("change", "its own home folder and temporary files, which go with it".into()));
    rows.extend(seen.profile.domains.iter().map(|domain| row("reach", domain.clone())));
    if seen.profile.domains.is_empty() {
        rows.push(row("reach", "nothing".into()));
    }
    let size = |bytes: u64| format!("{} MiB", bytes / (1024 * 1024));
    let profile = &seen.profile;
    rows.push(row("use", format!("{} of memory, {} processes", size(profile.memory), profile.processes)));
    rows
}
