//! Requests under way that go on by themselves, and can be cancelled by their ids. Over a pipe there are only so many,
//! each with an id of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::limits::{Overloaded, SOON};
use crate::mcp::{code, method};
use crate::wire::{Json, Pieces, RpcError};

/// What is under way, by the ids as they were written. Dropping it ends nothing.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<Under>);

/// How many requests one caller may have under way on a pipe.
const MOST: usize = 1024;

/// Of one caller, so by a quick hash.
type Under = HashMap<Bytes, AbortHandle, foldhash::fast::RandomState>;

// === impl Calls ===

impl Calls {
    /// Starts the work of a request. The receiver fails if it is cancelled: then nothing is to be answered.
    pub(super) fn start(
        self: &Arc<Self>,
        id: &Json,
        work: impl Future<Output = Pieces> + Send + 'static,
    ) -> oneshot::Receiver<Pieces> {
        let (told, done) = oneshot::channel();
        let (calls, key) = (Arc::clone(self), id.bytes().clone());
        self.enter(id, async move {
            let message = work.await;
            calls.lock().remove(&key);
            let _ = told.send(message);
        });
        done
    }

    /// The same where answers go out on one line each. One that is cancelled has none. The error is the answer to one
    /// that is not begun.
    pub(super) fn start_into(
        self: &Arc<Self>,
        id: &Json,
        work: impl Future<Output = Pieces> + Send + 'static,
        out: mpsc::Sender<Vec<u8>>,
    ) -> Result<(), RpcError> {
        let (calls, key) = (Arc::clone(self), id.bytes().clone());
        {
            let under_way = self.lock();
            if under_way.contains_key(id.bytes()) {
                return Err(RpcError::new(
                    code::INVALID_REQUEST,
                    "a request with this id is under way already",
                ));
            }
            if under_way.len() >= MOST {
                return Err(Overloaded { retry_after: SOON }.into());
            }
        }
        self.enter(id, async move {
            let message = work.await;
            // It is under way until it can be told. Forgotten before it is: its caller may use the id again at once.
            let place = out.reserve().await;
            calls.lock().remove(&key);
            if let Ok(place) = place {
                place.send(message.into_line());
            }
        });
        Ok(())
    }

    fn enter(&self, id: &Json, work: impl Future<Output = ()> + Send + 'static) {
        // Held until the call is entered, so that its end finds it there.
        let mut under_way = self.lock();
        under_way.insert(id.bytes().clone(), tokio::spawn(work).abort_handle());
    }

    /// Hears what the caller tells: whether it wants something no more.
    pub(super) fn hear(&self, method: &str, params: Option<&Json>) {
        if method == method::CANCELLED
            && let Some(id) = params.and_then(|params| params.member("requestId"))
            && let Some(call) = self.lock().remove(id.bytes())
        {
            call.abort();
        }
    }

    /// Ends everything.
    pub(super) fn cancel_all(&self) {
        self.lock().drain().for_each(|(_, call)| call.abort());
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Under> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
