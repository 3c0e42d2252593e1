//! Adding to and removing from a `wharf.toml`.

use toml_edit::{Array, DocumentMut, InlineTable, Item, RawString, Table, Value};

use super::{Format, NewServer, Written, already_there, is_named};
use crate::error::{Error, Result};
use crate::names::ServerName;

pub(super) fn add(text: &str, name: &ServerName, entry: &NewServer) -> Result<String> {
    let mut document = parse(text)?;
    if find(&mut document, name)?.is_some() {
        return Err(already_there(name));
    }
    let mut table = Table::new();
    table.decor_mut().set_prefix(if text.trim().is_empty() { "" } else { "\n" });
    for (key, value) in entry.fields(Format::Toml) {
        table.insert(key, item(value));
    }
    let mut fresh = Table::new();
    // `[mcp]` itself is not written, only `[mcp.NAME]`.
    fresh.set_implicit(true);
    let servers = document.entry("mcp").or_insert(Item::Table(fresh));
    match servers {
        Item::Table(servers) => drop(servers.insert(name.as_str(), Item::Table(table))),
        // `mcp = { … }`: the new server has to go into the braces too.
        Item::Value(Value::InlineTable(servers)) => {
            drop(servers.insert(name.as_str(), Value::InlineTable(table.into_inline_table())));
        }
        _ => return Err(not_a_table()),
    }
    // What stood at the end of the file is a comment on what is above it, and stays there.
    let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
    if trailing.trim().is_empty() {
        return Ok(document.to_string());
    }
    document.set_trailing("");
    if let Some(Item::Table(table)) = find(&mut document, name)?.map(|found| found.1) {
        table.decor_mut().set_prefix(format!("{}\n\n", trailing.trim_end()));
    } else {
        document.set_trailing(trailing);
    }
    Ok(document.to_string())
}

pub(super) fn remove(text: &str, name: &ServerName) -> Result<Option<String>> {
    let mut document = parse(text)?;
    let Some((key, item)) = find(&mut document, name)? else {
        return Ok(None);
    };
    let own = item.as_table().map(|table| (first_position(table), prefix(table)));
    if let Some(servers) = document.get_mut("mcp").and_then(Item::as_table_like_mut) {
        servers.remove(&key);
    }
    if let Some((position, prefix)) = own {
        keep_what_stood_apart(&mut document, position, &prefix);
    }
    Ok(Some(document.to_string()))
}

fn parse(text: &str) -> Result<DocumentMut> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        Error::config(format!("this is not valid TOML: {}", error.message()))
    })
}

fn not_a_table() -> Error {
    Error::config("`mcp` is not a table of servers")
}

fn find<'a>(document: &'a mut DocumentMut, name: &ServerName) -> Result<Option<(String, &'a mut Item)>> {
    let Some(servers) = document.get_mut("mcp") else {
        return Ok(None);
    };
    let servers = servers.as_table_like_mut().ok_or_else(not_a_table)?;
    let mut found = servers.iter_mut().filter(|(key, _)| is_named(key.get(), name));
    Ok(found.next().map(|(key, item)| (key.get().to_owned(), item)))
}

fn item(value: Written) -> Item {
    Item::Value(match value {
        Written::Text(text) => text.into(),
        Written::List(items) => Value::Array(items.into_iter().collect::<Array>()),
        Written::Table(entries) => Value::InlineTable(entries.into_iter().collect::<InlineTable>()),
    })
}

fn prefix(table: &Table) -> String {
    table.decor().prefix().and_then(RawString::as_str).unwrap_or_default().to_owned()
}

fn first_position(table: &Table) -> Option<isize> {
    let below = table.iter().filter_map(|(_, item)| item.as_table()).filter_map(first_position);
    table.position().into_iter().chain(below).min()
}

/// A comment directly above `[mcp.NAME]` goes with it; one that a blank line sets apart (the head of the file) stays,
/// above the table that comes next.
fn keep_what_stood_apart(document: &mut DocumentMut, position: Option<isize>, prefix: &str) {
    let Some((apart, _)) = prefix.rsplit_once("\n\n") else {
        return;
    };
    if apart.trim().is_empty() {
        return;
    }
    let apart = format!("{}\n", apart.trim_end());
    match next_table(document.as_table_mut(), position.unwrap_or_default()) {
        Some(next) => {
            let own = self::prefix(next);
            let own = own.trim_start_matches('\n');
            next.decor_mut().set_prefix(format!("{apart}\n{own}"));
        }
        None => {
            let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
            document.set_trailing(format!("{apart}{trailing}"));
        }
    }
}

/// The written table that follows a position, in the order of the file.
fn next_table(table: &mut Table, after: isize) -> Option<&mut Table> {
    let mut best: Option<&mut Table> = None;
    for (_, item) in table.iter_mut() {
        let Some(inner) = item.as_table_mut() else {
            continue;
        };
        let own = inner.position().filter(|at| *at > after && !inner.is_implicit() && !inner.is_dotted());
        let candidate = if own.is_some() { Some(inner) } else { next_table(inner, after) };
        let is_nearer = match (&best, &candidate) {
            (Some(best), Some(candidate)) => candidate.position() < best.position(),
            (None, Some(_)) => true,
            _ => false,
        };
        if is_nearer {
            best = candidate;
        }
    }
    best
}
