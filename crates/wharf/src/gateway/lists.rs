//! Lists, built once for each snapshot and cut into pages.
//!
//! Definitions are passed on as the bytes they came in; only the name is another one.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use indexmap::IndexMap;

use super::marks::{self, Strays};
use crate::event::{Bus, Event};
use crate::mcp::{Tool, code};
use crate::names::{ServerName, ToolName};
use crate::registry::{Route, Snapshot};
use crate::wire::{Json, Members, RpcError};

/// Lists that were built before.
#[derive(Debug)]
pub(super) struct Lists {
    /// The newest first. A snapshot that nobody holds any more is forgotten.
    built: Mutex<Vec<Built>>,
    /// Tools that are not shown to callers over HTTP, and were told of.
    told: Mutex<HashSet<(ServerName, ToolName)>>,
    events: Bus,
}

#[derive(Debug)]
struct Built {
    of: Weak<Snapshot>,
    view: View,
    strays: Strays,
    pages: Arc<[Json]>,
    /// Whether anybody asked for it again since the last look.
    wanted: bool,
}

/// For whom a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// With the tools of user interfaces: others would give them to models.
    pub(super) apps: bool,
    /// Only with schemas of results that are objects: to callers of the legacy era others are an error of the whole list.
    pub(super) objects: bool,
    /// Without tools that want arguments repeated in headers in a way that there is not.
    pub(super) headers: bool,
}

/// How many items stand on a page.
const PAGE: usize = 1000;
/// Servers that offer ever new things are not told of for ever.
const MOST_TOLD: usize = 1000;
/// How many snapshots are kept: one for each view that is in use.
const KEPT: usize = 64;

// === impl Lists ===

impl Lists {
    pub(super) fn new(events: Bus) -> Self {
        Self { built: Mutex::default(), told: Mutex::default(), events }
    }

    /// A page of tools, some of which may name user interfaces by addresses that are another server's here.
    pub(super) fn tools(
        &self,
        snapshot: &Arc<Snapshot>,
        (view, strays): (View, Strays),
        params: Option<&Json>,
    ) -> Result<Json, RpcError> {
        page_of(&self.pages(snapshot, view, strays), params)
    }

    fn pages(&self, snapshot: &Arc<Snapshot>, view: View, strays: Strays) -> Arc<[Json]> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &&mut Built| {
            let same = std::ptr::eq(known.of.as_ptr(), Arc::as_ptr(snapshot));
            same && known.view == view && known.strays == strays
        };
        if let Some(known) = built.iter_mut().find(is_it) {
            known.wanted = true;
            return Arc::clone(&known.pages);
        }
        let pages: Arc<[Json]> = build(snapshot, view, &strays).into();
        if view.headers {
            self.tell_unsendable(snapshot);
        }
        built.retain(|known| known.of.strong_count() > 0);
        built.truncate(KEPT - 1);
        let (of, wanted) = (Arc::downgrade(snapshot), false);
        built.insert(0, Built { of, view, strays, pages: Arc::clone(&pages), wanted });
        pages
    }

    /// Forgets what nobody asked for again since the last time. A list is long, and soon built.
    pub(super) fn recycle(&self) {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        built.retain_mut(|known| std::mem::take(&mut known.wanted));
    }

    /// Tells once of each tool that callers over HTTP are not shown, because they could not repeat its arguments.
    fn tell_unsendable(&self, snapshot: &Snapshot) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for route in snapshot.tools() {
            let Err(reason) = &route.tool.headers else { continue };
            if told.len() < MOST_TOLD && told.insert((route.server.clone(), route.tool.name.clone())) {
                let (server, reason) = (route.server.clone(), crate::text::Escaped(reason));
                let tool = crate::text::Escaped(route.tool.name.as_str());
                let message = format!(
                    "tool `{tool}` of server `{server}` is not shown to modern callers over HTTP: {reason}"
                );
                self.events.publish(|| Event::Warning { server, message });
            }
        }
    }
}

/// Every page of the tools.
fn build(snapshot: &Snapshot, view: View, strays: &Strays) -> Vec<Json> {
    let is_shown = |tool: &Tool| (view.apps || !tool.app_only) && (!view.headers || tool.headers.is_ok());
    let shown: Vec<&Route> = snapshot.tools().iter().filter(|route| is_shown(&route.tool)).collect();
    let ttl = snapshot.ttl(shown.iter().copied());
    pages("tools", &shown, ttl, |route| {
        let (tool, names) = (&route.tool, (route.tool.name.as_str(), &*route.public));
        let own = match tool.interfaces.is_empty() {
            true => None,
            false => marks::with_own_interface(&tool.raw, &route.server, strays),
        };
        let raw = own.as_ref().unwrap_or(&tool.raw);
        if view.objects && tool.output_schema.as_ref().is_some_and(|schema| !is_of_objects(schema)) {
            let mut rest = Members::new();
            rest.append_without(raw, &["outputSchema"]);
            return renamed(&rest.to_json(), "name", names);
        }
        renamed(raw, "name", names)
    })
}

fn is_of_objects(schema: &Json) -> bool {
    schema.member("type").is_some_and(|kind| kind.as_str() == "\"object\"")
}

/// A list cut into pages; at least one.
pub(super) fn paged(key: &'static str, items: &[Json], ttl: Option<Duration>) -> Vec<Json> {
    pages(key, items, ttl, Json::clone)
}

/// The same, of items that are made one at a time: a list may be long, and it is not needed twice. Each page says how long
/// it may be kept, where a server does that something on the list is of.
fn pages<T>(key: &'static str, items: &[T], ttl: Option<Duration>, make: impl Fn(&T) -> Json) -> Vec<Json> {
    let mut chunks: Vec<&[T]> = items.chunks(PAGE).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    let last = chunks.len() - 1;
    let page = |items: &[T]| {
        let mut page = Members::new();
        page.array(key, items.iter().map(&make));
        page
    };
    let mut pages: Vec<Members> = chunks.into_iter().map(page).collect();
    if last > 0 {
        // A cursor is of this list and no other: pages of two lists do not make one.
        let mut hash = DefaultHasher::new();
        pages.iter().for_each(|page| page.to_json().bytes().hash(&mut hash));
        let list = hash.finish();
        for (number, page) in pages.iter_mut().take(last).enumerate() {
            page.text("nextCursor", &format!("p{}.{list:016x}", number + 1));
        }
    }
    let kept = |mut page: Members| {
        if let Some(ttl) = ttl {
            page.number("ttlMs", u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        }
        page.into_json().with_outline()
    };
    pages.into_iter().map(kept).collect()
}

/// The page that is asked for.
pub(super) fn page_of(pages: &[Json], params: Option<&Json>) -> Result<Json, RpcError> {
    let Some(cursor) = cursor_in(params) else { return Ok(pages[0].clone()) };
    let leads_on = |page: &Json| page.member("nextCursor").is_some_and(|next| next == cursor);
    let before = pages.iter().position(leads_on);
    before.and_then(|before| pages.get(before + 1)).cloned().ok_or_else(|| {
        let why = "the cursor is not one of ours, or the list has changed: begin again without one";
        RpcError::new(code::INVALID_PARAMS, why)
    })
}

/// The cursor of a request that asks for a further page.
pub(super) fn cursor_in(params: Option<&Json>) -> Option<Json> {
    params.and_then(|params| params.member("cursor")).filter(|cursor| !cursor.is_null())
}

/// A definition under its public name, with everything else as it was.
pub(super) fn renamed(raw: &Json, key: &'static str, (own, public): (&str, &str)) -> Json {
    if own == public {
        return raw.clone();
    }
    let Ok(members) = raw.to::<IndexMap<String, Json>>() else { return raw.clone() };
    let mut renamed = Members::new();
    for (name, value) in &members {
        match name == key {
            true => renamed.text(key, public),
            false => renamed.json_under(name, value),
        };
    }
    renamed.to_json()
}
