//! What Tab puts in.
//!
//! In: a line up to the cursor, the configured servers, and the tools that are known. Out: the words that may stand
//! there. Nothing is started or asked for it, and what could drive a terminal is not offered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustyline::completion::Completer;
use rustyline::{Context, Helper};
use wharf::host::Session;
use wharf::mcp::Tool;
use wharf::text::is_unsafe_to_show;

use super::line::{self, COMMANDS, OF_CONNECT, OF_MCP};
use crate::app::Setup;
use crate::arguments;

/// Where the names are.
pub(super) struct Book {
    configured: Vec<String>,
    session: Session,
}

/// Where the book lies. It is put there after the editor is, and taken away before the session ends.
#[derive(Clone, Default)]
pub(super) struct Shelf(Arc<Mutex<Option<Book>>>);

/// The names, at one moment.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) configured: Vec<String>,
    pub(super) connected: Vec<String>,
    pub(super) tools: Vec<Offered>,
}

/// A tool, and its names.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) server: String,
    pub(super) public: Arc<str>,
    pub(super) tool: Arc<Tool>,
}

/// The editor's way to the names.
pub(super) struct Completion {
    shelf: Shelf,
    /// Whether there is anything to complete: an answer is the person's own.
    pub(super) enabled: bool,
}

// === impl Book ===

impl Book {
    pub(super) fn new(setup: &Setup, session: Session) -> Self {
        let servers = setup.config.servers.values().filter(|server| server.enabled);
        Self { configured: servers.map(|server| server.name.to_string()).collect(), session }
    }

    fn known(&self) -> Known {
        let connected = self.session.connections();
        let tools = self.session.snapshot();
        let offered = tools.tools().iter().map(|route| Offered {
            server: route.server.to_string(),
            public: Arc::clone(&route.public),
            tool: Arc::clone(&route.tool),
        });
        Known {
            configured: self.configured.clone(),
            connected: connected.iter().map(|(config, _)| config.name.to_string()).collect(),
            tools: offered.collect(),
        }
    }
}

// === impl Shelf ===

impl Shelf {
    pub(super) fn put(&self, book: Option<Book>) {
        *self.lock() = book;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Book>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Known ===

impl Known {
    /// Where the last word of a line begins, and what may stand there.
    pub(super) fn complete(&self, line: &str) -> (usize, Vec<String>) {
        let start = line::last_word(line);
        let (before, word) = line.split_at(start);
        let before: Vec<&str> = before.split_whitespace().collect();
        let mut found = match &before[..] {
            [] if word.starts_with('/') => among(COMMANDS, word, " "),
            [] => self.tools(word),
            ["/mcp"] => among(OF_MCP, word, " "),
            ["/mcp", "connect", ..] if word.starts_with('-') => among(OF_CONNECT, word, " "),
            ["/mcp", "connect"] => {
                let free = self.configured.iter().filter(|name| !self.connected.contains(name));
                among(free, word, " ")
            }
            ["/mcp", "disconnect" | "tools"] => among(&self.connected, word, " "),
            [command, ..] if command.starts_with('/') => Vec::new(),
            [name, typed @ ..] => self.tool(name).map(|tool| argument(tool, typed, word)).unwrap_or_default(),
        };
        found.retain(|text| !text.contains(is_unsafe_to_show));
        (start, found)
    }

    /// `server.tool`, and public names where nothing else begins so.
    fn tools(&self, word: &str) -> Vec<String> {
        let found = among(self.tools.iter().map(|t| format!("{}.{}", t.server, t.tool.name)), word, " ");
        if found.is_empty() { among(self.tools.iter().map(|t| &*t.public), word, " ") } else { found }
    }

    fn tool(&self, name: &str) -> Option<&Tool> {
        let is_meant = |t: &&Offered| *t.public == *name || format!("{}.{}", t.server, t.tool.name) == name;
        self.tools.iter().find(is_meant).map(|t| &*t.tool)
    }
}

fn among<T: AsRef<str>>(all: impl IntoIterator<Item = T>, word: &str, end: &str) -> Vec<String> {
    let fitting = all.into_iter().filter(|text| text.as_ref().starts_with(word));
    fitting.map(|text| format!("{}{end}", text.as_ref())).collect()
}

/// `name=`, or the values that the name takes.
fn argument(tool: &Tool, typed: &[&str], word: &str) -> Vec<String> {
    let Some((name, value)) = word.split_once('=') else {
        let is_free = |name: &String| {
            !typed.iter().any(|t| t.split('=').next().is_some_and(|key| key.trim_end_matches(':') == name))
        };
        let names = arguments::names(tool).into_iter().filter(is_free);
        // A name with a space could not be typed like that.
        return among(names.filter(|name| !name.contains(char::is_whitespace)), word, "=");
    };
    let quoted = |value: String| match value.contains(|c: char| c.is_whitespace() || "\"'\\".contains(c)) {
        true => format!("'{}'", value.replace('\'', "'\\''")),
        false => value,
    };
    let values = arguments::values(tool, name.trim_end_matches(':')).into_iter().map(quoted);
    among(values, value, " ").into_iter().map(|value| format!("{name}={value}")).collect()
}

// === impl Completion ===

impl Completion {
    pub(super) fn new(shelf: Shelf) -> Self {
        Self { shelf, enabled: true }
    }
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        match self.shelf.lock().as_ref().filter(|_| self.enabled) {
            Some(book) => Ok(book.known().complete(&line[..at])),
            None => Ok((at, Vec::new())),
        }
    }
}

impl rustyline::hint::Hinter for Completion {
    type Hint = String;
}
impl rustyline::highlight::Highlighter for Completion {}
impl rustyline::validate::Validator for Completion {}
impl Helper for Completion {}

#[cfg(test)]
mod tests;
