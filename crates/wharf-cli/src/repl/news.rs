//! What servers do by themselves, told to the person at the prompt.
//!
//! In: events. Out: a line above the prompt for each that matters. Warnings are told at every command and not here;
//! the rest is told in `events` to those who want all of it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use wharf::event::{Event, State};
use wharf::names::ServerName;

use crate::output::Ui;

/// Tells until there is nothing more to come.
pub(super) async fn tell(ui: Arc<Ui>, mut events: Receiver<Event>) {
    // Those who are told everything are told this too.
    if ui.quiet || ui.verbose > 0 {
        return;
    }
    let mut up = HashMap::new();
    loop {
        match events.recv().await {
            Ok(event) => one(&ui, event, &mut up),
            Err(RecvError::Lagged(lost)) => ui.detail(format_args!("({lost} events left out)")),
            Err(RecvError::Closed) => return,
        }
    }
}

/// `up` has the servers that were ever connected, and whether they are now.
fn one(ui: &Ui, event: Event, up: &mut HashMap<ServerName, bool>) {
    match event {
        Event::State { server, state: State::Connected, .. } => {
            let was_up = up.insert(server.clone(), true);
            if was_up == Some(false) {
                ui.detail(format_args!("{server} is connected again"));
            }
        }
        // Without a reason it is what the person asked for, and one that never worked is an error of the command.
        Event::State { server, state, reason: Some(reason) } if up.contains_key(&server) => {
            ui.detail(format_args!("{server} is {}: {reason}", state.as_str()));
            up.insert(server, false);
        }
        Event::State { server, state: State::Disconnected, .. } => {
            up.remove(&server);
        }
        Event::Log { level, .. } if level.raw() == "debug" => {}
        Event::Log { server, level, data } => ui.detail(format_args!("{server} {level}: {data}")),
        Event::ToolsChanged { server, .. } => ui.detail(format_args!("{server} has other tools now")),
        _ => {}
    }
}
