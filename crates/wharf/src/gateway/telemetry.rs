//! Traces on their way to a collector: OTLP over HTTP, as JSON.
//!
//! In: trips that are over. Out: batches of spans, sent in the background through the guarded dialer. The queue is
//! bounded: what there is no room for, or what the collector does not take, is counted and gone. No call waits for it.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Request;
use http::header::CONTENT_TYPE;
use http_body_util::Full;
use indexmap::IndexMap;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::trace::Onward;
use crate::config::{Origin, Remote, TelemetrySettings};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::mcp::trace::{Hex, TraceParent};
use crate::names::ServerName;
use crate::net::{Endpoint, read_body};
use crate::secret::{Secret, SecretUrl};
use crate::text::Escaped;

/// Decides which traces are recorded, and takes what is recorded of them.
#[derive(Debug)]
pub(super) struct Tracer {
    /// Below which a new trace is recorded.
    threshold: u64,
    random: RandomState,
    made: AtomicU64,
    queue: mpsc::Sender<Message>,
    /// Until somebody looks after it.
    exporter: Mutex<Option<Exporter>>,
    counts: Arc<Counts>,
}

/// The spans of one trip: where they belong, and their names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    trace: [u8; 16],
    /// The caller's, if it said so.
    parent: Option<[u8; 8]>,
    /// The caller's request to us, and ours to the server.
    request: [u8; 8],
    onward: [u8; 8],
    flags: u8,
}

/// A trip that is over.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) made: Made,
    pub(super) method: &'static str,
    pub(super) began: SystemTime,
    pub(super) took: Duration,
    /// The code of the error that the caller was told.
    pub(super) code: Option<i64>,
    /// The caller did not wait for the end.
    pub(super) cancelled: bool,
    pub(super) onward: Option<Onward>,
}

/// What became of spans.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The collector has them.
    pub(super) exported: AtomicU64,
    /// There was no room for them.
    pub(super) dropped: AtomicU64,
    /// The collector did not take them.
    pub(super) failed: AtomicU64,
}

#[derive(Debug)]
enum Message {
    Trip(Box<Finished>),
    /// Somebody waits until everything so far was sent.
    Flush(oneshot::Sender<()>),
}

/// The other end of the queue.
#[derive(Debug)]
struct Exporter {
    queue: mpsc::Receiver<Message>,
    endpoint: Endpoint,
    url: String,
    headers: IndexMap<String, Secret>,
    resource: Value,
    counts: Arc<Counts>,
}

/// How many trips may wait, and how many are sent together.
const WAITING: usize = 2048;
const TOGETHER: usize = 256;
/// How long a trip waits for others to go with, and the collector has to take them.
const GATHER: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of the collector's answer is read.
const ANSWER: usize = 64 * 1024;

// === impl Tracer ===

impl Tracer {
    /// `None` where no collector is named. An address that may not be reached is an error.
    pub(super) fn new(settings: &TelemetrySettings, host: &Host) -> Result<Option<Arc<Self>>> {
        let Some(otlp) = &settings.otlp else { return Ok(None) };
        let name = ServerName::parse("telemetry").map_err(|bad| Error::config(bad.to_string()))?;
        let mut url = otlp.clone();
        url.set_path(&format!("{}/v1/traces", otlp.path().trim_end_matches('/')));
        let remote = Remote { url: SecretUrl::new(url.clone()), headers: settings.headers.clone() };
        let (policy, net) = host.reaching();
        let endpoint = net.for_permit(&policy.permit_connect(&name, &remote, &Origin::Given)?);
        let resource = json!({ "attributes": [
            text("service.name", &settings.service),
            text("service.version", env!("CARGO_PKG_VERSION")),
        ] });
        let (sender, queue) = mpsc::channel(WAITING);
        let counts = Arc::<Counts>::default();
        let headers = settings.headers.clone();
        let exporter =
            Exporter { queue, endpoint, url: url.into(), headers, resource, counts: Arc::clone(&counts) };
        Ok(Some(Arc::new(Self {
            threshold: (settings.sample.clamp(0.0, 1.0) * u64::MAX as f64) as u64,
            random: RandomState::new(),
            made: AtomicU64::new(0),
            queue: sender,
            exporter: Mutex::new(Some(exporter)),
            counts,
        })))
    }

    /// New spans, under the caller's if it is recorded, or of a new trace if that is to be. `None`: nothing is recorded.
    pub(super) fn make(&self, parent: Option<TraceParent>) -> Option<Made> {
        let (request, onward) = (self.span(), self.span());
        match parent {
            Some(parent) if parent.is_sampled() => {
                let (trace, flags) = (parent.trace, parent.flags);
                Some(Made { trace, parent: Some(parent.span), request, onward, flags })
            }
            Some(_) => None,
            None => {
                let (first, second) = (self.number(), self.number());
                let mut trace = [0; 16];
                trace[..8].copy_from_slice(&first.to_be_bytes());
                trace[8..].copy_from_slice(&second.to_be_bytes());
                // By its own number, as others down the line decide too.
                (second <= self.threshold && self.threshold > 0).then_some(Made {
                    trace,
                    parent: None,
                    request,
                    onward,
                    flags: 1,
                })
            }
        }
    }

    /// Takes what is over, if there is room.
    pub(super) fn take(&self, finished: Finished) {
        let spans = finished.spans();
        if self.queue.try_send(Message::Trip(Box::new(finished))).is_err() {
            self.counts.dropped.fetch_add(spans, Relaxed);
        }
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Sends what comes, from now on, as long as anybody can send anything.
    pub(super) fn tend(&self) {
        if let Some(exporter) = self.exporter.lock().unwrap_or_else(PoisonError::into_inner).take() {
            tokio::spawn(exporter.run());
        }
    }

    /// Waits until everything so far was sent, but not for long.
    pub(super) async fn flush(&self) {
        let (tell, told) = oneshot::channel();
        let flush = async {
            if self.queue.send(Message::Flush(tell)).await.is_ok() {
                let _ = told.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, flush).await;
    }

    fn span(&self) -> [u8; 8] {
        self.number().to_be_bytes()
    }

    /// A number that nobody can foresee, and that is not zero.
    fn number(&self) -> u64 {
        self.random.hash_one(self.made.fetch_add(1, Relaxed)).max(1)
    }
}

// === impl Made ===

impl Made {
    /// What the server is told.
    pub(super) fn for_server(self) -> TraceParent {
        TraceParent { trace: self.trace, span: self.onward, flags: self.flags }
    }
}

// === impl Exporter ===

impl Exporter {
    async fn run(mut self) {
        let mut messages = Vec::new();
        while self.queue.recv_many(&mut messages, TOGETHER).await > 0 {
            let is_waited_for =
                |messages: &[Message]| messages.iter().any(|m| matches!(m, Message::Flush(_)));
            if messages.len() < TOGETHER && !is_waited_for(&messages) {
                let gather = async {
                    while messages.len() < TOGETHER && !is_waited_for(&messages) {
                        let room = TOGETHER - messages.len();
                        if self.queue.recv_many(&mut messages, room).await == 0 {
                            return;
                        }
                    }
                };
                let _ = tokio::time::timeout(GATHER, gather).await;
            }
            let (mut trips, mut waiting) = (Vec::new(), Vec::new());
            for message in messages.drain(..) {
                match message {
                    Message::Trip(trip) => trips.push(trip),
                    Message::Flush(tell) => waiting.push(tell),
                }
            }
            let spans: u64 = trips.iter().map(|trip| trip.spans()).sum();
            let sent = trips.is_empty() || self.send(&trips).await;
            let count = if sent { &self.counts.exported } else { &self.counts.failed };
            count.fetch_add(spans, Relaxed);
            waiting.into_iter().for_each(|tell| tell.send(()).unwrap_or_default());
        }
    }

    /// Whether the collector has taken them.
    async fn send(&self, trips: &[Box<Finished>]) -> bool {
        let spans: Vec<Value> = trips.iter().flat_map(|trip| trip.written()).collect();
        let scope = json!({ "name": "wharf", "version": env!("CARGO_PKG_VERSION") });
        let scoped = json!([{ "scope": scope, "spans": spans }]);
        let body = json!({ "resourceSpans": [{ "resource": self.resource, "scopeSpans": scoped }] });
        let mut request = Request::post(&self.url).header(CONTENT_TYPE, "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value.expose());
        }
        let Ok(request) = request.body(Full::new(Bytes::from(body.to_string()))) else { return false };
        let sending = async {
            let answer = self.endpoint.send(request).await.ok()?;
            let is_taken = answer.status().is_success();
            // Read to its end, so that the connection can be used again.
            let _ = read_body(answer.into_body(), ANSWER).await;
            Some(is_taken)
        };
        matches!(tokio::time::timeout(PATIENCE, sending).await, Ok(Some(true)))
    }
}

// === impl Finished ===

/// What a span is to the one that makes it.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// A span that did not go well.
const FAILED: u8 = 2;

impl Finished {
    fn spans(&self) -> u64 {
        1 + u64::from(self.onward.as_ref().is_some_and(|onward| onward.sent))
    }

    /// The spans as OTLP writes them.
    fn written(&self) -> Vec<Value> {
        let Made { trace, parent, request, onward, .. } = self.made;
        let mut attributes = vec![text("mcp.method.name", self.method)];
        let called = self.onward.as_ref();
        let target = called.and_then(|called| {
            let tool = Escaped(called.tool.as_ref()?.as_str()).to_string();
            attributes.push(text("gen_ai.operation.name", "execute_tool"));
            attributes.push(text("gen_ai.tool.name", &tool));
            Some(tool)
        });
        let name = target.map_or_else(|| self.method.to_owned(), |tool| format!("{} {tool}", self.method));
        if let Some(server) = called.and_then(|called| called.server.as_ref()) {
            attributes.push(text("wharf.server.name", server.as_str()));
        }
        let mut outer = attributes.clone();
        if let Some(code) = self.code {
            outer.push(text("rpc.response.status_code", &code.to_string()));
        }
        let own_error = match (self.cancelled, self.code, called.and_then(|called| called.error)) {
            (true, ..) => Some("cancelled".to_owned()),
            (false, _, Some(kind)) => Some(kind.to_owned()),
            (false, Some(code), None) => Some(code.to_string()),
            (false, None, None) => None,
        };
        let times = (Duration::ZERO, self.took);
        let mut spans = vec![self.span((trace, request, parent), (&name, SERVER), times, (outer, own_error))];
        if let Some(called) = called.filter(|called| called.sent) {
            let times = (called.began, called.ended.unwrap_or(self.took));
            let error = called.error.map(str::to_owned);
            let of = (trace, onward, Some(request));
            spans.push(self.span(of, (&name, CLIENT), times, (attributes, error)));
        }
        spans
    }

    fn span(
        &self,
        (trace, id, parent): ([u8; 16], [u8; 8], Option<[u8; 8]>),
        (name, kind): (&str, u8),
        (from, to): (Duration, Duration),
        (mut attributes, error): (Vec<Value>, Option<String>),
    ) -> Value {
        let since = self.began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = |after: Duration| (since + after).as_nanos().to_string();
        if let Some(error) = &error {
            attributes.push(text("error.type", error));
        }
        let mut span = json!({
            "traceId": Hex(&trace).to_string(),
            "spanId": Hex(&id).to_string(),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": at(from),
            "endTimeUnixNano": at(to),
            "attributes": attributes,
            "status": if error.is_some() { json!({ "code": FAILED }) } else { json!({}) },
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = json!(Hex(&parent).to_string());
        }
        span
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}
