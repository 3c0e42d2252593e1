//! Calls that somebody must allow: a queue that outlives the connection, the session and the process.
//!
//! In: a call that policy says to ask about. Out: whether it may be made now, is refused, or waits. A yes holds for one
//! caller and one server as it is configured, and for exactly this call unless it was given for more.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::chain::hex;
use super::database::{self, words};
use super::record::now;
use super::request::{Reaching, Request, Waiting};
use super::writer::{number, unsigned};
use crate::error::{Error, Result};
use crate::policy::Live;

/// The queue. Cheap to clone; the file is opened when there is something to ask.
#[derive(Clone, Debug)]
pub struct Approvals(Arc<Queue>);

#[derive(Debug)]
struct Queue {
    path: PathBuf,
    options: Live<ApprovalOptions>,
    /// Tells the sessions of this process from those of others.
    run: String,
    database: Mutex<Option<Connection>>,
}

/// How the queue is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalOptions {
    /// How long a call waits for an answer. Defaults to not at all.
    pub wait: Duration,
    /// For how long a question can be answered, and a yes be used. Defaults to an hour.
    pub expires: Duration,
    /// Whether a caller of the gateway that can be asked may answer for itself. Defaults to true.
    pub callers: bool,
}

/// What the queue says to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may be made: by this approval.
    Allowed(u64),
    /// Somebody said no.
    Denied(u64),
    /// Nobody has said anything.
    Waiting(u64),
}

/// What is said to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Yes, and how far it reaches.
    Allow(Reaching),
    /// No.
    Deny,
}

/// How often is looked for an answer.
const LOOK: Duration = Duration::from_millis(100);
/// How many questions one caller may have open.
const MOST_OF_ONE: i64 = 100;
/// How long it is known what became of a question.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

const FIND: &str = "SELECT id, state FROM approvals
    WHERE caller = ?1 AND server = ?2 AND identity = ?3 AND expires > ?4 AND (
        (state = 'allowed' AND reach = 'session' AND session = ?5)
        OR (tool = ?6 AND state = 'allowed' AND reach = 'tool')
        OR (tool = ?6 AND state = 'allowed' AND reach = 'shape' AND shape = ?7)
        OR (tool = ?6 AND state = 'allowed' AND reach = 'once' AND digest = ?8)
        OR (tool = ?6 AND state = 'denied' AND digest = ?8))
    ORDER BY state = 'denied' DESC, reach = 'once', id LIMIT 1";

impl Default for ApprovalOptions {
    fn default() -> Self {
        Self { wait: Duration::ZERO, expires: Duration::from_secs(60 * 60), callers: true }
    }
}

// === impl Approvals ===

impl Approvals {
    /// The queue in this file, which is made when it is needed.
    pub fn new(path: impl Into<PathBuf>, options: ApprovalOptions) -> Result<Self> {
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(|e| Error::Internal(e.to_string()))?;
        let (path, run) = (path.into(), hex(&run));
        Ok(Self(Arc::new(Queue { path, options: options.into(), run, database: Mutex::default() })))
    }

    /// How it is kept. What is put in the place of it counts for every question from then on.
    pub fn options(&self) -> &Live<ApprovalOptions> {
        &self.0.options
    }

    /// Whether somebody has already said something to this call. A yes to it alone is used up by this.
    pub(crate) async fn claim(&self, request: &Request) -> Result<Option<Standing>> {
        let request = request.clone();
        self.with(move |queue, database| queue.claim(database, &request)).await
    }

    /// Puts a call into the queue, and waits for an answer as long as calls may.
    pub(crate) async fn ask(&self, request: &Request) -> Result<Standing> {
        let asked = request.clone();
        let id = self.with(move |queue, database| queue.enqueue(database, &asked)).await?;
        let waiting = async {
            loop {
                tokio::time::sleep(LOOK).await;
                if let Some(said) = self.claim(request).await? {
                    return Ok(said);
                }
            }
        };
        let wait = self.0.options.now().wait;
        if wait.is_zero() {
            return Ok(Standing::Waiting(id));
        }
        tokio::time::timeout(wait, waiting).await.unwrap_or(Ok(Standing::Waiting(id)))
    }

    /// What waits for an answer, the oldest first.
    pub fn waiting(&self) -> Result<Vec<Waiting>> {
        self.0.locked(|_, database| {
            let sql = format!("{} WHERE state = 'waiting' AND expires > ?1 ORDER BY id", Waiting::SELECT);
            let mut rows = database.prepare(&sql)?;
            rows.query_map([number(now())], Waiting::read)?.collect()
        })
    }

    /// One question, if it can still be answered.
    pub fn get(&self, id: u64) -> Result<Option<Waiting>> {
        Ok(self.waiting()?.into_iter().find(|waiting| waiting.id == id))
    }

    /// Answers a question, and says for how long that counts. False: it was answered already, or is too old.
    pub fn answer(&self, id: u64, said: Said, good_for: Option<Duration>) -> Result<bool> {
        self.0.locked(|queue, database| {
            let until = now() + micros(good_for.unwrap_or_else(|| queue.options.now().expires));
            let (state, reach) = match said {
                Said::Allow(reach) => ("allowed", Some(reach.as_str())),
                Said::Deny => ("denied", None),
            };
            // What was shown to whoever answered is not kept.
            let sql = "UPDATE approvals SET state = ?1, reach = ?2, expires = ?3, arguments = NULL
                WHERE id = ?4 AND state = 'waiting' AND expires > ?5";
            let changed = database.execute(sql, (state, reach, number(until), number(id), number(now())))?;
            Ok(changed == 1)
        })
    }

    /// A session of this process, as the queue knows it.
    pub(crate) fn session(&self, number: u64) -> String {
        format!("{}/{number}", self.0.run)
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Queue, &mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let queue = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || queue.locked(work)).await;
        done.map_err(|e| Error::Internal(format!("the queue of approvals: {e}")))?
    }
}

// === impl Queue ===

impl Queue {
    fn locked<T>(&self, work: impl FnOnce(&Self, &mut Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut open = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let database = match &mut *open {
            Some(database) => database,
            none => {
                let fresh = database::open(&self.path).map_err(|why| unusable(&self.path, &why))?;
                none.insert(fresh)
            }
        };
        work(self, database).map_err(|e| {
            let why = words(e);
            // Opened anew the next time: the file may be another then.
            *open = None;
            unusable(&self.path, &why)
        })
    }

    fn claim(&self, database: &mut Connection, request: &Request) -> rusqlite::Result<Option<Standing>> {
        let change = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let values = (
            &request.caller,
            &request.server,
            &request.identity,
            number(now()),
            &request.session,
            &request.tool,
            &request.shape,
            &request.digest,
        );
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
        let Some((id, state)) = change.query_row(FIND, values, read).optional()? else { return Ok(None) };
        if state == "denied" {
            return Ok(Some(Standing::Denied(unsigned(id))));
        }
        change.execute("UPDATE approvals SET state = 'used' WHERE id = ?1 AND reach = 'once'", [id])?;
        change.commit()?;
        Ok(Some(Standing::Allowed(unsigned(id))))
    }

    fn enqueue(&self, database: &mut Connection, request: &Request) -> rusqlite::Result<u64> {
        let change = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let time = now();
        change.execute(
            "DELETE FROM approvals WHERE expires < ?1",
            [number(time.saturating_sub(micros(REMEMBERED)))],
        )?;
        let sql = "SELECT id FROM approvals WHERE state = 'waiting' AND expires > ?1
            AND caller = ?2 AND server = ?3 AND identity = ?4 AND tool = ?5 AND digest = ?6";
        let values = (
            number(time),
            &request.caller,
            &request.server,
            &request.identity,
            &request.tool,
            &request.digest,
        );
        if let Some(id) = change.query_row(sql, values, |row| row.get(0)).optional()? {
            return Ok(unsigned(id));
        }
        let sql = "SELECT count(*) FROM approvals WHERE state = 'waiting' AND expires > ?1 AND caller = ?2";
        let open: i64 = change.query_row(sql, (number(time), &request.caller), |row| row.get(0))?;
        if open >= MOST_OF_ONE {
            // The oldest make room: a caller that asks so much has forgotten them.
            let sql = "UPDATE approvals SET expires = 0 WHERE id =
                (SELECT min(id) FROM approvals WHERE state = 'waiting' AND expires > ?1 AND caller = ?2)";
            change.execute(sql, (number(time), &request.caller))?;
        }
        let sql = "INSERT INTO approvals (created, expires, state, caller, session, server, identity, tool, digest, shape, arguments, why)
            VALUES (?1, ?2, 'waiting', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        let until = time + micros(self.options.now().expires);
        let values = rusqlite::params![
            number(time),
            number(until),
            request.caller,
            request.session,
            request.server,
            request.identity,
            request.tool,
            request.digest,
            request.shape,
            request.arguments,
            request.why,
        ];
        change.execute(sql, values)?;
        let id = unsigned(change.last_insert_rowid());
        change.commit()?;
        Ok(id)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 4)
}

fn unusable(path: &Path, why: &str) -> Error {
    let message = format!("the queue of approvals in {} cannot be used: {why}", path.display());
    Error::Config { message, hint: Some("make its folder writable for you".into()) }
}
