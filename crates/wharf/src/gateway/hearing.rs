//! What a legacy caller hears over HTTP: answers that begin as streams, streams that belong to no request, and news.
//!
//! A stream that breaks goes on by itself, and its caller may come back to it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::bench::{Edge, Job};
use super::body::{self, Reply};
use super::desk::{Desk, invalid};
use super::ending::Shift;
use super::http::Seat;
use super::legacy::Talk;
use super::line::Line;
use super::modern::Asked;
use super::news::{Ear, Topic};
use super::reel::{Expected, Reel};
use super::stay::Guest;
use crate::host::Session;
use crate::mcp::{Revision, method};
use crate::names::{CallerName, ServerName};
use crate::wire::{Json, Members, Pieces, RpcError, notification, response_error};

// === impl Talk ===

impl Talk {
    /// Answers over HTTP: at once if it is quick, as events if there is something to say before.
    pub(super) async fn answer(
        self: Arc<Self>,
        desk: &Arc<Shift>,
        asked: Box<Asked>,
        guest: &Guest,
        seat: &mut Seat<'_>,
    ) -> Reply {
        let reel = Reel::fresh(self.streams.fetch_add(1, Ordering::Relaxed), seat.reel.take());
        let expected = Expected(Arc::clone(&reel));
        let (id, line) = (asked.id.clone(), Line::through(Arc::clone(&reel), guest));
        let edge = Edge::Legacy(Arc::clone(&self));
        let job = Job { desk: Arc::clone(desk), asked, line: line.clone(), edge };
        let mut errand = self.calls.begin(job);
        let (silence, listener) = seat.begin();
        let ended = tokio::select! {
            biased;
            ended = &mut errand => Some(ended),
            error = desk.over(listener, &line) => {
                errand.give_up();
                Some(Some(Err(error)))
            }
            () = reel.begun() => None,
            () = silence => None,
        };
        let ended = match ended {
            Some(Some(result)) if !reel.has_begun() => {
                seat.reel = Some(reel);
                return body::pieces(told(&id, result));
            }
            // Cancelled: the caller wants no answer, but HTTP must have one.
            Some(None) if !reel.has_begun() => return body::accepted(),
            ended => ended,
        };
        self.reels.keep(&reel);
        let reply = body::stream(reel.read_after(0, self.can_resume()));
        drop(expected);
        // The answer is said whether somebody reads it now or comes back for it.
        tokio::spawn(async move {
            let ended = match ended {
                Some(ended) => ended,
                None => errand.rest().await,
            };
            if let Some(result) = ended {
                reel.say(&told(&id, result).into_line());
            }
            reel.end();
        });
        reply
    }

    /// Reads a stream on after an event, or the one that belongs to no request.
    pub(super) fn read_on(self: &Arc<Self>, event: Option<&str>) -> Reply {
        if let Some((reel, event)) = event.and_then(|event| self.reels.find(event)) {
            return body::stream(reel.read_after(event, false));
        }
        let reel = self.reels.always();
        let events = reel.read_after(reel.last(), self.can_resume());
        let line = Line::through(reel, &self.guest());
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        body::stream(events)
    }

    /// Whether its revision knows of events that say nothing but where to come back to.
    fn can_resume(&self) -> bool {
        self.revision >= Revision::V2025_11_25
    }

    /// Tells of changes of a resource from now on.
    pub(super) async fn watch(
        self: &Arc<Self>,
        desk: &Desk,
        params: Option<&Json>,
    ) -> Result<Json, RpcError> {
        let uri = uri_in(params)?;
        let watching = desk.watch(&self.scope(desk)?, &uri).await?;
        let talk = Arc::downgrade(self);
        let telling = watching.tell(move |params| {
            if let Some(talk) = talk.upgrade() {
                talk.tell(method::RESOURCE_UPDATED, &params);
            }
        });
        self.watches.add(uri, telling)?;
        Ok(Json::empty_object())
    }

    /// Tells what no request is about, if there is a way for that.
    fn tell(&self, method: &str, params: &Members) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(stream) = stream {
            stream.say(notification(method, params));
        }
    }

    /// Passes on what a server of its own logs that belongs to no request.
    pub(super) fn log(&self, params: &Json) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(stream) = stream {
            stream.log(self.level(), params);
        }
    }

    /// Tells no more of a resource.
    pub(super) fn unwatch(&self, params: Option<&Json>) -> Result<Json, RpcError> {
        self.watches.remove(&uri_in(params)?);
        Ok(Json::empty_object())
    }
}

impl Ear for Talk {
    fn caller(&self) -> &CallerName {
        &self.caller
    }

    fn scope(&self) -> Option<Session> {
        self.own_scope()
    }

    fn hear(&self, topic: Topic) {
        if self.ready.load(Ordering::Relaxed) {
            self.tell(topic.method(), &Members::default());
        }
    }

    fn visited(&self, server: &ServerName, id: &str) {
        if self.asks.is_visited(server, id) {
            let mut params = Members::new();
            params.text("elicitationId", id);
            self.tell(method::ELICITATION_COMPLETE, &params);
        }
    }
}

/// What is said of a request.
fn told(id: &Json, ended: Result<Pieces, RpcError>) -> Pieces {
    ended.unwrap_or_else(|error| response_error(id, &error).into())
}

/// The address that parameters name.
fn uri_in(params: Option<&Json>) -> Result<String, RpcError> {
    let uri = params.and_then(|params| params.member("uri")).and_then(|uri| uri.to::<String>().ok());
    uri.ok_or_else(|| invalid("`uri` must be a string"))
}
