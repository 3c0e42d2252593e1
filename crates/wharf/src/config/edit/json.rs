//! Adding to and removing from an `.mcp.json`.

use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};

use super::super::format_json;
use super::{Format, NewServer, Written, already_there, is_named};
use crate::error::{Error, Result};
use crate::names::ServerName;

/// The two keys that servers stand under; the first is written where neither is there.
const KEYS: [&str; 2] = ["mcpServers", "servers"];

pub(super) fn add(text: &str, name: &ServerName, entry: &NewServer) -> Result<String> {
    let is_new = text.trim().is_empty();
    let (root, object) = parse(if is_new { "{}\n" } else { text })?;
    if tables(&object)?.iter().any(|table| find(table, name).is_some()) {
        return Err(already_there(name));
    }
    let servers = match tables(&object)?.into_iter().next() {
        Some(servers) => servers,
        None => object.object_value_or_create(KEYS[0]).ok_or_else(not_an_object)?,
    };
    let fields = entry.fields(Format::Json).into_iter().map(|(key, value)| (key.to_owned(), input(value)));
    servers.append(name.as_str(), CstInputValue::Object(fields.collect()));
    Ok(root.to_string())
}

pub(super) fn remove(text: &str, name: &ServerName) -> Result<Option<String>> {
    let (root, object) = parse(text)?;
    let found = tables(&object)?.iter().find_map(|table| find(table, name));
    Ok(found.map(|property| {
        property.remove();
        root.to_string()
    }))
}

fn parse(text: &str) -> Result<(CstRootNode, CstObject)> {
    let root = CstRootNode::parse(text, &format_json::options())
        .map_err(|error| Error::config(format!("this is not valid JSON: {error}")))?;
    let object = root.object_value().ok_or_else(not_an_object)?;
    Ok((root, object))
}

fn not_an_object() -> Error {
    Error::config("the file, its `mcpServers` and its `servers` must be objects")
}

fn tables(object: &CstObject) -> Result<Vec<CstObject>> {
    let present = KEYS.iter().filter_map(|key| object.get(key));
    present.map(|property| property.object_value().ok_or_else(not_an_object)).collect()
}

fn find(table: &CstObject, name: &ServerName) -> Option<jsonc_parser::cst::CstObjectProp> {
    let is_it = |property: &jsonc_parser::cst::CstObjectProp| {
        property.decoded_name().is_some_and(|key| is_named(&key, name))
    };
    table.properties().into_iter().find(is_it)
}

fn input(value: Written) -> CstInputValue {
    match value {
        Written::Text(text) => CstInputValue::String(text),
        Written::List(items) => CstInputValue::Array(items.into_iter().map(CstInputValue::String).collect()),
        Written::Table(entries) => CstInputValue::Object(
            entries.into_iter().map(|(key, text)| (key, CstInputValue::String(text))).collect(),
        ),
    }
}
