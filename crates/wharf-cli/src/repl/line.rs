//! What a typed line means.
//!
//! In: the line. Out: a command. Words are taken apart as a shell would, so that what works with `wharf call` works
//! here; only JSON may stand without quotes. Nothing is looked up: the names may be of nothing.

use serde::de::IgnoredAny;
use wharf::session::Visibility;

use super::not_found;
use crate::failure::{Failure, Result};

pub(super) const COMMANDS: [&str; 3] = ["/mcp", "/help", "/quit"];
pub(super) const OF_MCP: [&str; 3] = ["connect", "disconnect", "tools"];
pub(super) const OF_CONNECT: [&str; 4] = ["--allow-all", "--per-tool", "--shared", "--private"];

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Nothing,
    Help,
    Quit,
    Servers,
    Connect(Connect),
    Disconnect(String),
    Tools(Option<String>),
    /// A tool, and what stands behind it.
    Call(String, String),
}

/// A server, and how it is to be connected.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Connect {
    pub(super) server: String,
    pub(super) consent: Consent,
    pub(super) visibility: Visibility,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Consent {
    /// The first use.
    #[default]
    AtFirstUse,
    /// Nothing.
    Never,
    /// Every tool by itself.
    ToolByTool,
}

/// The arguments of a call, before anything is made of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    /// A JSON object that stands before the words.
    pub(super) whole: Option<String>,
    pub(super) words: Vec<String>,
}

/// Reads a line.
pub(super) fn parse(line: &str) -> Result<Command> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Command::Nothing);
    }
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if !first.starts_with('/') {
        return Ok(Command::Call(first.to_owned(), rest.trim_start().to_owned()));
    }
    let words = words(rest)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match (first, &words[..]) {
        ("/help", []) => Ok(Command::Help),
        ("/quit" | "/exit", []) => Ok(Command::Quit),
        ("/mcp", words) => of_mcp(words),
        ("/help" | "/quit" | "/exit", _) => Err(Failure::usage(format!("`{first}` takes nothing more"))),
        _ => Err(not_found("command", first, &COMMANDS)),
    }
}

fn of_mcp(words: &[&str]) -> Result<Command> {
    match words {
        [] => Ok(Command::Servers),
        ["tools"] => Ok(Command::Tools(None)),
        ["tools", server] => Ok(Command::Tools(Some((*server).to_owned()))),
        ["connect", wish @ ..] => connect(wish).map(Command::Connect),
        ["disconnect", server] => Ok(Command::Disconnect((*server).to_owned())),
        ["disconnect"] => Err(Failure::usage("which server?").hint("write `/mcp disconnect NAME`")),
        ["tools" | "disconnect", ..] => Err(Failure::usage("one server at a time")),
        [other, ..] => Err(not_found("`/mcp` command", other, &OF_MCP)),
    }
}

fn connect(words: &[&str]) -> Result<Connect> {
    let (mut server, mut consent, mut visibility) = (None, None, None);
    for word in words {
        let fresh = match *word {
            "--allow-all" => consent.replace(Consent::Never).is_none(),
            "--per-tool" => consent.replace(Consent::ToolByTool).is_none(),
            "--shared" => visibility.replace(Visibility::Shared).is_none(),
            "--private" => visibility.replace(Visibility::Private).is_none(),
            flag if flag.starts_with('-') => return Err(not_found("flag", flag, &OF_CONNECT)),
            name => server.replace(name.to_owned()).is_none(),
        };
        if !fresh {
            return Err(Failure::usage(format!("`{}` is one too many", wharf::text::Escaped(word))).hint(
                "write `/mcp connect NAME`, with one of --allow-all, --per-tool and one of --shared, --private",
            ));
        }
    }
    let server = server.ok_or_else(|| {
        Failure::usage("which server?").hint("write `/mcp connect NAME`; `/mcp` lists them")
    })?;
    Ok(Connect { server, consent: consent.unwrap_or_default(), visibility: visibility.unwrap_or_default() })
}

/// Reads what stands behind the name of a tool.
pub(super) fn arguments(rest: &str) -> Result<Arguments> {
    let rest = rest.trim();
    if !rest.starts_with('{') {
        return Ok(Arguments { whole: None, words: words(rest)? });
    }
    // What is no JSON is left whole: whoever reads it next says what is wrong with it.
    let end = json_end(rest).unwrap_or(rest.len());
    Ok(Arguments { whole: Some(rest[..end].to_owned()), words: words(&rest[end..])? })
}

/// Takes a text apart at its spaces. Quotes and backslashes keep them, and so does the JSON of `name:={…}`.
fn words(text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (word, length) = match json_word(rest) {
            Some(length) => (rest[..length].to_owned(), length),
            None => shell_word(rest)?,
        };
        words.push(word);
        rest = rest[length..].trim_start();
    }
    Ok(words)
}

/// The length of `name:={…}`, `name:=[…]` or `name:="…"` at the start of a text.
fn json_word(text: &str) -> Option<usize> {
    let value = text.find(":=")? + 2;
    let is_name = !text[..value].contains(|c: char| c.is_whitespace() || c == '"' || c == '\'');
    if !is_name || !text[value..].starts_with(['{', '[', '"']) {
        return None;
    }
    let end = value + json_end(&text[value..])?;
    let is_over = text[end..].chars().next().is_none_or(char::is_whitespace);
    is_over.then_some(end)
}

/// The length of the JSON value that a text starts with.
fn json_end(text: &str) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// The first word of a text, and how much of the text it takes.
fn shell_word(text: &str) -> Result<(String, usize)> {
    let mut word = String::new();
    let mut quote = None;
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => return Ok((word, at)),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, '\\') => word.extend(rest.next().map(|(_, c)| c)),
            (Some('"'), '\\') if matches!(rest.peek(), Some((_, '"' | '\\'))) => {
                word.extend(rest.next().map(|(_, c)| c));
            }
            (_, c) => word.push(c),
        }
    }
    match quote {
        None => Ok((word, text.len())),
        Some(quote) => Err(Failure::usage(format!("a quote is not closed: {quote}"))),
    }
}

/// Where the word that is being typed begins.
pub(super) fn last_word(text: &str) -> usize {
    let mut quote = None;
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match quote {
            None if c.is_whitespace() => start = at + c.len_utf8(),
            None if matches!(c, '"' | '\'') => quote = Some(c),
            Some(open) if c == open => quote = None,
            _ => {}
        }
    }
    start
}

#[cfg(test)]
mod tests;
