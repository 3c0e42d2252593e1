//! One server's table becomes one server.
//!
//! In: the neutral tree of a server's entry, from either format. Out: a [`ServerConfig`], a mere switch
//! (`enabled` alone, for a server of a farther file), or every problem of the entry at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;

use crate::names::ServerName;

use super::edit::Format;
use super::known::{self, DISABLED, For, Known};
use super::node::{Entry, Node, Span, Value};
use super::problem::{Problem, shown};
use super::server::{Connect, Origin, ServerConfig, Share, Transport};
use super::source::Source;
use super::{duration, oauth, resilience, sandbox, transport};

/// What an entry means.
#[derive(Debug)]
pub(super) enum Meaning {
    /// A whole server.
    Server(Box<ServerConfig>),
    /// Turns a server of a farther file on or off.
    Switch(bool),
}

/// Reads one entry, and gathers what is wrong with it.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    pub(super) base: Option<PathBuf>,
    pub(super) env: Environment<'a>,
    server: String,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

/// The environment to expand from. It does not show itself.
#[derive(Clone, Copy)]
pub(super) struct Environment<'a>(pub(super) &'a BTreeMap<String, String>);

/// The fields of an entry that are ours, by their proper names.
pub(super) type Fields<'a> = IndexMap<&'static str, &'a Entry>;

/// What came of reading an entry.
#[derive(Debug)]
pub(super) struct Reading {
    /// The meaning, or every problem.
    pub(super) meaning: Result<Meaning, Vec<Problem>>,
    /// Whether the entry itself wants the server on; true if it does not say.
    pub(super) enabled: bool,
    /// What is doubtful, though it does not stop the server.
    pub(super) warnings: Vec<Problem>,
}

impl std::fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Environment({} variables)", self.0.len())
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a Source, base: Option<PathBuf>, env: Environment<'a>, server: &str) -> Self {
        Self { source, base, env, server: server.to_owned(), problems: Vec::new(), warnings: Vec::new() }
    }

    /// Reads the entry of a server.
    pub(super) fn read(mut self, name: &ServerName, entry: &Entry) -> Reading {
        let meaning = self.meaning(name, entry);
        let enabled = entry.node.as_table().is_none_or(|entries| is_enabled(entries, self.source.format));
        let meaning = match meaning {
            Some(meaning) if self.problems.is_empty() => Ok(meaning),
            _ => Err(self.problems),
        };
        Reading { meaning, enabled, warnings: self.warnings }
    }

    fn meaning(&mut self, name: &ServerName, entry: &Entry) -> Option<Meaning> {
        let Some(entries) = entry.node.as_table() else {
            let message =
                format!("server {} must be a table, not {}", shown(&self.server), entry.node.kind());
            return self.wrong(&entry.node.span, message);
        };
        if let Some((first, second)) = entry.node.duplicate() {
            let line = self.source.line_of(first.key_span.start);
            let message = format!(
                "key {} stands twice in server {}, first on line {line}",
                shown(&second.key),
                shown(&self.server)
            );
            return self.wrong(&second.key_span, message);
        }
        let fields = self.fields(entries);
        let enabled = self.flag(&fields, "enabled");
        let disabled = self.flag(&fields, DISABLED);
        let switch = enabled.or_else(|| disabled.map(|off| !off));
        if let Some(on) = switch
            && fields.keys().all(|field| *field == "enabled" || *field == DISABLED)
        {
            return Some(Meaning::Switch(on));
        }
        let transport = transport::read(self, &fields, &entry.key_span);
        self.misplaced(&fields, transport.as_ref());
        let mut server = ServerConfig::new(name.clone(), transport?);
        server.enabled = is_enabled(entries, self.source.format);
        server.debug = self.flag(&fields, "debug").unwrap_or(false);
        server.timeout = self.duration(&fields, "timeout").unwrap_or(server.timeout);
        server.start_timeout = self.duration(&fields, "start_timeout").unwrap_or(server.start_timeout);
        server.tool_prefix = self.prefix(&fields);
        server.enabled_tools = self.texts(&fields, "enabled_tools").map(only_texts);
        server.disabled_tools = self.texts(&fields, "disabled_tools").map(only_texts).unwrap_or_default();
        let share = [("all", Share::All), ("per-caller", Share::PerCaller), ("never", Share::Never)];
        server.share = self.choice(&fields, "share", &share);
        let connect = [("lazy", Connect::Lazy), ("eager", Connect::Eager), ("manual", Connect::Manual)];
        server.connect = self.choice(&fields, "connect", &connect).unwrap_or_default();
        server.sandbox = sandbox::read(self, &fields);
        server.oauth = oauth::read(self, &fields)?;
        server.resilience = resilience::read(self, &fields, &server.transport)?;
        server.origin =
            Origin::File { path: self.source.path.clone(), line: self.source.line_of(entry.key_span.start) };
        Some(Meaning::Server(Box::new(server)))
    }

    /// Sorts the keys: ours, other clients', nobody's.
    fn fields<'e>(&mut self, entries: &'e [Entry]) -> Fields<'e> {
        let mut fields = Fields::new();
        for entry in entries {
            match known::look_up(&entry.key, self.source.format) {
                Known::Field(field) => {
                    if let Some(first) = fields.insert(field.name, entry) {
                        let message =
                            format!("{} and {} say the same thing", shown(&first.key), shown(&entry.key));
                        let _: Option<()> = self.wrong(&entry.key_span, message);
                    }
                }
                Known::Silent => {}
                Known::Explained(instead) => {
                    let message = format!("server {}: {} {instead}", shown(&self.server), shown(&entry.key));
                    self.doubt(&entry.key_span, message, None);
                }
                Known::Refused(reason, hint) => {
                    let _: Option<()> = self.wrong_with(&entry.key_span, reason, hint);
                }
                Known::Unknown(suggestion) => self.unknown(entry, suggestion),
            }
        }
        fields
    }

    fn unknown(&mut self, entry: &Entry, suggestion: Option<String>) {
        let message = format!("unknown field {} in server {}", shown(&entry.key), shown(&self.server));
        match self.source.format {
            Format::Toml => {
                let hint = suggestion.unwrap_or_else(|| format!("the fields are {}", known::names()));
                let _: Option<()> = self.wrong_with(&entry.key_span, message, hint);
            }
            Format::Json => self.doubt(&entry.key_span, message + "; it is ignored", suggestion),
        }
    }

    /// Fields that mean nothing for this transport: an error in our own file, a warning in one that others read.
    fn misplaced(&mut self, fields: &Fields<'_>, transport: Option<&Transport>) {
        let Some(transport) = transport else { return };
        let (own, kind) = match transport {
            Transport::Stdio(_) => (For::Program, "a server that is started"),
            // Its address may be written as a `url`; headers it has none.
            Transport::Unix(_) => (For::Socket, "a server at a Unix socket"),
            _ => (For::Endpoint, "a server that is reached by `url`"),
        };
        let in_url = matches!(transport, Transport::Unix(_)) && !fields.contains_key("path");
        for (name, entry) in fields {
            let Known::Field(field) = known::look_up(&entry.key, self.source.format) else {
                continue;
            };
            if matches!(field.of, For::Any) || field.of == own || (in_url && *name == "url") {
                continue;
            }
            let message = format!("`{name}` means nothing for {kind}");
            match self.source.format {
                Format::Toml => {
                    let _: Option<()> = self.wrong_with(&entry.key_span, message, "remove it");
                }
                Format::Json => self.doubt(&entry.key_span, message + "; it is ignored", None),
            }
        }
    }

    // --- values, each with its complaint ---

    pub(super) fn text<'e>(&mut self, fields: &Fields<'e>, name: &str) -> Option<&'e str> {
        let entry = fields.get(name)?;
        match entry.node.as_text() {
            Some(text) => self.printable(&entry.node, text),
            None => self.wrong_kind(entry, "a string"),
        }
    }

    fn flag(&mut self, fields: &Fields<'_>, name: &str) -> Option<bool> {
        let entry = fields.get(name)?;
        match entry.node.value {
            Value::Bool(flag) => Some(flag),
            _ => self.wrong_kind(entry, "true or false"),
        }
    }

    /// A list of strings, each with its place.
    pub(super) fn texts<'e>(&mut self, fields: &Fields<'e>, name: &str) -> Option<Vec<(&'e str, &'e Span)>> {
        let entry = fields.get(name)?;
        match entry.node.as_list() {
            Some(items) => items.iter().map(|item| self.item(&entry.key, item)).collect(),
            None => self.wrong_kind(entry, "a list of strings"),
        }
    }

    pub(super) fn item<'e>(&mut self, key: &str, item: &'e Node) -> Option<(&'e str, &'e Span)> {
        let Some(text) = item.as_text() else {
            let message = format!("an entry of {} must be a string, not {}", shown(key), item.kind());
            return self.wrong(&item.span, message);
        };
        self.printable(item, text).map(|text| (text, &item.span))
    }

    fn printable<'e>(&mut self, node: &Node, text: &'e str) -> Option<&'e str> {
        if text.contains('\0') {
            return self.wrong(&node.span, "the text holds a NUL character, which no program can be given");
        }
        Some(text)
    }

    fn duration(&mut self, fields: &Fields<'_>, name: &str) -> Option<Duration> {
        let entry = fields.get(name)?;
        match duration::read(&entry.node, self.source.format) {
            Ok(duration) => Some(duration),
            Err((reason, hint)) => self.wrong_with(&entry.node.span, format!("`{name}`: {reason}"), hint),
        }
    }

    fn prefix(&mut self, fields: &Fields<'_>) -> Option<String> {
        const LONGEST: usize = 32;
        let prefix = self.text(fields, "tool_prefix")?;
        let fits = prefix.len() <= LONGEST
            && prefix.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if fits {
            return Some(prefix.to_owned());
        }
        let span = &fields.get("tool_prefix")?.node.span;
        let message = format!("`tool_prefix` takes letters, digits, `_` and `-`, at most {LONGEST} of them");
        self.wrong_with(span, message, "write \"\" for no prefix at all")
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text(fields, name)?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let span = &fields.get(name)?.node.span;
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        self.wrong_with(
            span,
            format!("`{name}` cannot be {}", shown(text)),
            format!("it is {}", words.join(" or ")),
        )
    }

    fn wrong_kind<T>(&mut self, entry: &Entry, wanted: &str) -> Option<T> {
        let message = format!("{} must be {wanted}, not {}", shown(&entry.key), entry.node.kind());
        self.wrong(&entry.node.span, message)
    }

    // --- complaints ---

    /// Records a problem. `None`, so that it can stand where a value was wanted.
    pub(super) fn wrong<T>(&mut self, span: &Span, message: impl Into<String>) -> Option<T> {
        let problem = Problem { server: Some(self.server.clone()), ..self.source.problem(span, message) };
        self.problems.push(problem);
        None
    }

    /// Records a problem and what to do about it.
    pub(super) fn wrong_with<T>(
        &mut self,
        span: &Span,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Option<T> {
        let problem = self.source.problem(span, message).hint(hint);
        self.problems.push(Problem { server: Some(self.server.clone()), ..problem });
        None
    }

    /// Records a warning.
    pub(super) fn doubt(&mut self, span: &Span, message: impl Into<String>, hint: Option<String>) {
        let problem = self.source.problem(span, message);
        self.warnings.push(Problem { server: Some(self.server.clone()), hint, ..problem });
    }
}

fn only_texts(items: Vec<(&str, &Span)>) -> Vec<String> {
    items.into_iter().map(|(text, _)| text.to_owned()).collect()
}

/// Whether an entry wants its server on. What is not true or false counts as on, so that its problem is shown.
fn is_enabled(entries: &[Entry], format: Format) -> bool {
    let says = |key: &str, value: bool| {
        entries.iter().any(|e| e.key == key && matches!(e.node.value, Value::Bool(said) if said == value))
    };
    !(says("enabled", false) || (format == Format::Json && says("disabled", true)))
}
