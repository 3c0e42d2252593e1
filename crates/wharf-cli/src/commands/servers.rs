//! `wharf servers`: what is configured. Starts and contacts nothing.

use clap::Args;
use serde_json::{Value, json};
use wharf::config::{Origin, PendingFile, ServerConfig, Transport};
use wharf::connect::Logins;

use super::login;
use crate::app::App;
use crate::failure::Result;
use crate::logins;
use crate::output::json as shapes;

/// List the configured servers
///
/// Nothing is started or contacted. Secrets are not shown. The built-in test server `demo` is listed where nothing else
/// is configured; it can be named at any time.
#[derive(Debug, Args)]
pub(crate) struct ServersArgs {}

impl ServersArgs {
    pub(crate) fn run(self, app: &App) -> Result<()> {
        let setup = app.setup()?;
        let logins = Logins::new(logins::store(&app.world));
        if app.ui.json {
            let document = json!({
                "servers": setup.listed().map(|server| shape(server, &logins)).collect::<Vec<_>>(),
                "pending": setup.config.pending.iter().map(shapes::pending).collect::<Vec<_>>(),
                "problems": setup.config.problems.iter().map(shapes::problem).collect::<Vec<_>>(),
            });
            return Ok(app.ui.document(&document)?);
        }
        let mut rows: Vec<Vec<String>> = setup.listed().map(|server| row(app, server, &logins)).collect();
        rows.extend(setup.config.pending.iter().flat_map(|file| pending_rows(app, file)));
        app.ui.rows(&["name", "transport", "status", "from", "what"], &rows)?;
        for problem in &setup.config.problems {
            app.ui.trouble(problem);
        }
        for file in setup.config.pending.iter().filter_map(|file| file.obstacle.as_ref()) {
            app.ui.warn(file);
        }
        if setup.is_bare() {
            app.ui.note("\nOnly the built-in test server is there. `wharf add` adds one; `wharf init` writes a file to edit.");
        }
        Ok(())
    }
}

fn row(app: &App, server: &ServerConfig, logins: &Logins) -> Vec<String> {
    let status = if server.enabled { "enabled" } else { "disabled" };
    let status = match login::in_words(&logins.state(server)) {
        Some(login) => format!("{status}, {login}"),
        None => status.to_owned(),
    };
    let from = match &server.origin {
        Origin::File { path, line } => format!("{}:{line}", place(app, path)),
        Origin::Given => "given".to_owned(),
        Origin::BuiltIn => "built-in".to_owned(),
    };
    vec![server.name.to_string(), server.transport_name().to_owned(), status, from, what(server)]
}

/// Short for a person, whole for a program.
fn place(app: &App, path: &std::path::Path) -> String {
    if app.ui.terminals.stdout { app.world.show(path) } else { path.display().to_string() }
}

/// The command line or the address, with secrets hidden.
pub(crate) fn what(server: &ServerConfig) -> String {
    match &server.transport {
        Transport::Stdio(_) if server.origin == Origin::BuiltIn => "wharf test-server".to_owned(),
        Transport::Stdio(stdio) => {
            let line: Vec<&str> =
                std::iter::once(&stdio.command).chain(&stdio.args).map(String::as_str).collect();
            server.redactor().redact(&line.join(" ")).into_owned()
        }
        Transport::Http(remote) | Transport::Sse(remote) | Transport::WebSocket(remote) => {
            remote.url.to_string()
        }
        Transport::Unix(socket) => wharf::text::Escaped(&socket.path.display().to_string()).to_string(),
        _ => String::new(),
    }
}

fn pending_rows(app: &App, file: &PendingFile) -> Vec<Vec<String>> {
    let from = place(app, &file.path);
    let status = match (&file.obstacle, file.changed_since_trusted) {
        (Some(_), _) => "pending: cannot be trusted",
        (None, true) => "pending: changed, run `wharf trust`",
        (None, false) => "pending: run `wharf trust`",
    };
    let row = |server: &wharf::config::PendingServer| {
        vec![server.name.clone(), "-".to_owned(), status.to_owned(), from.clone(), server.does.clone()]
    };
    file.servers.iter().map(row).collect()
}

fn shape(server: &ServerConfig, logins: &Logins) -> Value {
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<Vec<_>>();
    let mut shape = json!({
        "name": server.name.as_str(),
        "transport": server.transport_name(),
        "enabled": server.enabled,
        "origin": shapes::origin(&server.origin),
    });
    match &server.transport {
        Transport::Stdio(stdio) => {
            let redactor = server.redactor();
            let args: Vec<_> = stdio.args.iter().map(|arg| redactor.redact(arg)).collect();
            shape["command"] = json!(stdio.command);
            shape["args"] = json!(args);
            shape["env"] = json!(names(stdio.env.keys().collect()));
            shape["cwd"] = json!(stdio.cwd);
        }
        Transport::Unix(socket) => shape["path"] = json!(socket.path),
        Transport::Http(remote) | Transport::Sse(remote) | Transport::WebSocket(remote) => {
            shape["url"] = json!(remote.url.to_string());
            shape["login"] = login::document(&logins.state(server));
            shape["headers"] = json!(names(remote.headers.keys().collect()));
        }
        _ => {}
    }
    shape
}
