//! The `[callers]` table: what each caller of the gateway is given.
//!
//! In: the table of a `wharf.toml`. Out: rules that speak of servers and of tools by their original names. What is not
//! given is not there; what is taken away with `!` stays away; what stands in `ask` needs somebody's yes for each call.
//! Judging by them is `policy`'s.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::names::{CallerName, ServerName};

use super::node::{Entry, Node};
use super::policy::texts_at;
use super::problem::{Problem, nearest, shown};
use super::source::Source;

/// The rules of every caller, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerTable {
    entries: BTreeMap<String, Arc<CallerRules>>,
}

/// What one caller is given: servers whole, tools one by one, and what is taken away from both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerRules {
    pub(crate) servers: Vec<ServerRule>,
    pub(crate) tools: Vec<ToolRule>,
    pub(crate) ask: Vec<ToolPattern>,
}

/// Tools of servers: `git/push`, `git/push*`, `*/delete*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPattern {
    server: Pattern,
    tool: Pattern,
}

/// A server with everything it has, given or taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerRule {
    pub(crate) gives: bool,
    pub(crate) server: Pattern,
}

/// Tools of a server, given or taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolRule {
    pub(crate) gives: bool,
    pub(crate) server: Pattern,
    pub(crate) tool: Pattern,
}

/// A name, or the beginning of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    /// Whether anything may follow: it was written with a `*`.
    open: bool,
}

/// The entry of every caller that has none.
const OTHERS: &str = "*";
const KEYS: [&str; 3] = ["servers", "tools", "ask"];

// === impl CallerTable ===

impl CallerTable {
    /// What a caller is given: its own entry, or that of `*`, or nothing.
    pub fn rules_of(&self, caller: &CallerName) -> Arc<CallerRules> {
        let own = self.entries.get(caller.as_str());
        own.or_else(|| self.entries.get(OTHERS)).cloned().unwrap_or_default()
    }

    /// Puts a caller's rules in the place of those it had. `*` are those of everyone who has none.
    pub fn insert(&mut self, caller: impl Into<String>, rules: CallerRules) {
        self.entries.insert(caller.into(), Arc::new(rules));
    }

    /// Every caller with rules of its own, and the servers that they name.
    pub fn named(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.entries.iter().map(|(caller, rules)| (caller.as_str(), rules.named()))
    }

    /// Puts the entries of a table in the place of those of the same names. On an error nothing was changed.
    pub(super) fn apply(&mut self, node: &Node, source: &Source) -> Result<(), Box<Problem>> {
        let Some(entries) = node.as_table() else {
            let message = format!("`callers` must be a table of callers, not {}", node.kind());
            return Err(Box::new(source.problem(&node.span, message)));
        };
        let mut next = self.clone();
        for entry in entries {
            CallerName::parse(&entry.key)
                .map_err(|bad| Box::new(source.problem(&entry.key_span, bad.to_string())))?;
            next.insert(entry.key.clone(), read(entry, source)?);
        }
        *self = next;
        Ok(())
    }
}

// === impl CallerRules ===

impl CallerRules {
    /// Rules as they are written in a file: `git`, `!git`, `*` for servers; `git/log`, `git/*`, `!git/push*` for tools.
    pub fn new<'a>(
        servers: impl IntoIterator<Item = &'a str>,
        tools: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        let servers = servers.into_iter().map(ServerRule::parse).collect::<Result<_, String>>();
        let tools = tools.into_iter().map(ToolRule::parse).collect::<Result<_, String>>();
        let (servers, tools) = (servers.map_err(Error::config)?, tools.map_err(Error::config)?);
        Ok(Self { servers, tools, ask: Vec::new() })
    }

    /// The same, with tools for which somebody is asked at each call: `git/push`, `git/push*`.
    pub fn asking<'a>(mut self, tools: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let ask = tools.into_iter().map(ToolPattern::parse).collect::<Result<_, String>>();
        self.ask = ask.map_err(Error::config)?;
        Ok(self)
    }

    /// The servers that are meant by their whole names.
    fn named(&self) -> Vec<&str> {
        let patterns = self.servers.iter().map(|r| &r.server).chain(self.tools.iter().map(|r| &r.server));
        let patterns = patterns.chain(self.ask.iter().map(|pattern| &pattern.server));
        patterns.filter(|pattern| !pattern.open).map(|pattern| pattern.text.as_str()).collect()
    }
}

fn read(caller: &Entry, source: &Source) -> Result<CallerRules, Box<Problem>> {
    let Some(entries) = caller.node.as_table() else {
        let message = format!("caller {} must be a table, not {}", shown(&caller.key), caller.node.kind());
        return Err(Box::new(source.problem(&caller.node.span, message)));
    };
    let mut rules = CallerRules::default();
    for entry in entries {
        let at = |span, message| Box::new(source.problem(span, message));
        match entry.key.as_str() {
            "servers" => {
                for (text, span) in texts_at(entry, source)? {
                    rules.servers.push(ServerRule::parse(text).map_err(|why| at(span, why))?);
                }
            }
            "tools" => {
                for (text, span) in texts_at(entry, source)? {
                    rules.tools.push(ToolRule::parse(text).map_err(|why| at(span, why))?);
                }
            }
            "ask" => {
                for (text, span) in texts_at(entry, source)? {
                    rules.ask.push(ToolPattern::parse(text).map_err(|why| at(span, why))?);
                }
            }
            unknown => {
                let message = format!("unknown rule {} of caller {}", shown(unknown), shown(&caller.key));
                let hint = match nearest(unknown, KEYS) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => "the rules are `servers`, `tools` and `ask`".to_owned(),
                };
                return Err(Box::new(source.problem(&entry.key_span, message).hint(hint)));
            }
        }
    }
    Ok(rules)
}

// === impl ServerRule ===

impl ServerRule {
    fn parse(text: &str) -> Result<Self, String> {
        let (gives, name) = sign(text);
        if name.contains('/') {
            return Err(format!("{} names a tool; tools stand in `tools`", shown(text)));
        }
        Ok(Self { gives, server: Pattern::of_server(name)? })
    }
}

// === impl ToolRule ===

impl ToolRule {
    fn parse(text: &str) -> Result<Self, String> {
        let (gives, name) = sign(text);
        let Some((server, tool)) = name.split_once('/') else {
            return Err(format!("{} must be written `server/tool`; `server/*` is every tool", shown(text)));
        };
        Ok(Self { gives, server: Pattern::of_server(server)?, tool: Pattern::parse(tool)? })
    }
}

// === impl ToolPattern ===

impl ToolPattern {
    /// Reads a pattern as it is written in a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rule = ToolRule::parse(text)?;
        match rule.gives {
            true => Ok(Self { server: rule.server, tool: rule.tool }),
            false => Err(format!("{}: nothing can be taken out of `ask`", shown(text))),
        }
    }

    /// Whether a tool is meant.
    pub fn fits(&self, server: &str, tool: &str) -> bool {
        self.server.fits(server) && self.tool.fits(tool)
    }
}

// === impl Pattern ===

impl Pattern {
    pub(crate) fn fits(&self, name: &str) -> bool {
        if self.open { name.starts_with(&self.text) } else { name == self.text }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (name, open) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        if name.contains('*') {
            return Err(format!("{}: a `*` stands alone or at the end", shown(text)));
        }
        if name.is_empty() && !open {
            return Err("a name is empty".to_owned());
        }
        Ok(Self { text: name.to_owned(), open })
    }

    /// Servers' names are written in more than one way and meant in one.
    fn of_server(text: &str) -> Result<Self, String> {
        let pattern = Self::parse(text)?;
        if pattern.text.is_empty() {
            return Ok(pattern);
        }
        let name = ServerName::parse(&pattern.text).map_err(|bad| bad.to_string())?;
        Ok(Self { text: name.as_str().to_owned(), ..pattern })
    }
}

fn sign(text: &str) -> (bool, &str) {
    text.strip_prefix('!').map_or((true, text), |name| (false, name))
}
