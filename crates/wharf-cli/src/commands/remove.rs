//! `wharf remove`: a server less.

use clap::Args;
use clap_complete::ArgValueCandidates;
use serde_json::json;
use wharf::config::edit::{remove, write_atomically};
use wharf::config::{Origin, ServerConfig};
use wharf::names::ServerName;
use wharf::text::Escaped;

use super::completions::server_names;
use super::place::{Place, Scope, trust_own_words};
use crate::app::App;
use crate::failure::{Failure, Result};

/// Remove a server
///
/// Comments in the file are kept. Without a scope: from the one file that has it, yours or this folder's.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The server
    #[arg(add = ArgValueCandidates::new(server_names))]
    name: String,
    /// Whose file it is taken from
    #[arg(short, long, value_enum)]
    scope: Option<Scope>,
}

impl RemoveArgs {
    pub(crate) fn run(self, app: &App) -> Result<()> {
        let mut found = Vec::new();
        for place in self.places(app)? {
            if let Some(before) = place.text()?
                && let Some(after) = remove(&before, place.format, &self.name)?
            {
                found.push((place, before, after));
            }
        }
        match &found[..] {
            [] => Err(self.missing(app)),
            [(place, before, after)] => {
                write_atomically(&place.path, after)?;
                trust_own_words(app, place, Some(before), after)?;
                let shown = app.world.show(&place.path);
                let note = format_args!("removed `{}` from {shown}", Escaped(&self.name));
                Ok(app.ui.done(&json!({ "removed": self.name, "file": place.path }), note)?)
            }
            several => {
                let paths: Vec<String> = several.iter().map(|(p, ..)| app.world.show(&p.path)).collect();
                Err(Failure::general(format!("`{}` is in {}", Escaped(&self.name), paths.join(" and in ")))
                    .hint("say which: -s user or -s project, or --config FILE"))
            }
        }
    }

    fn places(&self, app: &App) -> Result<Vec<Place>> {
        if self.scope == Some(Scope::User) || !app.globals.config.is_empty() {
            return Ok(vec![Place::meant(app, self.scope)?]);
        }
        let mut places = vec![Place::project_file(app, "wharf.toml"), Place::project_file(app, ".mcp.json")];
        if self.scope.is_none() && app.world.own.is_some() {
            places.push(Place::find(app, Scope::User)?);
        }
        Ok(places)
    }

    fn missing(&self, app: &App) -> Failure {
        let failure = Failure::general(format!("there is no server `{}`", Escaped(&self.name)));
        let Ok(setup) = app.setup() else { return failure };
        let elsewhere = ServerName::parse(&self.name).ok().and_then(|name| setup.config.servers.get(&name));
        match elsewhere.map(|server| &server.origin) {
            Some(Origin::File { path, line }) => {
                let path = app.world.show(path);
                return Failure::general(format!("server `{}` is not there", Escaped(&self.name)))
                    .hint(format!("it is in {path}, line {line}"));
            }
            Some(_) => return failure.hint("that one is built in, and stays"),
            None => {}
        }
        let written = |server: &&ServerConfig| matches!(server.origin, Origin::File { .. });
        let names: Vec<&str> =
            setup.config.servers.values().filter(written).map(|server| server.name.as_str()).collect();
        let near = names.iter().filter(|name| strsim::jaro_winkler(name, &self.name) >= 0.75);
        let near: Vec<String> = near.map(|name| format!("`{name}`")).collect();
        match (&near[..], &names[..]) {
            (_, []) => failure.hint("none is configured"),
            ([], names) => failure.hint(format!("configured are {}", names.join(", "))),
            (near, _) => failure.hint(format!("did you mean {}?", near.join(" or "))),
        }
    }
}
