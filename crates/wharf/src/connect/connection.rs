//! A live connection: raw parameters in, raw result out, exactly one end for every request.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::breaker::Breaker;
use super::company::{Companion, Meta, Told, add_meta};
use super::inbox::{Closed, Failure, Inbox, Strays};
use super::life::{Life, Progress};
use super::link::{Link, LinkFailure, Outgoing, Sent};
use super::listen::LISTS;
use super::timekeeper;
use super::waiting::Waiting;
use crate::error::{Error, Light, Result, StderrTail};
use crate::mcp::{Era, LogLevel, ServerInfo, meta, method};
use crate::names::{ServerName, ToolName};
use crate::policy::Rare;
use crate::wire::{self, Json, Members};

/// A connection to one server in one era. Cheap to clone; the last clone that goes closes it.
#[derive(Clone)]
pub struct Connection(pub(super) Arc<Held>);

/// What the clones of a connection share. When it goes the connection ends, though tasks of its own still hold it.
pub(super) struct Held(Arc<Live>);

pub(super) struct Live {
    number: u64,
    pub(super) wire: Wire,
    pub(super) info: ServerInfo,
    /// Who we say we are, and what we offer, where a request says nothing else.
    ours: (Json, Json),
    /// The `_meta` that every request carries in the modern era.
    pub(super) meta: Members,
    /// The same with the level of its log, where somebody wants one.
    pub(super) logging_meta: Rare<Members>,
    /// Hears how calls end, and lets none through to a server that fails. Absent where nobody keeps the connection.
    breaker: OnceLock<Arc<Breaker>>,
    /// How many checks in a row it missed. It ends with the connection: the next one has missed none.
    pub(super) missed: AtomicU32,
}

/// A link with its inbox, before and after the handshake.
pub(super) struct Wire {
    pub(super) server: ServerName,
    pub(super) transport: &'static str,
    pub(super) link: Link,
    pub(super) inbox: Arc<Inbox>,
}

/// One request.
pub struct Request<'a> {
    /// What is asked.
    pub method: &'a str,
    /// With what, without `_meta`.
    pub params: Members,
    /// The tool, for `tools/call`: errors name it.
    pub tool: Option<&'a ToolName>,
    /// What the request is about, for transports that say it in a header: a tool, a prompt, a resource.
    pub name: Option<&'a str>,
    /// Headers that mirror arguments, for transports that have headers.
    pub headers: Vec<(String, String)>,
    /// How long to wait without a sign of life.
    pub timeout: Duration,
    /// How long to wait whatever the signs.
    pub hard_timeout: Duration,
    /// How long its server may be silent by its own settings, as they are now. Whoever gave it less learned nothing of it.
    pub(crate) usual: Duration,
    /// From when on, if not from when it is sent.
    pub(crate) started: Option<Instant>,
    /// Who hears of progress, in order, before the answer.
    pub on_progress: Option<&'a mut (dyn FnMut(Progress) + Send)>,
    /// What the server is told of whoever it is made for, in place of what we say of ourselves.
    pub told: Option<&'a Told>,
    /// Who goes with it, if it is made for somebody else.
    pub companion: Option<Arc<dyn Companion>>,
    /// It stays open to hear news, and nobody waits for its answer. What the server agrees to goes here.
    pub(super) standing: Option<mpsc::Sender<Json>>,
}

/// How far the hard limit lies behind the timeout, unless the caller says otherwise.
const HARD_FACTOR: u32 = 20;
/// Steps of progress that may wait for a slow listener.
const PROGRESS_WAITING: usize = 1024;

// === impl Request ===

impl<'a> Request<'a> {
    /// A request with its timeout, which is the server's own; it lives at most twenty times as long on signs of life.
    pub fn new(method: &'a str, params: Members, timeout: Duration) -> Self {
        let hard_timeout = timeout.saturating_mul(HARD_FACTOR);
        Self {
            method,
            params,
            tool: None,
            name: None,
            headers: Vec::new(),
            timeout,
            hard_timeout,
            usual: timeout,
            started: None,
            on_progress: None,
            told: None,
            companion: None,
            standing: None,
        }
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

// === impl Connection ===

impl Connection {
    pub(super) fn new(wire: Wire, info: ServerInfo, ours: (Json, Json), meta: Members) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (logging_meta, breaker, missed) = (Rare::default(), OnceLock::new(), AtomicU32::new(0));
        Self(Arc::new(Held(Arc::new(Live { number, wire, info, ours, meta, logging_meta, breaker, missed }))))
    }

    /// From now on calls are let through by this, once and for all.
    pub(super) fn guard(&self, breaker: &Arc<Breaker>) {
        let _ = self.0.0.breaker.set(Arc::clone(breaker));
    }

    /// For tasks of the connection's own.
    pub(super) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.0.0)
    }

    /// A number that no other connection of this process has.
    pub fn number(&self) -> u64 {
        self.0.0.number
    }

    /// The server it leads to.
    pub fn server(&self) -> &ServerName {
        &self.0.0.wire.server
    }

    /// What the server told about itself.
    pub fn info(&self) -> &ServerInfo {
        &self.0.0.info
    }

    /// `stdio`, `http`, `sse`, `ws` or `unix`.
    pub fn transport(&self) -> &'static str {
        self.0.0.wire.transport
    }

    /// Whether it can still be used.
    pub fn is_open(&self) -> bool {
        !self.0.0.wire.inbox.is_closed()
    }

    /// What arrived that nobody was waiting for.
    pub fn strays(&self) -> Strays {
        self.0.0.wire.inbox.strays()
    }

    /// Sends a request and waits for its end. Dropping the future cancels it, and the server is told.
    pub async fn request(&self, mut request: Request<'_>) -> Result<Json> {
        self.carry(&mut request).await.map_err(|error| *error)
    }

    /// The same for the way of a call.
    pub(crate) async fn carry(&self, request: &mut Request<'_>) -> Light<Json> {
        let live = &*self.0.0;
        let passage = match live.breaker.get().filter(|_| is_call(request)) {
            Some(breaker) => Some(breaker.enter()?),
            None => None,
        };
        let modern = live.info.revision.era() == Era::Modern;
        let logging;
        let meta = match request.told {
            Some(told) if modern => Meta::Told(told, live.info.revision, &live.ours),
            Some(told) => Meta::Of(&told.meta),
            None if modern => {
                logging = live.logging_meta.get();
                Meta::Of(logging.as_deref().unwrap_or(&live.meta))
            }
            None => Meta::None,
        };
        let ended = live.wire.attempt(request, meta).await;
        let was_silent = ended.is_silence_of(request.usual);
        let ended = live.wire.judge(ended, request);
        if let Some(passage) = passage {
            passage.called((self.number(), self.is_open()), was_silent, &ended);
        }
        ended
    }

    /// From now on every request asks for log messages of this level and graver ones. Only the modern era has it so.
    pub(crate) fn log_from(&self, level: LogLevel) {
        let mut meta = self.0.0.meta.clone();
        meta.text(meta::LOG_LEVEL, level.as_str());
        self.0.0.logging_meta.put(Arc::new(meta));
    }

    /// Sends a notification, after everything that was sent before it.
    pub fn notify(&self, method: &str, params: &Members) {
        self.0.0.wire.link.notify(wire::notification(method, params));
    }

    /// A modern server tells of changes only to those who asked for it.
    pub(super) fn follow_changes(&self) {
        let mut wanted = Members::default();
        for (capability, key, _) in LISTS {
            if self.info().offers_flag(capability, "listChanged") {
                wanted.json(key, &Json::of(&true));
            }
        }
        if !wanted.is_empty() {
            self.listen(wanted.to_json());
        }
    }

    /// Whether no call is under way on it.
    pub(super) fn is_idle(&self) -> bool {
        self.0.0.wire.inbox.is_idle()
    }

    /// Gives it up: it is there, and nobody is at its other end.
    pub(super) fn lose(&self, reason: String) {
        self.0.0.wire.inbox.close(Closed { reason, protocol: false });
    }

    /// Ends it politely, and waits until nothing is left. Closing twice is closing once.
    pub async fn close(&self) {
        self.0.0.wire.inbox.close(Closed::by_us());
        self.0.0.wire.link.close().await;
    }

    /// Waits until it ends, and says why. Does not keep it alive.
    pub(super) fn ended(&self) -> impl Future<Output = Closed> + Send + 'static {
        let inbox = Arc::clone(&self.0.0.wire.inbox);
        async move { inbox.until_closed().await }
    }

    /// For how much longer the server wants to be left alone, if it said so.
    pub(crate) fn asked_to_wait(&self) -> Option<Duration> {
        self.0.0.wire.inbox.asked_to_wait()
    }

    /// What a person should know of a call that failed with these words, if the server is confined and they tell.
    pub(crate) fn advice(&self, said: &str) -> Option<String> {
        self.0.0.wire.link.advice(said)
    }

    /// The last lines of its standard error.
    pub fn stderr(&self) -> StderrTail {
        self.0.0.wire.link.stderr()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({}, {}, {})", self.server(), self.transport(), self.info().revision)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.wire.inbox.close(Closed { reason: "it was closed".into(), protocol: false });
    }
}

// === impl Wire ===

impl Wire {
    /// Sends a request and waits for its end.
    pub(super) async fn attempt(&self, request: &mut Request<'_>, meta: Meta<'_>) -> Ended {
        let (sink, mut steps) = match request.on_progress {
            Some(_) => {
                let (sink, steps) = mpsc::channel(PROGRESS_WAITING);
                (Some(sink), Some(steps))
            }
            None => (None, None),
        };
        let started = request.started.unwrap_or_else(Instant::now);
        let (standing, companion) = (request.standing.take(), request.companion.take());
        let life = Life::new(started, sink, request.tool.cloned(), standing, companion);
        let (ticket, crowded) = match self.inbox.register(Arc::clone(&life)) {
            Ok(registered) => registered,
            Err(closed) => return Ended::Failed(LinkFailure::NotSent(closed.reason)),
        };
        timekeeper::keep(&self.inbox);
        let mut flight =
            InFlight { wire: self, id: ticket.0, waits: true, landed: request.method == method::INITIALIZE };
        add_meta(request, meta, ticket.0);
        let frame = wire::request(ticket.0, request.method, std::mem::take(&mut request.params));
        let out = Outgoing {
            id: ticket.0,
            method: request.method,
            name: request.name,
            frame,
            headers: &request.headers,
            crowded,
        };

        let waiting = Waiting { wire: self, life, timeout: request.timeout, hard: request.hard_timeout };
        let ended = waiting.run(out, &mut steps, &mut request.on_progress).await;
        flight.landed |= !matches!(ended, Ended::TimedOut { .. });
        flight.waits = !matches!(ended, Ended::Answer(_));
        ended
    }

    /// What the end of a request means.
    pub(super) fn judge(&self, ended: Ended, request: &Request<'_>) -> Light<Json> {
        match ended {
            Ended::Answer(Ok(result)) => Ok(result),
            Ended::Answer(Err(failure)) => Err(Box::new(self.refused(failure, request))),
            Ended::Gone(closed, sent) if closed.protocol => {
                let sent = request.tool.is_some() && self.link.reached(sent);
                Err(Box::new(self.broken(closed.reason, sent)))
            }
            Ended::Gone(closed, sent) if self.link.reached(sent) => {
                Err(Box::new(self.lost(closed.reason, request)))
            }
            Ended::Gone(closed, _) => Err(Box::new(self.not_sent(closed.reason))),
            Ended::TimedOut { after, .. } => {
                let (server, stderr) = (self.server.clone(), self.link.stderr());
                Err(Box::new(Error::Timeout { server, after, sent: request.tool.is_some(), stderr }))
            }
            Ended::Failed(failure) => Err(Box::new(self.failed(failure, request))),
        }
    }

    fn refused(&self, failure: Failure, request: &Request<'_>) -> Error {
        let server = self.server.clone();
        match failure {
            Failure::Rpc(rpc) => {
                let rpc = self.inbox.monitor.clean(rpc);
                match request.tool {
                    Some(tool) => Error::Tool { server, tool: tool.clone(), rpc },
                    None => Error::Rpc { server, method: request.method.to_owned(), rpc },
                }
            }
            Failure::Malformed(reason) => {
                let reason = format!("its answer to `{}` cannot be taken: {reason}", request.method);
                self.broken(reason, request.tool.is_some())
            }
            Failure::Closed(closed) => self.lost(closed.reason, request),
        }
    }

    fn broken(&self, reason: String, sent: bool) -> Error {
        Error::Protocol { server: self.server.clone(), reason, sent, stderr: self.link.stderr() }
    }

    pub(super) fn failed(&self, failure: LinkFailure, request: &Request<'_>) -> Error {
        if let LinkFailure::Status { retry_after: Some(wait), .. } = &failure {
            self.inbox.rest(*wait);
        }
        match failure {
            LinkFailure::NotSent(reason) => self.not_sent(reason),
            LinkFailure::Barred(error) => *error,
            LinkFailure::Unreached(error) => error.into_error(&self.server, self.transport),
            LinkFailure::Lost(reason) => self.lost(reason, request),
            LinkFailure::SessionExpired => {
                self.not_sent("the server does not know our session any more".into())
            }
            LinkFailure::Status { status: status @ (401 | 403), challenge, body, .. } => Error::Auth {
                server: self.server.clone(),
                reason: format!("HTTP status {status} {}", challenge.unwrap_or(body)).trim_end().to_owned(),
            },
            // Somewhere on the way it failed; whether before or after it was run, nobody knows.
            LinkFailure::Status { status, body, .. } if status >= 500 => {
                self.lost(status_reason(status, &body), request)
            }
            // It was sent: that it was not run is the server's word.
            LinkFailure::Status { status: 429, body, retry_after, .. }
                if request.method == method::TOOLS_CALL =>
            {
                let (server, reason) = (self.server.clone(), status_reason(429, &body));
                Error::Busy { server, reason, retry_after }
            }
            LinkFailure::Status { status, body, .. } => Error::Connection {
                server: self.server.clone(),
                transport: self.transport,
                reason: status_reason(status, &body),
                stderr: StderrTail::default(),
                retryable: status == 429,
            },
        }
    }

    /// It never left: it may be sent again.
    fn not_sent(&self, reason: String) -> Error {
        Error::Connection {
            server: self.server.clone(),
            transport: self.transport,
            reason,
            stderr: self.link.stderr(),
            retryable: true,
        }
    }

    /// It left and nobody knows what became of it. Only a tool call may have had an effect.
    fn lost(&self, reason: String, request: &Request<'_>) -> Error {
        if request.method != method::TOOLS_CALL {
            return self.not_sent(reason);
        }
        let (server, method) = (self.server.clone(), request.method.to_owned());
        Error::UnknownOutcome { server, method, reason, stderr: self.link.stderr() }
    }
}

/// Whether a caller waits for it. Lists and signs of life are our own.
fn is_call(request: &Request<'_>) -> bool {
    request.tool.is_some() || matches!(request.method, method::RESOURCES_READ | method::PROMPTS_GET)
}

fn status_reason(status: u16, body: &str) -> String {
    let colon = if body.is_empty() { "" } else { ": " };
    format!("the server answered with HTTP status {status}{colon}{body}")
}

/// How a request ended, before it is judged.
pub(super) enum Ended {
    Answer(Result<Json, Failure>),
    /// The connection ended; whether the request had left can be told from where it started in the stream.
    Gone(Closed, Sent),
    TimedOut {
        /// Since it began.
        after: Duration,
        /// For how long there had been no sign of life.
        silence: Duration,
    },
    Failed(LinkFailure),
}

impl Ended {
    pub(super) fn of(answer: Result<Json, Failure>, sent: Sent) -> Self {
        match answer {
            Err(Failure::Closed(closed)) => Self::Gone(closed, sent),
            answer => Self::Answer(answer),
        }
    }

    /// It could not be carried, unless its answer came in the same moment.
    pub(super) fn failed(failure: LinkFailure, life: &Life) -> Self {
        life.take_answer().map_or(Self::Failed(failure), |answer| Self::of(answer, Sent(u64::MAX)))
    }

    /// Whether it ended because the server was silent for so long, whatever the limit that ended it.
    fn is_silence_of(&self, long: Duration) -> bool {
        matches!(self, Self::TimedOut { silence, .. } if *silence >= long)
    }
}

/// A request under way. Dropped before its end, it tells the server that nobody waits any more.
struct InFlight<'a> {
    wire: &'a Wire,
    id: u64,
    /// Its answer has not come, so it waits in the inbox.
    waits: bool,
    landed: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.waits && self.wire.inbox.forget(self.id) && !self.landed {
            let mut params = Members::new();
            params.number("requestId", self.id).text("reason", "the caller gave up");
            self.wire.link.cancel(wire::notification(method::CANCELLED, &params));
        }
    }
}
