//! What happens in a gateway, as lines of JSON on standard error, for whoever collects logs.
//!
//! In: events of the host. Out: one line for each that somebody may want to find again: states, refused calls, warnings,
//! reloads. Calls that went well are counted elsewhere. Words of servers are escaped, and secrets erased before they
//! get here.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use wharf::event::{Circuit, Event, Reached, State};
use wharf::names::ServerName;

use crate::output::{Level, Ui};

/// Tells events until there are no more.
pub(crate) async fn tell(ui: Arc<Ui>, mut events: Receiver<Event>) {
    loop {
        match events.recv().await {
            Ok(event) => {
                if let Some((level, line)) = line(event, ui.verbose) {
                    ui.log(level, line);
                }
            }
            Err(RecvError::Lagged(lost)) => {
                ui.log(Level::Warn, json!({ "event": "events_lost", "count": lost }));
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// What is told of an event, and how grave it is.
fn line(event: Event, verbose: u8) -> Option<(Level, Value)> {
    let names = |servers: &[ServerName]| servers.iter().map(ToString::to_string).collect::<Vec<_>>();
    Some(match event {
        Event::State { server, instance, state, reason } => {
            let is_trouble = matches!(state, State::Disconnected | State::Reconnecting) && reason.is_some();
            let level = if is_trouble { Level::Warn } else { Level::Info };
            let (server, state) = (server.as_str(), state.as_str());
            let line = json!({ "event": "state", "server": server, "state": state, "reason": reason });
            (level, at(line, instance))
        }
        Event::Refused(call) => {
            let server = call.server.as_ref().map(ToString::to_string);
            let tool = call.tool.as_ref().map(ToString::to_string);
            let line = json!({ "event": "refused", "caller": call.caller.to_string(), "server": server,
                "tool": tool, "kind": call.kind, "reason": call.reason });
            (Level::Warn, line)
        }
        Event::Warning { server, message } => {
            (Level::Warn, json!({ "event": "warning", "server": server.as_str(), "message": message }))
        }
        Event::Blocked { server, name, reason, .. } => {
            let (server, name) = (server.as_str(), name.to_string());
            (Level::Warn, json!({ "event": "blocked", "server": server, "name": name, "reason": reason }))
        }
        Event::Suspicious { server, rule, grave, finding } => {
            let level = if grave { Level::Warn } else { Level::Info };
            let line = json!({ "event": "suspicious", "server": server.as_str(), "rule": rule,
                "grave": grave, "finding": finding });
            (level, line)
        }
        // The files are read again at every start; what is other than servers is told as a message.
        Event::Reloaded { added, removed, restarted, changed }
            if [&added, &removed, &restarted, &changed].iter().all(|servers| servers.is_empty()) =>
        {
            return None;
        }
        Event::Reloaded { added, removed, restarted, changed } => {
            let line = json!({ "event": "reload", "added": names(&added), "removed": names(&removed),
                "restarted": names(&restarted), "changed": names(&changed) });
            (Level::Info, line)
        }
        Event::Consent { caller, server, tool, allowed } => {
            let line = json!({ "event": "consent", "caller": caller.to_string(), "server": server.as_str(),
                "tool": tool.to_string(), "allowed": allowed });
            (Level::Info, line)
        }
        Event::ToolsChanged { server, .. } => {
            (Level::Info, json!({ "event": "tools_changed", "server": server.as_str() }))
        }
        Event::PackageFetched { server, package, version, .. } => {
            let (server, package, version) = (server.as_str(), package.to_string(), version.to_string());
            let line =
                json!({ "event": "package", "server": server, "package": package, "version": version });
            (Level::Info, line)
        }
        Event::Egress { server, host, port, reached: Reached::Refused(reason), .. } => {
            let (server, host) = (server.as_str(), host.to_string());
            let line = json!({ "event": "egress_refused", "server": server, "host": host, "port": port,
                "reason": reason });
            (Level::Warn, line)
        }
        Event::Log { server, level, data } if verbose > 0 => {
            let (server, said) = (server.as_str(), data.to_string());
            let line =
                json!({ "event": "log", "server": server, "said": level.to_string(), "message": said });
            (Level::Debug, line)
        }
        Event::Stderr { server, line } if verbose > 0 => {
            let (server, said) = (server.as_str(), line.to_string());
            (Level::Debug, json!({ "event": "stderr", "server": server, "message": said }))
        }
        Event::ToolInvoked(call) if verbose > 0 => {
            let micros = u64::try_from(call.took.as_micros()).unwrap_or(u64::MAX);
            let line = json!({ "event": "call", "caller": call.caller.to_string(),
                "server": call.server.as_str(), "tool": call.tool.to_string(),
                "success": call.success, "error": call.error, "tookUs": micros });
            (Level::Debug, line)
        }
        event => return line_of_trouble(event),
    })
}

/// The same of servers that fail, and of what is done about it.
fn line_of_trouble(event: Event) -> Option<(Level, Value)> {
    Some(match event {
        Event::Circuit { server, instance, circuit, reason } => {
            let level = if circuit == Circuit::Open { Level::Warn } else { Level::Info };
            let (server, circuit) = (server.as_str(), circuit.as_str());
            let line = json!({ "event": "circuit", "server": server, "circuit": circuit, "reason": reason });
            (level, at(line, instance))
        }
        Event::Health { server, instance, missed } => {
            let level = if missed > 0 { Level::Warn } else { Level::Info };
            let line = json!({ "event": "health", "server": server.as_str(), "missed": missed });
            (level, at(line, instance))
        }
        Event::Retried { server, tool, reason } => {
            let (server, tool) = (server.as_str(), tool.to_string());
            (Level::Warn, json!({ "event": "retried", "server": server, "tool": tool, "reason": reason }))
        }
        _ => return None,
    })
}

/// Says of which instance it is, where there are several.
fn at(mut line: Value, instance: Option<usize>) -> Value {
    if let Some(number) = instance {
        line["instance"] = number.into();
    }
    line
}
