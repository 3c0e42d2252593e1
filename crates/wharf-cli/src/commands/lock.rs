//! `wharf lock`: writes down what servers are and offer, once somebody has looked at it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use wharf::catalog::scan::{self, Severity};
use wharf::catalog::{Drift, Lockfile, PinKey, Pinned};
use wharf::config::edit::write_atomically;
use wharf::mcp::ListKind;
use wharf::names::ServerName;

use super::diff::{self, Surveyed};
use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Write down what servers are and offer, and hold them to it
///
/// Starts every server and writes `wharf.lock` beside the file that defines it: the program and its hash, packages,
/// the address, and every tool, prompt and resource template. From then on whatever changes or is new is kept back until you
/// accept it. Servers that the file does not know yet are added; changes of those it knows need `--accept`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf lock                          the first time, and after adding a server
  wharf diff github                   see what changed
  wharf lock --accept github          take all that changed of one server
  wharf lock --accept github/search   take one tool
  wharf lock --accept                 take everything
  wharf lock --check                  for CI: fails if anything differs, writes nothing")]
pub(crate) struct LockArgs {
    /// Take what changed: all, of a server, or one tool, prompt or template of it
    #[arg(long, value_name = "SERVER[/NAME]", num_args = 0..)]
    accept: Option<Vec<String>>,
    /// Write nothing; fail if a server is not as the lockfile has it
    #[arg(long, conflicts_with = "accept")]
    check: bool,
}

/// What is to be taken of a server.
enum Taken<'a> {
    Nothing,
    All,
    Named(Vec<&'a str>),
}

/// What became of one lockfile.
struct Written {
    path: PathBuf,
    locked: Vec<ServerName>,
    left: Vec<Drift>,
}

impl LockArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let mut setup = app.setup()?;
        setup.settle(app, None)?;
        setup.report(app, None)?;
        self.refuse_strangers(&setup.locks.places)?;
        let surveyed = diff::survey(app, &mut setup, None).await?;
        let mut all = Vec::new();
        let places: BTreeSet<&PathBuf> = setup.locks.places.values().collect();
        for place in places {
            let of_it: Vec<&Surveyed> =
                surveyed.iter().filter(|one| setup.locks.places.get(&one.0.name) == Some(place)).collect();
            let known = |name: &ServerName| setup.locks.places.get(name) == Some(place);
            let before = setup.locks.files.get(place);
            let (file, written) = self.settle(place, before, &of_it, known);
            if !self.check && before != Some(&file) {
                refuse_secrets(&of_it)?;
                write_atomically(place, &file.to_text())?;
            }
            all.push(written);
        }
        self.tell(app, &all, &surveyed)
    }

    /// The lockfile as it should be, and what was not taken.
    fn settle(
        &self,
        path: &std::path::Path,
        before: Option<&Lockfile>,
        surveyed: &[&Surveyed],
        known: impl Fn(&ServerName) -> bool,
    ) -> (Lockfile, Written) {
        let mut file = before.cloned().unwrap_or_default();
        let mut written = Written { path: path.to_path_buf(), locked: Vec::new(), left: Vec::new() };
        for (server, entry) in
            surveyed.iter().filter_map(|(server, entry)| Some((server, entry.as_ref().ok()?)))
        {
            let is_new = !file.servers.contains_key(&server.name);
            match self.taken(&server.name) {
                _ if self.check => {}
                Taken::All => {
                    file.accept(&server.name, entry, None);
                }
                Taken::Named(names) => names.iter().for_each(|name| {
                    file.accept(&server.name, entry, Some(name));
                }),
                Taken::Nothing if is_new => {
                    file.accept(&server.name, entry, None);
                }
                Taken::Nothing => {}
            }
            let left = Drift::of(&server.name, file.servers.get(&server.name), entry);
            match left.is_empty() {
                true => written.locked.push(server.name.clone()),
                false => written.left.push(left),
            }
        }
        for name in file.servers.keys().filter(|name| !known(name)).cloned().collect::<Vec<_>>() {
            match self.check {
                // What is not configured cannot be used, so nothing is lost with it.
                false => drop(file.servers.remove(&name)),
                true => written.left.extend(file.servers.get(&name).map(|entry| Drift::gone(&name, entry))),
            }
        }
        (file, written)
    }

    fn taken(&self, server: &ServerName) -> Taken<'_> {
        let Some(accept) = &self.accept else { return Taken::Nothing };
        if accept.is_empty() {
            return Taken::All;
        }
        let mut names = Vec::new();
        for wanted in accept {
            match wanted.split_once('/') {
                None if wanted == server.as_str() => return Taken::All,
                Some((of, name)) if of == server.as_str() => names.push(name),
                _ => {}
            }
        }
        if names.is_empty() { Taken::Nothing } else { Taken::Named(names) }
    }

    fn refuse_strangers(&self, places: &BTreeMap<ServerName, PathBuf>) -> Result<()> {
        if places.is_empty() {
            return Err(
                Failure::general("there is no server to lock").hint("add one: wharf add NAME -- COMMAND")
            );
        }
        for wanted in self.accept.iter().flatten() {
            let server = wanted.split('/').next().unwrap_or(wanted);
            if !places.keys().any(|name| name.as_str() == server) {
                let server = wharf::text::Escaped(server).to_string();
                return Err(Failure::usage(format!("there is no server `{server}`"))
                    .hint("`wharf servers` lists them"));
            }
        }
        Ok(())
    }

    /// Whoever is about to accept something should know what is in it.
    fn tell_found(&self, app: &App, surveyed: &[Surveyed]) {
        let known: BTreeMap<ServerName, Pinned> = surveyed
            .iter()
            .filter_map(|(server, entry)| {
                let key = PinKey::of(server, &app.world.env);
                Some((server.name.clone(), entry.as_ref().ok()?.to_pinned(&key)))
            })
            .collect();
        for finding in scan::servers(&known).iter().filter(|finding| finding.severity == Severity::High) {
            app.ui.warn(finding);
        }
    }

    fn tell(&self, app: &App, all: &[Written], surveyed: &[Surveyed]) -> Result<()> {
        let left: Vec<&Drift> = all.iter().flat_map(|written| &written.left).collect();
        let unreachable = surveyed.iter().find_map(|(_, entry)| entry.as_ref().err().map(Failure::exit));
        let exit = if left.is_empty() { unreachable } else { Some(Exit::General) };
        if app.ui.json {
            app.ui.document(&json!({
                "ok": exit.is_none(),
                "lockfiles": all.iter().map(shape).collect::<Vec<_>>(),
                "failed": surveyed.iter().filter_map(diff::failed).collect::<Vec<_>>(),
            }))?;
            return exit.map_or(Ok(()), |exit| Err(Failure::Said(exit)));
        }
        for written in all.iter().filter(|written| !self.check && !written.locked.is_empty()) {
            let names: Vec<&str> = written.locked.iter().map(ServerName::as_str).collect();
            app.ui.note(format_args!("{}: {}", app.world.show(&written.path), names.join(", ")));
        }
        for (server, entry) in surveyed {
            match entry {
                Err(failure) => drop(app.ui.fail(failure)),
                Ok(entry) if !self.check => {
                    let count = |kind| entry.lists.get(&kind).map_or(0, BTreeMap::len);
                    let (tools, prompts) = (count(ListKind::Tools), count(ListKind::Prompts));
                    let templates = count(ListKind::ResourceTemplates);
                    app.ui.note(format_args!(
                        "  {}: {tools} tools, {prompts} prompts, {templates} resource templates",
                        server.name
                    ));
                }
                Ok(_) => {}
            }
        }
        self.tell_found(app, surveyed);
        for drift in &left {
            for change in &drift.changes {
                app.ui.trouble(format_args!("{}: {change}", drift.server));
            }
        }
        match exit {
            Some(Exit::General) => {
                let first = left.first().map(|drift| drift.server.to_string()).unwrap_or_default();
                let what = if self.check {
                    "servers are not as the lockfile has them"
                } else {
                    "what changed was not taken"
                };
                Err(Failure::general(what).hint(format!(
                    "see it with `wharf diff {first}`, and take it with `wharf lock --accept {first}`"
                )))
            }
            Some(exit) => Err(Failure::Said(exit)),
            None => Ok(()),
        }
    }
}

/// A file that others read must not repeat what a server was told in confidence.
fn refuse_secrets(surveyed: &[&Surveyed]) -> Result<()> {
    for (server, entry) in surveyed.iter().filter_map(|(server, entry)| Some((server, entry.as_ref().ok()?)))
    {
        let redactor = server.redactor();
        let is_secret = |text: &str| matches!(redactor.redact(text), std::borrow::Cow::Owned(_));
        if entry.texts().any(is_secret) {
            return Err(Failure::general(format!(
                "server `{}` repeats one of its secrets in what it offers, so it is not written down",
                server.name
            )));
        }
    }
    Ok(())
}

fn shape(written: &Written) -> Value {
    json!({
        "path": written.path,
        "locked": written.locked.iter().map(ServerName::as_str).collect::<Vec<_>>(),
        "changes": written.left.iter().flat_map(diff::shapes).collect::<Vec<_>>(),
    })
}
