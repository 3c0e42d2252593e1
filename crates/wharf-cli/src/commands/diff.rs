//! `wharf diff`: what of the servers is not as the lockfile has it.

use std::fmt::Write as _;

use clap::Args;
use clap_complete::ArgValueCandidates;
use futures_util::StreamExt;
use serde_json::{Value, json};
use wharf::catalog::{Change, Drift, LockEntry, What, diff_lines};
use wharf::config::{ServerConfig, Transport};
use wharf::connect::program_of;
use wharf::names::ServerName;
use wharf::sandbox::packages::{PackageOptions, PackageSpec};

use super::completions::server_names;
use crate::app::{App, Setup, starting};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::json as shapes_of;

/// Show what changed since it was accepted
///
/// Starts the servers and compares them with `wharf.lock`: in words, and line by line. Ends with 0 if nothing differs and with
/// 1 if something does.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Only this server
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: Option<String>,
    /// Only the words
    #[arg(long)]
    brief: bool,
}

/// A server, and what it is now.
pub(crate) type Surveyed = (ServerConfig, Result<LockEntry>);

impl DiffArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let mut setup = app.setup()?;
        setup.settle(app, self.server.as_deref())?;
        setup.report(app, self.server.as_deref())?;
        let name = match &self.server {
            Some(server) => Some(setup.known(server)?),
            None => None,
        };
        let is_meant = |server: &ServerName| name.as_ref().is_none_or(|name| name == server);
        let locked = |server: &ServerName| {
            setup.locks.places.get(server).and_then(|place| setup.locks.files.get(place)).is_some()
        };
        if !setup.locks.places.keys().any(|server| is_meant(server) && locked(server)) {
            return Err(
                Failure::general("there is no lockfile to compare with").hint("write one: wharf lock")
            );
        }
        let surveyed = survey(app, &mut setup, name.as_ref()).await?;
        let mut drifts = Vec::new();
        for (server, entry) in &surveyed {
            let file = setup.locks.places.get(&server.name).and_then(|place| setup.locks.files.get(place));
            if let (Some(file), Ok(entry)) = (file, entry) {
                drifts.push(Drift::of(&server.name, file.servers.get(&server.name), entry));
            }
        }
        if name.is_none() {
            for (place, file) in &setup.locks.files {
                let gone =
                    file.servers.iter().filter(|(name, _)| setup.locks.places.get(*name) != Some(place));
                drifts.extend(gone.map(|(name, entry)| Drift::gone(name, entry)));
            }
        }
        drifts.retain(|drift| !drift.is_empty());
        self.tell(app, &drifts, &surveyed)
    }

    fn tell(&self, app: &App, drifts: &[Drift], surveyed: &[Surveyed]) -> Result<()> {
        let unreachable = surveyed.iter().find_map(|(_, entry)| entry.as_ref().err().map(Failure::exit));
        let exit = unreachable.or((!drifts.is_empty()).then_some(Exit::General));
        if app.ui.json {
            app.ui.document(&json!({
                "same": drifts.is_empty(),
                "changes": drifts.iter().flat_map(shapes).collect::<Vec<_>>(),
                "failed": surveyed.iter().filter_map(failed).collect::<Vec<_>>(),
            }))?;
            return exit.map_or(Ok(()), |exit| Err(Failure::Said(exit)));
        }
        let mut text = String::new();
        for drift in drifts {
            for change in &drift.changes {
                // Writing to a `String` cannot fail.
                let _ = writeln!(text, "{}: {change}", drift.server);
                if !self.brief {
                    text.push_str(&lines(change));
                }
            }
        }
        app.ui.data(text.as_bytes())?;
        for failure in surveyed.iter().filter_map(|(_, entry)| entry.as_ref().err()) {
            app.ui.fail(failure);
        }
        match exit {
            None => {
                app.ui.note("nothing changed");
                Ok(())
            }
            Some(exit) => {
                if let Some(drift) = drifts.first() {
                    app.ui.note(format_args!("take it: wharf lock --accept {}", drift.server));
                }
                Err(Failure::Said(exit))
            }
        }
    }
}

/// Asks every server that has a lockfile, or is to have one, what it is now. Nothing holds them back meanwhile.
pub(crate) async fn survey(app: &App, setup: &mut Setup, only: Option<&ServerName>) -> Result<Vec<Surveyed>> {
    setup.policy = setup.policy.with_lock(None);
    let is_meant = |server: &&ServerConfig| {
        server.enabled
            && setup.locks.places.contains_key(&server.name)
            && only.is_none_or(|name| *name == server.name)
    };
    let servers: Vec<ServerConfig> = setup.config.servers.values().filter(is_meant).cloned().collect();
    let waiting = match &servers[..] {
        [one] => starting(one),
        more => format!("starting {} servers", more.len()),
    };
    let packages = app.package_options(setup);
    let ask = async |host: &wharf::Host| {
        let packages = packages.as_ref();
        let one = |server: ServerConfig| async move {
            let entry = ask(app, host, &server, packages).await;
            (server, entry)
        };
        let asked =
            futures_util::stream::iter(servers.clone()).map(one).buffered(AT_ONCE).collect::<Vec<_>>();
        Ok(app.ui.wait(waiting, asked).await)
    };
    app.with_host(setup, servers.clone(), ask).await
}

/// How many servers are started at the same time.
const AT_ONCE: usize = 8;

async fn ask(
    app: &App,
    host: &wharf::Host,
    server: &ServerConfig,
    packages: Option<&PackageOptions>,
) -> Result<LockEntry> {
    let server = app.adjusted(server.clone());
    let connection = host.berth(server.name.as_str())?.connection().await?;
    let program = program_of(&server, &app.world.env).await;
    // What was just fetched for it, if anything was.
    let fetched = match (&server.transport, &program, packages) {
        (Transport::Stdio(stdio), Some((path, _)), Some(options)) => {
            PackageSpec::read(path, &stdio.args).ok().flatten().and_then(|spec| spec.find(options))
        }
        _ => None,
    };
    let program = program.map(|(path, hash)| (path.display().to_string(), hash));
    let fetched = fetched.map(|fetched| (fetched.words(), fetched.digest()));
    Ok(LockEntry::ask(&server, &connection, program.into_iter().chain(fetched)).await?)
}

/// A change as the lines of a diff.
fn lines(change: &Change) -> String {
    let (before, after) =
        (change.before.as_deref().unwrap_or_default(), change.after.as_deref().unwrap_or_default());
    let mut text = String::new();
    for (sign, line) in diff_lines(before, after) {
        let _ = match sign {
            '@' => writeln!(text, "    …"),
            sign => writeln!(text, "  {sign} {line}"),
        };
    }
    text
}

/// What changed, for programs.
pub(crate) fn shapes(drift: &Drift) -> impl Iterator<Item = Value> {
    drift.changes.iter().map(|change| {
        let (what, name) = match &change.what {
            What::Definition(kind, name) => (kind.word(), Some(name)),
            What::Server => ("server", None),
            What::Source => ("source", None),
            What::Program => ("program", None),
            What::Revision => ("revision", None),
            _ => ("instructions", None),
        };
        json!({
            "server": drift.server.as_str(),
            "what": what,
            "name": name,
            "how": change.how.as_str(),
            "blocks": change.blocks(),
            "words": change.to_string(),
            "places": change.places,
            "before": change.before,
            "after": change.after,
        })
    })
}

pub(crate) fn failed((server, entry): &Surveyed) -> Option<Value> {
    let failure = entry.as_ref().err()?;
    Some(json!({ "server": server.name.as_str(), "error": shapes_of::failure(failure) }))
}
