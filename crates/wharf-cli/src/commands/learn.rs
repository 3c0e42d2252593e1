//! `wharf sandbox learn`: a server is run in its sandbox and watched, and the profile it would need is proposed.
//!
//! In: a server, and calls to make of it. Out: the line to add to its entry. Nothing is written to any file, and the server
//! sees nothing that its profile does not let in: what it lacks is only counted.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wharf::CallOptions;
use wharf::config::ServerConfig;
use wharf::connect::{LetIn, let_in};
use wharf::sandbox::Learnt;

use crate::app::{App, Setup, starting};
use crate::failure::{Failure, Result};
use crate::terminal::AtTerminal;

/// Notes that are gone when they were read.
struct Notes(PathBuf);

/// One run, and nothing given meanwhile: a stranger's program must not get at a file by asking for it. One that stops at
/// the first file it lacks is learnt from again when it was given that.
pub(super) async fn learn(
    app: &App,
    setup: Setup,
    server: &ServerConfig,
    calls: &[(String, Value)],
) -> Result<()> {
    let Some(seen) = let_in(server, &setup.policy, &app.world.env, &app.sandbox())? else {
        return Err(Failure::general(format!(
            "`{}` is not confined, so there is nothing to learn",
            server.name
        )));
    };
    let learnt = watch(app, setup, server, &seen, calls).await?;
    propose(app, server, &learnt.read, &learnt.write)
}

/// One watched run: start, list, call, end.
async fn watch(
    app: &App,
    mut setup: Setup,
    server: &ServerConfig,
    seen: &LetIn,
    calls: &[(String, Value)],
) -> Result<Learnt> {
    let notes = Notes::new(app)?;
    setup.watch = Some(notes.0.clone());
    let asker = AtTerminal::new(std::sync::Arc::clone(&app.ui), app.world.can_ask());
    let open = app.open(&setup, vec![server.clone()], asker).await?;
    let name = server.name.as_str();
    match app.ui.wait(starting(server), async { open.host.berth(name)?.connect().await }).await {
        Ok(_) => {
            for (tool, arguments) in calls {
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
    Ok(app.sandbox().learn(&text, &seen.program, (&seen.read, &seen.write)))
}

fn propose(app: &App, server: &ServerConfig, read: &[PathBuf], write: &[PathBuf]) -> Result<()> {
    let texts =
        |paths: &[PathBuf]| -> Vec<String> { paths.iter().map(|path| path.display().to_string()).collect() };
    let (read, write) = (texts(read), texts(write));
    if app.ui.json {
        return Ok(app
            .ui
            .document(&json!({ "server": server.name.as_str(), "read": read, "write": write }))?);
    }
    if read.is_empty() && write.is_empty() {
        app.ui.note(format_args!("`{}` looked for nothing that it was not given", server.name));
        return Ok(());
    }
    let members = [("read", &read), ("write", &write)].into_iter().filter(|(_, paths)| !paths.is_empty());
    let members: Vec<String> = members.map(|(key, paths)| format!("{key} = {}", json!(paths))).collect();
    app.ui.data(format!("sandbox = {{ {} }}\n", members.join(", ")).as_bytes())?;
    app.ui.note(format_args!(
        "give `{}` what of this it should have: in its entry of your wharf.toml",
        server.name
    ));
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
