//! One server of the host: its place, and what it was last seen to offer.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::duty::Duty;
use super::fleet::Fleet;
use super::lanes::{Hold, Lane};
use super::peer::HostPeer;
use super::pins::Pins;
use super::scope::gone;
use super::shelf::{Belief, Dated, Shelf};
use super::shown::Shown;
use crate::catalog::{Catalog, CatalogStore, Definitions, ListKind, Offered, Rejected};
use crate::config::{Connect, ServerConfig, Transport};
use crate::connect::{Berth, Connection, Pool};
use crate::error::{Error, Result, StderrTail};
use crate::event::{Bus, Fact, Kind, Named, State, Trail};
use crate::mcp::{Prompt, Resource, ResourceTemplate, Tool};
use crate::names::ToolName;
use crate::policy::{Identity, Live, Policy, Rare, Subject};
use crate::registry::{Route, ServerTools};
use crate::secret::Redactor;
use crate::wire::Json;

/// A server of the host.
pub(super) struct Server {
    pub(super) config: Arc<ServerConfig>,
    /// What consent to it is remembered for.
    pub(super) identity: Identity,
    /// Erases its secrets.
    pub(super) redactor: Redactor,
    /// What the program itself demands of a call, by tool.
    pub(super) demands: Rare<HashMap<ToolName, Demand>>,
    pub(super) berth: Berth,
    /// All its instances, where there is more than one.
    pub(super) fleet: Option<Arc<Fleet>>,
    /// Where it is kept which of its tools cannot be used.
    trail: Trail,
    /// If it is what one caller sees of a shared server.
    pub(super) view: Option<View>,
    /// How many use it now, over its connections. A successor has the same.
    duty: Arc<Duty>,
    /// What earlier runs saw. `None` where nobody keeps it.
    pub(super) pins: Option<Pins>,
    pub(super) tools: Shelf<Seen>,
    pub(super) prompts: Shelf<Offered<Prompt>>,
    pub(super) resources: Shelf<Offered<Resource>>,
    pub(super) templates: Shelf<Offered<ResourceTemplate>>,
    pub(super) policy: Live<Policy>,
    pub(super) events: Bus,
    pub(super) shown: Shown,
    /// Why it could not be reached the last time, and when that was.
    trouble: Mutex<Option<(Instant, Error)>>,
    /// When it was last looked at because what is known of it may be old.
    compared: Mutex<Option<Instant>>,
    /// How many calls were sent again.
    pub(super) retries: Arc<AtomicU64>,
}

/// What makes a server one caller's view of it.
pub(super) struct View {
    /// The server as it is for everybody.
    pub(super) of: Arc<Server>,
    /// Over which it is seen.
    pub(super) lane: Arc<Lane>,
}

/// Judges arguments: what is wrong with them, in words.
pub(super) type Demand = Arc<dyn Fn(&Json) -> Result<(), String> + Send + Sync>;

/// The tools of a server, and those that cannot be used.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) offered: ServerTools,
    pub(super) rejected: Arc<[Rejected]>,
}

/// For how long a server that failed, and of which nothing is known, is not started again just to be listed. Nor is one
/// looked at more often of which something is known from an earlier run.
const LEFT_ALONE: Duration = Duration::from_secs(30);

/// A server that neither tells of changes nor says how long its tools may be kept is asked for them again at the first list
/// after this time.
const TOOLS_LAST: Duration = Duration::from_secs(5 * 60);

/// A server that is held to what was accepted is asked for its tools again at the first use after this time.
const LOCKED_LOOK: Duration = Duration::from_secs(60);

// === impl Server ===

impl Server {
    pub(super) fn new(config: Arc<ServerConfig>, pool: &Pool, store: Option<&Arc<dyn CatalogStore>>) -> Self {
        let berth = pool.berth(&config);
        let fleet = Fleet::of(&config, &berth, pool);
        let (identity, redactor) = (Identity::Server(config.identity()), pool.dock().redactor(&config));
        let pins = store
            .map(|store| Pins::new(Arc::clone(store), &config, &pool.dock().environment, redactor.clone()));
        Self {
            config,
            identity,
            redactor,
            demands: Rare::default(),
            berth,
            fleet,
            trail: pool.dock().trail.clone(),
            view: None,
            duty: Arc::default(),
            pins,
            tools: Shelf::new(ListKind::Tools),
            prompts: Shelf::new(ListKind::Prompts),
            resources: Shelf::new(ListKind::Resources),
            templates: Shelf::new(ListKind::ResourceTemplates),
            policy: pool.dock().policy.clone(),
            events: pool.dock().events.clone(),
            shown: Shown::default(),
            trouble: Mutex::default(),
            compared: Mutex::default(),
            retries: Arc::default(),
        }
    }

    /// The same server as it shows itself over a lane. Nothing is started yet.
    pub(super) fn through(of: &Arc<Self>, lane: Arc<Lane>, pins: Pins) -> Self {
        Self {
            config: Arc::clone(&of.config),
            identity: of.identity.clone(),
            redactor: of.redactor.clone(),
            demands: Rare::default(),
            berth: lane.berth.clone(),
            fleet: lane.fleet.clone(),
            trail: of.trail.clone(),
            view: Some(View { of: Arc::clone(of), lane }),
            duty: Arc::default(),
            pins: Some(pins),
            tools: Shelf::new(ListKind::Tools),
            prompts: Shelf::new(ListKind::Prompts),
            resources: Shelf::new(ListKind::Resources),
            templates: Shelf::new(ListKind::ResourceTemplates),
            policy: of.policy.clone(),
            events: of.events.clone(),
            shown: Shown::default(),
            trouble: Mutex::default(),
            compared: Mutex::default(),
            retries: Arc::default(),
        }
    }

    /// Who uses it: a server and its views go together.
    pub(super) fn duty(&self) -> &Duty {
        self.view.as_ref().map_or(&self.duty, |view| &view.of.duty)
    }

    /// Keeps its connection from being closed for being idle, where that can be.
    pub(super) fn hold(&self) -> Result<Option<Hold>> {
        self.view.as_ref().map(|view| view.lane.hold()).transpose()
    }

    /// What is judged when a tool is called.
    pub(super) fn subject<'a>(&'a self, definition: &'a Tool) -> Subject<'a> {
        let (config, identity) = (&self.config, &self.identity);
        Subject::Server { config, identity, definition: Some(definition) }
    }

    /// What the program itself demands of a call to this tool.
    pub(super) fn demand(&self, tool: &ToolName, arguments: &Json) -> Result<()> {
        if let Some(view) = &self.view {
            return view.of.demand(tool, arguments);
        }
        let Some(demands) = self.demands.get() else { return Ok(()) };
        let Some(demand) = demands.get(tool) else { return Ok(()) };
        demand(arguments).map_err(|problem| Error::Arguments {
            server: self.config.name.clone(),
            tool: tool.clone(),
            problems: vec![problem],
        })
    }

    /// What the server offers now, and what of it cannot be used. It is asked again only if it told the peer that
    /// something changed, if it was connected anew, or if what it said before is not believed any more. An instance that
    /// does not answer is passed over: nothing is done twice by asking another one.
    pub(super) async fn look(&self, peer: Option<&HostPeer>) -> Result<Seen> {
        let _held = self.hold()?;
        let mut connection = self.connection().await?;
        let mut silent = Vec::new();
        loop {
            let error = match self.look_over(&connection, peer).await {
                Err(error) if error.is_no_answer() => error,
                ended => return ended,
            };
            silent.push(connection.number());
            connection = self.connection_but(&silent).await.ok_or(error)?;
        }
    }

    pub(super) async fn look_over(&self, connection: &Connection, peer: Option<&HostPeer>) -> Result<Seen> {
        let ask = |told: bool| async move {
            let catalog = Catalog::fetch(connection, self.config.timeout).await?;
            let list = || catalog.tools.iter().map(|t| (t.name.as_str().to_owned(), t.raw.clone())).collect();
            let mut differs = self.keep(connection, ListKind::Tools, list);
            self.record_rejected(&catalog.rejected);
            let mut seen = self.seen(Arc::clone(&catalog.tools), catalog.rejected, catalog.ttl);
            // What is the same is not kept twice: others still hold what was known before.
            if let Some(last) =
                self.tools.last().filter(|l| l.offered.fingerprint == seen.offered.fingerprint)
            {
                seen.offered.tools = last.offered.tools;
            }
            if let (true, Some(last)) = (self.compares_itself(), self.tools.last()) {
                differs = last.offered.fingerprint != seen.offered.fingerprint;
            }
            self.tell(peer.filter(|_| differs && !told), ListKind::Tools);
            Ok(seen)
        };
        let belief = match self.is_doubtful(self.is_locked()) {
            true => Belief::Never,
            false => belief(connection, ListKind::Tools),
        };
        self.note(self.tools.look(connection, peer, belief, ask).await).map(|seen| self.shown(seen))
    }

    /// Puts on record which tools cannot be used; once, however often the server is asked.
    fn record_rejected(&self, all: &[Rejected]) {
        let last = self.tools.last();
        let known = last.iter().flat_map(|last| last.rejected.iter());
        let known: HashSet<_> = known.map(|known| (known.name.raw(), &*known.reason)).collect();
        for rejected in all {
            self.tell_unsendable(rejected);
            if !known.contains(&(rejected.name.raw(), &*rejected.reason)) {
                self.trail.record(|| Fact {
                    tool: Some(Named::Raw(rejected.name.clone())),
                    ..Fact::new(Kind::Reject).of(&self.config.name).because(&rejected.reason)
                });
            }
        }
    }

    /// The tools as they were last seen, in this run or an earlier one. Nobody is asked.
    pub(super) fn last_tools(&self) -> Option<Seen> {
        if let Some(seen) = self.tools.last() {
            return Some(self.shown(seen));
        }
        let pinned = self.recalled()?;
        let tools = pinned.lists.get(&ListKind::Tools)?.iter();
        let tools: Arc<[_]> = tools.filter_map(|d| Tool::read(d.raw.clone()).ok().map(Arc::new)).collect();
        Some(self.shown(self.tools.recall(self.seen(tools, Vec::new(), None))))
    }

    /// What an earlier run saw; nothing of a server that only a person may connect.
    pub(super) fn recalled(&self) -> Option<Arc<crate::catalog::Pinned>> {
        match self.config.connect {
            Connect::Manual => None,
            _ => self.pins.as_ref()?.get(),
        }
    }

    /// Whether it is time to look at it again because what is known of it is from an earlier run. Whoever is told so does.
    pub(super) fn is_due(&self) -> bool {
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = compared.is_none_or(|at| at.elapsed() >= LEFT_ALONE);
        if is_due {
            *compared = Some(Instant::now());
        }
        is_due
    }

    /// Whether a program of our own machine has to be started to ask it.
    pub(super) fn is_program(&self) -> bool {
        matches!(self.config.transport, Transport::Stdio(_))
    }

    /// Whether what is known of its tools still has to be compared with what it offers over its connection.
    /// `locked` says whether it is held to what was accepted.
    pub(super) fn is_unconfirmed(&self, locked: bool) -> bool {
        if self.pins.is_none() && !locked {
            return false;
        }
        self.is_doubtful(locked) || !self.was_seen_here()
    }

    /// Whether its tools may have changed without a word, where that matters: it is held to what was accepted, and has
    /// not been asked for a while.
    fn is_doubtful(&self, locked: bool) -> bool {
        locked && self.tools.is_older_than(LOCKED_LOOK)
    }

    /// Writes a list down. True if it is another one than before. What a caller's own requests may have changed is not
    /// written down: it is no business of the next one who says the same of itself.
    pub(super) fn keep(
        &self,
        connection: &Connection,
        kind: ListKind,
        list: impl FnOnce() -> Vec<(String, Json)>,
    ) -> bool {
        let Some(pins) = &self.pins else { return false };
        let list = Definitions::new(list());
        match &self.view {
            Some(view) if view.lane.is_spent(connection) => pins.differs(kind, &list),
            _ => pins.keep(connection.info(), kind, list),
        }
    }

    /// Whether a new list is another one by what was last seen in this run: nobody else knows what was shown.
    pub(super) fn compares_itself(&self) -> bool {
        self.view.is_some() || self.pins.is_none()
    }

    /// Tells a peer that a list is another one.
    pub(super) fn tell(&self, peer: Option<&HostPeer>, kind: ListKind) {
        if let Some(peer) = peer {
            peer.tell_changed(&self.config.name, kind);
        }
    }

    /// The live connection, made now if there is none.
    pub(super) async fn connection(&self) -> Result<Connection> {
        let _held = self.hold()?;
        match self.any_connection().await {
            Ok(connection) => Ok(connection),
            Err(error) => self.note(Err(error)),
        }
    }

    /// Why it cannot be reached, as far as is known without trying.
    pub(super) fn trouble(&self) -> Option<Error> {
        if self.live().is_some() {
            return None;
        }
        let lost = |reason: &str, retryable| Error::Connection {
            server: self.config.name.clone(),
            transport: self.config.transport_name(),
            reason: reason.into(),
            stderr: StderrTail::default(),
            retryable,
        };
        match self.state() {
            State::Reconnecting => {
                return Some(lost("its connection was lost and is being made again", true));
            }
            _ if self.berth.is_given_up() => {
                return Some(lost(
                    "its connection was lost, and lost again each time it was made anew",
                    true,
                ));
            }
            _ if self.config.connect == Connect::Manual => {
                return Some(Error::NotConnected { server: self.config.name.clone() });
            }
            _ => {}
        }
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, error)| error.clone())
    }

    /// The same, if it is so recent that trying again only to list it makes no sense.
    pub(super) fn recent_trouble(&self) -> Option<Error> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().filter(|(at, _)| at.elapsed() < LEFT_ALONE).map(|(_, error)| error.clone())
    }

    /// The successor of one that is shown or called in another way: whoever uses its connections uses those of this one.
    pub(super) fn in_place_of(mut self, before: &Self) -> Self {
        self.duty = Arc::clone(&before.duty);
        self.retries = Arc::clone(&before.retries);
        self.fleet.clone_from(&before.fleet);
        self.succeed(before);
        self
    }

    /// Takes over what is known from the one that this server is the successor of, over the same connection.
    pub(super) fn succeed(&self, before: &Self) {
        if let Some(demands) = before.demands.get() {
            self.demands.put(demands);
        }
        let config = Arc::clone(&self.config);
        self.tools.adopt(&before.tools, |seen| Seen {
            offered: ServerTools { config, ..seen.offered },
            rejected: seen.rejected,
        });
        self.prompts.adopt(&before.prompts, |list| list);
        self.resources.adopt(&before.resources, |list| list);
        self.templates.adopt(&before.templates, |list| list);
    }

    pub(super) fn seen(
        &self,
        tools: Arc<[Arc<Tool>]>,
        rejected: Vec<Rejected>,
        ttl: Option<Duration>,
    ) -> Seen {
        let fingerprint = fingerprint(&tools);
        let offered = ServerTools { config: Arc::clone(&self.config), tools, fingerprint, ttl };
        Seen { offered, rejected: rejected.into() }
    }

    /// Remembers whether the server could be reached.
    pub(super) fn note<T>(&self, ended: Result<T>) -> Result<T> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match &ended {
            Ok(_) | Err(Error::NotOffered { .. }) => *trouble = None,
            Err(error) => *trouble = Some((Instant::now(), error.clone())),
        }
        ended
    }
}

// === impl Seen ===

impl Seen {
    /// What a route leads to, as it was last seen.
    pub(super) fn definition(&self, route: &Route) -> Result<Arc<Tool>> {
        let name = route.tool.name.as_str();
        if let Some(tool) = self.offered.tools.iter().find(|tool| tool.name.as_str() == name) {
            return Ok(Arc::clone(tool));
        }
        let rejected = self.rejected.iter().find(|rejected| rejected.name.raw() == name);
        Err(match rejected.and_then(|rejected| rejected.denied.as_deref()) {
            Some(denied) => denied.clone(),
            None => gone(route),
        })
    }
}

/// How long a list is believed that came over this connection. Other lists than that of the tools are asked for each time
/// where the server promises nothing of them.
pub(super) fn belief(connection: &Connection, kind: ListKind) -> Belief {
    match kind {
        _ if connection.info().offers_flag(kind.capability(), "listChanged") => Belief::UntilTold,
        ListKind::Tools => Belief::For(TOOLS_LAST),
        _ => Belief::For(Duration::ZERO),
    }
}

impl Dated for Seen {
    fn ttl(&self) -> Option<Duration> {
        self.offered.ttl
    }
}

/// The same tools, in the same order, byte for byte, give the same fingerprint.
fn fingerprint(tools: &[Arc<Tool>]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for tool in tools {
        hash.update((tool.raw.bytes().len() as u64).to_le_bytes());
        hash.update(tool.raw.bytes());
    }
    hash.finalize().into()
}
