//! The host served to others, as one MCP server.
//!
//! In: bytes of callers, over HTTP, a WebSocket, a Unix socket or a pipe, in either era. Out: their answers. Each edge speaks its own era; `desk`
//! between them knows neither. Who may call what is `policy`'s to say, and what a server answered is passed on as the
//! bytes it came in.

mod accept;
mod addresses;
mod apps;
mod asking;
mod barred;
mod batch;
mod bell;
mod bench;
mod body;
mod caller;
mod calls;
mod capabilities;
mod clock;
mod consent;
mod desk;
mod ending;
mod errands;
mod guard;
mod h1;
mod hearing;
mod http;
mod incoming;
mod leaving;
mod legacy;
mod limits;
mod line;
mod listen;
mod lists;
mod marks;
mod metrics;
mod mirrored;
mod modern;
mod news;
mod notes;
mod offers;
mod outgoing;
mod pages;
mod parked;
mod probes;
mod ready;
mod reel;
mod required;
mod resource;
mod seal;
mod sse;
mod stay;
mod stdio;
mod tasks;
mod telemetry;
mod terms;
#[cfg(test)]
mod tests;
mod trace;
mod undressed;
mod unix;
mod visit;
mod watching;
mod websocket;

pub use caller::{Callers, Key};
#[doc(hidden)]
pub use h1::{RequestHead, read_request_head};
pub use terms::Terms;
pub use unix::UnixDoor;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use url::Url;

use crate::config::{CallLimits, CallerTable, JwtSettings, TelemetrySettings};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::names::{CallerName, ServerName};
use crate::wire::Limits;
use barred::Barred;
use desk::Desk;
use ending::Shift;
use limits::Gate;
use telemetry::Tracer;
use terms::Admission;

/// A host that is served to others. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// As it is served at one door; see [`Gateway::at_a_door`].
    desk: Arc<Shift>,
    settings: Arc<Settings>,
}

/// What goes on at a gateway, at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How many calls are under way or wait.
    pub calls: usize,
    /// Another number when something was asked or answered since the look before.
    pub moves: u64,
}

/// Collects what a gateway needs. Each setting names its default.
#[derive(Debug)]
pub struct GatewayBuilder {
    host: Host,
    name: (String, String),
    instructions: Option<String>,
    terms: Terms,
    telemetry: TelemetrySettings,
    settings: Settings,
}

/// How callers are received.
#[derive(Debug)]
struct Settings {
    /// Who is let in now.
    admission: ArcSwap<Admission>,
    /// Told whenever that is somebody else.
    adopted: watch::Sender<()>,
    /// Where it listens. Held while the terms are replaced.
    listening: Mutex<Vec<SocketAddr>>,
    /// Where callers reach the gateway, if that is not where it listens.
    url: Option<Url>,
    hosts: Vec<String>,
    origins: Vec<String>,
    limits: Limits,
    body: usize,
    connections: usize,
    drain: Duration,
}

// === impl Gateway ===

impl Gateway {
    /// Starts to build a gateway in front of a host.
    pub fn builder(host: Host) -> GatewayBuilder {
        let nobody = Admission::new(Callers::default(), None, &host);
        let settings = Settings {
            admission: ArcSwap::from_pointee(nobody),
            adopted: watch::Sender::new(()),
            listening: Mutex::default(),
            url: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            limits: Limits::default(),
            body: 4 * 1024 * 1024,
            connections: 4096,
            drain: Duration::from_secs(10),
        };
        let name = ("wharf".into(), env!("CARGO_PKG_VERSION").into());
        let (terms, telemetry) = (Terms::default(), TelemetrySettings::default());
        GatewayBuilder { host, name, instructions: None, terms, telemetry, settings }
    }

    /// Serves callers that connect, by HTTP or WebSocket, until `stop` is ready: then no new call is taken, those under way have a moment to
    /// end, and the rest are cancelled and told so. Dropped, everything that was let in ends at once. Other doors of the same gateway go
    /// on, and it can be served again.
    pub async fn serve_http(&self, listener: TcpListener, stop: impl Future<Output = ()>) -> Result<()> {
        let at = listener
            .local_addr()
            .map_err(|e| Error::Internal(format!("the listener has no address: {e}")))?;
        let _listening = self.listen_at(at)?;
        self.keep_watch();
        http::serve(&self.at_a_door(), listener, stop).await;
        self.flush().await;
        Ok(())
    }

    /// Serves callers of our own user at a Unix socket, until `stop` is ready: then as over HTTP. The socket goes with it.
    pub async fn serve_unix(&self, door: UnixDoor, stop: impl Future<Output = ()>) {
        unix::serve(&self.at_a_door(), door, stop).await;
        self.flush().await;
    }

    /// Serves one caller over a pipe, until its input ends, or until `stop` is ready: then as over HTTP.
    pub async fn serve_stdio(
        &self,
        input: impl AsyncBufRead + Unpin,
        output: impl AsyncWrite + Unpin + Send + 'static,
        stop: impl Future<Output = ()>,
    ) -> Result<()> {
        let served = stdio::serve(&self.at_a_door(), (input, output), stop).await;
        self.flush().await;
        served
    }

    /// What goes on. Whoever only listens for news does not count.
    pub fn pace(&self) -> Pace {
        Pace { calls: self.desk.gate.calls(), moves: self.desk.benches.moves() }
    }

    /// The same gateway at a door of its own: when it closes, others stay open, and another may be opened.
    fn at_a_door(&self) -> Self {
        self.desk.desk().tend(&self.settings);
        Self { desk: Shift::begin(self.desk.desk()), settings: Arc::clone(&self.settings) }
    }

    /// Listens there from now on, if it may.
    fn listen_at(&self, at: SocketAddr) -> Result<Listening<'_>> {
        let mut all = self.settings.listening.lock().unwrap_or_else(PoisonError::into_inner);
        self.may_listen(at)?;
        all.push(at);
        Ok(Listening { all: &self.settings.listening, at })
    }

    /// Spans that wait are sent before the end.
    async fn flush(&self) {
        if let Some(tracer) = &self.desk.tracer {
            tracer.flush().await;
        }
    }

    /// Every counter there is, in the text format of Prometheus: what `/metrics` answers.
    pub fn metrics(&self) -> String {
        metrics::page(self)
    }

    /// Where anybody can knock, everybody is asked who they are. Nobody is contacted.
    pub fn may_listen(&self, at: SocketAddr) -> Result<()> {
        self.settings.admission.load().may_listen(at, self.settings.url.is_some())
    }
}

/// An address that is listened at until this is dropped.
struct Listening<'a> {
    all: &'a Mutex<Vec<SocketAddr>>,
    at: SocketAddr,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| *known != self.at);
    }
}

// === impl GatewayBuilder ===

impl GatewayBuilder {
    /// On which terms callers are received, all at once; see [`Gateway::adopt`].
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Who may call. Defaults to anyone on this machine.
    #[must_use]
    pub fn callers(mut self, callers: Callers) -> Self {
        self.terms.callers = callers;
        self
    }

    /// Takes tokens of an issuer too. Its keys are fetched by the host's own rules for addresses.
    #[must_use]
    pub fn tokens(mut self, settings: JwtSettings) -> Self {
        self.terms.tokens = Some(settings);
        self
    }

    /// Where callers reach the gateway: what tokens must be made for, and what is told to whoever has none. Defaults to
    /// where it listens.
    #[must_use]
    pub fn url(mut self, url: Url) -> Self {
        self.settings.url = Some(url);
        self
    }

    /// What each caller is given. Defaults to everything for whoever is let in.
    #[must_use]
    pub fn rules(mut self, rules: CallerTable) -> Self {
        self.terms.rules = Some(rules);
        self
    }

    /// How much callers may ask for at a time.
    #[must_use]
    pub fn limits(mut self, limits: CallLimits) -> Self {
        self.terms.limits = limits;
        self
    }

    /// Further names that the gateway may be called by in `Host`. Defaults to the names of this machine for itself, the
    /// host of its URL, and the address where it listens, if that is one.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.settings.hosts.extend(hosts);
        self
    }

    /// Web pages that may call, as `https://name:port`. Defaults to none.
    #[must_use]
    pub fn origins(mut self, origins: impl IntoIterator<Item = String>) -> Self {
        self.settings.origins.extend(origins);
        self
    }

    /// What callers are told about the server. Defaults to Wharf's own name and version.
    #[must_use]
    pub fn info(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.name = (name.into(), version.into());
        self
    }

    /// What a model should know about the tools. Defaults to nothing.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// The largest request that is read. Defaults to 4 MiB, and to 10 MiB over stdio.
    #[must_use]
    pub fn largest_request(mut self, bytes: usize) -> Self {
        (self.settings.body, self.settings.limits.line) = (bytes, bytes);
        self
    }

    /// How many connections are open at a time. Defaults to 4096.
    #[must_use]
    pub fn connections(mut self, count: usize) -> Self {
        self.settings.connections = count;
        self
    }

    /// How long calls may go on after the stop. Defaults to 10 seconds.
    #[must_use]
    pub fn drain(mut self, time: Duration) -> Self {
        self.settings.drain = time;
        self
    }

    /// Where traces go. Defaults to nowhere: then none are made, and what callers say of theirs is passed on as it is.
    /// The collector is reached by the host's own rules for addresses.
    #[must_use]
    pub fn telemetry(mut self, settings: TelemetrySettings) -> Self {
        self.telemetry = settings;
        self
    }

    /// Callers who may see how the whole is, at `/metrics` and `/status`. Defaults to everyone who is let in, where none
    /// is given less than the whole, and to nobody otherwise.
    #[must_use]
    pub fn operators(mut self, callers: impl IntoIterator<Item = CallerName>) -> Self {
        self.terms.operators = Some(callers.into_iter().collect());
        self
    }

    /// Servers without which the gateway is not ready: while one of them is known to be down, `/readyz` says so.
    /// Defaults to none.
    #[must_use]
    pub fn required(mut self, servers: impl IntoIterator<Item = ServerName>) -> Self {
        self.terms.required.extend(servers);
        self
    }

    /// Makes the gateway. Nothing is listened to yet.
    pub fn build(self) -> Result<Gateway> {
        let tracer = Tracer::new(&self.telemetry, &self.host)?;
        let barred = Barred::new(self.host.trail().clone());
        let Terms { callers, tokens, rules, limits, operators, required } = self.terms;
        let admission = Admission::new(callers, tokens, &self.host).with(operators, required);
        let is_shared = !admission.is_anyone();
        self.settings.admission.store(Arc::new(admission));
        let mut desk = Desk::new(self.host, self.name, self.instructions)?;
        desk.tracer = tracer;
        desk.callers.store(rules.map(Arc::new));
        desk.gate = Gate::new(limits, is_shared, barred);
        Ok(Gateway { desk: Shift::begin(&Arc::new(desk)), settings: Arc::new(self.settings) })
    }
}
