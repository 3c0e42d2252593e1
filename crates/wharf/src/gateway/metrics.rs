//! What Prometheus reads: every counter of the gateway, as text.
//!
//! In: the counters of `host` and of the gate, as they are now. Out: the exposition format, version 0.0.4. Labels are
//! names that the configuration or a server's list has; nothing that a caller says becomes one.

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::limits::{Crush, Gauge, Load};
use super::{Gateway, ready};
use crate::connect::Strays;
use crate::event::{BOUNDS, Circuit, Label, OUTCOMES, Reading, State};
use crate::host::ServerStatus;
use crate::names::{CallerName, ServerName};
use crate::text::is_unsafe_to_show;

/// Requests that were turned away at the door.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    /// Not meant for us: another host's name, a foreign page.
    pub(super) guard: AtomicU64,
    /// Nobody that we know.
    pub(super) auth: AtomicU64,
    /// More than is read.
    pub(super) size: AtomicU64,
    /// No message.
    pub(super) malformed: AtomicU64,
}

/// The format, as it is named over HTTP.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text in the making. Samples of one name stand together, after what they are.
#[derive(Default)]
struct Page(String);

/// One more of them.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Everything there is to tell.
pub(super) fn page(gateway: &Gateway) -> String {
    let host = gateway.desk.host();
    let (servers, meter) = (host.status(), host.meter());
    let mut page = Page::default();
    page.head("wharf_build_info", "gauge", "The version that runs.");
    page.sample("wharf_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.head("wharf_uptime_seconds", "gauge", "How long it has run.");
    page.sample("wharf_uptime_seconds", &[], meter.since().as_secs_f64());
    let is_ready = ready::obstacles(gateway, &servers).is_empty();
    page.head("wharf_ready", "gauge", "Whether /readyz says so.");
    page.sample("wharf_ready", &[], u8::from(is_ready));
    page.head("wharf_audit_writable", "gauge", "Whether calls can be put on record, where they have to be.");
    page.sample("wharf_audit_writable", &[], u8::from(host.trail().ready().is_ok()));
    page.calls(&meter.read());
    page.head("wharf_denials_total", "counter", "Calls that a rule refused, by the kind of rule.");
    meter.denials().for_each(|(rule, count)| page.sample("wharf_denials_total", &[("rule", rule)], count));
    page.servers(&servers);
    page.strays(&servers);
    let gauge = gateway.desk.gate.gauge();
    page.crushes(&servers, &gauge);
    page.gate(gateway, &gauge);
    if let Some(tracer) = &gateway.desk.tracer {
        let (name, counts) = ("wharf_telemetry_spans_total", tracer.counts());
        page.head(name, "counter", "Spans, by what became of them.");
        for (fate, count) in
            [("exported", &counts.exported), ("dropped", &counts.dropped), ("failed", &counts.failed)]
        {
            page.sample(name, &[("fate", fate)], count.load(Relaxed));
        }
    }
    page.0
}

// === impl Page ===

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (n, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if n == 0 { '{' } else { ',' }, Quoted(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    fn calls(&mut self, readings: &[Reading]) {
        self.head("wharf_calls_started_total", "counter", "Calls that were begun.");
        for reading in readings {
            self.sample("wharf_calls_started_total", &named(&reading.of), reading.started);
        }
        self.head("wharf_calls_total", "counter", "Calls that have ended, by how.");
        for reading in readings {
            let [server, tool] = named(&reading.of);
            let told = |n: usize, count: u64| n < 2 || count > 0;
            let counts = OUTCOMES.iter().zip(reading.outcomes).enumerate();
            for (_, (outcome, count)) in counts.filter(|(n, (_, count))| told(*n, *count)) {
                self.sample("wharf_calls_total", &[server, tool, ("outcome", outcome)], count);
            }
        }
        self.head("wharf_calls_in_flight", "gauge", "Calls that are under way.");
        for reading in readings {
            self.sample("wharf_calls_in_flight", &named(&reading.of), reading.under_way());
        }
        let carried = [
            ("wharf_call_arguments_bytes_total", "Bytes of the arguments of calls that had a result."),
            ("wharf_call_result_bytes_total", "Bytes of the results of calls."),
        ];
        for (n, (name, help)) in carried.into_iter().enumerate() {
            self.head(name, "counter", help);
            readings.iter().for_each(|reading| self.sample(name, &named(&reading.of), reading.bytes[n]));
        }
        self.head(
            "wharf_call_duration_seconds",
            "histogram",
            "How long calls took that were sent and have ended.",
        );
        for reading in readings {
            let [server, tool] = named(&reading.of);
            let (mut so_far, mut bounds) = (0, BOUNDS.iter());
            for count in reading.buckets {
                so_far += count;
                let bound =
                    bounds.next().map_or("+Inf".to_owned(), |bound| (*bound as f64 / 1e9).to_string());
                let labels = [server, tool, ("le", bound.as_str())];
                self.sample("wharf_call_duration_seconds_bucket", &labels, so_far);
            }
            self.sample("wharf_call_duration_seconds_sum", &[server, tool], reading.took.as_secs_f64());
            self.sample("wharf_call_duration_seconds_count", &[server, tool], so_far);
        }
    }

    fn servers(&mut self, servers: &[ServerStatus]) {
        const STATES: [State; 4] =
            [State::Disconnected, State::Connecting, State::Connected, State::Reconnecting];
        self.head(
            "wharf_server_state",
            "gauge",
            "What the shared connection of a server is doing: 1 for that.",
        );
        for (server, state) in servers.iter().flat_map(|server| STATES.map(|state| (server, state))) {
            let labels = [("server", server.name.as_str()), ("state", state.as_str())];
            self.sample("wharf_server_state", &labels, u8::from(server.state == state));
        }
        const CIRCUITS: [Circuit; 3] = [Circuit::Closed, Circuit::Open, Circuit::HalfOpen];
        let instances = || {
            let of = |server: &ServerStatus| server.instances.len();
            let all = servers.iter().flat_map(move |server| (0..of(server)).map(move |n| (server, n)));
            all.map(|(server, n)| (server.name.as_str(), (n + 1).to_string(), &server.instances[n]))
        };
        self.head("wharf_server_circuit", "gauge", "Whether an instance of a server is asked: 1 for that.");
        for ((server, number, instance), circuit) in
            instances().flat_map(|instance| CIRCUITS.map(|circuit| (instance.clone(), circuit)))
        {
            let labels = [("server", server), ("instance", number.as_str()), ("circuit", circuit.as_str())];
            self.sample("wharf_server_circuit", &labels, u8::from(instance.circuit == circuit));
        }
        let name = "wharf_server_instance_up";
        self.head(name, "gauge", "1 for an instance of a server that is connected.");
        for (server, number, instance) in instances() {
            let is_up = instance.state == State::Connected;
            self.sample(name, &[("server", server), ("instance", number.as_str())], u8::from(is_up));
        }
        let name = "wharf_server_missed_checks";
        self.head(name, "gauge", "Signs of life that an instance of a server failed to give, in a row.");
        for (server, number, instance) in instances() {
            self.sample(name, &[("server", server), ("instance", number.as_str())], instance.missed_checks);
        }
        self.head("wharf_retries_total", "counter", "Calls that were sent again.");
        for server in servers {
            self.sample("wharf_retries_total", &[("server", server.name.as_str())], server.retries);
        }
        let mut each = |name: &str, help: &str, value: fn(&ServerStatus) -> usize| {
            self.head(name, "gauge", help);
            for server in servers {
                self.sample(name, &[("server", server.name.as_str())], value(server));
            }
        };
        each("wharf_server_connections", "Connections to a server, those of single callers too.", |s| {
            s.connections
        });
        each("wharf_server_processes", "Programs that run for a server.", |s| s.processes);
        each(
            "wharf_server_trouble",
            "1 for a server that is known not to be reachable, or left alone.",
            |s| usize::from(s.trouble.is_some()),
        );
    }

    /// What nobody waited for.
    fn strays(&mut self, servers: &[ServerStatus]) {
        let name = "wharf_server_strays_total";
        self.head(name, "counter", "Messages of a server that nobody waited for, by kind.");
        for server in servers {
            let Strays { answers, malformed, notifications } = server.strays;
            for (kind, count) in
                [("answer", answers), ("malformed", malformed), ("notification", notifications)]
            {
                self.sample(name, &[("server", server.name.as_str()), ("kind", kind)], count);
            }
        }
    }

    /// Where too much was asked for.
    fn crushes(&mut self, servers: &[ServerStatus], gauge: &Gauge) {
        let crushes: Vec<(&str, Crush)> =
            servers.iter().map(|server| (server.name.as_str(), gauge.crush(&server.name))).collect();
        let name = "wharf_server_refused_total";
        self.head(name, "counter", "Calls of a server that the limits refused, by why.");
        for (server, crush) in &crushes {
            for (reason, count) in [("rate", crush.too_often), ("queue", crush.too_many)] {
                self.sample(name, &[("server", server), ("reason", reason)], count);
            }
        }
        let name = "wharf_server_waits_total";
        self.head(name, "counter", "Calls of a server that had to wait for their turn.");
        crushes.iter().for_each(|(server, crush)| self.sample(name, &[("server", server)], crush.waits));
        let name = "wharf_server_wait_seconds_total";
        self.head(name, "counter", "How long they waited, together.");
        for (server, crush) in &crushes {
            self.sample(name, &[("server", server)], crush.waited.as_secs_f64());
        }
    }

    fn gate(&mut self, gateway: &Gateway, gauge: &Gauge) {
        let mut each = |name: &str, help: &str, value: fn(&Load) -> usize| {
            self.head(name, "gauge", help);
            for (server, load) in &gauge.servers {
                let server = server.as_ref().map_or("", ServerName::as_str);
                self.sample(name, &[("server", server)], value(load));
            }
        };
        each("wharf_gate_calls", "Calls that the limits have let through and that are under way.", |load| {
            load.under_way
        });
        each("wharf_gate_waiting", "Calls that wait for their turn.", |load| load.waiting);
        let mut each = |name: &str, help: &str, value: fn(&Load) -> usize| {
            self.head(name, "gauge", help);
            for (caller, load) in &gauge.callers {
                let caller = caller.as_ref().map_or("", CallerName::as_str);
                self.sample(name, &[("caller", caller)], value(load));
            }
        };
        each("wharf_caller_calls", "The same by caller, of the busiest.", |load| load.under_way);
        each("wharf_caller_waiting", "The same for calls that wait.", |load| load.waiting);
        let rejected = &gateway.desk.rejections;
        let name = "wharf_requests_rejected_total";
        self.head(name, "counter", "Requests that were turned away before anything was done.");
        let counts = [
            ("guard", rejected.guard.load(Relaxed)),
            ("auth", rejected.auth.load(Relaxed)),
            ("size", rejected.size.load(Relaxed)),
            ("malformed", rejected.malformed.load(Relaxed)),
            ("rate", gauge.too_often),
            ("queue", gauge.too_many),
        ];
        counts.iter().for_each(|(reason, count)| self.sample(name, &[("reason", reason)], count));
    }
}

/// The labels of a reading. No tool has an empty name, and no server one with a `*`.
fn named(label: &Label) -> [(&str, &str); 2] {
    let (server, tool) = match label {
        Label::Tool(server, tool) => (server.as_str(), tool.as_str()),
        Label::OthersOf(server) => (server.as_str(), ""),
        Label::Others => ("*", ""),
        Label::Unknown => ("", ""),
    };
    [("server", server), ("tool", tool)]
}

/// The value of a label. What could drive a terminal is written as an escape, and no two names are written alike.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                // Twice as long once for our escapes and once for the format's.
                '\\' => f.write_str(r"\\\\")?,
                '"' => f.write_str("\\\"")?,
                c if is_unsafe_to_show(c) => write!(f, r"\\u{{{:x}}}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
