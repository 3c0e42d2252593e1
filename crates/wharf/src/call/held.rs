//! A tool that a legacy server runs only as a task: begun, waited for, and answered as if it were any other.
//!
//! The experimental tasks of 2025-11-25 are no tasks of the modern era. Nobody else needs to know of them: the call is
//! held here until the task has its result. A call that is given up cancels its task.

use std::sync::Arc;
use std::time::Duration;

use super::send::Call;
use crate::connect::{Companion, Connection, Request};
use crate::error::{Error, Result};
use crate::mcp::{Era, method};
use crate::wire::{Json, Members};

/// How long a server keeps the result for us to fetch, beyond the time that the call may take.
const KEPT: Duration = Duration::from_secs(60);

/// Whether a call must be made as a task, and the server knows how.
pub(super) fn is_needed(connection: &Connection, call: &Call<'_>) -> bool {
    let info = connection.info();
    let tasks = || info.capabilities.member("tasks")?.member("requests")?.member("tools")?.member("call");
    call.tool.needs_task && info.revision.era() == Era::Legacy && tasks().is_some()
}

/// Asks for a task instead of a result.
pub(super) fn ask_for(params: &mut Members, limit: Duration) {
    let mut task = Members::new();
    let kept = limit.saturating_add(KEPT).as_millis();
    task.number("ttl", u64::try_from(kept).unwrap_or(u64::MAX).min(MOST_MS));
    params.object("task", &task);
}

/// A day.
const MOST_MS: u64 = 24 * 60 * 60 * 1000;

/// Waits for the task that an answer names, and gives its result.
pub(super) async fn wait(
    connection: &Connection,
    call: &Call<'_>,
    answer: Json,
    left: Duration,
) -> Result<Json> {
    let id = answer.member("task").and_then(|task| task.member("taskId")).filter(|id| !id.is_null());
    // It answered at once, as it would any other call.
    let Some(id) = id else { return Ok(answer) };
    let mut params = Members::new();
    params.json("taskId", &id);
    let mut running = Running { connection, id, over: false };
    let mut request = Request::new(method::TASKS_RESULT, params, left);
    request.hard_timeout = left;
    request.usual = call.usual;
    request.tool = Some(&call.tool.name);
    request.told = call.relayed.map(|relayed| &relayed.told);
    // What the task wants to know it asks whoever waits for its result.
    let relayed = call.relayed.filter(|_| call.private);
    request.companion = relayed.map(|relayed| Arc::clone(relayed) as Arc<dyn Companion>);
    let result = connection.request(request).await;
    running.over = !matches!(result, Err(Error::Timeout { .. }));
    // The task was begun, whatever became of the question how it goes.
    result.map_err(|error| error.once_begun(method::TOOLS_CALL))
}

/// A task that somebody waits for.
struct Running<'a> {
    connection: &'a Connection,
    id: Json,
    over: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.over || !self.connection.is_open() {
            return;
        }
        let (connection, mut params) = (self.connection.clone(), Members::new());
        params.json("taskId", &self.id);
        tokio::spawn(async move {
            // Whether it could still be cancelled changes nothing for anybody here.
            let _ = connection.request(Request::new(method::TASKS_CANCEL, params, KEPT)).await;
        });
    }
}
