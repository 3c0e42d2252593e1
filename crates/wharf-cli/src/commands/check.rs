//! `wharf check`: would it work? Starts and contacts nothing.

use std::collections::{BTreeMap, HashSet};

use clap::Args;
use serde_json::{Value, json};
use wharf::Error;
use wharf::config::{PendingFile, ServerConfig, Transport};
use wharf::connect::{Inspected, LoginState, Logins, inspect};
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::sandbox::Abilities;

use super::login;
use super::servers::what;
use crate::app::{App, Setup};
use crate::events::one_of;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::logins;
use crate::output::json as shapes;
use crate::repl::did_you_mean;

/// Check the configuration and what the policy says to it
///
/// Shows every problem with its file and line, the program that each server would start, and whether the policy
/// permits it. Nothing is started or contacted.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Look through what servers are known to offer for what hides or is meant for a model; from the lockfile, or from what
    /// was last seen
    #[arg(long)]
    scan: bool,
}

/// A server, and what the policy says to it.
struct Judged<'a> {
    server: &'a ServerConfig,
    verdict: Result<Inspected>,
    /// The further places where it is reached, each judged as the first is.
    replicas: Vec<(ServerConfig, Result<Inspected>)>,
}

impl CheckArgs {
    pub(crate) fn run(self, app: &App) -> Result<()> {
        let setup = app.setup()?;
        if self.scan {
            return super::scan::run(app, &setup);
        }
        let judged: Vec<Judged<'_>> =
            setup.listed().map(|server| Judged::new(server, &setup.policy, &app.world.env)).collect();
        let logins = Logins::new(logins::store(&app.world));
        let (config, missing) = (&setup.config, missing(&setup));
        let exit = match judged.iter().find_map(|judged| judged.refusals().next().map(Failure::exit)) {
            _ if !config.problems.is_empty() || !missing.is_empty() => Some(Exit::Config),
            // A file that waits for trust is no fault; one that can have none is.
            _ if config.pending.iter().any(|file| file.obstacle.is_some()) => Some(Exit::Config),
            exit => exit,
        };
        let sandbox = app.sandbox().abilities();
        if app.ui.json {
            let problems = config.problems.iter().map(shapes::problem);
            app.ui.document(&json!({
                "sandbox": {
                    "engine": sandbox.engine,
                    "obstacle": sandbox.obstacle,
                    "landlock": sandbox.landlock,
                    "limits": sandbox.limits,
                },
                "ok": exit.is_none(),
                "problems": problems.chain(missing.iter().map(problem)).collect::<Vec<_>>(),
                "warnings": config.warnings.iter().map(shapes::problem).collect::<Vec<_>>(),
                "pending": config.pending.iter().map(shapes::pending).collect::<Vec<_>>(),
                "servers": judged.iter().map(|judged| judged.shape(&logins)).collect::<Vec<_>>(),
            }))?;
            return exit.map_or(Ok(()), |exit| Err(Failure::Said(exit)));
        }
        let rows: Vec<Vec<String>> = judged.iter().flat_map(Judged::rows).collect();
        app.ui.rows(&["server", "verdict", "program", "what"], &rows)?;
        judged.iter().for_each(|judged| judged.tell(app));
        for Judged { server, .. } in &judged {
            if let LoginState::Expired(_) = logins.state(server) {
                let name = &server.name;
                app.ui.warn(format_args!("the login at `{name}` has ended: wharf login {name}"));
            }
        }
        tell_sandbox(app, &sandbox);
        config.warnings.iter().for_each(|warning| app.ui.warn(warning));
        config.problems.iter().for_each(|problem| app.ui.trouble(problem));
        for failure in &missing {
            app.ui.fail(failure);
        }
        config.pending.iter().for_each(|file| tell_pending(app, file));
        match exit {
            Some(exit) => Err(Failure::Said(exit)),
            None => {
                if config.pending.is_empty() {
                    app.ui.note("all is well");
                }
                Ok(())
            }
        }
    }
}

// === impl Judged ===

impl<'a> Judged<'a> {
    fn new(server: &'a ServerConfig, policy: &Policy, env: &BTreeMap<String, String>) -> Self {
        let judge = |server: &ServerConfig| inspect(server, policy, env).map_err(Failure::from);
        // Every process of a program is the same program.
        let has_places = !matches!(server.transport, Transport::Stdio(_));
        let others = if has_places { server.others() } else { Vec::new() };
        let replicas = others.into_iter().map(|other| {
            let verdict = judge(&other);
            (other, verdict)
        });
        let replicas = replicas.collect();
        Self { server, verdict: judge(server), replicas }
    }

    /// Every place of it, and what is said to each.
    fn places(&self) -> impl Iterator<Item = (&ServerConfig, &Result<Inspected>)> {
        let others = self.replicas.iter().map(|(other, verdict)| (other, verdict));
        std::iter::once((self.server, &self.verdict)).chain(others)
    }

    /// Why it may not be used, if it is meant to be.
    fn refusals(&self) -> impl Iterator<Item = &Failure> {
        self.places().filter(|(server, _)| server.enabled).filter_map(|(_, verdict)| verdict.as_ref().err())
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.places().map(|(server, verdict)| {
            let program = verdict.as_ref().ok().and_then(|i| i.program.as_ref());
            let program = program.map_or_else(|| "-".to_owned(), |path| path.display().to_string());
            let instance = server.instance().filter(|number| *number > 1);
            vec![one_of(&server.name, instance), word(server, verdict).to_owned(), program, what(server)]
        })
    }

    fn tell(&self, app: &App) {
        // What is said to one place is mostly said to all of them.
        let mut told = HashSet::new();
        let warnings =
            self.places().filter_map(|(_, verdict)| verdict.as_ref().ok()).flat_map(|i| &i.warnings);
        warnings.filter(|warning| told.insert(*warning)).for_each(|warning| app.ui.warn(warning));
        for failure in self.refusals() {
            app.ui.fail(failure);
        }
    }

    fn shape(&self, logins: &Logins) -> Value {
        let server = self.server;
        let mut shape = place(server, &self.verdict);
        shape["name"] = json!(server.name.as_str());
        shape["transport"] = json!(server.transport_name());
        shape["enabled"] = json!(server.enabled);
        shape["login"] = login::document(&logins.state(server));
        shape["origin"] = shapes::origin(&server.origin);
        let replicas = self.replicas.iter().map(|(other, verdict)| place(other, verdict));
        shape["replicas"] = replicas.collect();
        shape
    }
}

/// One place of a server, for programs.
fn place(server: &ServerConfig, verdict: &Result<Inspected>) -> Value {
    json!({
        "verdict": word(server, verdict),
        "what": what(server),
        "program": verdict.as_ref().ok().and_then(|i| i.program.clone()),
        "warnings": verdict.as_ref().map(|i| i.warnings.clone()).unwrap_or_default(),
        "error": verdict.as_ref().err().map(shapes::failure),
    })
}

fn word(server: &ServerConfig, verdict: &Result<Inspected>) -> &'static str {
    match verdict {
        _ if !server.enabled => "disabled",
        Ok(_) => "allowed",
        Err(failure) => match failure.exit() {
            Exit::Denied => "denied",
            Exit::Unreachable => "not found",
            _ => "invalid",
        },
    }
}

/// What `required` names and nobody can be: the gateway would never be ready.
fn missing(setup: &Setup) -> Vec<Failure> {
    let waits = |name: &ServerName| {
        let mut servers = setup.config.pending.iter().flat_map(|file| &file.servers);
        servers.any(|server| server.name == name.as_str())
    };
    let problem = |name: &ServerName| match setup.config.servers.get(name) {
        Some(server) if server.enabled => None,
        Some(_) => {
            let text = format!("`required` in `[gateway]` names a server `{name}` that is not enabled");
            let hint = "enable it, or take it out of `required`: the gateway would never be ready";
            Some(Failure::from(Error::config(text)).hint(hint))
        }
        // That its file is not trusted is said already.
        None if waits(name) => None,
        None => {
            let text = format!("`required` in `[gateway]` names a server `{name}` that is not configured");
            let known: Vec<&str> = setup.listed().map(|server| server.name.as_str()).collect();
            Some(Failure::from(Error::config(text)).hint(did_you_mean(name.as_str(), &known)))
        }
    };
    setup.config.gateway.required.iter().filter_map(problem).collect()
}

/// A problem that is of no line.
fn problem(failure: &Failure) -> Value {
    json!({ "message": failure.to_string(), "file": null, "line": null, "column": null, "server": null,
        "hint": failure.next_step() })
}

fn tell_pending(app: &App, file: &PendingFile) {
    let path = app.world.show(&file.path);
    match &file.obstacle {
        Some(obstacle) => app.ui.trouble(format_args!("{path} cannot be trusted: {obstacle}")),
        None => app.ui.note(format_args!(
            "{path} is not trusted, so it was not checked: wharf trust {}",
            app.world.typed(&file.path)
        )),
    }
}

/// What confines servers here, or why nothing does.
fn tell_sandbox(app: &App, sandbox: &Abilities) {
    match &sandbox.obstacle {
        None => {
            let landlock = sandbox.landlock.map_or("no Landlock".into(), |version| format!("Landlock {version}"));
            app.ui.note(format_args!("sandbox: {}, {landlock}; {}", sandbox.engine, sandbox.limits));
        }
        Some(why) => app.ui.warn(format_args!(
            "servers cannot be confined here, so only those with `sandbox = false` start: {why}; install bubblewrap, or \
             allow user namespaces"
        )),
    }
}
