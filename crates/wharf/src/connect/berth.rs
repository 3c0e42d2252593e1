//! A server's place: connected when it is needed, kept alive, made again when it is lost.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::connection::{Connection, Wire};
use super::era::{self, EraStore};
use super::handshake::{self, Introduction, Probe};
use super::inbox::Inbox;
use super::link::Link;
use super::monitor::Monitor;
use super::pipe::PipeLink;
use super::{Peer, program, stdio};
use crate::config::{Connect, ServerConfig, Stdio, Transport};
use crate::error::{Error, Result, StderrTail};
use crate::event::{Bus, Event, State};
use crate::mcp::Era;
use crate::net::HttpClient;
use crate::policy::{LaunchRequest, Policy};
use crate::wire::{Json, Limits};

/// What every connection of a host needs from the world.
pub struct Dock {
    /// What may be started and reached.
    pub policy: Policy,
    /// How servers with an address are reached.
    pub net: HttpClient,
    /// The environment that servers inherit the safe part of; programs are found through its `PATH`.
    pub environment: BTreeMap<String, String>,
    /// Where servers without a folder of their own get an empty one.
    pub scratch: PathBuf,
    /// How much is accepted from a server.
    pub limits: Limits,
    /// Who answers what servers ask, and hears their news.
    pub peer: Arc<dyn Peer>,
    /// Where news goes.
    pub events: Bus,
    /// What is known of servers' eras.
    pub eras: Arc<dyn EraStore>,
    /// Name and version of the program, as servers are told.
    pub client_info: Json,
}

/// One server's place. Cheap to clone; when the last clone goes, the connection closes.
#[derive(Clone)]
pub struct Berth(Arc<Place>);

struct Place {
    config: Arc<ServerConfig>,
    dock: Arc<Dock>,
    current: ArcSwapOption<Connection>,
    state: watch::Sender<State>,
    /// Held by whoever makes the connection, so that it is made once however many ask for it.
    making: Mutex<Making>,
}

struct Making {
    /// Somebody connected it by hand, which a manual server needs.
    by_hand: bool,
    /// Losses since the connection last proved stable.
    losses: u32,
}

/// How often a lost connection is made again by itself.
const RETRIES: u32 = 3;
/// The first pause before that; each further one is four times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// A connection that lived this long was a good one: the next loss counts as the first.
const STABLE: Duration = Duration::from_secs(30);

// === impl Dock ===

impl Dock {
    /// Makes a connection: asks policy, starts or reaches the server, finds its era, shakes hands.
    pub async fn open(&self, config: &ServerConfig) -> Result<Connection> {
        let intro = Introduction {
            capabilities: self.peer.capabilities(),
            info: self.client_info.clone(),
            deadline: Instant::now() + config.start_timeout,
        };
        match &config.transport {
            Transport::Stdio(stdio) => self.open_stdio(config, stdio, &intro).await,
            Transport::Http(remote) => self.open_http(config, remote, &intro).await,
            Transport::Sse(remote) => self.open_sse(config, remote, &intro).await,
        }
    }

    async fn open_stdio(
        &self,
        config: &ServerConfig,
        stdio: &Stdio,
        intro: &Introduction,
    ) -> Result<Connection> {
        let key = era::key(config);
        let known = self
            .eras
            .get(&key)
            .filter(|v| v.is_fresh(std::time::SystemTime::now()));
        let wire = self.launch(config, stdio).await?;
        if known.is_some_and(|v| v.era == Era::Legacy) {
            return handshake::initialize(wire, intro).await;
        }
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
                let connection = handshake::initialize(self.launch(config, stdio).await?, intro).await?;
                // It left at the probe and answered the handshake: that is evidence.
                self.eras.put(&key, handshake::verdict(Era::Legacy));
                Ok(connection)
            }
        }
    }

    async fn launch(&self, config: &ServerConfig, stdio: &Stdio) -> Result<Wire> {
        let found = program::find(&stdio.command, self.environment.get("PATH").map(String::as_str));
        let permit = self.policy.permit_launch(&LaunchRequest {
            server: &config.name,
            stdio,
            origin: &config.origin,
            program: found.as_deref(),
            host_env: &self.environment,
        })?;
        for warning in permit.warnings() {
            let (server, message) = (config.name.clone(), warning.clone());
            self.events.publish(|| Event::Warning { server, message });
        }
        let inbox = self.inbox(config);
        let started = stdio::start(permit, self.scratch.clone(), &inbox.monitor).await;
        let started = started.map_err(|reason| Error::Connection {
            server: config.name.clone(),
            transport: "stdio",
            reason,
            stderr: StderrTail::default(),
            retryable: false,
        })?;
        let link = Link::Pipe(PipeLink::start(
            started.child,
            started.stdin,
            started.stdout,
            Arc::clone(&inbox),
        ));
        Ok(Wire {
            server: config.name.clone(),
            transport: "stdio",
            link,
            inbox,
        })
    }

    pub(super) fn inbox(&self, config: &ServerConfig) -> Arc<Inbox> {
        let monitor = Monitor {
            events: self.events.clone(),
            debug: config.debug,
            redactor: config.redactor(),
        };
        Inbox::new(
            config.name.clone(),
            self.limits.clone(),
            Arc::clone(&self.peer),
            monitor,
        )
    }
}

impl std::fmt::Debug for Dock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dock")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

// === impl Berth ===

impl Berth {
    /// A place for a server. Nothing is started yet.
    pub fn new(config: Arc<ServerConfig>, dock: Arc<Dock>) -> Self {
        Self(Arc::new(Place {
            config,
            dock,
            current: ArcSwapOption::empty(),
            state: watch::channel(State::Disconnected).0,
            making: Mutex::new(Making {
                by_hand: false,
                losses: 0,
            }),
        }))
    }

    /// The server's configuration.
    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        *self.0.state.borrow()
    }

    /// Whether there is a live connection.
    pub fn connected(&self) -> bool {
        self.live().is_some()
    }

    /// The live connection, made now if there is none. On a manual server that nobody connected it is an error.
    pub async fn connection(&self) -> Result<Connection> {
        match self.live() {
            Some(connection) => Ok(connection),
            None => self.make(false).await,
        }
    }

    /// Connects. A connection that lives already is kept.
    pub async fn connect(&self) -> Result<Connection> {
        self.make(true).await
    }

    /// Closes the connection, if there is one. Doing it twice is doing it once.
    pub async fn disconnect(&self) {
        let mut making = self.0.making.lock().await;
        making.by_hand = false;
        self.0.tell(State::Disconnected, None);
        if let Some(connection) = self.0.current.swap(None) {
            connection.close().await;
        }
    }

    fn live(&self) -> Option<Connection> {
        self.0.current.load().as_deref().filter(|c| c.is_open()).cloned()
    }

    async fn make(&self, by_hand: bool) -> Result<Connection> {
        let mut making = self.0.making.lock().await;
        making.by_hand |= by_hand;
        if let Some(connection) = self.live() {
            return Ok(connection);
        }
        if self.0.config.connect == Connect::Manual && !making.by_hand {
            return Err(Error::NotConnected {
                server: self.0.config.name.clone(),
            });
        }
        let was_lost = self.state() == State::Reconnecting;
        self.0.tell(
            if was_lost {
                State::Reconnecting
            } else {
                State::Connecting
            },
            None,
        );
        match self.0.dock.open(&self.0.config).await {
            Ok(connection) => {
                self.0.current.store(Some(Arc::new(connection.clone())));
                self.0.tell(State::Connected, None);
                tokio::spawn(watch_over(
                    Arc::downgrade(&self.0),
                    connection.ended(),
                    Instant::now(),
                ));
                Ok(connection)
            }
            Err(error) => {
                self.0.current.store(None);
                self.0.tell(State::Disconnected, Some(error.to_string()));
                Err(error)
            }
        }
    }
}

impl std::fmt::Debug for Berth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Berth({}, {})", self.0.config.name, self.state().as_str())
    }
}

// === impl Place ===

impl Place {
    fn tell(&self, state: State, reason: Option<String>) {
        let changed = self
            .state
            .send_if_modified(|now| std::mem::replace(now, state) != state);
        if changed || reason.is_some() {
            let server = self.config.name.clone();
            self.dock.events.publish(|| Event::State {
                server,
                state,
                reason,
            });
        }
    }
}

/// Waits for the end of a connection. One that was lost is made again, a few times; one that was closed is not.
/// Boxed, because making a connection starts this and this makes connections.
fn watch_over(
    place: Weak<Place>,
    ended: impl Future<Output = String> + Send + 'static,
    since: Instant,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let reason = ended.await;
        remake(place, reason, since).await;
    })
}

async fn remake(place: Weak<Place>, reason: String, since: Instant) {
    let losses = {
        let Some(place) = place.upgrade() else { return };
        if *place.state.borrow() != State::Connected {
            return;
        }
        let mut making = place.making.lock().await;
        place.tell(State::Reconnecting, Some(reason));
        // A server that broke the protocol may still run.
        if let Some(lost) = place.current.swap(None) {
            lost.close().await;
        }
        making.losses = if since.elapsed() >= STABLE {
            1
        } else {
            making.losses + 1
        };
        making.losses
    };
    for attempt in losses..=RETRIES {
        tokio::time::sleep(pause(attempt)).await;
        let Some(place) = place.upgrade() else { return };
        // Somebody who could not wait made it, or it was closed by hand meanwhile.
        if *place.state.borrow() != State::Reconnecting {
            return;
        }
        let berth = Berth(place);
        if berth.make(true).await.is_ok() {
            return;
        }
        berth.0.tell(State::Reconnecting, None);
    }
    if let Some(place) = place.upgrade() {
        place.tell(
            State::Disconnected,
            Some(format!("it was lost {RETRIES} times in a row")),
        );
        place.making.lock().await.losses = 0;
    }
}

/// 250 ms, 1 s, 4 s, each up to half as long again, so that many clients do not come back at once.
fn pause(attempt: u32) -> Duration {
    let base = FIRST_PAUSE * 4_u32.pow(attempt.saturating_sub(1));
    base + base.mul_f64(fastrand::f64() / 2.0)
}
