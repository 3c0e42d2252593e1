//! Which file `add`, `remove` and `init` write to, and whether what they write is trusted.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use wharf::config::{Format, TrustStore};

use crate::app::App;
use crate::failure::{Failure, Result};

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Your own wharf.toml
    User,
    /// The project's file in this folder: wharf.toml, or .mcp.json if only that is there
    Project,
}

/// A file to write to.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    is_project: bool,
}

impl Place {
    /// The file of a scope.
    pub(crate) fn find(app: &App, scope: Scope) -> Result<Self> {
        match (scope, &app.world.own) {
            (Scope::User, Some(own)) => Ok(Self::new(own.config.clone(), false)),
            (Scope::User, None) => {
                Err(Failure::general("there is no home folder to keep it in").hint("set HOME"))
            }
            (Scope::Project, _) => {
                let exists = |name: &str| app.world.cwd.join(name).exists();
                let only_json = exists(".mcp.json") && !exists("wharf.toml");
                Ok(Self::project_file(app, if only_json { ".mcp.json" } else { "wharf.toml" }))
            }
        }
    }

    /// The file that the command line names: with `--config` that one, else that of the scope.
    pub(crate) fn meant(app: &App, scope: Option<Scope>) -> Result<Self> {
        match (&app.globals.config[..], scope) {
            ([file], None) => Ok(Self::new(app.world.cwd.join(file), false)),
            ([], scope) => Self::find(app, scope.unwrap_or(Scope::User)),
            ([_], Some(_)) => Err(Failure::usage("`--config` and `--scope` both say where to write")),
            (_, _) => {
                Err(Failure::usage("`--config` is given more than once, and only one file can be written"))
            }
        }
    }

    /// A project's file of this folder.
    pub(crate) fn project_file(app: &App, name: &str) -> Self {
        Self::new(app.world.cwd.join(name), true)
    }

    fn new(path: PathBuf, is_project: bool) -> Self {
        let format = Format::of(&path);
        Self { path, format, is_project }
    }

    /// What is in the file; `None` if there is none.
    pub(crate) fn text(&self) -> Result<Option<String>> {
        read(&self.path)
    }
}

fn read(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let path = path.to_string_lossy();
            Err(Failure::general(format!("cannot read {}: {error}", wharf::text::Escaped(&path))))
        }
    }
}

/// What the user's own command wrote into a project's file is trusted, if the file was trusted before or is new. What
/// others wrote stays what it was. Says whether the file is trusted now.
pub(crate) fn trust_own_words(app: &App, place: &Place, before: Option<&str>, after: &str) -> Result<bool> {
    let Some(own) = app.world.own.as_ref().filter(|_| place.is_project) else { return Ok(true) };
    let mut store = TrustStore::open(&own.trust)?;
    let was_trusted = before.is_none_or(|text| store.is_trusted(&place.path, text.as_bytes()));
    if was_trusted {
        store.trust(&place.path, after.as_bytes())?;
    }
    Ok(was_trusted)
}
