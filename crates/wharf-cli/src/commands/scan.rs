//! `wharf check --scan`: what hides in the words of servers. Starts and contacts nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use wharf::catalog::scan::{self, Finding, Severity, Subject};
use wharf::catalog::{CatalogStore as _, PinKey, Pinned};
use wharf::config::ServerConfig;
use wharf::names::ServerName;

use crate::app::{App, Setup};
use crate::catalogues::CatalogFolder;
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Looks through what is known. Ends with 1 if something is found that no honest server does.
pub(super) fn run(app: &App, setup: &Setup) -> Result<()> {
    let (mut known, mut unknown) = (BTreeMap::new(), Vec::new());
    for server in setup.listed().filter(|server| server.enabled) {
        match recall(app, setup, server) {
            Some(pinned) => drop(known.insert(server.name.clone(), pinned)),
            None => unknown.push(server.name.as_str()),
        }
    }
    let found = scan::servers(&known);
    let grave = found.iter().any(|finding| finding.severity == Severity::High);
    if app.ui.json {
        app.ui.document(&json!({
            "ok": !grave,
            "scanned": known.keys().map(ServerName::as_str).collect::<Vec<_>>(),
            "unknown": unknown,
            "findings": found.iter().map(shape).collect::<Vec<_>>(),
        }))?;
    } else {
        let rows: Vec<Vec<String>> = found.iter().map(row).collect();
        app.ui.rows(&["severity", "rule", "server", "what", "place", "excerpt"], &rows)?;
        if !unknown.is_empty() {
            app.ui.warn(format_args!(
                "nothing is known of {}, so it was not scanned; try: wharf lock",
                unknown.join(", ")
            ));
        }
        if found.is_empty() && !known.is_empty() {
            app.ui.note("nothing was found");
        }
    }
    if grave { Err(Failure::Said(Exit::General)) } else { Ok(()) }
}

/// What a server was accepted to offer, or was last seen to.
fn recall(app: &App, setup: &Setup, server: &ServerConfig) -> Option<Pinned> {
    let key = PinKey::of(server, &app.world.env);
    if let Some(entry) = setup.locks.entries.get(&server.name) {
        return Some(entry.to_pinned(&key));
    }
    let own = app.world.own.as_ref()?;
    CatalogFolder::new(own.catalogues.clone(), Arc::clone(&app.ui)).get(&server.name, &key)
}

fn place(finding: &Finding) -> String {
    let pointer = wharf::text::Escaped(&finding.pointer).to_string();
    format!("{pointer} {}..{}", finding.range.start, finding.range.end)
}

fn row(finding: &Finding) -> Vec<String> {
    vec![
        finding.severity.as_str().to_owned(),
        finding.rule.to_owned(),
        finding.server.to_string(),
        finding.subject.to_string(),
        place(finding),
        finding.excerpt.clone(),
    ]
}

fn shape(finding: &Finding) -> Value {
    let (kind, name) = match &finding.subject {
        Subject::Definition(kind, name) => (kind.word(), Some(name.as_str())),
        Subject::Instructions => ("instructions", None),
        _ => ("result", None),
    };
    json!({
        "rule": finding.rule,
        "severity": finding.severity.as_str(),
        "server": finding.server.as_str(),
        "kind": kind,
        "name": name,
        "pointer": finding.pointer,
        "start": finding.range.start,
        "end": finding.range.end,
        "excerpt": finding.excerpt,
    })
}
