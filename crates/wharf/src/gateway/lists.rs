//! Lists, built once for each snapshot and cut into pages.
//!
//! Definitions are passed on as the bytes they came in; only the name is another one.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use indexmap::IndexMap;

use crate::mcp::code;
use crate::registry::{Route, Snapshot};
use crate::wire::{Json, Members, RpcError};

/// Lists that were built before.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The newest first. A snapshot that nobody holds any more is forgotten.
    built: Mutex<Vec<Built>>,
}

#[derive(Debug)]
struct Built {
    of: Weak<Snapshot>,
    /// With the tools of user interfaces.
    apps: bool,
    pages: Arc<[Json]>,
}

/// How many items stand on a page.
const PAGE: usize = 1000;
/// How many snapshots are kept: one for each view that is in use.
const KEPT: usize = 64;

// === impl Lists ===

impl Lists {
    /// A page of tools. Those that are for user interfaces are for callers that know of them: others would give them to
    /// models.
    pub(super) fn tools(
        &self,
        snapshot: &Arc<Snapshot>,
        apps: bool,
        params: Option<&Json>,
    ) -> Result<Json, RpcError> {
        page_of(&self.pages(snapshot, apps), params)
    }

    fn pages(&self, snapshot: &Arc<Snapshot>, apps: bool) -> Arc<[Json]> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |known: &&Built| known.apps == apps && std::ptr::eq(known.of.as_ptr(), Arc::as_ptr(snapshot));
        let known = built.iter().find(is_it);
        if let Some(known) = known {
            return Arc::clone(&known.pages);
        }
        let pages: Arc<[Json]> = build(snapshot, apps).into();
        built.retain(|known| known.of.strong_count() > 0);
        built.truncate(KEPT - 1);
        built.insert(0, Built { of: Arc::downgrade(snapshot), apps, pages: Arc::clone(&pages) });
        pages
    }
}

/// Every page of the tools.
fn build(snapshot: &Snapshot, apps: bool) -> Vec<Json> {
    let named = |route: &Route| renamed(&route.tool.raw, "name", (route.tool.name.as_str(), &route.public));
    let shown: Vec<&Route> = snapshot.tools().iter().filter(|route| apps || !route.tool.app_only).collect();
    pages("tools", &shown, |route| named(route))
}

/// A list cut into pages; at least one.
pub(super) fn paged(key: &'static str, items: &[Json]) -> Vec<Json> {
    pages(key, items, Json::clone)
}

/// The same, of items that are made one at a time: a list may be long, and it is not needed twice.
fn pages<T>(key: &'static str, items: &[T], make: impl Fn(&T) -> Json) -> Vec<Json> {
    let mut chunks: Vec<&[T]> = items.chunks(PAGE).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    let last = chunks.len() - 1;
    let page = |(number, items): (usize, &[T])| {
        let mut page = Members::new();
        page.array(key, items.iter().map(&make));
        if number < last {
            page.text("nextCursor", &format!("p{}", number + 1));
        }
        page.into_json().with_outline()
    };
    chunks.into_iter().enumerate().map(page).collect()
}

/// The page that is asked for.
pub(super) fn page_of(pages: &[Json], params: Option<&Json>) -> Result<Json, RpcError> {
    let wrong =
        || RpcError::new(code::INVALID_PARAMS, "the cursor is not one of ours, or the list has changed");
    let number = match cursor_in(params) {
        None => 0,
        Some(cursor) => {
            read_cursor(&cursor).filter(|page| (1..pages.len()).contains(page)).ok_or_else(wrong)?
        }
    };
    Ok(pages[number].clone())
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

fn read_cursor(cursor: &Json) -> Option<usize> {
    cursor.to::<String>().ok()?.strip_prefix('p')?.parse().ok()
}
