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
    pages: Arc<[Json]>,
}

/// How many tools stand on a page.
const PAGE: usize = 1000;
/// How many snapshots are kept: one for each view that is in use.
const KEPT: usize = 64;

// === impl Lists ===

impl Lists {
    /// A page of tools.
    pub(super) fn tools(&self, snapshot: &Arc<Snapshot>, params: Option<&Json>) -> Result<Json, RpcError> {
        let pages = self.pages(snapshot);
        let page = match params.and_then(|params| params.member("cursor")).filter(|c| !c.is_null()) {
            None => 0,
            Some(cursor) => {
                read_cursor(&cursor).filter(|page| (1..pages.len()).contains(page)).ok_or_else(|| {
                    RpcError::new(
                        code::INVALID_PARAMS,
                        "the cursor is not one of ours, or the list has changed",
                    )
                })?
            }
        };
        Ok(pages[page].clone())
    }

    fn pages(&self, snapshot: &Arc<Snapshot>) -> Arc<[Json]> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let known = built.iter().find(|known| std::ptr::eq(known.of.as_ptr(), Arc::as_ptr(snapshot)));
        if let Some(known) = known {
            return Arc::clone(&known.pages);
        }
        let pages: Arc<[Json]> = build(snapshot).into();
        built.retain(|known| known.of.strong_count() > 0);
        built.truncate(KEPT - 1);
        built.insert(0, Built { of: Arc::downgrade(snapshot), pages: Arc::clone(&pages) });
        pages
    }
}

/// Every page; at least one.
fn build(snapshot: &Snapshot) -> Vec<Json> {
    let mut chunks: Vec<&[Route]> = snapshot.tools().chunks(PAGE).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    let last = chunks.len() - 1;
    let page = |(number, routes): (usize, &[Route])| {
        let tools: Vec<Json> = routes.iter().map(renamed).collect();
        let mut page = Members::new();
        page.json("tools", &Json::of(&tools));
        if number < last {
            page.text("nextCursor", &format!("p{}", number + 1));
        }
        page.to_json()
    };
    chunks.into_iter().enumerate().map(page).collect()
}

/// A definition under its public name, with everything else as it was.
fn renamed(route: &Route) -> Json {
    if route.tool.name.as_str() == &*route.public {
        return route.tool.raw.clone();
    }
    let Ok(members) = route.tool.raw.to::<IndexMap<String, Json>>() else { return route.tool.raw.clone() };
    let mut renamed = Members::new();
    for (key, value) in &members {
        match key.as_str() {
            "name" => renamed.text("name", &route.public),
            _ => renamed.json(key, value),
        };
    }
    renamed.to_json()
}

fn read_cursor(cursor: &Json) -> Option<usize> {
    cursor.to::<String>().ok()?.strip_prefix('p')?.parse().ok()
}
