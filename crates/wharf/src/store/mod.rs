//! What outlives a run: the record of everything that was decided and done, and calls that wait for somebody's yes.
//!
//! In: facts, by a [`Trail`]. Out: one SQLite file with a chain of records, written by one thread,
//! and ways to search and to check it; in the same file, a queue of [`Approvals`]. Where the file is, is for the program to say; who may do what is decided above.

mod approvals;
mod chain;
mod database;
mod head;
mod record;
mod request;
mod search;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use approvals::{ApprovalOptions, Approvals, Said, Standing};
pub(crate) use request::Request;
pub use request::{Reaching, Waiting};
pub use search::{Log, Record, Search};
pub use verify::{Finding, Verified};

use crate::error::{Error, Result};
use crate::event::Trail;
use crate::policy::Live;
use writer::Writer;

/// The keeper of the record: a thread that writes what comes by its [`Trail`]. It ends with the last clone of that.
#[derive(Clone, Debug)]
pub struct Audit {
    trail: Trail,
    path: PathBuf,
    options: Live<AuditOptions>,
}

/// How a record is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditOptions {
    /// Whether arguments are on record by size and digest alone. Defaults to false: small ones are, without secrets.
    pub digest_only: bool,
    /// How long records are kept. Defaults to for ever.
    pub keep_for: Option<Duration>,
    /// How large the log may grow before its oldest records go, in bytes. Defaults to any size.
    pub keep_size: Option<u64>,
}

/// How long facts are gathered before they are written together. A process that is killed loses no record that is older. A
/// call that is under way is on record when the next group is written as well.
pub const GROUP: Duration = Duration::from_millis(5);
/// How often what was written is made to survive a loss of power.
pub const SYNC: Duration = Duration::from_secs(1);

// === impl Audit ===

impl Audit {
    /// Opens the log, and makes it if there is none: the file is its owner's alone, and so is a folder that is made for
    /// it. An error: nothing can be written there, so nothing may run.
    pub fn open(path: impl Into<PathBuf>, options: AuditOptions) -> Result<Self> {
        let path = path.into();
        let (trail, facts) = Trail::new();
        let options = Live::from(options);
        let writer =
            Writer::open(path.clone(), options.clone(), facts).map_err(|why| trouble(&path, &why))?;
        let thread = std::thread::Builder::new().name("wharf-audit".into());
        thread.spawn(move || writer.run()).map_err(|e| trouble(&path, &e.to_string()))?;
        Ok(Self { trail, path, options })
    }

    /// The way to the log, for [`HostBuilder::audit`](crate::host::HostBuilder::audit).
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// How the log is kept. What is put in the place of it counts for what is written from then on.
    pub fn options(&self) -> &Live<AuditOptions> {
        &self.options
    }

    /// Where the log is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until everything so far is written where a loss of power does not reach it.
    pub async fn flush(&self) -> Result<()> {
        self.trail.flush().await
    }
}

impl From<&Audit> for Trail {
    fn from(audit: &Audit) -> Self {
        audit.trail.clone()
    }
}

fn trouble(path: &Path, why: &str) -> Error {
    let message = format!("the audit log {} cannot be written: {why}", path.display());
    let hint = "make its folder writable for you alone, or name another file with `path` in `[audit]`";
    Error::Config { message, hint: Some(hint.into()) }
}
