//! `wharf call`: one tool, once.

use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use clap_complete::ArgValueCandidates;
use wharf::connect::Progress;
use wharf::text::Escaped;
use wharf::{CallOptions, Error, Host};

use super::completions::server_names;
use crate::app::{App, Setup, starting};
use crate::arguments::{self, Typed};
use crate::failure::{Failure, Result};
use crate::output::result::{self, Wish};

/// Call a tool
///
/// Values are read as the tool's schema wants them: `count=3` is a number where a number is wanted, and a text where a
/// text is. A list takes the same name again: `tags=a tags=b`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf call demo echo message=hello
  wharf call demo add a=1 b=2 --json
  wharf call files write_file path=notes.txt content=@draft.txt
  echo '{\"a\": 1, \"b\": 2}' | wharf call demo add --json-args -")]
pub(crate) struct CallArgs {
    /// The server, as `wharf servers` names it
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: String,
    /// The tool, as `wharf tools SERVER` names it
    tool: String,
    /// name=value, name:=json, name=@file (its text), name:=@file (its JSON)
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
    /// All arguments as one JSON object; `-` reads it from standard input
    #[arg(long, value_name = "JSON")]
    json_args: Option<String>,
    /// Write text unescaped and bytes as bytes, with nothing added
    #[arg(long)]
    raw: bool,
    /// Keep images, audio and other bytes as files in this folder
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

impl CallArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let whole = self.whole(app)?;
        let typed = Typed::read(whole.as_deref(), &self.arguments, &app.world.cwd)?;
        let mut setup = app.setup()?;
        setup.settle(app, Some(&self.server))?;
        setup.report(app, Some(&self.server))?;
        let servers = setup.config.servers.values().cloned().collect();
        app.with_host(&setup, servers, async |host| self.call(app, &setup, host, typed).await).await
    }

    async fn call(&self, app: &App, setup: &Setup, host: &Host, typed: Typed) -> Result<()> {
        let ui = &app.ui;
        let config = wharf::names::ServerName::parse(&self.server).ok();
        let config = config.and_then(|name| setup.config.servers.get(&name));
        let waiting = config.map(starting).unwrap_or_default();
        let route = ui.wait(waiting, host.find(&self.server, &self.tool)).await;
        let route = route.map_err(|error| self.explain(error))?;
        let arguments = typed.fit(&route.tool)?;
        let name = route.tool.name.to_string();
        let mut on_progress = |progress: Progress| ui.now(so_far(&name, &progress));
        let timeout = app.globals.timeout;
        let options = CallOptions {
            timeout,
            hard_timeout: timeout,
            on_progress: Some(&mut on_progress),
            ..CallOptions::default()
        };
        let call = host.call_tool(&self.server, &self.tool, arguments, options);
        let mut outcome = ui.wait(format!("calling {name}"), call).await;
        if let Some(error) = outcome.error.take() {
            let usage = matches!(*error, Error::Arguments { .. })
                .then(|| format!("wharf call {} {name}{}", route.server, arguments::usage(&route.tool)));
            return Err(Failure::Library(error, usage));
        }
        let save = self.save.as_ref().map(|folder| app.world.cwd.join(folder));
        result::show(ui, &outcome, Wish { raw: self.raw, save: save.as_deref(), can_save: true })?;
        if outcome.is_error() {
            return Err(self.failed(app, outcome));
        }
        Ok(())
    }

    /// The tool's own words are the result, and were shown as such.
    fn failed(&self, app: &App, outcome: wharf::Outcome) -> Failure {
        match outcome.into_result() {
            Err(error) if app.ui.json => error.into(),
            Err(error) => {
                app.ui.trouble(format_args!(
                    "the tool says that it failed (`{}` of `{}`)",
                    Escaped(&self.tool),
                    Escaped(&self.server)
                ));
                Failure::Said(Failure::from(error).exit())
            }
            Ok(_) => Failure::Said(crate::exit::Exit::Tool),
        }
    }

    fn explain(&self, error: Error) -> Failure {
        match error {
            Error::UnknownTool { name, hint } => {
                let hint = format!("{hint} (`wharf tools {}` lists them all)", Escaped(&self.server));
                Error::UnknownTool { name, hint }.into()
            }
            other => other.into(),
        }
    }

    fn whole(&self, app: &App) -> Result<Option<String>> {
        match self.json_args.as_deref() {
            Some("-") if app.world.terminals.stdin => {
                Err(Failure::usage("`--json-args -` reads standard input, and that is the terminal")
                    .hint("pipe a JSON object in, or write it: --json-args '{\"name\": \"value\"}'"))
            }
            Some("-") => {
                let mut text = String::new();
                let read = std::io::stdin().lock().read_to_string(&mut text);
                read.map_err(|error| Failure::usage(format!("cannot read standard input: {error}")))?;
                Ok(Some(text))
            }
            given => Ok(given.map(str::to_owned)),
        }
    }
}

/// How far a call is, in a line.
pub(crate) fn so_far(tool: &str, progress: &Progress) -> String {
    let share = match progress.total {
        Some(total) if total > 0.0 => {
            format!(" {:.0} %", (progress.progress / total * 100.0).clamp(0.0, 100.0))
        }
        _ => format!(" {}", progress.progress),
    };
    let message = progress.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{tool}{share}{message}")
}
