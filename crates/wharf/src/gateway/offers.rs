//! Prompts, resources and templates of all servers as one list each, and where each name and address leads.
//!
//! In: a caller's view of the host. Out: pages of definitions as their servers wrote them, and routes. Prompts get
//! public names by the rules of tools. Addresses stay as they are; one that two servers have is the first one's, and
//! the other's names its server. Which bytes go to a server is `errands`'.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::addresses::{self, Gap};
use super::lists;
use super::marks::Strays;
use crate::host::{Everywhere, Session};
use crate::names::{ServerName, ToolName};
use crate::wire::{Json, RpcError};

/// What callers were last shown, by the number of their scope.
#[derive(Debug, Default)]
pub(super) struct Offers {
    kept: Mutex<HashMap<(u64, Kind), Kept>>,
    /// How often servers said that something changed.
    changes: AtomicU64,
    /// Whether an address ever named its server.
    marks: AtomicBool,
}

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Prompts,
    Resources,
    Templates,
}

/// One list of all servers.
#[derive(Debug)]
struct Merged {
    pages: Vec<Json>,
    /// By public name or address, in the order of the list.
    routes: indexmap::IndexMap<String, Place>,
    /// Servers that have such things at all.
    servers: Vec<ServerName>,
    /// Those with an address that names them.
    marked: HashSet<ServerName>,
}

/// Which addresses of a server name it here.
pub(super) struct Marks {
    server: ServerName,
    resources: Arc<Merged>,
    templates: Arc<Merged>,
}

/// Where a name or an address leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) server: ServerName,
    /// As the server knows it.
    pub(super) own: String,
    /// Whether the address that the caller used names the server.
    pub(super) marked: bool,
}

#[derive(Debug)]
struct Kept {
    merged: Arc<Merged>,
    at: Instant,
    changes: u64,
}

/// What the servers offer: the name or address of each, and its definition.
struct Shares {
    all: Vec<(ServerName, Vec<(String, Json)>)>,
    /// The least time for which one of them, that offers anything, lets it be kept.
    ttl: Option<Duration>,
}

/// How long a route is followed without looking again. A server that tells of changes is looked at when it does.
const ROUTES_LAST: Duration = Duration::from_secs(60);
/// A name that is not there is not looked for twice in this time.
const JUST_NOW: Duration = Duration::from_secs(1);
/// How many lists are kept.
const MOST: usize = 1024;

// === impl Offers ===

impl Offers {
    /// Servers said that something changed: what is kept is old.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// A page of a list. The first page is a fresh look; the others are pages of that look.
    pub(super) async fn page(
        &self,
        scope: &Session,
        kind: Kind,
        params: Option<&Json>,
    ) -> Result<Json, RpcError> {
        let merged = match lists::cursor_in(params) {
            None => self.look(scope, kind).await,
            Some(_) => self.known(scope, kind, Duration::MAX).await,
        };
        lists::page_of(&merged.pages, params)
    }

    /// Where a prompt's public name leads.
    pub(super) async fn prompt(&self, scope: &Session, name: &str) -> Option<Place> {
        self.route(scope, Kind::Prompts, name).await
    }

    /// Where an address leads: what names its server goes there, then what is listed, then what a template stands for.
    /// What nobody is known to have goes to the only one who could.
    pub(super) async fn resource(&self, scope: &Session, address: &str) -> Option<Place> {
        if addresses::is_marked(address) {
            return marked(scope, address);
        }
        if let Some(place) = self.known(scope, Kind::Resources, ROUTES_LAST).await.routes.get(address) {
            return Some(place.clone());
        }
        let templates = self.known(scope, Kind::Templates, ROUTES_LAST).await;
        let by_template = [Gap::Step, Gap::Anything].into_iter().find_map(|gap| {
            let mut plain = templates.routes.values().filter(|place| !place.marked);
            plain.find(|place| addresses::fits(&place.own, address, gap))
        });
        if let Some(place) = by_template {
            return Some(Place { own: address.to_owned(), ..place.clone() });
        }
        let resources = self.known(scope, Kind::Resources, JUST_NOW).await;
        let only = match &resources.servers[..] {
            [only] => Some(Place { server: only.clone(), own: address.to_owned(), marked: false }),
            _ => None,
        };
        resources.routes.get(address).cloned().or(only)
    }

    /// Whether there may be addresses that name their server.
    pub(super) fn has_marks(&self) -> bool {
        self.marks.load(Ordering::Relaxed)
    }

    /// Which addresses of a server name it, if any does.
    pub(super) async fn marks_of(&self, scope: &Session, server: &ServerName) -> Option<Marks> {
        let resources = self.known(scope, Kind::Resources, ROUTES_LAST).await;
        let templates = self.known(scope, Kind::Templates, ROUTES_LAST).await;
        let any = resources.marked.contains(server) || templates.marked.contains(server);
        any.then(|| Marks { server: server.clone(), resources, templates })
    }

    /// Of addresses that servers name, those that lead to another server; where they lead nowhere, those that several name.
    pub(super) async fn strays(&self, scope: &Session, named: &[(ServerName, String)]) -> Strays {
        let resources = self.known(scope, Kind::Resources, ROUTES_LAST).await;
        let is_stray = |server: &ServerName, address: &str| match resources.routes.get(address) {
            Some(place) => place.server != *server,
            None => {
                addresses::is_marked(address)
                    || named.iter().filter(|(_, other)| other == address).count() > 1
            }
        };
        named.iter().filter(|(server, address)| is_stray(server, address)).cloned().collect()
    }

    /// Where a template leads, whose gaps are still to be filled.
    pub(super) async fn template(&self, scope: &Session, template: &str) -> Option<Place> {
        if addresses::is_marked(template) {
            return marked(scope, template);
        }
        match self.route(scope, Kind::Templates, template).await {
            Some(place) => Some(place),
            None => self.resource(scope, template).await,
        }
    }

    async fn route(&self, scope: &Session, kind: Kind, name: &str) -> Option<Place> {
        if let Some(place) = self.known(scope, kind, ROUTES_LAST).await.routes.get(name) {
            return Some(place.clone());
        }
        self.known(scope, kind, JUST_NOW).await.routes.get(name).cloned()
    }

    /// A list that was made not longer ago than that, and since which nothing has changed.
    async fn known(&self, scope: &Session, kind: Kind, age: Duration) -> Arc<Merged> {
        let changes = self.changes.load(Ordering::Relaxed);
        let kept = self.lock().get(&(scope.number(), kind)).and_then(|kept| {
            let paging = age == Duration::MAX;
            let is_good = paging || (kept.changes == changes && kept.at.elapsed() < age);
            is_good.then(|| Arc::clone(&kept.merged))
        });
        match kept {
            Some(merged) => merged,
            None => self.look(scope, kind).await,
        }
    }

    /// Looks at what the servers have.
    async fn look(&self, scope: &Session, kind: Kind) -> Arc<Merged> {
        let changes = self.changes.load(Ordering::Relaxed);
        let merged = Arc::new(match kind {
            Kind::Prompts => {
                let shares = shares(scope.known_prompts().await, |p| (p.name.raw().to_owned(), p.raw));
                named(scope, shares)
            }
            Kind::Resources => {
                let shares = shares(scope.known_resources().await, |r| (r.uri.raw().to_owned(), r.raw));
                addressed(shares, "resources", "uri")
            }
            Kind::Templates => {
                let all = scope.known_resource_templates().await;
                let shares = shares(all, |t| (t.uri_template.raw().to_owned(), t.raw));
                addressed(shares, "resourceTemplates", "uriTemplate")
            }
        });
        if !merged.marked.is_empty() {
            self.marks.store(true, Ordering::Relaxed);
        }
        let mut kept = self.lock();
        if kept.len() >= MOST {
            kept.retain(|_, kept| kept.at.elapsed() < ROUTES_LAST);
        }
        if kept.len() < MOST {
            let entry = Kept { merged: Arc::clone(&merged), at: Instant::now(), changes };
            kept.insert((scope.number(), kind), entry);
        }
        merged
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(u64, Kind), Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Marks ===

impl Marks {
    /// Whether this address of the server's names it here.
    pub(super) fn is_marked(&self, own: &str) -> bool {
        if let Some(place) = self.resources.routes.get(own) {
            return place.server != self.server;
        }
        let mut templates = self.templates.routes.values().filter(|place| place.marked);
        addresses::is_marked(own)
            || templates.any(|t| t.server == self.server && addresses::fits(&t.own, own, Gap::Step))
    }
}

/// What each server offers. One that could not be asked is left out.
fn shares<T>(found: Everywhere<T>, parts: impl Fn(T) -> (String, Json)) -> Shares {
    let there = found.offered.iter().filter(|(_, offered)| !offered.items.is_empty());
    let ttl = there.filter_map(|(_, offered)| offered.ttl).min();
    let of_one = |(server, offered): (ServerName, crate::catalog::Offered<T>)| {
        (server, offered.items.into_iter().map(&parts).collect())
    };
    Shares { all: found.offered.into_iter().map(of_one).collect(), ttl }
}

/// Prompts under public names.
fn named(scope: &Session, shares: Shares) -> Merged {
    let prefixes: HashMap<ServerName, Option<String>> =
        scope.servers().iter().map(|config| (config.name.clone(), config.tool_prefix.clone())).collect();
    let servers = shares.all.iter().map(|(server, _)| server.clone()).collect();
    let mut all: Vec<(ServerName, ToolName, Json)> = Vec::new();
    for (server, items) in shares.all {
        for (name, raw) in items {
            // What could never be shown or sent has no name here either.
            if let Ok(name) = ToolName::parse(&name) {
                all.push((server.clone(), name, raw));
            }
        }
    }
    let claims = all
        .iter()
        .map(|(server, name, _)| (server, prefixes.get(server).and_then(|prefix| prefix.as_deref()), name));
    let names = scope.name_rules().names(claims);
    let (mut items, mut routes) = (Vec::new(), indexmap::IndexMap::new());
    for ((server, own, raw), public) in all.into_iter().zip(names) {
        if let Some(public) = public {
            items.push(lists::renamed(&raw, "name", (own.as_str(), &public)));
            routes.insert(public, Place { server, own: own.as_str().to_owned(), marked: false });
        }
    }
    Merged { pages: lists::paged("prompts", &items, shares.ttl), routes, servers, marked: HashSet::new() }
}

/// Resources or templates under addresses: their own, or where another has it, one that names the server.
fn addressed(shares: Shares, list: &'static str, key: &'static str) -> Merged {
    let servers = shares.all.iter().map(|(server, _)| server.clone()).collect();
    let (mut taken, mut names) = (HashSet::new(), HashSet::new());
    let (mut items, mut routes) = (Vec::new(), indexmap::IndexMap::new());
    for (server, offered) in shares.all {
        for (own, raw) in offered {
            let marked = addresses::is_marked(&own) || !taken.insert(own.clone());
            let public = if marked { addresses::marked(&server, &own) } else { own.clone() };
            if marked {
                names.insert(server.clone());
            }
            items.push(lists::renamed(&raw, key, (&own, &public)));
            routes.insert(public, Place { server: server.clone(), own, marked });
        }
    }
    Merged { pages: lists::paged(list, &items, shares.ttl), routes, servers, marked: names }
}

/// Where an address leads that names its server.
fn marked(scope: &Session, address: &str) -> Option<Place> {
    let (server, own) = addresses::unmarked(address)?;
    let config = scope.servers().into_iter().find(|config| config.name.as_str() == server)?;
    Some(Place { server: config.name.clone(), own: own.to_owned(), marked: true })
}
