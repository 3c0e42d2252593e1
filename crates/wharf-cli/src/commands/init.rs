//! `wharf init`: a file to begin with.

use clap::Args;
use serde_json::json;
use wharf::config::edit::{starter, write_atomically};

use super::place::{Place, Scope, trust_own_words};
use crate::app::App;
use crate::failure::{Failure, Result};

/// Write a commented wharf.toml to begin with
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// In this folder, for this project, instead of for you
    #[arg(long)]
    project: bool,
}

impl InitArgs {
    pub(crate) fn run(self, app: &App) -> Result<()> {
        let place = match self.project {
            true => Place::project_file(app, "wharf.toml"),
            false => Place::find(app, Scope::User)?,
        };
        let path = app.world.show(&place.path);
        if place.path.exists() {
            return Err(Failure::general(format!("{path} is there already"))
                .hint("edit it, or add a server to it with `wharf add`"));
        }
        write_atomically(&place.path, starter())?;
        trust_own_words(app, &place, None, starter())?;
        Ok(app.ui.done(&json!({ "file": place.path }), format_args!("wrote {path}"))?)
    }
}
