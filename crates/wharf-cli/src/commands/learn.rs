//! `wharf sandbox learn`: a server is run in its sandbox and watched, and the profile it would need is proposed.
//!
//! In: a server, and calls to make of it. Out: the line to add to its entry. Nothing is written to any file, and the server
//! sees nothing that its profile does not let in: what it lacks is only counted. It reaches no host but those of its
//! profile, unless the person lets it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wharf::CallOptions;
use wharf::config::ServerConfig;
use wharf::connect::{LetIn, let_in};
use wharf::sandbox::{Learnt, Sandbox};

use crate::app::{App, Setup, starting};
use crate::failure::{Failure, Result};
use crate::terminal::AtTerminal;

/// What is done with a server while it is watched.
pub(super) struct Lesson {
    /// The tools to call, with their arguments.
    pub(super) calls: Vec<(String, Value)>,
    /// Whether it may reach every public host meanwhile.
    pub(super) lets_out: bool,
}

/// Notes that are gone when they were read.
struct Notes(PathBuf);

/// One run, and nothing given meanwhile: a stranger's program must not get at a file by asking for it. One that stops at
/// the first file it lacks is learnt from again when it was given that.
pub(super) async fn learn(app: &App, setup: Setup, server: &ServerConfig, lesson: &Lesson) -> Result<()> {
    let Some(seen) = let_in(server, &setup.policy, &app.world.env, &app.sandbox())? else {
        return Err(Failure::general(format!(
            "`{}` is not confined, so there is nothing to learn",
            server.name
        )));
    };
    if lesson.lets_out {
        app.ui.warn(format_args!(
            "`{}` reaches every public host while it is watched: what it was given can leave this machine",
            server.name
        ));
    }
    let learnt = watch(app, setup, server, &seen, lesson).await?;
    propose(app, server, &learnt)
}

/// One watched run: start, list, call, end.
async fn watch(
    app: &App,
    mut setup: Setup,
    server: &ServerConfig,
    seen: &LetIn,
    lesson: &Lesson,
) -> Result<Learnt> {
    let notes = Notes::new(app)?;
    let sandbox = watched(app, &notes, lesson.lets_out)?;
    setup.watched = Some(sandbox.clone());
    let asker = AtTerminal::new(std::sync::Arc::clone(&app.ui), app.world.can_ask());
    let open = app.open(&setup, vec![server.clone()], asker).await?;
    let name = server.name.as_str();
    match app.ui.wait(starting(server), async { open.host.berth(name)?.connect().await }).await {
        Ok(_) => {
            for (tool, arguments) in &lesson.calls {
                let (arguments, options) = (wharf::Json::of(arguments), CallOptions::default());
                let outcome = open.host.call_tool(name, tool, arguments, options).await;
                if let Some(error) = outcome.error {
                    app.ui.warn(format_args!("`{tool}`: {error}"));
                }
            }
        }
        // It may lack what is just being learnt.
        Err(error) => app.ui.detail(format_args!("it did not start: {error}")),
    }
    open.close().await;
    let text = std::fs::read(&notes.0).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    Ok(sandbox.learn(&text, (&seen.read, &seen.write)))
}

fn watched(app: &App, notes: &Notes, lets_out: bool) -> Result<Sandbox> {
    let watched = app.sandbox().watched(&notes.0).map_err(|why| {
        let hint = "install strace (`apt install strace`)";
        Failure::general(format!("nothing can be watched here: {why}")).hint(hint)
    })?;
    Ok(if lets_out { watched.let_out() } else { watched })
}

fn propose(app: &App, server: &ServerConfig, learnt: &Learnt) -> Result<()> {
    let texts =
        |paths: &[PathBuf]| -> Vec<String> { paths.iter().map(|path| path.display().to_string()).collect() };
    let (read, write, secret) = (texts(&learnt.read), texts(&learnt.write), texts(&learnt.secret));
    let (name, domains) = (&server.name, &learnt.domains);
    if app.ui.json {
        return Ok(app.ui.document(&json!({
            "server": name.as_str(), "read": read, "write": write, "domains": domains, "secret": secret,
        }))?);
    }
    for path in &learnt.secret {
        let shown = app.world.show(path);
        app.ui
            .warn(format_args!("`{name}` looked for {shown}, where secrets are kept: that is not proposed"));
    }
    let members = [("read", &read), ("write", &write), ("domains", domains)];
    let members: Vec<String> = members
        .iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(key, values)| format!("{key} = {}", json!(values)))
        .collect();
    if members.is_empty() {
        app.ui.note(format_args!("`{name}` looked for nothing else that it was not given"));
        return Ok(());
    }
    app.ui.data(format!("sandbox = {{ {} }}\n", members.join(", ")).as_bytes())?;
    app.ui.note(format_args!("give `{name}` what of this it should have: in its entry of your wharf.toml"));
    Ok(())
}

// === impl Notes ===

impl Notes {
    /// A file that nobody else can read: it tells what a program does.
    fn new(app: &App) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let folder = app.world.env.get("TMPDIR").map_or(Path::new("/tmp"), Path::new);
        let path = folder.join(format!(
            "wharf-learn-{}-{}",
            std::process::id(),
            jiff::Timestamp::now().as_nanosecond()
        ));
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(|e| Failure::general(format!("{} cannot be written: {e}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        // What is left in a folder for temporary files harms nobody.
        let _ = std::fs::remove_file(&self.0);
    }
}
