//! HTTP+SSE, the transport of the oldest callers: one stream for everything that goes to the caller, and a place to post
//! to for everything that comes from it.
//!
//! The stream is the conversation: when it ends, so does everything that belongs to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;

use super::Gateway;
use super::body::{self, Reply};
use super::ending::Shift;
use super::legacy::random_name;
use super::outgoing::Outgoing;
use super::stay::Guest;
use super::stdio::Pipe;
use crate::names::CallerName;

/// The streams that are open, by the names under which callers post.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<String, Arc<Stream>>>);

#[derive(Debug)]
struct Stream {
    caller: Guest,
    /// Messages are taken one after another, in the order in which they were posted.
    pipe: tokio::sync::Mutex<Option<Pipe>>,
}

/// How many streams are open at a time.
const MOST: usize = 4096;
/// How many events may wait for the caller to read.
const WAITING: usize = 64;

// === impl Streams ===

impl Streams {
    /// Opens a stream, and says where to post to.
    pub(super) fn open(self: &Arc<Self>, gateway: &Gateway, caller: Guest) -> Reply {
        let Some(name) = random_name() else {
            return body::plain(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers to be had");
        };
        let (mut pipe, messages) = Pipe::open(gateway, caller.clone());
        // Each came by a request of its own.
        pipe.is_counted = true;
        let stream = Arc::new(Stream { caller, pipe: tokio::sync::Mutex::new(Some(pipe)) });
        let mut all = self.lock();
        if all.len() >= MOST {
            return body::plain(StatusCode::SERVICE_UNAVAILABLE, "too many streams; try again later");
        }
        all.insert(name.clone(), Arc::clone(&stream));
        drop(all);
        let (events, receiver) = mpsc::channel(WAITING);
        // There is room: nothing was sent yet.
        let _ = events.try_send(format!("event: endpoint\ndata: /messages?session={name}\n\n").into());
        let (streams, desk) = (Arc::clone(self), Arc::clone(&gateway.desk));
        tokio::spawn(async move {
            stream.pump(messages, events, &desk).await;
            streams.lock().remove(&name);
        });
        body::stream(receiver)
    }

    /// Takes one message for a stream. Another caller's is not found, and neither is one that never was.
    pub(super) async fn take(&self, query: Option<&str>, caller: &CallerName, frame: Bytes) -> Reply {
        let name = query.and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("session=")));
        let stream = name.and_then(|name| self.lock().get(name).cloned());
        let lost = || body::plain(StatusCode::NOT_FOUND, "there is no such session: open a stream at /sse");
        let Some(stream) = stream.filter(|stream| *stream.caller == *caller) else { return lost() };
        match &mut *stream.pipe.lock().await {
            Some(pipe) => match pipe.take(frame).await {
                Ok(()) => body::accepted(),
                Err(_) => body::plain(StatusCode::INTERNAL_SERVER_ERROR, "the message could not be taken"),
            },
            None => lost(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Stream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Stream ===

impl Stream {
    /// Brings messages to the caller until it leaves, or until the gateway stops or lets it in no more, and the
    /// last call has ended.
    async fn pump(&self, mut messages: Outgoing, events: mpsc::Sender<Bytes>, desk: &Shift) {
        let (mut stopping, mut takes) = (false, true);
        loop {
            let over = async {
                tokio::select! {
                    () = desk.until_stopping() => {}
                    () = desk.until_out(&self.caller) => {}
                }
            };
            tokio::select! {
                message = messages.next() => match message {
                    Some(message) if events.send(body::first_event(&message)).await.is_ok() => {}
                    Some(_) => break,
                    None => return,
                },
                () = events.closed() => break,
                () = over, if !stopping => stopping = true,
                // No more is taken. Calls under way hold the other ends of the channel.
                mut pipe = self.pipe.lock(), if stopping && takes => {
                    takes = false;
                    drop(pipe.take());
                }
            }
        }
        // Whoever waits until it is read need not any more.
        drop(messages);
        if let Some(pipe) = self.pipe.lock().await.take() {
            pipe.end();
        }
    }
}
