//! What goes with a request that is made for somebody else.
//!
//! A caller of the gateway has capabilities of its own, says things of its own in `_meta`, and hears and answers what
//! its request alone is about. All of that is bound to the request, not to the connection that carries it.

use super::Answering;
use super::connection::Request;
use crate::mcp::trace::TraceParent;
use crate::mcp::{Revision, meta, method};
use crate::names::ServerName;
use crate::wire::{Json, Members};

/// What a server is told of whoever a request is made for.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Its capabilities, in place of the host's own. Only a modern server hears them with every request.
    pub capabilities: Option<Json>,
    /// From which level on it wants the log. Only a modern server hears that with every request.
    pub log_level: Option<Json>,
    /// Members of `_meta` that mean nothing between two neighbours: traces, and whatever vendors agree on.
    pub meta: Members,
    /// The trace and the span that it is made for, for transports that say so in a header.
    pub trace: Option<TraceParent>,
}

/// Goes with one request: hears what the server logs for it, and answers what the server asks on its behalf.
pub trait Companion: Send + Sync + 'static {
    /// The server logs something. The parameters are the protocol's; this must not wait.
    fn log(&self, params: &Json);
    /// The server asks for something.
    fn request(&self, server: &ServerName, method: &str, params: Option<Json>) -> Answering;
}

/// What a request says in its `_meta`, besides how it is known.
#[derive(Clone, Copy)]
pub(super) enum Meta<'a> {
    None,
    Of(&'a Members),
    /// Of somebody else, to a modern server: in this revision, with what we say of ourselves.
    Told(&'a Told, Revision, &'a (Json, Json)),
}

// === impl Told ===

impl Told {
    /// Adds the `_meta` of a request to a modern server.
    pub(super) fn write_modern(&self, all: &mut Members, revision: Revision, (info, own): &(Json, Json)) {
        all.text(meta::PROTOCOL_VERSION, revision.as_str())
            .json(meta::CLIENT_CAPABILITIES, self.capabilities.as_ref().unwrap_or(own))
            .json(meta::CLIENT_INFO, info);
        if let Some(level) = &self.log_level {
            all.json(meta::LOG_LEVEL, level);
        }
        all.append(&self.meta);
    }
}

// === impl Meta ===

impl Meta<'_> {
    fn is_empty(self) -> bool {
        match self {
            Self::None => true,
            Self::Of(members) => members.is_empty(),
            Self::Told(..) => false,
        }
    }
}

/// Adds `_meta`: what the era wants in every request, and the token under which progress is reported.
pub(super) fn add_meta(request: &mut Request<'_>, meta: Meta<'_>, id: u64) {
    let reports = may_report(request);
    if !reports && meta.is_empty() {
        return;
    }
    request.params.object_of("_meta", |all| {
        match meta {
            Meta::None => {}
            Meta::Of(members) => drop(all.append(members)),
            Meta::Told(told, revision, ours) => told.write_modern(all, revision, ours),
        }
        if reports {
            all.number(meta::PROGRESS_TOKEN, id);
        }
    });
}

/// Whether the server is invited to tell how far it is.
fn may_report(request: &Request<'_>) -> bool {
    request.on_progress.is_some()
        || matches!(request.method, method::TOOLS_CALL | method::RESOURCES_READ | method::PROMPTS_GET)
}
