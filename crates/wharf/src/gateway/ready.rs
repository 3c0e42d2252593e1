//! Whether the gateway can do its work, and how its servers are.
//!
//! In: the gateway as it stands. Out: what keeps it from being ready, and a document of it all for `wharf status`.
//! Nothing is started or asked to find it out.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Gateway;
use crate::event::{Circuit, Durations, Label, OUTCOMES, Reading};
use crate::host::{Instance, ServerStatus};
use crate::names::ServerName;

/// What keeps the gateway from being ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// `stopping`, `audit` or `server`.
    pub(super) what: &'static str,
    pub(super) server: Option<ServerName>,
    pub(super) reason: String,
}

/// The calls of one server together.
#[derive(Default)]
struct Sum {
    started: u64,
    outcomes: [u64; OUTCOMES.len()],
    durations: Durations,
}

/// Everything that keeps the gateway from being ready.
pub(super) fn obstacles(gateway: &Gateway, servers: &[ServerStatus]) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if gateway.desk.is_stopping() {
        let reason = "it stops: calls under way may end, and no new one is taken".into();
        found.push(Obstacle { what: "stopping", server: None, reason });
    }
    if let Err(error) = gateway.desk.host().trail().ready() {
        found.push(Obstacle { what: "audit", server: None, reason: error.to_string() });
    }
    for name in &gateway.settings.admission.load().required {
        let reason = match servers.iter().find(|server| server.name == *name) {
            None => Some("it is required, and not configured".to_owned()),
            Some(server) if !server.enabled => Some("it is required, and not enabled".to_owned()),
            Some(server) => server.trouble.as_ref().map(ToString::to_string),
        };
        if let Some(reason) = reason {
            found.push(Obstacle { what: "server", server: Some(name.clone()), reason });
        }
    }
    found
}

/// What is told of the obstacles.
pub(super) fn document(obstacles: &[Obstacle]) -> Value {
    let reasons = obstacles.iter().map(|obstacle| {
        json!({
            "what": obstacle.what,
            "server": obstacle.server.as_ref().map(ServerName::as_str),
            "reason": obstacle.reason,
        })
    });
    json!({ "ready": obstacles.is_empty(), "reasons": reasons.collect::<Vec<_>>() })
}

/// How everything is, for a person or a program that watches.
pub(super) fn status(gateway: &Gateway) -> Value {
    let host = gateway.desk.host();
    let (servers, counts) = (host.status(), host.meter().read());
    let mut sums: HashMap<&ServerName, Sum> = HashMap::new();
    for reading in &counts {
        if let Label::Tool(server, _) | Label::OthersOf(server) = &reading.of {
            sums.entry(server).or_default().add(reading);
        }
    }
    let gauge = gateway.desk.gate.gauge();
    let waiting = |name: &ServerName| {
        let at = gauge.servers.iter().find(|(server, _)| server.as_ref() == Some(name));
        at.map_or(0, |(_, load)| load.waiting)
    };
    let nothing = Sum::default();
    let rows = servers.iter().map(|server| {
        let mut row = sums.get(&server.name).unwrap_or(&nothing).document();
        row["name"] = json!(server.name.as_str());
        row["transport"] = json!(server.transport);
        row["enabled"] = json!(server.enabled);
        row["state"] = json!(server.state.as_str());
        row["circuit"] = json!(circuit(&server.instances).as_str());
        let instance = |instance: &Instance| {
            json!({ "state": instance.state.as_str(), "circuit": instance.circuit.as_str(),
                "missedChecks": instance.missed_checks, "trouble": instance.trouble })
        };
        row["instances"] = json!(server.instances.iter().map(instance).collect::<Vec<_>>());
        row["retries"] = json!(server.retries);
        row["connections"] = json!(server.connections);
        row["processes"] = json!(server.processes);
        row["waiting"] = json!(waiting(&server.name));
        let crush = gauge.crush(&server.name);
        row["refused"] = json!({ "queue": crush.too_many, "rate": crush.too_often });
        row["trouble"] = json!(server.trouble.as_ref().map(ToString::to_string));
        row
    });
    let rows: Vec<Value> = rows.collect();
    let mut document = document(&obstacles(gateway, &servers));
    document["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["uptimeMs"] = json!(u64::try_from(host.meter().since().as_millis()).unwrap_or(u64::MAX));
    document["servers"] = json!(rows);
    document
}

/// Whether a server is asked: the best of its instances says so.
fn circuit(instances: &[Instance]) -> Circuit {
    let has = |circuit: &Circuit| instances.iter().any(|instance| instance.circuit == *circuit);
    [Circuit::Closed, Circuit::HalfOpen, Circuit::Open].into_iter().find(has).unwrap_or(Circuit::Closed)
}

// === impl Sum ===

impl Sum {
    fn add(&mut self, reading: &Reading) {
        self.started += reading.started;
        self.outcomes.iter_mut().zip(&reading.outcomes).for_each(|(sum, count)| *sum += count);
        self.durations.add(&reading.durations);
    }

    fn document(&self) -> Value {
        let ended: u64 = self.outcomes.iter().sum();
        let outcomes = OUTCOMES.iter().zip(self.outcomes).filter(|(_, count)| *count > 0);
        let outcomes: serde_json::Map<String, Value> =
            outcomes.map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
        let micros = |time: Option<Duration>| time.map(|time| time.as_micros() as u64);
        json!({
            "name": null,
            "calls": self.started,
            "errors": ended - self.outcomes[0],
            "inFlight": self.started.saturating_sub(ended),
            "outcomes": outcomes,
            // How many took how long, for whoever looks twice and wants to know of the time between.
            "durations": self.durations.counts().collect::<Vec<_>>(),
            "p50Us": micros(self.durations.within(50)),
            "p99Us": micros(self.durations.within(99)),
            "longestUs": micros(self.durations.longest()),
        })
    }
}
