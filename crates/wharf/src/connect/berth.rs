//! A server's place: connected when it is needed, kept alive, made again when it is lost.

mod health;
mod making;
mod remake;

pub(crate) use remake::growing;

use making::{Making, Why};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::Peer;
use super::auth::Logins;
use super::breaker::Breaker;
use super::connection::{Connection, Wire};
use super::era::{self, EraStore};
use super::handshake::{self, Introduction, Probe};
use super::inbox::{Inbox, StraysByServer};
use super::monitor::Monitor;
use super::stdio::Leaving;
use super::waiting::later;
use crate::config::{ServerConfig, Transport};
use crate::error::{Error, Result};
use crate::event::{Bus, Circuit, Event, Fact, State, Trail};
use crate::mcp::Era;
use crate::net::{HttpClient, NetOptions};
use crate::policy::{Live, Policy};
use crate::sandbox::Sandbox;
use crate::sandbox::packages::PackageOptions;
use crate::secret::{Redactor, Secret};
use crate::wire::{Json, Limits};

/// What every connection of a host needs from the world.
#[derive(Clone)]
pub struct Dock {
    /// What may be started and reached.
    pub policy: Live<Policy>,
    /// How servers with an address are reached.
    pub net: HttpClient,
    /// The environment that servers inherit the safe part of; programs are found through its `PATH`.
    pub environment: BTreeMap<String, String>,
    /// Where servers without a folder of their own get an empty one.
    pub scratch: PathBuf,
    /// How much is accepted from a server.
    pub limits: Live<Limits>,
    /// Who answers what servers ask, and hears their news.
    pub peer: Arc<dyn Peer>,
    /// Where news goes.
    pub events: Bus,
    /// Where it is counted what servers send that nobody waits for.
    pub strays: StraysByServer,
    /// Where it is kept what was started and reached. What cannot be written down is not started.
    pub trail: Trail,
    /// What is known of servers' eras.
    pub eras: Arc<dyn EraStore>,
    /// What is shown to servers where somebody logged in, and where that is kept.
    pub logins: Logins,
    /// Name and version of the program, as servers are told.
    pub client_info: Json,
    /// How long a program may take to leave after its input was closed, and again after SIGTERM.
    pub grace: Duration,
    /// The first pause before a lost connection is made again; each further one is four times as long.
    pub retry_pause: Duration,
    /// Programs that are on their way out.
    pub leaving: Leaving,
    /// How the hosts are reached that confined programs may reach.
    pub egress: NetOptions,
    /// How programs are confined. `None`: one that has to be does not start.
    pub sandbox: Option<Sandbox>,
    /// How packages are fetched for servers that run without a network. `None` leaves it to their launchers.
    pub packages: Option<PackageOptions>,
}

/// One server's place. Cheap to clone; when the last clone goes, the connection closes.
#[derive(Clone)]
pub struct Berth(Arc<Place>);

/// A place that somebody uses, or nobody any more.
#[derive(Debug)]
pub(super) struct WeakBerth(Weak<Place>);

struct Place {
    config: Arc<ServerConfig>,
    dock: Arc<Dock>,
    current: ArcSwapOption<Connection>,
    /// The number of the current connection, or 0: to compare it costs no more than to read it.
    number: AtomicU64,
    state: watch::Sender<State>,
    /// Held while the connection is made, so that it is made once however many ask for it.
    making: Arc<Mutex<Making>>,
    /// Counts how often it was to be disconnected: what is being made meanwhile is given up. So it is when this is gone.
    stop: watch::Sender<u64>,
    /// It was lost too often, and is not made again by itself.
    given_up: AtomicBool,
    /// Whether it is asked at all.
    breaker: Arc<Breaker>,
    /// Why there is no connection, if somebody wanted one.
    reason: std::sync::Mutex<Option<String>>,
}

// === impl Dock ===

impl Dock {
    /// Makes a connection: asks policy, starts or reaches the server, finds its era, shakes hands.
    pub async fn open(&self, config: &ServerConfig) -> Result<Connection> {
        self.trail.ready()?;
        let opened = self.open_unrecorded(config).await;
        let starts = matches!(config.transport, Transport::Stdio(_));
        self.trail.record(|| Fact::of_opening(&config.name, starts, opened.as_ref().err()));
        opened
    }

    async fn open_unrecorded(&self, config: &ServerConfig) -> Result<Connection> {
        if let Transport::Stdio(stdio) = &config.transport {
            self.prepare(config, stdio).await?;
        }
        let intro = Introduction {
            capabilities: self.peer.capabilities(),
            legacy_capabilities: self.peer.legacy_capabilities(),
            info: self.client_info.clone(),
            deadline: later(Instant::now(), config.start_timeout),
            time: config.start_timeout,
        };
        self.policy.now().permit_source(config)?;
        match &config.transport {
            Transport::Stdio(_) | Transport::Unix(_) | Transport::WebSocket(_) => {
                self.open_stream(config, &intro).await
            }
            Transport::Http(remote) => self.open_http(config, remote, &intro).await,
            Transport::Sse(remote) => self.open_sse(config, remote, &intro).await,
        }
    }

    /// Connects over one stream of messages in each direction, in the era that the server speaks.
    async fn open_stream(&self, config: &ServerConfig, intro: &Introduction) -> Result<Connection> {
        let key = era::key(config);
        let known = self.eras.get(&key).filter(|v| v.is_fresh(std::time::SystemTime::now()));
        if known.is_some_and(|v| v.era == Era::Legacy) {
            match handshake::initialize(self.wire(config, intro).await?, intro).await {
                // It may have been updated since: find out anew.
                Err(Error::Rpc { .. }) => {}
                opened => return opened,
            }
        }
        let wire = self.wire(config, intro).await?;
        match handshake::probe(&wire, intro).await? {
            Probe::Modern(info) => {
                self.eras.put(&key, handshake::verdict(Era::Modern));
                Ok(handshake::modern(wire, info, intro))
            }
            Probe::Legacy => {
                self.eras.put(&key, handshake::verdict(Era::Legacy));
                handshake::initialize(wire, intro).await
            }
            Probe::Silent => handshake::initialize(wire, intro).await,
            Probe::Gone => {
                wire.link.close().await;
                let connection = handshake::initialize(self.wire(config, intro).await?, intro).await?;
                // It left at the probe and answered the handshake: that is evidence.
                self.eras.put(&key, handshake::verdict(Era::Legacy));
                Ok(connection)
            }
        }
    }

    async fn wire(&self, config: &ServerConfig, intro: &Introduction) -> Result<Wire> {
        match &config.transport {
            Transport::Stdio(stdio) => self.launch(config, stdio).await,
            Transport::Unix(socket) => self.reach_socket(config, socket).await,
            Transport::WebSocket(remote) => self.upgrade(config, remote, intro).await,
            Transport::Http(_) | Transport::Sse(_) => Err(Error::Internal("no stream of messages".into())),
        }
    }

    /// The era that a server spoke when it was last asked, if that was not long ago.
    pub(crate) fn known_era(&self, config: &ServerConfig) -> Option<Era> {
        let known = self.eras.get(&era::key(config));
        known.filter(|verdict| verdict.is_fresh(std::time::SystemTime::now())).map(|verdict| verdict.era)
    }

    /// Tells what a person should know of a permit.
    pub(super) fn warn(&self, config: &ServerConfig, warnings: &[String]) {
        for warning in warnings {
            let (server, message) = (config.name.clone(), warning.clone());
            self.events.publish(|| Event::Warning { server, message });
        }
    }

    /// Erases everything secret that a server is given.
    pub(crate) fn redactor(&self, config: &ServerConfig) -> Redactor {
        match &config.transport {
            // What it is handed of our own environment is as secret as what it is given.
            Transport::Stdio(stdio) => {
                let passed = stdio.env_passthrough.iter().filter_map(|name| self.environment.get(name));
                Redactor::new(stdio.env.values().cloned().chain(passed.map(Secret::new)))
            }
            _ => match self.pass(config) {
                Some(pass) => config.redactor().and_live(pass.secrets()),
                None => config.redactor(),
            },
        }
    }

    pub(super) fn inbox(&self, config: &ServerConfig) -> Arc<Inbox> {
        let redactor = self.redactor(config);
        let monitor = Monitor { events: self.events.clone(), debug: config.debug, redactor };
        let limits = Limits::clone(&self.limits.now());
        Inbox::new(config.name.clone(), limits, Arc::clone(&self.peer), (monitor, &self.strays))
    }
}

impl std::fmt::Debug for Dock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dock").field("limits", &self.limits).finish_non_exhaustive()
    }
}

// === impl Berth ===

impl Berth {
    /// A place for a server. Nothing is started yet.
    pub fn new(config: Arc<ServerConfig>, dock: Arc<Dock>) -> Self {
        let breaker = Arc::new(Breaker::new(&config, dock.events.clone()));
        Self(Arc::new(Place {
            config,
            dock,
            current: ArcSwapOption::empty(),
            number: AtomicU64::new(0),
            state: watch::channel(State::Disconnected).0,
            making: Arc::default(),
            stop: watch::channel(0).0,
            given_up: AtomicBool::new(false),
            breaker,
            reason: std::sync::Mutex::default(),
        }))
    }

    /// The server's configuration.
    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }

    /// The same place, without keeping its connection open.
    pub(super) fn downgrade(&self) -> WeakBerth {
        WeakBerth(Arc::downgrade(&self.0))
    }

    /// Whether it is the very same place.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        *self.0.state.borrow()
    }

    /// Whether it is asked, or left alone because it fails again and again.
    pub fn circuit(&self) -> Circuit {
        self.0.breaker.circuit()
    }

    /// How many times in a row its connection gave no sign of life when it was asked for one; 0 if there is none.
    pub fn missed_checks(&self) -> u32 {
        self.0.current.load().as_deref().filter(|c| c.is_open()).map_or(0, Connection::missed_checks)
    }

    /// Why it is left alone, or cannot be reached, if it is known to be so.
    pub fn trouble(&self) -> Option<String> {
        self.0.breaker.ailment().or_else(|| self.0.reason().clone())
    }

    /// An error if a call would be refused now.
    #[inline]
    pub(crate) fn admits(&self) -> Result<()> {
        self.0.breaker.admits()
    }

    /// Whether there is a live connection.
    pub fn connected(&self) -> bool {
        self.live().is_some()
    }

    /// Whether it was lost too often to be made again by itself. Whoever needs it makes it again.
    pub fn is_given_up(&self) -> bool {
        self.0.given_up.load(Ordering::Acquire)
    }

    /// The live connection, made now if there is none. On a manual server that nobody connected it is an error.
    pub async fn connection(&self) -> Result<Connection> {
        match self.live() {
            Some(connection) => Ok(connection),
            // Boxed: most calls find a connection, and carry no room for making one.
            None => self.make(Why::Use).boxed().await,
        }
    }

    /// Asks what must be known before a call can be sent. That it fails counts as if it could not be connected.
    pub(crate) async fn prove<T>(&self, asking: impl Future<Output = Result<T>>) -> Result<T> {
        let passage = self.0.breaker.enter()?;
        let ended = asking.await;
        passage.connected(&ended);
        ended
    }

    /// Connects. A connection that lives already is kept.
    pub async fn connect(&self) -> Result<Connection> {
        self.make(Why::ByHand).await
    }

    /// Closes the connection, if there is one; one that is being made is given up. Doing it twice is doing it once.
    pub async fn disconnect(&self) {
        self.0.stop.send_modify(|times| *times += 1);
        let mut making = self.0.making.lock().await;
        making.by_hand = false;
        self.0.given_up.store(false, Ordering::Release);
        self.0.tell(State::Disconnected, None);
        if let Some(connection) = self.0.put(None) {
            connection.close().await;
        }
    }

    /// The number of the connection that is there, live or just lost; 0 if there is none.
    pub(crate) fn number(&self) -> u64 {
        self.0.number.load(Ordering::Acquire)
    }

    /// The live connection, if there is one.
    pub fn live(&self) -> Option<Connection> {
        self.0.current.load().as_deref().filter(|c| c.is_open()).cloned()
    }
}

impl std::fmt::Debug for Berth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Berth({}, {})", self.0.config.name, self.state().as_str())
    }
}

// === impl WeakBerth ===

impl WeakBerth {
    pub(super) fn is_used(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(super) fn upgrade(&self) -> Option<Berth> {
        self.0.upgrade().map(Berth)
    }
}

// === impl Place ===

impl Place {
    /// Puts a connection in the place of the one that is there, and gives that.
    fn put(&self, connection: Option<&Connection>) -> Option<Arc<Connection>> {
        let before = self.current.swap(connection.cloned().map(Arc::new));
        self.number.store(connection.map_or(0, Connection::number), Ordering::Release);
        before
    }

    fn reason(&self) -> MutexGuard<'_, Option<String>> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: State, reason: Option<String>) {
        // While it is being made, what was wrong before is not over.
        if reason.is_some() || matches!(state, State::Connected | State::Disconnected) {
            self.reason().clone_from(&reason);
        }
        let changed = self.state.send_if_modified(|now| std::mem::replace(now, state) != state);
        if changed || reason.is_some() {
            let (server, instance) = (self.config.name.clone(), self.config.instance());
            self.dock.events.publish(|| Event::State { server, instance, state, reason });
        }
    }
}
