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

use crate::events::one_of;
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

/// A server, or one of its instances where there are several.
type Place = (ServerName, Option<usize>);

/// `up` has those that were ever connected, and whether they are now.
fn one(ui: &Ui, event: Event, up: &mut HashMap<Place, bool>) {
    match event {
        Event::State { server, instance, state: State::Connected, .. } => {
            let named = one_of(&server, instance);
            let was_up = up.insert((server, instance), true);
            if was_up == Some(false) {
                ui.detail(format_args!("{named} is connected again"));
            }
        }
        // Without a reason it is what the person asked for, and one that never worked is an error of the command.
        Event::State { server, instance, state, reason: Some(reason) }
            if up.contains_key(&(server.clone(), instance)) =>
        {
            ui.detail(format_args!("{} is {}: {reason}", one_of(&server, instance), state.as_str()));
            up.insert((server, instance), false);
        }
        Event::State { server, instance, state: State::Disconnected, .. } => {
            up.remove(&(server, instance));
        }
        Event::Log { level, .. } if level.raw() == "debug" => {}
        Event::Log { server, level, data } => ui.detail(format_args!("{server} {level}: {data}")),
        Event::ToolsChanged { server, .. } => ui.detail(format_args!("{server} has other tools now")),
        _ => {}
    }
}
