//! `wharf completions`: what a shell needs to complete command lines. Starts and contacts nothing.

use clap::{Args, CommandFactory as _};
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use wharf::config::{self, Sources, TrustStore};

use crate::app::{App, DEMO};
use crate::cli::Cli;
use crate::failure::{Failure, Result};
use crate::world::World;

/// Write the completion script of a shell
///
/// Completes commands, flags and the names of servers. Nothing is started to find them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(wharf completions bash)
  wharf completions fish > ~/.config/fish/completions/wharf.fish")]
pub(crate) struct CompletionsArgs {
    /// bash, elvish, fish, powershell or zsh
    shell: String,
}

impl CompletionsArgs {
    pub(crate) fn run(self, app: &App) -> Result<()> {
        let shells = Shells::builtins();
        let Some(shell) = shells.completer(&self.shell) else {
            let known: Vec<&str> = shells.names().collect();
            return Err(Failure::usage(format!(
                "there are no completions for `{}`",
                wharf::text::Escaped(&self.shell)
            ))
            .hint(format!("the shells are {}", known.join(", "))));
        };
        let mut script = Vec::new();
        let name = Cli::command().get_name().to_owned();
        shell.write_registration("COMPLETE", &name, &name, &name, &mut script)?;
        Ok(app.ui.data(&script)?)
    }
}

/// The names of servers, from the files alone. On any trouble there are none: a shell has no use for an error.
pub(crate) fn server_names() -> Vec<CompletionCandidate> {
    let names = || {
        let world = World::look().ok()?;
        let own = world.own.as_ref()?;
        let sources = Sources {
            user: Some(own.config.clone()),
            folders: config::find_folders(&world.cwd, Some(&own.home)),
            env: world.env.clone(),
            trust: TrustStore::open(&own.trust).ok()?,
            ..Sources::default()
        };
        let config = config::load(&sources).ok()?;
        let pending = config.pending.iter().flat_map(|file| file.servers.iter().map(|s| s.name.clone()));
        Some(config.servers.keys().map(ToString::to_string).chain(pending).collect::<Vec<_>>())
    };
    let mut names: Vec<String> = names().unwrap_or_default();
    names.push(DEMO.to_owned());
    names.sort();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}
