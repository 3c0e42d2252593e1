//! What servers tell unasked, told to every caller that may know of it.
//!
//! In: the host's events. Out: which kind of list changed, to each ear whose caller sees a server of which it did. A
//! flood of changes is told as one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::desk::Desk;
use crate::event::Event;
use crate::host::Session;
use crate::mcp::method;
use crate::names::{CallerName, ServerName};

/// Who listens.
#[derive(Debug, Default)]
pub(super) struct News {
    ears: Mutex<Vec<Weak<dyn Ear>>>,
}

/// Hears of changes, on behalf of a caller.
pub(super) trait Ear: Send + Sync + std::fmt::Debug {
    fn caller(&self) -> &CallerName;
    /// The scope whose lists it knows, if that is not the one of its caller who can be asked nothing.
    fn scope(&self) -> Option<Session>;
    /// Must not wait.
    fn hear(&self, topic: Topic);
    /// A page was visited that a server sent somebody to. Must not wait.
    fn visited(&self, _server: &ServerName, _id: &str) {}
}

/// A list that may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    Tools,
    Prompts,
    Resources,
}

/// What changed: at these servers, or nobody knows where.
#[derive(Debug, Default)]
struct Changes {
    at: HashMap<Topic, HashSet<Spot>>,
    anywhere: bool,
}

/// A server, and for whom something changed there.
type Spot = (ServerName, Whose);

/// For whom something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whose {
    /// The server is another one.
    Everybody,
    /// Those who share its connection.
    Sharing,
    /// The scope of this number, over a connection of its own.
    One(u64),
}

/// The servers that a caller sees: those of which it may see some tool, and those that it sees as a whole.
#[derive(Default)]
struct Seen {
    any: HashSet<ServerName>,
    whole: HashSet<ServerName>,
    /// The scope of the caller if it can be asked nothing.
    plain: Option<Session>,
}

/// Changes within this time are one.
pub(super) const FLOOD: Duration = Duration::from_millis(100);

// === impl News ===

impl News {
    /// Tells an ear from now on, as long as it is there.
    pub(super) fn add(&self, ear: Weak<dyn Ear>) {
        let mut ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        if ears.len() == ears.capacity() {
            ears.retain(|ear| ear.strong_count() > 0);
        }
        ears.push(ear);
    }

    /// Tells these callers that every list may be another.
    pub(super) fn tell_all_to(&self, is_meant: impl Fn(&CallerName) -> bool) {
        for ear in self.ears().iter().filter(|ear| is_meant(ear.caller())) {
            [Topic::Tools, Topic::Prompts, Topic::Resources].into_iter().for_each(|topic| ear.hear(topic));
        }
    }

    /// The scopes of whoever hears through one of its own.
    pub(super) fn scopes(&self) -> Vec<Session> {
        self.ears().iter().filter_map(|ear| ear.scope()).collect()
    }

    fn ears(&self) -> Vec<Arc<dyn Ear>> {
        let mut ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        ears.retain(|ear| ear.strong_count() > 0);
        ears.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Follows the host's events as long as the desk is there.
pub(super) async fn follow(desk: Weak<Desk>, mut events: Receiver<Event>) {
    loop {
        let mut changes = Changes::default();
        if !changes.take(&desk, events.recv().await) {
            return;
        }
        if changes.is_empty() {
            continue;
        }
        let end = Instant::now() + FLOOD;
        while let Ok(event) = tokio::time::timeout_at(end, events.recv()).await {
            if !changes.take(&desk, event) {
                return;
            }
        }
        let Some(desk) = desk.upgrade() else { return };
        tell(&desk, &changes);
    }
}

/// Tells every ear what its caller may know.
fn tell(desk: &Desk, changes: &Changes) {
    let mut seen: HashMap<CallerName, Seen> = HashMap::new();
    for ear in desk.news.ears() {
        let caller = ear.caller();
        if !seen.contains_key(caller) {
            let scope = desk.scope(caller).ok();
            seen.insert(caller.clone(), scope.map(|scope| Seen::by(&scope)).unwrap_or_default());
        }
        let Some(seen) = seen.get(caller) else { continue };
        let Some(scope) = ear.scope().or_else(|| seen.plain.clone()) else { continue };
        for topic in [Topic::Tools, Topic::Prompts, Topic::Resources] {
            let servers = if topic == Topic::Tools { &seen.any } else { &seen.whole };
            if changes.concern(topic, servers, &scope) {
                ear.hear(topic);
            }
        }
    }
}

// === impl Seen ===

impl Seen {
    fn by(scope: &Session) -> Self {
        let any = scope.servers().iter().map(|config| config.name.clone()).collect();
        Self { any, whole: scope.whole_servers().into_iter().collect(), plain: Some(scope.clone()) }
    }
}

// === impl Changes ===

impl Changes {
    /// Takes an event. False if there will be no more, or nobody to tell.
    fn take(&mut self, desk: &Weak<Desk>, event: Result<Event, RecvError>) -> bool {
        let of = |session: Option<u64>| session.map_or(Whose::Sharing, Whose::One);
        let (topic, spot) = match event {
            Ok(Event::ToolsChanged { server, session }) => (Topic::Tools, (server, of(session))),
            Ok(Event::PromptsChanged { server, session }) => (Topic::Prompts, (server, of(session))),
            Ok(Event::ResourcesChanged { server, session }) => (Topic::Resources, (server, of(session))),
            Ok(Event::Reloaded { added, removed, restarted, changed }) => {
                for server in added.into_iter().chain(removed).chain(restarted) {
                    [Topic::Tools, Topic::Prompts, Topic::Resources]
                        .into_iter()
                        .for_each(|topic| self.add(topic, (server.clone(), Whose::Everybody)));
                }
                changed.into_iter().for_each(|server| self.add(Topic::Tools, (server, Whose::Everybody)));
                return old(desk);
            }
            Ok(Event::PageVisited { server, id }) => {
                let ears = desk.upgrade().map(|desk| desk.news.ears()).unwrap_or_default();
                ears.iter().for_each(|ear| ear.visited(&server, id.raw()));
                return true;
            }
            Ok(_) => return true,
            // What was missed may have been anything.
            Err(RecvError::Lagged(_)) => {
                self.anywhere = true;
                return old(desk);
            }
            Err(RecvError::Closed) => return false,
        };
        self.add(topic, spot);
        old(desk)
    }

    fn add(&mut self, topic: Topic, spot: Spot) {
        self.at.entry(topic).or_default().insert(spot);
    }

    fn is_empty(&self) -> bool {
        self.at.is_empty() && !self.anywhere
    }

    fn concern(&self, topic: Topic, servers: &HashSet<ServerName>, scope: &Session) -> bool {
        let concerns = |(server, whose): &Spot| match whose {
            // It may be gone by now.
            Whose::Everybody => {
                let (any, whole) = scope.is_given(server);
                if topic == Topic::Tools { any } else { whole }
            }
            Whose::Sharing => servers.contains(server) && !scope.has_view(server),
            Whose::One(number) => servers.contains(server) && *number == scope.number(),
        };
        self.anywhere || self.at.get(&topic).is_some_and(|at| at.iter().any(concerns))
    }
}

/// What is kept of the lists is old, whoever hears of it. False if there is no desk any more.
fn old(desk: &Weak<Desk>) -> bool {
    let desk = desk.upgrade();
    desk.map(|desk| desk.offers.changed()).is_some()
}

// === impl Topic ===

impl Topic {
    /// The notification.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Tools => method::TOOLS_CHANGED,
            Self::Prompts => method::PROMPTS_CHANGED,
            Self::Resources => method::RESOURCES_CHANGED,
        }
    }

    /// The word by which a modern caller asks for it.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources => "resourcesListChanged",
        }
    }
}
