//! A stream in each direction with one client: standard input and output, or HTTP+SSE. Messages in, frames out.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::AbortHandle;
use wharf::mcp::{Revision, code, method};
use wharf::wire::{Json, Message, RpcError, parse_frame, response_error, response_result};

use super::answer::{Around, Asked, Frames};
use super::state::{Client, Shared};

/// What is going on with one client. Dropping it drops the calls that still run: nobody waits for them.
#[derive(Debug)]
pub(super) struct Conversation {
    frames: Frames,
    around: Around,
    running: Running,
    /// Whether the client may send several messages at once, which only 2025-03-26 has.
    batches: bool,
}

/// Calls that take long, by the text of their ids.
#[derive(Debug, Default)]
pub(super) struct Running(HashMap<String, AbortHandle>);

// === impl Conversation ===

impl Conversation {
    pub(super) fn new(frames: Frames, shared: Arc<Shared>) -> Self {
        let client = Some(Client::on(frames.clone()));
        let around = Around { shared, client, frames: Some(frames.clone()) };
        Self { frames, around, running: Running::default(), batches: false }
    }

    /// Whether the client is gone.
    pub(super) fn is_over(&self) -> bool {
        self.frames.is_closed()
    }

    /// Takes one frame. Short requests are answered before this returns, so their answers keep their order.
    pub(super) async fn take_frame(&mut self, frame: Bytes, depth: usize) {
        if Json::parse(frame.clone(), depth).is_err() {
            return self.refuse(code::PARSE, "the message is not JSON").await;
        }
        if frame.trim_ascii_start().first() == Some(&b'[') && !self.batches {
            return self.refuse(code::INVALID_REQUEST, "this revision has no batches").await;
        }
        for message in parse_frame(frame, depth) {
            match message {
                Ok(message) => self.take(message).await,
                Err(malformed) => self.refuse(code::INVALID_REQUEST, &malformed.reason).await,
            }
        }
    }

    /// Answers something that cannot be understood.
    pub(super) async fn refuse(&self, code: i64, reason: &str) {
        let null = Json::of(&());
        let _ = self.frames.send(response_error(&null, &RpcError::new(code, reason))).await;
    }

    async fn take(&mut self, message: Message) {
        match message {
            Message::Request { id, method, params } => {
                let asked = Asked::new(id, method, params.as_ref());
                let around = self.around.clone();
                if asked.method == method::INITIALIZE {
                    self.batches = asked.revision().is_some_and(Revision::has_batches);
                }
                if asked.takes_long() {
                    let frames = self.frames.clone();
                    self.running
                        .start(asked.id.clone(), async move { answer(&asked, &around, &frames).await });
                } else {
                    answer(&asked, &around, &self.frames).await;
                }
            }
            Message::Notification { method, params } if method == method::CANCELLED => {
                self.running.cancel(params.as_ref());
            }
            Message::Response { id, outcome } => {
                if let Some(client) = &self.around.client {
                    client.answered(id.number(), outcome);
                }
            }
            // Other news changes nothing here.
            Message::Notification { .. } => {}
        }
    }
}

// === impl Running ===

impl Running {
    /// Runs a call beside the others.
    pub(super) fn start(&mut self, id: Json, call: impl Future<Output = ()> + Send + 'static) {
        self.0.retain(|_, call| !call.is_finished());
        self.0.insert(id.as_str().to_owned(), tokio::spawn(call).abort_handle());
    }

    /// Ends the call that a `notifications/cancelled` names.
    pub(super) fn cancel(&mut self, params: Option<&Json>) {
        let id = params.and_then(|p| p.member("requestId"));
        if let Some(call) = id.and_then(|id| self.0.remove(id.as_str())) {
            call.abort();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for call in self.0.values() {
            call.abort();
        }
    }
}

/// Answers a request with a frame, after the frames that come before it.
pub(super) async fn answer(asked: &Asked, around: &Around, frames: &Frames) {
    let frame = match asked.answer(around).await {
        Ok(result) => response_result(&asked.id, &result),
        Err(error) => response_error(&asked.id, &error),
    };
    // A client that stopped reading has left.
    let _ = frames.send(frame).await;
}
