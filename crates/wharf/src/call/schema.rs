//! Arguments are checked before anything is sent.
//!
//! In: a tool's schema and the arguments, both as their senders wrote them. Out: nothing, or what is wrong in words that
//! a model can act on. Schemas come from servers: they are measured before they are built, never lead to the network
//! or a file, and what may take long runs aside, with a deadline.

mod build;
mod cache;
mod flat;
mod graph;
mod index;
mod measure;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;

use self::build::Compiled;
use self::cache::Cache;
use crate::error::Error;
use crate::names::{ServerName, ToolName};
use crate::wire::Json;

/// The bounds on a schema.
pub mod limits {
    pub use super::graph::{CHAIN_MAX, WORK_MAX};
    pub use super::measure::{BYTES_MAX, DEPTH_MAX, NODES_MAX, PATTERN_LEN_MAX, PATTERNS_MAX};
}

/// Compiled schemas, kept for the next call. One for the whole host; cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Validators {
    cache: Arc<Cache>,
    /// A thread cannot be stopped: past its deadline it goes on, so there are never more than a few of them.
    aside: Arc<Semaphore>,
    deadline: Duration,
}

/// Why arguments were not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The schema cannot be used, so no arguments can be accepted.
    Schema {
        /// What is wrong with it.
        reason: String,
    },
    /// The arguments are wrong.
    Arguments {
        /// One sentence for each problem, the last one perhaps `and 3 more`.
        problems: Vec<String>,
    },
}

/// Threads that build or validate aside at one time.
const ASIDE: usize = 2;
/// How long a check may take, waiting for its turn included.
const DEADLINE: Duration = Duration::from_secs(5);
/// The stack of a thread aside: enough for the deepest arguments under the deepest accepted schema. Only what is used
/// of it costs memory.
const STACK: usize = 128 * 1024 * 1024;
/// Arguments larger than this are read and checked aside.
const INLINE_BYTES: usize = 64 * 1024;

// === impl Validators ===

impl Default for Validators {
    fn default() -> Self {
        Self { cache: Arc::default(), aside: Arc::new(Semaphore::new(ASIDE)), deadline: DEADLINE }
    }
}

impl Validators {
    /// The same with another deadline than 5 seconds, for machines that are slow or busy.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Checks arguments against a schema. The bytes that were checked are the bytes to send.
    ///
    /// A schema that is known, with arguments of ordinary size, is checked on the spot. Dropping the future loses
    /// nothing but the answer.
    pub async fn check(&self, schema: &Json, arguments: &Json) -> Result<(), Misfit> {
        self.check_as(schema, arguments, read).await
    }

    /// Whether arguments certainly fit a schema, as far as a glance can tell. Most do; the others have to be checked.
    pub fn fit(&self, schema: &Json, arguments: &Json) -> bool {
        let fits = |compiled: &Arc<Compiled>| compiled.fits_plainly(arguments);
        self.cache.look(schema, |verdict| verdict.as_ref().is_ok_and(fits)).unwrap_or(false)
    }

    /// The same for what a tool answered, which need not be an object.
    pub async fn check_result(&self, schema: &Json, result: &Json) -> Result<(), Misfit> {
        self.check_as(schema, result, read_any).await
    }

    async fn check_as(
        &self,
        schema: &Json,
        arguments: &Json,
        read: fn(&Json) -> Result<Value, Misfit>,
    ) -> Result<(), Misfit> {
        let compiled = self.compiled(schema).await?;
        let bytes = arguments.bytes().len();
        if compiled.fits_plainly(arguments) {
            return Ok(());
        }
        if bytes <= INLINE_BYTES {
            let value = read(arguments)?;
            let load = compiled.weigh(&value, bytes);
            if load.is_light() {
                return compiled.judge(&value, &load);
            }
        }
        let arguments = arguments.clone();
        self.run_aside(
            || None,
            move || {
                let value = read(&arguments)?;
                compiled.judge(&value, &compiled.weigh(&value, bytes))
            },
        )
        .await?
    }

    /// Whether a schema can be used at all, so that a tool can be refused before it is called.
    pub async fn usable(&self, schema: &Json) -> Result<(), Misfit> {
        self.compiled(schema).await.map(drop)
    }

    async fn compiled(&self, schema: &Json) -> Result<Arc<Compiled>, Misfit> {
        let verdict = match self.cache.get(schema) {
            Some(verdict) => verdict,
            None => {
                let (text, cache) = (schema.clone(), Arc::clone(&self.cache));
                let build = move || {
                    let verdict = build::compile(&text).map(Arc::new).map_err(Arc::from);
                    cache.put(&text, &verdict);
                    verdict
                };
                // Many calls may want the same schema at once: it is built for the first of them.
                self.run_aside(|| self.cache.get(schema), build).await?
            }
        };
        verdict.map_err(|reason: Arc<str>| Misfit::Schema { reason: reason.to_string() })
    }

    /// Runs what may take long on a thread of its own with a deep stack. The thread is started and joined from the
    /// blocking pool, so that a paused clock waits for it. What is `known` when the turn comes is not worked out again.
    async fn run_aside<T: Send + 'static>(
        &self,
        known: impl FnOnce() -> Option<T>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Misfit> {
        let unusable = |reason: &str| Misfit::Schema { reason: reason.to_owned() };
        let aside = Arc::clone(&self.aside);
        let finished = tokio::time::timeout(self.deadline, async move {
            let turn = aside.acquire_owned().await.ok()?;
            if let Some(known) = known() {
                return Some(known);
            }
            let joined = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                let thread =
                    std::thread::Builder::new().name("wharf-schema".into()).stack_size(STACK).spawn(work);
                thread.ok()?.join().ok()
            });
            joined.await.ok().flatten()
        });
        match finished.await {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(unusable("checking it failed inside Wharf")),
            Err(_) => Err(unusable("checking it took too long; it is too complex")),
        }
    }
}

// === impl Misfit ===

impl Misfit {
    /// The error for a call of that tool.
    pub fn into_error(self, server: ServerName, tool: ToolName) -> Error {
        match self {
            Self::Schema { reason } => Error::Schema { server, tool, reason },
            Self::Arguments { problems } => Error::Arguments { server, tool, problems },
        }
    }

    fn arguments(problem: impl Into<String>) -> Self {
        Self::Arguments { problems: vec![problem.into()] }
    }
}

/// Reads arguments: an object, not too deep, no key twice in any object.
fn read(arguments: &Json) -> Result<Value, Misfit> {
    if !arguments.is_object() {
        let got = words::short(arguments.as_str());
        return Err(Misfit::arguments(format!("the arguments must be an object, got {got}")));
    }
    read_any(arguments)
}

/// Reads any value: not too deep, no key twice in any object.
fn read_any(arguments: &Json) -> Result<Value, Misfit> {
    let value: serde_json::Result<Value> = arguments.to();
    // A map keeps one of two members with the same key: if none is missing, no key stands twice. Otherwise it is looked
    // up which one does.
    let all_there = value.as_ref().is_ok_and(|value| arguments.count_members() == Some(count_members(value)));
    if !all_there {
        arguments.refuse_duplicates().map_err(|e| {
            Misfit::arguments(format!("the arguments cannot be read: {}", words::short(&e.to_string())))
        })?;
    }
    value.map_err(|e| Misfit::arguments(format!("the arguments cannot be read: {e}")))
}

/// How many members the objects in a value have together.
fn count_members(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.len() + members.values().map(count_members).sum::<usize>(),
        Value::Array(items) => items.iter().map(count_members).sum(),
        _ => 0,
    }
}
