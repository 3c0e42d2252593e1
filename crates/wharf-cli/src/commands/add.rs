//! `wharf add`: a server more, in the file of your choice.

use clap::{Args, ValueEnum};
use serde_json::json;
use wharf::config::edit::{NewServer, add, write_atomically};
use wharf::connect::inspect;
use wharf::secret::{is_credential_name, is_credential_value};

use super::place::{Place, Scope, trust_own_words};
use crate::app::App;
use crate::failure::{Failure, Result};

/// Add a server
///
/// Values are written as given: `${NAME}` is looked up in your environment when the server is started. Comments in the
/// file are kept.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf add files -- npx -y @modelcontextprotocol/server-filesystem@2026.7.10 /home/me/notes
  wharf add github https://api.githubcopilot.com/mcp/ -H 'Authorization: Bearer ${GITHUB_TOKEN}'
  wharf add notes unix:///run/user/1000/notes.sock
  wharf add db -s project -e 'DATABASE_URL=${DATABASE_URL}' -- uvx my-db-server==1.2.3")]
pub(crate) struct AddArgs {
    /// What to call it
    name: String,
    /// Where it is reached
    #[arg(value_name = "URL")]
    target: Vec<String>,
    /// The program that is started, with its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// How it is spoken with, where that is not plain
    #[arg(short, long, value_enum)]
    transport: Option<TransportName>,
    /// Whose file it goes to: yours (the default) or the project's
    #[arg(short, long, value_enum)]
    scope: Option<Scope>,
    /// A variable that the program is given; may be given again
    #[arg(short, long, value_name = "NAME=VALUE", num_args = 1)]
    env: Vec<String>,
    /// A header that goes with every request; may be given again
    #[arg(short = 'H', long, value_name = "NAME: VALUE", num_args = 1)]
    header: Vec<String>,
}

/// How a server is spoken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TransportName {
    /// A program
    Stdio,
    /// Streamable HTTP
    Http,
    /// The old HTTP+SSE
    Sse,
    /// A WebSocket, at an address with `wss:` or `ws:`
    Ws,
    /// A Unix socket, at `unix://` and its path
    Unix,
}

impl AddArgs {
    pub(crate) fn run(self, app: &App) -> Result<()> {
        wharf::names::ServerName::parse(&self.name).map_err(|bad| Failure::usage(bad.to_string()))?;
        let entry = self.entry()?;
        let place = Place::meant(app, self.scope)?;
        let before = place.text()?;
        let after = add(before.as_deref().unwrap_or_default(), place.format, &self.name, &entry)?;
        write_atomically(&place.path, &after)?;
        let trusted = trust_own_words(app, &place, before.as_deref(), &after)?;
        let path = app.world.show(&place.path);
        let note = format_args!("added `{}` to {path}", wharf::text::Escaped(&self.name));
        app.ui.done(&json!({ "added": self.name, "file": place.path, "trusted": trusted }), note)?;
        self.warn_of_secrets(app, &entry);
        if !trusted {
            app.ui.warn(format_args!(
                "others wrote in that file too: look at it, then run wharf trust {}",
                app.world.typed(&place.path)
            ));
            return Ok(());
        }
        self.foresee(app)
    }

    fn entry(&self) -> Result<NewServer> {
        let mut entry = NewServer::default();
        match (&self.target[..], &self.command[..]) {
            ([_, ..], [_, ..]) => {
                return Err(Failure::usage("it is either an address or a command, not both")
                    .hint("write all of the command after `--`"));
            }
            ([], []) => {
                return Err(Failure::usage("say where it is reached, or what is started")
                    .hint("wharf add NAME URL, or wharf add NAME -- COMMAND ARGUMENTS"));
            }
            ([url], []) if url.contains("://") => entry.url = Some(url.clone()),
            (words, []) => {
                let words = words.join(" ");
                return Err(Failure::usage(format!("`{}` is not an address", wharf::text::Escaped(&words)))
                    .hint(format!(
                        "for a program write `--` before it: wharf add {} -- {words}",
                        self.name
                    )));
            }
            ([], [command, args @ ..]) => {
                entry.command = Some(command.clone());
                entry.args = args.to_vec();
            }
        }
        let is_program = entry.command.is_some();
        match self.transport {
            Some(TransportName::Stdio) if !is_program => {
                return Err(Failure::usage("stdio needs a command, after `--`"));
            }
            Some(_) if is_program && self.transport != Some(TransportName::Stdio) => {
                return Err(Failure::usage(
                    "a program is spoken with over stdio; the other transports need an address",
                ));
            }
            Some(TransportName::Sse) => entry.transport = Some("sse".into()),
            Some(TransportName::Ws) => entry.transport = Some("ws".into()),
            Some(TransportName::Unix) => entry.transport = Some("unix".into()),
            _ => {}
        }
        if !is_program && !self.env.is_empty() {
            return Err(Failure::usage("variables are for programs; an address takes headers (-H)"));
        }
        let is_socket = entry.url.as_ref().is_some_and(|url| url.starts_with("unix:"));
        if is_socket && !self.header.is_empty() {
            return Err(Failure::usage("headers are for addresses of the web; a Unix socket has none"));
        }
        if is_program && !self.header.is_empty() {
            return Err(Failure::usage("headers are for addresses; a program takes variables (-e)"));
        }
        entry.env = pairs(&self.env, '=', "NAME=VALUE")?;
        entry.headers = pairs(&self.header, ':', "'NAME: VALUE'")?;
        Ok(entry)
    }

    /// A secret in a file is read by every backup and every repository it gets into.
    fn warn_of_secrets(&self, app: &App, entry: &NewServer) {
        let of_server = format!("{}_TOKEN", variable(&self.name));
        let env = entry.env.iter().map(|(name, value)| (name, value, variable(name)));
        let headers = entry.headers.iter().map(|(name, value)| (name, value, of_server.clone()));
        for (name, value, variable) in env.chain(headers) {
            let is_reference = value.contains("${") || value.starts_with("env:");
            if !is_reference && (is_credential_name(name) || is_credential_value(value)) {
                let scheme = if value.starts_with("Bearer ") { "Bearer " } else { "" };
                app.ui.warn(format_args!(
                    "the value of `{}` looks like a credential, and now stands in the file; \
                     better write '{scheme}${{{variable}}}' there and keep it in your environment",
                    wharf::text::Escaped(name),
                ));
            }
        }
    }

    /// Says now what would be said at the first call.
    fn foresee(&self, app: &App) -> Result<()> {
        let setup = app.setup()?;
        if let Err(failure) = setup.report(app, Some(&self.name)) {
            app.ui.warn(failure);
        }
        let name = wharf::names::ServerName::parse(&self.name).ok();
        let Some(server) = name.and_then(|name| setup.config.servers.get(&name)) else { return Ok(()) };
        match inspect(server, &setup.policy, &app.world.env) {
            Ok(inspected) => inspected.warnings.iter().for_each(|warning| app.ui.warn(warning)),
            Err(error) => {
                let hint = error.hint().map(|hint| format!("\n  {hint}")).unwrap_or_default();
                app.ui.warn(format_args!("as things are, it will not start: {error}{hint}"));
            }
        }
        Ok(())
    }
}

fn pairs(words: &[String], separator: char, form: &str) -> Result<Vec<(String, String)>> {
    let pair = |word: &String| match word.split_once(separator) {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(Failure::usage(format!("`{}` is not {form}", wharf::text::Escaped(word)))),
    };
    words.iter().map(pair).collect()
}

/// The name that a variable would have.
fn variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}
