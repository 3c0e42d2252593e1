//! What happens behind the scenes, told on standard error to those who want to know.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use wharf::event::Event;
use wharf::names::ServerName;

use crate::output::Ui;

/// Tells events until there are no more. Traffic is told of the servers in `debugged`, or of all with `-vv`.
pub(crate) async fn tell(ui: Arc<Ui>, mut events: Receiver<Event>, debugged: HashSet<ServerName>) {
    loop {
        match events.recv().await {
            Ok(event) => one(&ui, event, &debugged),
            Err(RecvError::Lagged(lost)) if ui.verbose > 0 => {
                ui.detail(format_args!("({lost} events left out)"))
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
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
        _ if ui.verbose == 0 => {}
        Event::State { server, state, reason } => {
            let reason = reason.map(|r| format!(": {r}")).unwrap_or_default();
            ui.detail(format_args!("{server} is {}{reason}", state.as_str()));
        }
        Event::Log { server, level, data } => ui.detail(format_args!("{server} logs {level}: {data}")),
        Event::ToolsChanged { server } => ui.detail(format_args!("{server} has other tools now")),
        Event::ResourcesChanged { server } => ui.detail(format_args!("{server} has other resources now")),
        Event::PromptsChanged { server } => ui.detail(format_args!("{server} has other prompts now")),
        Event::ResourceUpdated { server, uri } => ui.detail(format_args!("{server} {uri} has changed")),
        Event::PageVisited { server, .. } => {
            ui.detail(format_args!("{server} says that its page was visited"))
        }
        Event::ToolInvoked(call) => {
            let how = if call.success { "done" } else { "failed" };
            ui.detail(format_args!("{} {}: {how} after {:.1?}", call.server, call.tool, call.took));
        }
        _ => {}
    }
}
