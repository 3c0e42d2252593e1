//! The trace that a caller's request belongs to: carried on as it came, or with a span of ours in between.
//!
//! In: `_meta` and the headers of a request. Out: what of it goes on to the server, and, where traces are made, a
//! [`Trip`] that is told as two spans when it is over: the caller's request to us, and ours to the server. Arguments and
//! results are in neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::h1::{Head, Usual};
use super::telemetry::{Finished, Made, Tracer};
use crate::error::Error;
use crate::mcp::trace::{self, TraceParent, key};
use crate::names::{ServerName, ToolName};
use crate::outcome::Outcome;
use crate::wire::{Json, Members, RpcError};

/// What the headers of a request say of its trace. Most say nothing.
#[derive(Debug)]
pub(super) struct Carried {
    parent: TraceParent,
    state: Option<String>,
    baggage: Option<String>,
}

/// A request on its way, for as long as it is under way. Dropped before its end, it was cancelled.
#[derive(Debug)]
pub(super) struct Trip {
    tracer: Arc<Tracer>,
    made: Made,
    method: &'static str,
    began: SystemTime,
    since: Instant,
    onward: Mutex<Option<Onward>>,
    is_over: AtomicBool,
}

/// The request to the server.
#[derive(Debug)]
pub(super) struct Onward {
    pub(super) began: Duration,
    pub(super) ended: Option<Duration>,
    /// Whether there was one: what is refused before it leaves is nobody's request.
    pub(super) sent: bool,
    pub(super) server: Option<ServerName>,
    pub(super) tool: Option<ToolName>,
    /// The kind of error, if it is one.
    pub(super) error: Option<&'static str>,
}

/// All that is said of a trace.
pub(super) const KEYS: [&str; 3] = [key::PARENT, key::STATE, key::BAGGAGE];

// === impl Carried ===

impl Carried {
    /// Reads headers. What is not valid is as if it were not there.
    pub(super) fn of(head: &Head) -> Option<Box<Self>> {
        let parent = TraceParent::parse(head.usual_text(Usual::TraceParent)?)?;
        let other = |name, is_valid: fn(&str) -> bool| {
            head.one(name).filter(|text| is_valid(text)).map(str::to_owned)
        };
        let (state, baggage) = (other(key::STATE, trace::is_state), other(key::BAGGAGE, trace::is_baggage));
        Some(Box::new(Self { parent, state, baggage }))
    }
}

/// What goes on of `_meta`: everything but what is between neighbours, and of the trace what is valid. `found` are the
/// members of a trace that are in it.
pub(super) fn passed_on(
    told: &Json,
    left_out: &[&str],
    found: [Option<Json>; 3],
    carried: Option<&Carried>,
) -> (Members, Option<TraceParent>) {
    let mut meta = Members::default();
    if carried.is_none() && found.iter().all(Option::is_none) {
        meta.append_without(told, left_out);
        return (meta, None);
    }
    let read = |json: &Option<Json>, is_valid: fn(&str) -> bool| {
        json.as_ref().and_then(Json::text).filter(|text| is_valid(text)).map(|text| text.into_owned())
    };
    let [parent, state, baggage] = &found;
    let own = parent.as_ref().and_then(Json::text).and_then(|text| TraceParent::parse(&text));
    let own_state = own.and_then(|_| read(state, trace::is_state));
    let own_baggage = read(baggage, trace::is_baggage);
    let all_valid = parent.is_some() == own.is_some()
        && state.is_some() == own_state.is_some()
        && baggage.is_some() == own_baggage.is_some();
    if all_valid && own.is_some() {
        meta.append_without(told, left_out);
        return (meta, own);
    }
    let left_out: Vec<&str> = left_out.iter().copied().chain(KEYS).collect();
    meta.append_without(told, &left_out);
    let (parent, state, baggage) = match (own, carried) {
        (Some(parent), _) => (Some(parent), own_state, own_baggage),
        (None, Some(c)) => (Some(c.parent), c.state.clone(), own_baggage.or_else(|| c.baggage.clone())),
        (None, None) => (None, None, own_baggage),
    };
    let written = [parent.map(|parent| parent.to_string()), state, baggage];
    for (name, text) in KEYS.into_iter().zip(written) {
        if let Some(text) = text {
            meta.text(name, &text);
        }
    }
    (meta, parent)
}

/// The same `_meta` with another parent.
pub(super) fn under(meta: &Members, parent: TraceParent) -> Members {
    let mut under = Members::default();
    under.append_without(&meta.to_json(), &[key::PARENT]);
    under.text(key::PARENT, &parent.to_string());
    under
}

// === impl Trip ===

impl Trip {
    pub(super) fn new(tracer: &Arc<Tracer>, made: Made, method: &'static str) -> Arc<Self> {
        Arc::new(Self {
            tracer: Arc::clone(tracer),
            made,
            method,
            began: SystemTime::now(),
            since: Instant::now(),
            onward: Mutex::default(),
            is_over: AtomicBool::new(false),
        })
    }

    /// It goes on to a server now.
    pub(super) fn goes_on(&self) {
        let began = self.since.elapsed();
        let error = Some("cancelled");
        self.set(Onward { began, ended: None, sent: true, server: None, tool: None, error });
    }

    /// The server has answered, or it has ended otherwise.
    pub(super) fn came_back(&self, server: Option<&ServerName>, outcome: Result<Option<&Outcome>, &Error>) {
        let mut onward = self.onward.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(onward) = onward.as_mut() else { return };
        onward.ended = Some(self.since.elapsed());
        onward.server = server.cloned();
        onward.error = match outcome {
            Err(error) => Some(error.kind()),
            Ok(None) => None,
            Ok(Some(outcome)) => {
                onward.tool = outcome.tool.clone();
                match &outcome.error {
                    Some(error) => Some(error.kind()),
                    // As the conventions call it.
                    None => (!outcome.success).then_some("tool_error"),
                }
            }
        };
        let failure = match outcome {
            Ok(outcome) => outcome.and_then(|outcome| outcome.error.as_deref()),
            Err(error) => Some(error),
        };
        onward.sent = failure.is_none_or(Error::was_sent);
    }

    /// The caller is answered.
    pub(super) fn end(&self, answer: Result<&Json, &RpcError>) {
        self.finish(answer.err().map(|error| error.code), false);
    }

    fn set(&self, onward: Onward) {
        *self.onward.lock().unwrap_or_else(PoisonError::into_inner) = Some(onward);
    }

    fn finish(&self, code: Option<i64>, cancelled: bool) {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        let onward = self.onward.lock().unwrap_or_else(PoisonError::into_inner).take();
        let took = self.since.elapsed();
        let (made, method, began) = (self.made, self.method, self.began);
        self.tracer.take(Finished { made, method, began, took, code, cancelled, onward });
    }
}

impl Drop for Trip {
    fn drop(&mut self) {
        self.finish(None, true);
    }
}
