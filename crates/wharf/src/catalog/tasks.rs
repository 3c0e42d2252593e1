//! Tasks that are watched: a modern server tells how far each of them is, as long as somebody here wants to know.
//!
//! In: a connection and the id of a task as its server knows it. Out: the states that the server tells of, as it wrote
//! them. What was told while nobody could hear it is not told again: whoever watches may always ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::offered::Part;
use crate::connect::{Connection, Listening};
use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::wire::Json;

/// Who wants to know of which task. Cheap to clone; one for a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskWatchers(Arc<Mutex<HashMap<Key, broadcast::Sender<Json>>>>);

/// Word of one task, as long as it is held.
#[derive(Debug)]
pub(crate) struct TaskNews {
    states: broadcast::Receiver<Json>,
    _listening: Listening,
}

type Key = (ServerName, String);

/// How many states a listener may fall behind. The last one counts.
const BACKLOG: usize = 64;

// === impl TaskWatchers ===

impl TaskWatchers {
    /// Watches a task. When this returns, the server has agreed.
    pub(crate) async fn watch(
        &self,
        connection: &Connection,
        id: &str,
        timeout: Duration,
    ) -> Result<TaskNews> {
        Part::Tasks.require(connection)?;
        // Registered first: the server may tell something before it has agreed.
        let states = self.register((connection.server().clone(), id.to_owned()));
        let wanted = Json::of(&serde_json::json!({ "taskIds": [id] }));
        let (listening, honoured) = connection.listen_for(wanted, timeout, || {}).await?;
        let ids = honoured.member("taskIds").and_then(|ids| ids.to::<Vec<String>>().ok());
        let is_refused = ids.map_or(!honoured.is_null(), |ids| !ids.iter().any(|known| known == id));
        if is_refused {
            return Err(Error::NotOffered {
                server: connection.server().clone(),
                what: "no word of the task".into(),
                hint: "the server was asked and left it out; ask for the task instead".into(),
            });
        }
        Ok(TaskNews { states, _listening: listening })
    }

    /// A server says how far a task is. False if nobody wants to know.
    pub(crate) fn heard(&self, server: &ServerName, state: &Json) -> bool {
        let Some(id) = state.member("taskId").and_then(|id| id.to::<String>().ok()) else { return false };
        let tell = self.lock().get(&(server.clone(), id)).cloned();
        tell.is_some_and(|tell| tell.send(state.clone()).is_ok())
    }

    fn register(&self, key: Key) -> broadcast::Receiver<Json> {
        let mut all = self.lock();
        all.retain(|_, tell| tell.receiver_count() > 0);
        all.entry(key).or_insert_with(|| broadcast::channel(BACKLOG).0).subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, broadcast::Sender<Json>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl TaskNews ===

impl TaskNews {
    /// Waits until the server tells how far the task is. `None` when no more word will come.
    pub(crate) async fn next(&mut self) -> Option<Json> {
        loop {
            match self.states.recv().await {
                Ok(state) => return Some(state),
                // Those that came later are still there.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
