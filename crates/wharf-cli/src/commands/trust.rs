//! `wharf trust`: a person has looked at a project's file.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use wharf::config::{self, PendingFile, Sources, TrustStore};

use crate::app::{App, describe};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::terminal::confirm;

/// Trust a project's file as it is now
///
/// A server that a project's `.mcp.json` or `wharf.toml` defines is not started before you have trusted that file. Any
/// change to the file asks for it again. Without a path: the files of this folder and those above it.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// The file, or the folder that holds it
    path: Option<PathBuf>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Take the trust back
    #[arg(long, requires = "path", conflicts_with = "yes")]
    revoke: bool,
}

impl TrustArgs {
    pub(crate) fn run(self, app: &App) -> Result<()> {
        let Some(own) = &app.world.own else {
            return Err(Failure::general("there is no home folder to keep it in").hint("set HOME"));
        };
        let mut store = TrustStore::open(&own.trust)?;
        if self.revoke {
            return self.forget(app, &mut store);
        }
        let pending = self.find(app, &store)?;
        if pending.is_empty() {
            let none = json!({ "trusted": [] });
            return Ok(app.ui.done(&none, "there is nothing that waits for your trust")?);
        }
        for file in &pending {
            if let Some(obstacle) = &file.obstacle {
                return Err(obstacle.to_error().into());
            }
            describe(app, file);
        }
        if !self.yes && !app.world.can_ask() {
            let path = app.world.typed(&pending[0].path);
            return Err(Failure::general("nobody is here to ask")
                .hint(format!("if you trust it: wharf trust --yes {path}")));
        }
        let mut trusted = Vec::new();
        for file in &pending {
            let path = app.world.show(&file.path);
            if self.yes || confirm(&app.ui, &format!("Trust {path}?")) {
                store.trust_pending(file)?;
                app.ui.note(format_args!("trusted {path}"));
                trusted.push(&file.path);
            }
        }
        if app.ui.json {
            app.ui.document(&json!({ "trusted": trusted }))?;
        }
        if trusted.len() == pending.len() { Ok(()) } else { Err(Failure::Said(Exit::General)) }
    }

    /// The files that wait: those of a folder, or one of them.
    fn find(&self, app: &App, store: &TrustStore) -> Result<Vec<PendingFile>> {
        let home = app.world.own.as_ref().map(|own| own.home.as_path());
        let path = self.path.as_ref().map(|path| whole(app, path));
        let folders = match &path {
            None => config::find_folders(&app.world.cwd, home),
            Some(path) if path.is_dir() => vec![path.clone()],
            Some(path) => vec![folder_of(path)?],
        };
        let user = app.world.own.as_ref().map(|own| own.config.clone());
        let sources = Sources { user, folders, trust: store.clone(), ..Sources::default() };
        let mut pending = config::load(&sources)?.pending;
        if let Some(file) = path.filter(|path| !path.is_dir()) {
            pending.retain(|pending| pending.path.file_name() == file.file_name());
        }
        Ok(pending)
    }

    fn forget(&self, app: &App, store: &mut TrustStore) -> Result<()> {
        let path = whole(app, self.path.as_deref().unwrap_or(Path::new(".")));
        let files = if path.is_dir() { NAMES.map(|name| path.join(name)).to_vec() } else { vec![path] };
        let mut forgotten = Vec::new();
        for file in files {
            if store.distrust(&file)? {
                app.ui.note(format_args!("{} is no longer trusted", app.world.show(&file)));
                forgotten.push(file);
            }
        }
        match &forgotten[..] {
            [] => Err(Failure::general("it was not trusted")),
            _ if app.ui.json => Ok(app.ui.document(&json!({ "revoked": forgotten }))?),
            _ => Ok(()),
        }
    }
}

/// A path without `.` and `..`, where it exists.
fn whole(app: &App, path: &Path) -> PathBuf {
    let path = app.world.cwd.join(path);
    let folder = path.parent().and_then(|folder| Some(folder.canonicalize().ok()?.join(path.file_name()?)));
    folder.or_else(|| path.canonicalize().ok()).unwrap_or(path)
}

/// The files that projects have.
const NAMES: [&str; 2] = [".mcp.json", "wharf.toml"];

fn folder_of(file: &Path) -> Result<PathBuf> {
    let is_known = file.file_name().is_some_and(|name| NAMES.iter().any(|known| name == *known));
    match file.parent() {
        _ if !file.exists() => {
            Err(Failure::general(format!("there is no {}", wharf::text::Escaped(&file.to_string_lossy()))))
        }
        Some(folder) if is_known => Ok(folder.to_path_buf()),
        _ => Err(Failure::usage("only a `.mcp.json` or a `wharf.toml` can be trusted")
            .hint("a file that you name with `--config` needs no trust")),
    }
}
