//! The `oauth` table of a server: who Wharf is where somebody logs in.
//!
//! In: the table as written. Out: an [`OAuth`], or the complaints. Other clients' fields of the same name are taken where
//! they mean the same, and named where they do not.

use url::Url;

use super::edit::Format;
use super::fields::{Fields, Reader};
use super::node::{Entry, Value};
use super::problem::shown;
use super::server::OAuth;
use super::transport::secret;

/// The fields, and what other clients call them.
const FIELDS: [(&str, &[&str]); 6] = [
    ("client_id", &["clientId"]),
    ("client_secret", &["clientSecret"]),
    ("client_metadata_url", &["clientMetadataUrl"]),
    ("issuer", &[]),
    ("scopes", &["scope"]),
    ("callback_port", &["callbackPort"]),
];

/// Reads the table, if there is one.
pub(super) fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<OAuth> {
    let Some(entry) = fields.get("oauth") else { return Some(OAuth::default()) };
    let entries = match &entry.node.value {
        // Other clients switch it on or off; here it is the person who logs in, or does not.
        Value::Bool(_) if reader.source.format == Format::Json => return Some(OAuth::default()),
        _ => match entry.node.as_table() {
            Some(entries) => entries,
            None => {
                let message = format!("`oauth` must be a table, not {}", entry.node.kind());
                return reader.wrong(&entry.node.span, message);
            }
        },
    };
    let table = sorted(reader, entries);
    let mut oauth = OAuth {
        client_id: reader.text(&table, "client_id").filter(|id| !id.is_empty()).map(str::to_owned),
        issuer: reader.text(&table, "issuer").map(str::to_owned),
        callback_port: port(reader, &table),
        scopes: scopes(reader, &table)?,
        client_secret: None,
        client_metadata_url: None,
    };
    if let Some(entry) = table.get("client_secret") {
        oauth.client_secret = Some(secret(reader, entry)?);
        if oauth.client_id.is_none() {
            return reader.wrong(&entry.key_span, "`client_secret` needs the `client_id` it belongs to");
        }
    }
    if let Some(text) = reader.text(&table, "client_metadata_url") {
        // Its address is our name, so it has the form that the specification wants of one.
        let url = Url::parse(text).ok().filter(|url| url.scheme() == "https" && url.path() != "/");
        let span = &table.get("client_metadata_url")?.node.span;
        let Some(url) = url else {
            return reader.wrong(span, "`client_metadata_url` must be an `https:` address with a path");
        };
        oauth.client_metadata_url = Some(url);
    }
    Some(oauth)
}

fn sorted<'e>(reader: &mut Reader<'_>, entries: &'e [Entry]) -> Fields<'e> {
    let json = reader.source.format == Format::Json;
    let mut table = Fields::new();
    for entry in entries {
        let known = FIELDS
            .iter()
            .find(|(name, also)| *name == entry.key || (json && also.contains(&entry.key.as_str())));
        match known {
            Some((name, _)) => {
                if table.insert(name, entry).is_some() {
                    let _: Option<()> =
                        reader.wrong(&entry.key_span, format!("{} stands twice", shown(&entry.key)));
                }
            }
            None if json => {
                let message = format!("`oauth` has the unknown field {}; it is ignored", shown(&entry.key));
                reader.doubt(&entry.key_span, message, None);
            }
            None => {
                let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
                let message = format!("unknown field {} in `oauth`", shown(&entry.key));
                let hint = format!("the fields are {}", names.join(", "));
                let _: Option<()> = reader.wrong_with(&entry.key_span, message, hint);
            }
        }
    }
    table
}

/// A list, or one text with spaces between, as OAuth writes it.
fn scopes(reader: &mut Reader<'_>, table: &Fields<'_>) -> Option<Vec<String>> {
    let Some(entry) = table.get("scopes") else { return Some(Vec::new()) };
    let scopes: Vec<String> = match entry.node.as_text() {
        Some(text) => text.split_whitespace().map(str::to_owned).collect(),
        None => reader.texts(table, "scopes")?.into_iter().map(|(text, _)| text.to_owned()).collect(),
    };
    let is_scope = |text: &String| {
        !text.is_empty() && text.bytes().all(|b| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
    };
    match scopes.iter().find(|scope| !is_scope(scope)) {
        Some(bad) => reader.wrong(&entry.node.span, format!("{} is not a scope", shown(bad))),
        None => Some(scopes),
    }
}

fn port(reader: &mut Reader<'_>, table: &Fields<'_>) -> Option<u16> {
    let entry = table.get("callback_port")?;
    let number = match &entry.node.value {
        Value::Number(_, spelling) => spelling.parse::<u16>().ok().filter(|port| *port > 0),
        _ => None,
    };
    match number {
        Some(port) => Some(port),
        None => reader.wrong(&entry.node.span, "`callback_port` must be a port, from 1 to 65535"),
    }
}
