//! What is done about servers that fail: they are left alone, asked again where that is safe, looked after, replaced.

mod breaker;
mod bulkheads;
mod fleet;
mod health;
mod own_instance;
mod retry;
mod settings;
mod stuck;

use std::time::Duration;

use serde_json::json;
use tokio::sync::broadcast;
use wharf::Host;
use wharf::config::{BreakerSettings, ServerConfig};
use wharf::event::{Circuit, Event};
use wharf_testkit::http::honest_modern;
use wharf_testkit::{Puppet, Recorded, Reply};

use crate::support::{puppet, quick};

/// How long that is at first.
pub(crate) const PAUSE: Duration = Duration::from_secs(600);

/// A puppet that is left alone after three failures, for longer than any test takes.
pub(crate) fn guarded(script: &Puppet) -> ServerConfig {
    let mut config = puppet("pup", script);
    config.resilience.breaker = Some(BreakerSettings { failures: 3, cool_down: PAUSE });
    config
}

/// A host with this server alone, that loses patience soon.
pub(crate) async fn alone(config: ServerConfig) -> Host {
    quick().server(config).start().await.unwrap()
}

/// What was told of circuits so far.
pub(crate) fn circuits(events: &mut broadcast::Receiver<Event>) -> Vec<Circuit> {
    let mut told = Vec::new();
    loop {
        match events.try_recv() {
            Ok(Event::Circuit { circuit, .. }) => told.push(circuit),
            Ok(_) => {}
            Err(broadcast::error::TryRecvError::Empty) => return told,
            Err(lost) => panic!("events were lost: {lost}"),
        }
    }
}

/// A modern server over HTTP with one tool, `echo`.
pub(crate) async fn honest(request: Recorded) -> Reply {
    honest_modern(vec![json!({"name": "echo", "inputSchema": {"type": "object"}})])(request).await
}

/// How many calls are under way at the first server.
pub(crate) fn in_flight(host: &Host) -> usize {
    host.conditions()[0].in_flight
}
