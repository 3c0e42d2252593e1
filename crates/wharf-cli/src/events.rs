//! What happens behind the scenes, told on standard error to those who want to know.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use wharf::event::{Event, Reached};
use wharf::names::ServerName;

use crate::output::Ui;

/// Of how many hosts it is said that they were refused.
const MOST_REFUSED: usize = 100;

/// Tells events until there are no more. Traffic is told of the servers in `debugged`, or of all with `-vv`.
pub(crate) async fn tell(ui: Arc<Ui>, mut events: Receiver<Event>, debugged: HashSet<ServerName>) {
    let mut refused = HashSet::new();
    loop {
        match events.recv().await {
            // A server may try again and again.
            Ok(Event::Egress { server, host, port, reached: Reached::Refused(reason), .. })
                if ui.verbose == 0 =>
            {
                if refused.len() < MOST_REFUSED && refused.insert((server, host, port)) {
                    ui.warn(reason);
                }
            }
            Ok(event) => one(&ui, event, &debugged),
            Err(RecvError::Lagged(lost)) if ui.verbose > 0 => {
                ui.detail(format_args!("({lost} events left out)"))
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// A server, or one of its instances where there are several.
pub(crate) fn one_of(server: &ServerName, instance: Option<usize>) -> String {
    match instance {
        Some(number) => format!("instance {number} of {server}"),
        None => server.to_string(),
    }
}

fn one(ui: &Ui, event: Event, debugged: &HashSet<ServerName>) {
    let debugs = |server: &ServerName| debugged.contains(server) && !ui.quiet;
    match event {
        Event::Warning { message, .. } => ui.warn(message),
        Event::Blocked { reason, .. } => ui.warn(reason),
        Event::Suspicious { finding, grave: true, .. } => ui.warn(finding),
        Event::Suspicious { finding, .. } if ui.verbose > 0 => ui.detail(finding),
        Event::Stderr { server, line } if ui.verbose > 0 || debugs(&server) => {
            ui.detail(format_args!("{server} stderr: {line}"));
        }
        Event::Traffic { server, sent, message } if ui.verbose > 1 || debugs(&server) => {
            ui.detail(format_args!("{server} {} {message}", if sent { "-->" } else { "<--" }));
        }
        Event::PackageWanted { server, package } if !ui.quiet => {
            ui.detail(format_args!("{server}: fetching {package}"));
        }
        _ if ui.verbose == 0 => {}
        Event::State { server, instance, state, reason } => {
            let reason = reason.map(|r| format!(": {r}")).unwrap_or_default();
            ui.detail(format_args!("{} is {}{reason}", one_of(&server, instance), state.as_str()));
        }
        Event::Circuit { server, instance, circuit, .. } => {
            ui.detail(format_args!("{}: its breaker is {}", one_of(&server, instance), circuit.as_str()));
        }
        Event::Retried { server, tool, reason } => {
            ui.detail(format_args!("{server} {tool}: once more, since {reason}"));
        }
        Event::Health { server, instance, missed: 0 } => {
            ui.detail(format_args!("{} gives signs of life again", one_of(&server, instance)));
        }
        Event::Health { server, instance, missed } => {
            let server = one_of(&server, instance);
            ui.detail(format_args!("{server} gave no sign of life, {missed} times in a row"));
        }
        Event::Log { server, level, data } => ui.detail(format_args!("{server} logs {level}: {data}")),
        Event::ToolsChanged { server, .. } => ui.detail(format_args!("{server} has other tools now")),
        Event::ResourcesChanged { server, .. } => ui.detail(format_args!("{server} has other resources now")),
        Event::PromptsChanged { server, .. } => ui.detail(format_args!("{server} has other prompts now")),
        Event::ResourceUpdated { server, uri } => ui.detail(format_args!("{server} {uri} has changed")),
        Event::PageVisited { server, .. } => {
            ui.detail(format_args!("{server} says that its page was visited"))
        }
        Event::PackageFetched { server, package, version, took, .. } => {
            ui.detail(format_args!("{server}: {package} {version} was fetched after {took:.1?}"));
        }
        Event::Egress { server, host, port, reached, .. } => {
            let how = match reached {
                Reached::Opened => "connected".to_owned(),
                Reached::Closed { sent, received } => format!("{sent} bytes there, {received} back"),
                Reached::Refused(reason) | Reached::Failed(reason) => reason,
                _ => return,
            };
            ui.detail(format_args!("{server} to {host}:{port}: {how}"));
        }
        Event::Refused(call) => {
            ui.detail(format_args!("{} was refused: {}", call.caller, call.reason));
        }
        Event::ToolInvoked(call) => {
            let how = if call.success { "done" } else { "failed" };
            ui.detail(format_args!("{} {}: {how} after {:.1?}", call.server, call.tool, call.took));
        }
        _ => {}
    }
}
