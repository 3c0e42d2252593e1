//! Which servers of a gateway cannot be had, in words on standard error: callers only see that something is missing.
//!
//! In: events of the host. Out: a line for each reason, and for each server that is left alone or asked again. One of
//! several instances is told of as what it is: calls go on elsewhere, until there is none left.

use std::collections::HashSet;

use tokio::sync::broadcast::error::RecvError;
use wharf::Host;
use wharf::event::{Circuit, Event, State};
use wharf::names::ServerName;

use crate::events::one_of;
use crate::output::Ui;

/// What was told already.
#[derive(Default)]
struct Told {
    reasons: HashSet<(ServerName, Option<usize>, String)>,
    /// What is left alone: a server with one instance, or one of several.
    open: HashSet<(ServerName, Option<usize>)>,
    /// Servers of whose instances none is asked.
    alone: HashSet<ServerName>,
}

/// A server that fails in ever new words is not told of for ever.
const MOST_TOLD: usize = 1000;

/// Tells for as long as it is let. Never ends by itself.
pub(crate) async fn tell(ui: &Ui, host: &Host) {
    let (mut events, mut told) = (host.events().subscribe_but_calls(), Told::default());
    loop {
        match events.recv().await {
            Ok(event) => told.hear(ui, host, event),
            Err(RecvError::Closed) => return std::future::pending().await,
            Err(RecvError::Lagged(_)) => {}
        }
    }
}

impl Told {
    fn hear(&mut self, ui: &Ui, host: &Host, event: Event) {
        match event {
            Event::State { server, instance, state: State::Disconnected, reason: Some(reason) } => {
                let named = one_of(&server, instance);
                if self.reasons.len() < MOST_TOLD && self.reasons.insert((server, instance, reason.clone())) {
                    ui.warn(format_args!("{named} cannot be had: {reason}"));
                }
            }
            Event::Circuit { server, instance, circuit: Circuit::Open, reason: Some(reason) } => {
                if self.open.insert((server.clone(), instance)) {
                    let named = one_of(&server, instance);
                    ui.warn(format_args!("{named} is left alone for a while: {reason}"));
                }
                if instance.is_some() && is_alone(host, &server) && self.alone.insert(server.clone()) {
                    ui.warn(format_args!("{server} is left alone for a while: all its instances are"));
                }
            }
            Event::Circuit { server, instance, circuit: Circuit::Closed, .. } => {
                if self.open.remove(&(server.clone(), instance)) {
                    ui.note(format_args!("{} is asked again", one_of(&server, instance)));
                }
                if self.alone.remove(&server) {
                    ui.note(format_args!("{server} is asked again"));
                }
            }
            // What is made anew begins anew, and who is gone is not asked again.
            Event::Reloaded { removed, restarted, .. } => {
                for server in removed.iter().chain(&restarted) {
                    self.open.retain(|(name, _)| name != server);
                    self.alone.remove(server);
                }
            }
            _ => {}
        }
    }
}

/// Whether no instance of a server is asked.
fn is_alone(host: &Host, server: &ServerName) -> bool {
    let condition = host.conditions().into_iter().find(|condition| condition.server == *server);
    condition.is_some_and(|of| of.instances.iter().all(|instance| instance.circuit != Circuit::Closed))
}
