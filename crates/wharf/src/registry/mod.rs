//! All tools under one roof.
//!
//! In: what each server offers, with its configuration. Out: a [`Snapshot`] of public names and routes, immutable and
//! replaced whole, so that a call takes no lock. How tools are discovered is `catalog`, who may call them is `policy`.

mod names;
mod snapshot;

pub use names::{NAME_MAX, NAME_MAX_WIDE, NameRules, Naming, RESERVED_PREFIX};
pub use snapshot::{Route, Skipped, Snapshot, Source};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use indexmap::IndexMap;

use crate::config::ServerConfig;
use crate::mcp::Tool;
use crate::names::ServerName;
use crate::policy::CallerRules;

/// The most tools that are taken from one server.
pub const TOOLS_MAX: usize = 10_000;

/// What one server offers.
#[derive(Clone, Debug)]
pub struct ServerTools {
    /// The server as it was configured: its name is the identity, whatever the server calls itself.
    pub config: Arc<ServerConfig>,
    /// Its tools, in its own order.
    pub tools: Arc<[Arc<Tool>]>,
    /// What the tools were when they were listed; the same fingerprint means the same tools.
    pub fingerprint: [u8; 32],
    /// How long the server said that this may be kept, if it said so.
    pub ttl: Option<Duration>,
}

/// The scope that a private tool belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

/// What a scope sees of all there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sees {
    /// Everything.
    #[default]
    All,
    /// The program's own functions, and no server's tools.
    Local,
    /// Nothing.
    Nothing,
}

/// One share of the snapshot.
#[derive(Debug)]
enum Offer {
    /// A server's tools.
    Server(ServerTools),
    /// A shared server's tools as this scope sees them, in the place of what others see.
    View(ServerTools),
    /// A set of the program's own functions.
    Local { set: ServerName, prefix: Box<str>, tools: Arc<[Arc<Tool>]> },
}

/// The tools of every server, and the program's own. Readers take the snapshot; writers replace one share of it.
///
/// A scope has a registry of its own on top of the shared one: it sees both, its own first, and nobody else sees its
/// own.
#[derive(Debug)]
pub struct Registry {
    names: NameRules,
    sees: Sees,
    /// What the scope is given; nothing there: everything it sees.
    given: ArcSwapOption<CallerRules>,
    below: Option<(Owner, Arc<Self>)>,
    /// In the order of the configuration. `None` is a server that offers nothing now but keeps its place.
    offers: Mutex<IndexMap<Key, Option<Offer>>>,
    view: ArcSwap<View>,
    /// How many views there were.
    views: AtomicU64,
    closed: AtomicBool,
}

/// Servers and local sets may bear one name: two kinds of thing.
type Key = (Source, ServerName);

/// A snapshot, and the shared one it was made of.
#[derive(Debug, Default)]
struct View {
    snapshot: Arc<Snapshot>,
    /// What was below when it was made: the how-manieth there.
    below: Option<u64>,
}

// === impl Registry ===

impl Registry {
    /// An empty registry. `order` is the order of the configuration, in which tools are listed; a server that is not in
    /// it comes after them.
    pub fn new(names: NameRules, order: impl IntoIterator<Item = ServerName>) -> Self {
        let offers = order.into_iter().map(|name| ((Source::Mcp, name), None)).collect();
        let (sees, below) = (Sees::All, None);
        Self {
            names,
            sees,
            given: ArcSwapOption::empty(),
            below,
            offers: Mutex::new(offers),
            view: ArcSwap::default(),
            views: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// An empty registry of one scope's own on top of the shared one. What the scope is not given has no name in it.
    pub fn above(shared: &Arc<Self>, owner: Owner, sees: Sees, given: Option<Arc<CallerRules>>) -> Self {
        let below = Some((owner, Arc::clone(shared)));
        Self {
            names: shared.names,
            sees,
            given: ArcSwapOption::new(given),
            below,
            offers: Mutex::default(),
            view: ArcSwap::default(),
            views: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// How public names are made here.
    pub fn names(&self) -> NameRules {
        self.names
    }

    /// Puts what a server offers in the place of what it offered before. Where it is the same nothing changes.
    pub fn replace(&self, offered: ServerTools) -> Arc<Snapshot> {
        self.replace_all([offered])
    }

    /// The same for several servers at once.
    pub fn replace_all(&self, all: impl IntoIterator<Item = ServerTools>) -> Arc<Snapshot> {
        let mut offers = self.lock();
        let mut changed = false;
        for offered in all {
            let key = (Source::Mcp, offered.config.name.clone());
            if let Some(Some(Offer::Server(known))) = offers.get(&key)
                && known.is_same(&offered)
            {
                continue;
            }
            offers.insert(key, Some(Offer::Server(offered)));
            changed = true;
        }
        if changed {
            return self.rebuild(&offers);
        }
        drop(offers);
        self.snapshot()
    }

    /// Puts a set of the program's own functions in the place of what it was before. They keep their names, after the
    /// prefix, whatever servers call theirs.
    pub fn replace_local(&self, set: &ServerName, prefix: &str, tools: Arc<[Arc<Tool>]>) -> Arc<Snapshot> {
        let mut offers = self.lock();
        let offer = Offer::Local { set: set.clone(), prefix: prefix.into(), tools };
        offers.insert((Source::Local, set.clone()), Some(offer));
        self.rebuild(&offers)
    }

    /// Takes a server's tools away. A server that is only down keeps its tools: do not remove it, or a neighbour whose
    /// name clashed with one of them gets the plain name back.
    pub fn remove(&self, server: &ServerName) -> Arc<Snapshot> {
        let mut offers = self.lock();
        if let Some(slot) = offers.get_mut(&(Source::Mcp, server.clone())) {
            *slot = None;
        }
        self.rebuild(&offers)
    }

    /// Puts what a shared server offers to this scope in the place of what it offers to others. A server of the scope's
    /// own goes before it.
    pub fn replace_view(&self, offered: ServerTools) -> Arc<Snapshot> {
        let mut offers = self.lock();
        let key = (Source::Mcp, offered.config.name.clone());
        match offers.get(&key) {
            Some(Some(Offer::Server(_))) => {}
            Some(Some(Offer::View(known))) if known.is_same(&offered) => {}
            _ => {
                offers.insert(key, Some(Offer::View(offered)));
                return self.rebuild(&offers);
            }
        }
        drop(offers);
        self.snapshot()
    }

    /// This scope sees of a shared server what others see.
    pub fn remove_view(&self, server: &ServerName) -> Arc<Snapshot> {
        let mut offers = self.lock();
        offers.retain(|key, offer| {
            !matches!(offer, Some(Offer::View(_))) || key.0 != Source::Mcp || key.1 != *server
        });
        self.rebuild(&offers)
    }

    /// Brings servers into another order, that of a new configuration. Those that are not in it come after them.
    pub fn arrange(&self, order: &[ServerName]) -> Arc<Snapshot> {
        let mut offers = self.lock();
        let mut before = std::mem::take(&mut *offers);
        for name in order {
            let key = (Source::Mcp, name.clone());
            let offer = before.shift_remove(&key).flatten();
            offers.insert(key, offer);
        }
        offers.extend(before.into_iter().filter(|(_, offer)| offer.is_some()));
        self.rebuild(&offers)
    }

    /// Gives this scope something else from now on; `None`: everything it sees.
    pub fn give(&self, rules: Option<Arc<CallerRules>>) -> Arc<Snapshot> {
        let offers = self.lock();
        self.given.store(rules);
        self.rebuild(&offers)
    }

    /// Nothing is shown here any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lock().clear();
    }

    /// What can be called now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        if self.closed.load(Ordering::Acquire) {
            return Arc::default();
        }
        let view = self.view.load();
        let Some((_, below)) = &self.below else { return Arc::clone(&view.snapshot) };
        if view.below.is_some_and(|known| below.shows(known)) {
            return Arc::clone(&view.snapshot);
        }
        self.rebuild(&self.lock())
    }

    /// Whether this is what it shows now. Only for one with nothing below.
    fn shows(&self, known: u64) -> bool {
        !self.closed.load(Ordering::Acquire) && self.views.load(Ordering::Acquire) == known
    }

    /// Own shares first, then the shared ones. The lock of the scope is taken before the shared one's, never after it.
    fn rebuild(&self, offers: &IndexMap<Key, Option<Offer>>) -> Arc<Snapshot> {
        let view = match &self.below {
            None => {
                let offers = offers.values().flatten().map(|offer| (None, offer));
                View { snapshot: Arc::new(Snapshot::build(offers, &self.names, None)), below: None }
            }
            // With nothing of its own it sees what everybody sees: the very same snapshot.
            Some((_, shared)) if self.sees_all() && offers.values().flatten().next().is_none() => {
                // Counted first: if there is another one meanwhile, this is made again.
                let below = Some(shared.views.load(Ordering::Acquire));
                View { snapshot: shared.snapshot(), below }
            }
            Some((owner, shared)) => {
                let below = shared.lock();
                let is_view = |offer: &&Offer| matches!(offer, Offer::View(_));
                let own = offers.values().flatten().filter(|offer| !is_view(offer));
                // A view stands where the server stands, so that names and order are what they are for others.
                let view_of = |key: &Key| offers.get(key).and_then(Option::as_ref).filter(is_view);
                let seen = below.iter().filter_map(|(key, offer)| match view_of(key) {
                    Some(view) => Some((Some(*owner), view)),
                    None => offer.as_ref().map(|offer| (None, offer)),
                });
                let further = offers.iter().filter(|(key, _)| !below.contains_key(*key));
                let further = further.filter_map(|(_, offer)| offer.as_ref()).filter(is_view);
                let owned = |offer| (Some(*owner), offer);
                let all = own.map(owned).chain(seen).chain(further.map(owned));
                let seen = all.filter(|(_, offer)| self.sees.lets(offer));
                let snapshot = Arc::new(Snapshot::build(seen, &self.names, self.given.load().as_deref()));
                View { snapshot, below: Some(shared.views.load(Ordering::Acquire)) }
            }
        };
        let snapshot = Arc::clone(&view.snapshot);
        self.view.store(Arc::new(view));
        self.views.fetch_add(1, Ordering::AcqRel);
        snapshot
    }

    fn sees_all(&self) -> bool {
        self.sees == Sees::All && self.given.load().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, IndexMap<Key, Option<Offer>>> {
        // A map of values that are replaced whole cannot be left half written by a panic.
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ServerTools ===

impl ServerTools {
    fn is_same(&self, other: &Self) -> bool {
        let config = Arc::ptr_eq(&self.config, &other.config);
        config && self.fingerprint == other.fingerprint && self.ttl == other.ttl
    }
}

// === impl Sees ===

impl Sees {
    fn lets(self, offer: &Offer) -> bool {
        match self {
            Self::All => true,
            Self::Local => matches!(offer, Offer::Local { .. }),
            Self::Nothing => false,
        }
    }
}
