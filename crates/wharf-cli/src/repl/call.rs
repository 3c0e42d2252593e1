//! A tool, called from the prompt.

use std::time::{Duration, Instant};

use wharf::connect::Progress;
use wharf::names::ServerName;
use wharf::registry::Route;
use wharf::text::Escaped;
use wharf::{CallOptions, Error};

use super::{Repl, did_you_mean, in_words_of_the_prompt, line};
use crate::arguments::{self, Typed};
use crate::commands::call::so_far;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::result::{self, Wish};

/// Progress is told no more often than that.
const PACE: Duration = Duration::from_millis(250);

impl Repl<'_> {
    pub(super) async fn call(&self, name: &str, rest: &str) -> Result<()> {
        let (app, ui) = (self.app, &self.app.ui);
        let route = ui.wait("looking for the tool".to_owned(), self.find(name)).await?;
        let typed = line::arguments(rest)?;
        let typed = Typed::read(typed.whole.as_deref(), &typed.words, &app.world.cwd)?;
        let arguments = typed.fit(&route.tool)?;
        let tool = route.tool.name.to_string();
        let mut told: Option<Instant> = None;
        let mut on_progress = |progress: Progress| {
            let line = so_far(&tool, &progress);
            if self.attended && !ui.quiet && told.is_none_or(|at| at.elapsed() >= PACE) {
                told = Some(Instant::now());
                ui.detail(&line);
            }
            ui.now(line);
        };
        let timeout = app.globals.timeout;
        let options = CallOptions {
            timeout,
            hard_timeout: timeout,
            on_progress: Some(&mut on_progress),
            ..CallOptions::default()
        };
        let call = self.session.call_with(&route.public, arguments, options);
        let mut outcome = ui.wait(format!("calling {tool}"), call).await;
        if let Some(error) = outcome.error.take() {
            let usage = matches!(*error, Error::Arguments { .. })
                .then(|| format!("{}.{tool}{}", route.server, arguments::usage(&route.tool)));
            return Err(match usage {
                Some(usage) => Failure::Library(error, Some(usage)),
                None => in_words_of_the_prompt(*error),
            });
        }
        result::show(ui, &outcome, Wish { raw: false, save: None, can_save: false })?;
        if outcome.is_error() {
            if !ui.json {
                ui.trouble(format_args!("the tool says that it failed (`{tool}` of `{}`)", route.server));
            }
            return Err(Failure::Said(Exit::Tool));
        }
        Ok(())
    }

    /// A tool by its public name, or as `server.tool`.
    async fn find(&self, name: &str) -> Result<Route> {
        let snapshot = self.session.snapshot();
        if snapshot.route(name).is_some() {
            return self.session.route(name).await.map_err(in_words_of_the_prompt);
        }
        // Both names may hold dots: the longest server that there is, is meant.
        let halves = || name.rmatch_indices('.').map(|(at, dot)| (&name[..at], &name[at + dot.len()..]));
        if let Some((server, tool)) = halves().find(|(server, _)| self.is_connected(server)) {
            return self.session.find(server, tool).await.map_err(in_words_of_the_prompt);
        }
        let servers = &self.setup.config.servers;
        let configured =
            |(server, _): (&str, &str)| ServerName::parse(server).ok().filter(|s| servers.contains_key(s));
        if let Some(server) = halves().find_map(configured) {
            return Err(self.not_connected(server.as_str()));
        }
        let tools = snapshot.tools().iter();
        let known: Vec<String> = tools.map(|route| format!("{}.{}", route.server, route.tool.name)).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).chain(line::COMMANDS).collect();
        let hint = match did_you_mean(name, &known) {
            near if near.starts_with("did") => near,
            _ if snapshot.tools().is_empty() => "connect a server first: /mcp connect NAME".to_owned(),
            _ => "`/mcp tools` lists what there is".to_owned(),
        };
        Err(Error::UnknownTool { name: Escaped(name).to_string(), hint }.into())
    }
}
