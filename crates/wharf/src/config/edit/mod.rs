//! Changes to a file that leave everything else in it as it was.
//!
//! In: a file's text, a name, an entry. Out: the text with that server added or removed, comments and style kept.
//! The values are written as given (`${VAR}` stays `${VAR}`); whether they make sense is for `load` to say.

mod json;
mod toml;
mod write;

use std::path::Path;

use crate::error::{Error, Result};
use crate::names::ServerName;

pub(crate) use write::sweep;
pub use write::write_atomically;

/// The two notations of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `wharf.toml`.
    Toml,
    /// `.mcp.json`: JSON, with comments and trailing commas if it likes.
    Json,
}

/// A server as it is written into a file: `command` or `url`, and what goes with it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NewServer {
    /// The program to start.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables it is given.
    pub env: Vec<(String, String)>,
    /// Variables it is given from our own environment, by name.
    pub env_passthrough: Vec<String>,
    /// The folder it starts in.
    pub cwd: Option<String>,
    /// The address to reach.
    pub url: Option<String>,
    /// Headers that go with every request.
    pub headers: Vec<(String, String)>,
    /// `stdio`, `http` or `sse`, where it is to be said.
    pub transport: Option<String>,
}

/// A value to be written.
#[derive(Clone, Debug)]
enum Written {
    Text(String),
    List(Vec<String>),
    Table(Vec<(String, String)>),
}

/// The commented `wharf.toml` that `wharf init` writes.
pub fn starter() -> &'static str {
    include_str!("starter.toml")
}

/// Adds a server. An empty text is an empty file.
///
/// # Errors
/// If the text cannot be read, the name is none, or a server of that name is there already.
pub fn add(text: &str, format: Format, name: &str, entry: &NewServer) -> Result<String> {
    let name = ServerName::parse(name).map_err(|bad| Error::config(bad.to_string()))?;
    match format {
        Format::Toml => toml::add(text, &name, entry),
        Format::Json => json::add(text, &name, entry),
    }
}

/// Removes a server, however its name is spelt in the file. `None` if it is not there.
///
/// # Errors
/// If the text cannot be read.
pub fn remove(text: &str, format: Format, name: &str) -> Result<Option<String>> {
    let name = ServerName::parse(name).map_err(|bad| Error::config(bad.to_string()))?;
    match format {
        Format::Toml => toml::remove(text, &name),
        Format::Json => json::remove(text, &name),
    }
}

// === impl Format ===

impl Format {
    /// The notation of a file, by its name: `.toml` is TOML, anything else JSON.
    pub fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("toml")) {
            Self::Toml
        } else {
            Self::Json
        }
    }
}

// === impl NewServer ===

impl NewServer {
    /// The fields in the order in which a person would write them.
    fn fields(&self, format: Format) -> Vec<(&'static str, Written)> {
        let mut fields = Vec::new();
        let transport = self.transport.clone();
        // Other readers of `.mcp.json` take an entry without `type` for a program.
        let by_scheme = |url: &String| match url.split(':').next() {
            Some("ws" | "wss") => "ws".to_owned(),
            Some("unix") => "unix".to_owned(),
            _ => "http".to_owned(),
        };
        let transport =
            transport.or_else(|| self.url.as_ref().filter(|_| format == Format::Json).map(by_scheme));
        let key = if format == Format::Json { "type" } else { "transport" };
        let mut text =
            |key, value: Option<String>| fields.extend(value.map(|value| (key, Written::Text(value))));
        text(key, transport);
        text("command", self.command.clone());
        text("url", self.url.clone());
        text("cwd", self.cwd.clone());
        for (key, list) in [("args", &self.args), ("env_passthrough", &self.env_passthrough)] {
            if !list.is_empty() {
                fields.push((key, Written::List(list.clone())));
            }
        }
        for (key, table) in [("env", &self.env), ("headers", &self.headers)] {
            if !table.is_empty() {
                fields.push((key, Written::Table(table.clone())));
            }
        }
        fields
    }
}

impl std::fmt::Debug for NewServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The values of `env` and `headers` may be secrets.
        f.debug_struct("NewServer")
            .field("command", &self.command)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

fn already_there(name: &ServerName) -> Error {
    Error::Config {
        message: format!("a server `{name}` is there already"),
        hint: Some(format!("remove it first: wharf remove {name}")),
    }
}

/// Whether a key of a file comes to this name.
fn is_named(key: &str, name: &ServerName) -> bool {
    ServerName::parse(key).is_ok_and(|parsed| parsed == *name)
}
