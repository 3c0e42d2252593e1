//! `wharf codegen`: a server's tools as a Rust module.
//!
//! In: the name of a server, which is asked for its tools. Out: the module on standard output or in a file, notes on
//! standard error. What the module looks like is the library's; whether a file may be overwritten is decided here.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::{ArgValueCandidates, ValueHint};
use serde_json::json;
use wharf::config::edit::write_atomically;
use wharf::names::ServerName;
use wharf::render::{self, RUST_MARK, RustModule, RustNote};
use wharf::text::Escaped;

use super::completions::server_names;
use crate::app::App;
use crate::failure::{Failure, Result};

/// Write a Rust module with types and functions for a server's tools
///
/// The module has a type for the arguments of each tool, one for its result where the tool says what it gives, and a
/// function that calls it. It needs the crates `wharf`, `serde` (with `derive`) and `serde_json`. What a type cannot
/// say is told on standard error, and checked when the tool is called.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf codegen demo
  wharf codegen github -o src/github.rs
  wharf codegen github -o src/github.rs --check")]
pub(crate) struct CodegenArgs {
    /// The server, as `wharf servers` names it
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: String,
    /// Write it to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Overwrite the file even if it was not generated
    #[arg(long, requires = "output", conflicts_with = "check")]
    force: bool,
    /// Write nothing; fail if the file is not what would be written
    #[arg(long, requires = "output")]
    check: bool,
}

impl CodegenArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let file = self.output.as_ref().map(|file| app.world.cwd.join(file));
        // Said before anything is started: the file will not be overwritten whatever the server says.
        let before = file.as_deref().map(read).transpose()?.flatten();
        if let (Some(file), Some(before)) = (&file, &before)
            && !self.force
            && !self.check
            && !is_generated(before)
        {
            let shown = app.world.show(file);
            return Err(Failure::general(format!("{shown} was not written by `wharf codegen`"))
                .hint("name another file, or overwrite it with `--force`"));
        }
        let module = self.generate(app).await?;
        for note in &module.notes {
            app.ui.warn(note);
        }
        match file {
            None if app.ui.json => {
                let note = |note: &RustNote| json!({ "tool": note.tool.as_str(), "place": note.place, "reason": note.reason });
                let notes: Vec<_> = module.notes.iter().map(note).collect();
                Ok(app.ui.document(&json!({ "source": module.source, "notes": notes }))?)
            }
            None => Ok(app.ui.data(module.source.as_bytes())?),
            Some(file) if self.check => self.compare(app, &file, before.as_deref(), &module.source),
            Some(file) if before.as_deref() == Some(&module.source) => up_to_date(app, &file),
            Some(file) => {
                if before.is_none() {
                    create(&file)?;
                }
                write_atomically(&file, &module.source)?;
                let note = format_args!("wrote {}", app.world.show(&file));
                Ok(app.ui.done(&json!({ "file": file, "changed": true }), note)?)
            }
        }
    }

    /// Asks the server for its tools, and writes them as Rust.
    async fn generate(&self, app: &App) -> Result<RustModule> {
        let mut setup = app.setup()?;
        setup.settle(app, Some(&self.server))?;
        setup.report(app, Some(&self.server))?;
        let servers = setup.config.servers.values().cloned().collect();
        let waiting = format!("asking {}", Escaped(&self.server));
        app.with_host(&setup, servers, async |host| {
            let listing = app.ui.wait(waiting, host.tools_of(&self.server)).await?;
            for (server, rejected) in &listing.rejected {
                app.ui.warn(format_args!(
                    "server `{server}`: tool `{}` is left out: {}",
                    rejected.name, rejected.reason
                ));
            }
            // The name as the configuration has it; one that is no name has not come this far.
            let server =
                ServerName::parse(&self.server).map_err(|error| Failure::usage(error.to_string()))?;
            let routes = listing.snapshot.tools().iter().filter(|route| route.server == server);
            Ok(render::rust(&server, routes.map(|route| &*route.tool)))
        })
        .await
    }

    fn compare(&self, app: &App, file: &Path, before: Option<&str>, now: &str) -> Result<()> {
        let shown = app.world.show(file);
        let why = match before {
            Some(before) if before == now => return up_to_date(app, file),
            Some(_) => "is out of date",
            None => "is not there",
        };
        let again = format!("wharf codegen {} -o {}", Escaped(&self.server), app.world.typed(file));
        Err(Failure::general(format!("{shown} {why}")).hint(format!("write it: {again}")))
    }
}

fn up_to_date(app: &App, file: &Path) -> Result<()> {
    let note = format_args!("{} is up to date", app.world.show(file));
    Ok(app.ui.done(&json!({ "file": file, "changed": false }), note)?)
}

/// What a file holds; `None` if it is not there.
fn read(file: &Path) -> Result<Option<String>> {
    match fs::read(file) {
        // Bytes that are no text were not generated either way.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(Failure::general(format!("cannot read {}: {error}", Escaped(&file.to_string_lossy()))))
        }
    }
}

/// Makes an empty file that others may read as they may read any new file: it is source, and holds no secrets.
fn create(file: &Path) -> Result<()> {
    let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::File::create_new(file).map(drop)).map_err(|error| {
        Failure::general(format!("cannot write {}: {error}", Escaped(&file.to_string_lossy())))
    })
}

/// Whether a file says in its head that it was generated.
fn is_generated(text: &str) -> bool {
    text.lines().take(5).any(|line| line.starts_with(RUST_MARK))
}
