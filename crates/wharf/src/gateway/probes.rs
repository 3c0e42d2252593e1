//! What is asked of the gateway about itself: `/healthz`, `/readyz`, `/metrics`, `/status`.
//!
//! In: requests that are no message. Out: their answers, also while the gateway stops and takes no calls any more. Who
//! may know more than whether it is ready is said in `docs/decisions/0014-watching.md`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::body::{self, Reply};
use super::desk::unfit;
use super::ending::{STOPS, stops};
use super::h1::{BadBody, Head, Intake, Outlet};
use super::http::{ARRIVE, Door};
use super::terms::Admission;
use super::{guard, metrics, ready};
use crate::names::CallerName;
use crate::wire::{Json, Message, parse_message};

/// How many may ask at a time while the gateway stops.
const AT_THE_END: usize = 64;
/// How much of a request is read then for its id, and how long that may take.
const READ_AT_THE_END: usize = 64 * 1024;
pub(super) const SENT_AT_THE_END: Duration = Duration::from_secs(1);

/// What is answered at the stop to whoever wants something else than to say a message.
pub(super) fn stopping() -> Reply {
    body::plain(StatusCode::SERVICE_UNAVAILABLE, STOPS).with("retry-after", "1")
}

impl Door {
    /// Answers what is no message.
    pub(super) async fn probe(&self, head: &Head) -> Reply {
        let (gateway, path) = (&self.gateway, head.path());
        match (head.method(), path) {
            (_, "/healthz" | "/readyz" | "/metrics" | "/status") => {}
            _ => return body::plain(StatusCode::NOT_FOUND, "the gateway is at /mcp"),
        }
        if !matches!(*head.method(), Method::GET | Method::HEAD) {
            return body::not_allowed("GET, HEAD");
        }
        if path == "/healthz" {
            return body::plain(StatusCode::OK, "ok");
        }
        let admission = gateway.settings.admission.load_full();
        let refused = match admission.admit(head, self.resource.url()).await {
            Ok(caller) if self.may_watch(&admission, &caller) => None,
            Ok(_) => {
                let why = "watching the gateway is not this caller's; see `operators` in `[gateway]`";
                Some(body::plain(StatusCode::FORBIDDEN, why))
            }
            Err(refused) => Some(self.resource.refuse(refused, &admission)),
        };
        match (path, refused) {
            // Whoever only sends callers here or not needs no name; what is the matter is not told to strangers.
            ("/readyz", refused) => self.readiness(refused.is_none()),
            (_, Some(refused)) => {
                metrics::count(&gateway.desk.rejections.auth);
                refused
            }
            ("/metrics", None) => body::typed(StatusCode::OK, metrics::CONTENT_TYPE, metrics::page(gateway)),
            (_, None) => body::message(StatusCode::OK, ready::status(gateway).to_string().into_bytes()),
        }
    }

    fn readiness(&self, in_full: bool) -> Reply {
        let servers = self.gateway.desk.host().status();
        let obstacles = ready::obstacles(&self.gateway, &servers);
        let status = if obstacles.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut told = ready::document(&obstacles);
        if let (false, Some(members)) = (in_full, told.as_object_mut()) {
            members.remove("reasons");
        }
        body::message(status, told.to_string().into_bytes())
    }

    /// Whether a caller may see what all callers do. Where callers are given parts of the whole, only those may who are
    /// named.
    fn may_watch(&self, admission: &Admission, caller: &CallerName) -> bool {
        match &admission.operators {
            Some(operators) => operators.contains(caller),
            None => self.gateway.desk.callers.load().is_none(),
        }
    }

    /// Answers while the gateway stops: whoever asks is told that it does. Never ends by itself.
    pub(super) async fn while_stopping(self: &Arc<Self>, listener: &TcpListener) {
        let mut asking = JoinSet::new();
        loop {
            while asking.len() >= AT_THE_END {
                asking.join_next().await;
            }
            match listener.accept().await {
                Ok((stream, _)) => drop(asking.spawn(Arc::clone(self).last_words(stream))),
                // No descriptor to spare: the next one may do better.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    async fn last_words(self: Arc<Self>, mut stream: TcpStream) {
        let (reads, writes) = stream.split();
        let (mut intake, mut outlet) = (Intake::new(reads), Outlet::new(writes));
        let Ok(Ok(head)) = tokio::time::timeout(ARRIVE, intake.head()).await else { return };
        let reply = match guard::check(&head, (&self.gateway.settings, &self.names), &mut String::new()) {
            Err((status, why)) => body::plain(status, why),
            Ok(()) if !matches!(head.path(), "/mcp" | "/sse" | "/messages") => self.probe(&head).await,
            Ok(()) if *head.method() != Method::POST => stopping(),
            // Who asks is not looked at, and so little of what it says is.
            Ok(()) => match intake.body(READ_AT_THE_END, SENT_AT_THE_END, &mut outlet.writes).await {
                Err(BadBody::Gone) => return,
                Err(_) => body::overloaded(&Json::null(), &stops()),
                Ok(frame) => body::overloaded(&self.id_of(frame), &stops()),
            },
        };
        // Whoever breaks off needs no answer.
        outlet.end(reply, Some(&head), &mut intake).await;
    }

    /// The id of a request that is not looked at further.
    pub(super) fn id_of(&self, frame: Bytes) -> Json {
        match parse_message(frame, self.gateway.settings.limits.depth) {
            Ok(Message::Request { id, .. }) => id,
            Ok(_) => Json::null(),
            Err(bad) => unfit(bad).0,
        }
    }
}
