//! Several messages in one. Only the revision 2025-03-26 has that, and only its callers are listened to so.
//!
//! In: a batch of a legacy caller. Out: the answers to its requests, each judged as if it had come alone: over a pipe as one
//! array, over HTTP as the events of one stream. What is cancelled has no answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;

use super::body::{self, Reply};
use super::calls::Begun;
use super::desk::unfit;
use super::ending::{Shift, stops};
use super::h1::{Head, Usual};
use super::legacy::{Sessions, Talk};
use super::limits::Overloaded;
use super::line::Line;
use super::modern::Asked;
use super::reel::{Expected, Reel};
use super::stay::Guest;
use super::visit::Habit;
use crate::mcp::{code, method};
use crate::wire::{Malformed, Message, RpcError, parse_message, response_error, split_batch};

/// The messages of one batch, in order.
pub(super) struct Batch {
    messages: Vec<Result<Message, Malformed>>,
    /// Whether one of its requests was counted already when the batch came in.
    is_counted: bool,
}

/// How many messages a batch has at most.
const MOST: usize = 100;

/// What is said where there are no batches.
pub(super) fn refused() -> RpcError {
    RpcError::new(code::INVALID_REQUEST, "batches are not taken here: send one message")
}

// === impl Batch ===

impl Batch {
    /// Takes a batch apart. The error is about it as a whole.
    pub(super) fn read(frame: Bytes, max_depth: usize, is_counted: bool) -> Result<Self, RpcError> {
        let invalid = |why| RpcError::new(code::INVALID_REQUEST, why);
        let parts = split_batch(&frame, max_depth, MOST).map_err(|error| match error.is_about_size() {
            true => invalid(format!("{error}: a batch has at most {MOST} messages, as deep as others")),
            false => RpcError::new(code::PARSE, format!("not an acceptable batch: {error}")),
        })?;
        if parts.is_empty() {
            return Err(invalid("an empty batch".into()));
        }
        let messages = parts.into_iter().map(|part| parse_message(part, max_depth)).collect();
        Ok(Self { messages, is_counted })
    }

    /// Takes its messages. The answers come as they are there, until the last one.
    pub(super) fn begin(
        mut self,
        desk: &Arc<Shift>,
        talk: &Arc<Talk>,
        guest: &Guest,
        line: impl Fn() -> Line,
    ) -> mpsc::Receiver<Vec<u8>> {
        // There is room for all.
        let (out, answers) = mpsc::channel(MOST);
        let mut habit = Habit::default();
        for message in std::mem::take(&mut self.messages) {
            let (id, error) = match message {
                Ok(Message::Request { id, method, params }) => {
                    let asked = Box::new(Asked::new(id.clone(), method, params, &mut habit));
                    if let Err(error) = self.may_begin(desk, guest, &asked) {
                        (id, error)
                    } else {
                        let line = line();
                        let call = Begun { id: &id, line: Some(line.clone()), is_stream: false };
                        let work = Arc::clone(talk).work(Arc::clone(desk), asked, line);
                        let Err(error) = talk.calls.start_into(call, work, out.clone()) else { continue };
                        (id, error)
                    }
                }
                Ok(Message::Notification { method, params }) => {
                    talk.hear(&method, params.as_ref());
                    continue;
                }
                Ok(Message::Response { id, outcome }) => {
                    talk.asks.answered(&id, outcome);
                    continue;
                }
                Err(bad) => unfit(bad),
            };
            let _ = out.try_send(response_error(&id, &error));
        }
        answers
    }

    /// Whether a request may be begun as a part of a batch.
    fn may_begin(&mut self, desk: &Shift, guest: &Guest, asked: &Asked) -> Result<(), RpcError> {
        if desk.is_stopping() {
            return Err(stops());
        }
        if asked.method == method::INITIALIZE || asked.is_modern() {
            return Err(RpcError::new(code::INVALID_REQUEST, "this request cannot be part of a batch"));
        }
        if !std::mem::take(&mut self.is_counted) {
            desk.gate.arrive(guest)?;
        }
        Ok(())
    }
}

/// Says the answers over a pipe, as one message when the last is there.
pub(super) fn answer_together(
    out: &mpsc::Sender<Vec<u8>>,
    begin: impl FnOnce() -> mpsc::Receiver<Vec<u8>>,
) -> Result<(), RpcError> {
    // Held until then, so that the conversation does not end before.
    let place = out.clone().try_reserve_owned().map_err(|_| Overloaded::MUCH)?;
    let mut answers = begin();
    tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(answer) = answers.recv().await {
            all.push(if all.is_empty() { b'[' } else { b',' });
            all.extend_from_slice(&answer);
        }
        if !all.is_empty() {
            all.push(b']');
            place.send(all);
        }
    });
    Ok(())
}

// === impl Sessions ===

impl Sessions {
    /// Takes a batch over HTTP.
    pub(super) fn take_batch(
        &self,
        desk: &Arc<Shift>,
        (caller, head): (&Guest, &Head),
        (frame, max_depth): (Bytes, usize),
    ) -> Reply {
        let refuse = |error: &RpcError| body::refuse(StatusCode::BAD_REQUEST, error);
        if !head.has_usual(Usual::Session) {
            return refuse(&refused());
        }
        let talk = match self.find(head, caller, None) {
            Ok(talk) if talk.revision.has_batches() => talk,
            Ok(_) => return refuse(&refused()),
            Err(lost) => return *lost,
        };
        match Batch::read(frame, max_depth, true) {
            Ok(batch) if batch.messages.iter().all(is_told) => {
                batch.begin(desk, &talk, caller, || Line::new(caller.clone()).0);
                body::accepted()
            }
            Ok(batch) => talk.answer_batch(desk, caller, batch),
            Err(error) => refuse(&error),
        }
    }
}

/// Whether a message wants no answer.
fn is_told(message: &Result<Message, Malformed>) -> bool {
    matches!(message, Ok(Message::Notification { .. } | Message::Response { .. }))
}

// === impl Talk ===

impl Talk {
    /// Answers a batch over HTTP as a stream, which is also the way back while it is worked on.
    fn answer_batch(self: &Arc<Self>, desk: &Arc<Shift>, guest: &Guest, batch: Batch) -> Reply {
        let reel = Reel::fresh(self.streams.fetch_add(1, Ordering::Relaxed), None);
        let expected = Expected(Arc::clone(&reel));
        let mut answers = batch.begin(desk, self, guest, || Line::through(Arc::clone(&reel), guest));
        self.reels.keep(&reel);
        let reply = body::stream(reel.read_after(0, false));
        drop(expected);
        // They are said whether somebody reads them now or comes back for them.
        tokio::spawn(async move {
            while let Some(answer) = answers.recv().await {
                reel.say(&answer);
            }
            reel.end();
        });
        reply
    }
}
