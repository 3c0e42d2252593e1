//! `wharf check`: would it work? Starts and contacts nothing.

use clap::Args;
use serde_json::{Value, json};
use wharf::config::ServerConfig;
use wharf::connect::{Inspected, LoginState, Logins, inspect};
use wharf::sandbox::Abilities;

use super::login;
use super::servers::what;
use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::logins;
use crate::output::json as shapes;

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
type Judged<'a> = (&'a ServerConfig, Result<Inspected>);

impl CheckArgs {
    pub(crate) fn run(self, app: &App) -> Result<()> {
        let setup = app.setup()?;
        if self.scan {
            return super::scan::run(app, &setup);
        }
        let judge = |server| -> Judged<'_> {
            (server, inspect(server, &setup.policy, &app.world.env).map_err(Failure::from))
        };
        let judged: Vec<Judged<'_>> = setup.listed().map(judge).collect();
        let logins = Logins::new(logins::store(&app.world));
        let config = &setup.config;
        let refused = |(server, verdict): &Judged<'_>| {
            verdict.as_ref().err().map(Failure::exit).filter(|_| server.enabled)
        };
        let exit = match judged.iter().find_map(refused) {
            _ if !config.problems.is_empty() => Some(Exit::Config),
            // A file that waits for trust is no fault; one that can have none is.
            _ if config.pending.iter().any(|file| file.obstacle.is_some()) => Some(Exit::Config),
            exit => exit,
        };
        let sandbox = app.sandbox().abilities();
        if app.ui.json {
            app.ui.document(&json!({
                "sandbox": {
                    "engine": sandbox.engine,
                    "obstacle": sandbox.obstacle,
                    "landlock": sandbox.landlock,
                    "limits": sandbox.limits,
                },
                "ok": exit.is_none(),
                "problems": config.problems.iter().map(shapes::problem).collect::<Vec<_>>(),
                "warnings": config.warnings.iter().map(shapes::problem).collect::<Vec<_>>(),
                "pending": config.pending.iter().map(shapes::pending).collect::<Vec<_>>(),
                "servers": judged.iter().map(|judged| shape(judged, &logins)).collect::<Vec<_>>(),
            }))?;
            return exit.map_or(Ok(()), |exit| Err(Failure::Said(exit)));
        }
        let rows: Vec<Vec<String>> = judged.iter().map(row).collect();
        app.ui.rows(&["server", "verdict", "program", "what"], &rows)?;
        tell(app, &judged);
        for (server, _) in &judged {
            if let LoginState::Expired(_) = logins.state(server) {
                let name = &server.name;
                app.ui.warn(format_args!("the login at `{name}` has ended: wharf login {name}"));
            }
        }
        tell_sandbox(app, &sandbox);
        config.warnings.iter().for_each(|warning| app.ui.warn(warning));
        config.problems.iter().for_each(|problem| app.ui.trouble(problem));
        for file in &config.pending {
            let path = app.world.show(&file.path);
            match &file.obstacle {
                Some(obstacle) => app.ui.trouble(format_args!("{path} cannot be trusted: {obstacle}")),
                None => app.ui.note(format_args!(
                    "{path} is not trusted, so it was not checked: wharf trust {}",
                    app.world.typed(&file.path)
                )),
            }
        }
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

fn verdict((server, verdict): &Judged<'_>) -> &'static str {
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

fn row(judged: &Judged<'_>) -> Vec<String> {
    let (server, inspected) = judged;
    let program = inspected.as_ref().ok().and_then(|i| i.program.as_ref());
    let program = program.map_or_else(|| "-".to_owned(), |path| path.display().to_string());
    vec![server.name.to_string(), verdict(judged).to_owned(), program, what(server)]
}

fn tell(app: &App, judged: &[Judged<'_>]) {
    for (server, inspected) in judged {
        match inspected {
            Ok(inspected) => inspected.warnings.iter().for_each(|warning| app.ui.warn(warning)),
            Err(failure) if server.enabled => {
                app.ui.fail(failure);
            }
            Err(_) => {}
        }
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

fn shape(judged: &Judged<'_>, logins: &Logins) -> Value {
    let (server, inspected) = judged;
    json!({
        "name": server.name.as_str(),
        "transport": server.transport_name(),
        "enabled": server.enabled,
        "verdict": verdict(judged),
        "what": what(server),
        "login": login::document(&logins.state(server)),
        "program": inspected.as_ref().ok().and_then(|i| i.program.clone()),
        "warnings": inspected.as_ref().map(|i| i.warnings.clone()).unwrap_or_default(),
        "error": inspected.as_ref().err().map(shapes::failure),
        "origin": shapes::origin(&server.origin),
    })
}
