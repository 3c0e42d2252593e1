//! `wharf login` and `wharf logout`: tokens for remote servers, through the person's browser.

use clap::Args;
use clap_complete::ArgValueCandidates;
use serde_json::{Value, json};
use wharf::connect::{LoggedOut, LoginState, Outline};
use wharf::text::Escaped;

use super::completions::server_names;
use super::offered::Asking;
use crate::app::App;
use crate::browser::AtBrowser;
use crate::failure::{Failure, Result};
use crate::output::json::second;

/// Log in at a server that asks for it
///
/// Opens the page of the server's authorization server in your browser and keeps the token that it hands out: in the
/// keyring of this machine where there is one, else in a sealed file of your own. Tokens are renewed by themselves.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf login github
  wharf login github --scope repo --scope read:org
  ssh host wharf login github --no-browser")]
pub(crate) struct LoginArgs {
    /// The server, as `wharf servers` names it
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: String,
    /// Ask for this right, too; may be given again
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Open nothing: show the address, and take the one that the browser comes back with from standard input
    #[arg(long)]
    no_browser: bool,
    /// The port of 127.0.0.1 that the browser comes back to [default: any that is free]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

/// Forget the login at a server, and hand its token back
#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The server, as `wharf servers` names it
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: String,
}

impl LoginArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        if app.world.own.is_none() {
            return Err(Failure::general("there is no home folder to keep the login in").hint("set HOME"));
        }
        let asking = Asking::prepare(app, Some(&self.server))?;
        asking
            .with_host(app, async |host| {
                let port =
                    self.port.or_else(|| host.berth(self.server.as_str()).ok()?.config().oauth.callback_port);
                let browser = AtBrowser::new(app, port, self.no_browser).await?;
                let outline = host.login(&self.server, &browser, &self.scopes).await?;
                let document = json!({ "server": self.server, "login": shape(&outline, "in") });
                let issuer = Escaped(&outline.issuer);
                app.ui.done(&document, format_args!("logged in at {issuer} for `{}`", self.server))?;
                if !outline.renewable {
                    app.ui.note("the token cannot be renewed: log in again when it has ended");
                }
                Ok(())
            })
            .await
    }
}

impl LogoutArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let asking = Asking::prepare(app, Some(&self.server))?;
        asking
            .with_host(app, async |host| {
                let (done, note) = match host.logout(&self.server).await? {
                    LoggedOut::WasNot => ("was-not", "nobody was logged in at"),
                    LoggedOut::Revoked => ("revoked", "logged out, and the token handed back, at"),
                    _ => ("forgotten", "logged out (the token lives on until it ends) at"),
                };
                let document = json!({ "server": self.server, "logout": done });
                Ok(app.ui.done(&document, format_args!("{note} `{}`", self.server))?)
            })
            .await
    }
}

/// A login for a program. Nothing in it is secret.
pub(crate) fn document(state: &LoginState) -> Value {
    match state {
        LoginState::LoggedIn(outline) => shape(outline, "in"),
        LoginState::Expired(outline) => shape(outline, "expired"),
        LoginState::LoggedOut => json!({ "state": "out" }),
        _ => Value::Null,
    }
}

fn shape(outline: &Outline, state: &str) -> Value {
    json!({
        "state": state,
        "issuer": outline.issuer,
        "expires": outline.expires.and_then(second),
        "renewable": outline.renewable,
        "scopes": outline.scopes,
    })
}

/// A login for a person, after the status of its server; nothing where nobody logged in.
pub(crate) fn in_words(state: &LoginState) -> Option<&'static str> {
    match state {
        LoginState::LoggedIn(outline) if outline.wanted.is_empty() => Some("logged in"),
        LoginState::LoggedIn(_) => Some("logged in, with less than it wants"),
        LoginState::Expired(_) => Some("login expired"),
        _ => None,
    }
}
