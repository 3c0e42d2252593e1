//! Where an address of a resource names its server, whatever else the server says with that address does too.
//!
//! In: a tool's definition, a server's result or the state of a task. Out: the same, with the addresses that lead to another
//! server marked; all else is the bytes it was. Nothing of a server is looked through whose addresses are all its own.

use indexmap::IndexMap;

use super::addresses;
use super::desk::Desk;
use crate::host::Session;
use crate::mcp::ui;
use crate::names::ServerName;
use crate::registry::Snapshot;
use crate::wire::{Json, Members};

/// Addresses of user interfaces that lead to another server than the one whose tools name them.
pub(super) type Strays = Vec<(ServerName, String)>;

// === impl Desk ===

impl Desk {
    /// The user interfaces that tools name by an address which is another server's here.
    pub(super) async fn strays(&self, scope: &Session, snapshot: &Snapshot) -> Strays {
        let named = snapshot.interfaces();
        if named.is_empty() { Strays::new() } else { Box::pin(self.offers.strays(scope, named)).await }
    }

    /// A result of a server, whose links and embedded resources lead back to that server.
    pub(super) async fn led_back(&self, scope: &Session, server: &ServerName, result: Json) -> Json {
        self.with_marks(scope, server, &result).await.unwrap_or(result)
    }

    /// The same for the state of a task, which has the result of its call in it once that is over.
    pub(super) async fn task_led_back(&self, scope: &Session, server: &ServerName, state: Json) -> Json {
        let Some(result) = state.member("result") else { return state };
        let led = self.with_marks(scope, server, &result).await;
        led.and_then(|led| replaced(&state, "result", |_| Some(led))).unwrap_or(state)
    }

    /// `None` if there is nothing to mark.
    async fn with_marks(&self, scope: &Session, server: &ServerName, result: &Json) -> Option<Json> {
        if !self.offers.has_marks() {
            return None;
        }
        let marks = Box::pin(self.offers.marks_of(scope, server)).await?;
        let mark = |uri: &Json| {
            let uri = uri.text()?;
            marks.is_marked(&uri).then(|| Json::of(&addresses::marked(server, &uri)))
        };
        let part = |part: &Json| match part.member("resource") {
            Some(_) => replaced(part, "resource", |resource| replaced(resource, "uri", mark)),
            None => replaced(part, "uri", mark),
        };
        let said = |message: &Json| replaced(message, "content", part);
        let led = replaced(result, "content", |parts| each(parts, part));
        led.or_else(|| replaced(result, "messages", |messages| each(messages, said)))
    }
}

/// A tool's definition, whose user interface is its own server's.
pub(super) fn with_own_interface(definition: &Json, server: &ServerName, strays: &Strays) -> Option<Json> {
    let mark = |uri: &Json| {
        let uri = uri.text()?;
        let is_stray = strays.iter().any(|(of, address)| of == server && **address == *uri);
        is_stray.then(|| Json::of(&addresses::marked(server, &uri)))
    };
    replaced(definition, ui::META, |meta| {
        let nested = replaced(meta, ui::NESTED, |ui| replaced(ui, ui::ADDRESS, mark));
        replaced(nested.as_ref().unwrap_or(meta), ui::FLAT, mark).or(nested)
    })
}

/// An object with another value in one place, and everything else as it was. `None` if there is nothing to replace.
fn replaced(object: &Json, key: &str, with: impl FnOnce(&Json) -> Option<Json>) -> Option<Json> {
    let new = with(&object.member(key)?)?;
    let members: IndexMap<String, Json> = object.to().ok()?;
    let mut all = Members::new();
    for (name, value) in &members {
        all.json_under(name, if name == key { &new } else { value });
    }
    Some(all.to_json())
}

/// The same for what stands in a list.
fn each(list: &Json, with: impl Fn(&Json) -> Option<Json>) -> Option<Json> {
    let mut items: Vec<Json> = list.to().ok()?;
    let mut any = false;
    for item in &mut items {
        if let Some(new) = with(item) {
            (*item, any) = (new, true);
        }
    }
    any.then(|| Json::of(&items))
}
