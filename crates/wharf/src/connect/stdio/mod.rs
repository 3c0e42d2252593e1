//! Starting a program with a permit, and ending it with everything it started.
//!
//! This is the only place in Wharf that starts a process. In: a [`LaunchPermit`]. Out: a [`Child`] in a process group of
//! its own, its pipes, the last lines of its standard error, and the certainty that nothing is left after [`Child::stop`].

mod spawner;
mod stderr;
mod stop;
mod watchdog;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::monitor::Monitor;
use crate::error::StderrTail;
use crate::event::{Fact, Kind, Trail};
use crate::names::ServerName;
use crate::policy::LaunchPermit;
use crate::sandbox::{Sandbox, WayOut};
pub(super) use spawner::OwnFolder;
use stderr::Tail;

/// How a program ended, for whoever waits to know.
#[derive(Clone)]
pub(crate) struct Ending {
    exit: watch::Receiver<Option<String>>,
    stderr: Tail,
}

/// A running program.
pub(crate) struct Child {
    group: Arc<stop::Group>,
    stderr: Tail,
    exit: watch::Receiver<Option<String>>,
    leaving: Leaving,
    /// Kept as long as the program.
    _way_out: Option<WayOut>,
}

/// A program that was just started.
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    /// What a person should know of how it was confined.
    pub(crate) warnings: Vec<String>,
}

/// Why a program was not started.
pub(crate) enum Unstarted {
    /// It has to be confined, and cannot be.
    Unconfined { reason: String, hint: String },
    /// It was tried.
    Failed(String),
}

/// The programs of a scope: how many there are of each server, and those that are on their way out, though nobody waits for
/// one of them.
#[derive(Clone, Debug)]
pub struct Leaving {
    gone: Arc<watch::Sender<()>>,
    running: Arc<Mutex<HashMap<ServerName, usize>>>,
}

/// One program that is there.
struct Running {
    among: Leaving,
    server: ServerName,
}

/// Where programs are started, and how they are ended.
#[derive(Clone, Debug)]
pub(crate) struct Yard {
    /// A permit without a folder gets an empty one in here.
    pub(crate) scratch: PathBuf,
    /// How long a program may take to leave after its input was closed, and again after SIGTERM.
    pub(crate) grace: Duration,
    pub(crate) leaving: Leaving,
    /// How programs are confined that have to be.
    pub(crate) sandbox: Option<Sandbox>,
    /// The way to the network, for one that is given any.
    pub(crate) way_out: Option<WayOut>,
    /// Where it is kept that a program was started, and that it ended.
    pub(crate) trail: Trail,
}

/// How long a sandbox may take to read what is to be done in it.
const READ: Duration = Duration::from_secs(10);

/// Starts the program that the permit is for. In a task of its own: whoever gives up meanwhile does not lose sight of a
/// program that is just being started, but lets it be ended as any other.
pub(crate) async fn start(permit: LaunchPermit, yard: Yard, monitor: Monitor) -> Result<Started, Unstarted> {
    // Dropped after what was started: until that has begun to leave, this one is on its way out.
    let here = yard.leaving.gone.subscribe();
    let starting = tokio::spawn(async move { (begin(permit, yard, &monitor).await, here) });
    let (started, _here) =
        starting.await.map_err(|e| Unstarted::Failed(format!("it cannot be started: {e}")))?;
    started
}

async fn begin(permit: LaunchPermit, yard: Yard, monitor: &Monitor) -> Result<Started, Unstarted> {
    let server: ServerName = permit.server().clone();
    let program = permit.program().display().to_string();
    let spawned = spawner::spawn(permit, yard.scratch, yard.sandbox, yard.way_out.clone()).await?;
    let started =
        Fact { outcome: Some("ok"), ..Fact::new(Kind::Launch).of(&server).allowed().because(&program) };
    yard.trail.record(|| started);
    let (tell_exit, exit) = watch::channel(None);
    let confined = spawned.inside.is_some();
    let (bounds, clue, preamble, warnings) = match spawned.inside {
        Some(inside) => (inside.group, Some(inside.clue), inside.preamble, inside.warnings),
        None => (None, None, Vec::new(), Vec::new()),
    };
    let held =
        stop::Held { pid: spawned.pid, confined, folder: spawned.folder, bounds, guarded: spawned.guarded };
    let group = Arc::new(stop::Group::new(held, exit.clone(), yard.grace));
    let stderr = Tail::follow(spawned.stderr, server.clone(), monitor.clone(), clue);
    let mut process = spawned.process;
    let trail = yard.trail;
    let running = yard.leaving.one_more(&server);
    tokio::spawn(async move {
        let describe = |status| stop::describe(status, confined);
        let status = process.wait().await.map_or_else(|e| format!("it was lost: {e}"), describe);
        // Before it is told: whoever waited for the end finds it on record.
        trail.record(|| Fact::new(Kind::Stop).of(&server).because(&status));
        drop(running);
        tell_exit.send_replace(Some(status));
    });
    let child = Child { group, stderr, exit, leaving: yard.leaving, _way_out: yard.way_out };
    let mut stdin = spawned.stdin;
    // One that is gone already is told by its exit status, and one that does not read by its silence.
    let _ = tokio::time::timeout(READ, stdin.write_all(&preamble)).await;
    Ok(Started { child, stdin, stdout: spawned.stdout, warnings })
}

// === impl Child ===

impl Child {
    /// Writes down what the program has started. To be done before its standard input is closed: a program that leaves
    /// at once takes the way to its children with it.
    pub(crate) fn mark_tree(&self) {
        self.group.mark_tree();
    }

    /// Closes nothing itself: the caller closes standard input first. Then waits, terminates, kills; the whole tree.
    pub(crate) async fn stop(&self) {
        self.group.stop().await;
    }

    /// How it will have ended.
    pub(crate) fn ending(&self) -> Ending {
        Ending { exit: self.exit.clone(), stderr: self.stderr.clone() }
    }

    /// What its words about a call that failed may mean, where it is confined.
    pub(crate) fn advice(&self, said: &str) -> Option<String> {
        self.stderr.advice(said)
    }

    /// Its last words.
    pub(crate) fn stderr(&self) -> StderrTail {
        self.stderr.lines()
    }
}

// === impl Leaving ===

impl Default for Leaving {
    fn default() -> Self {
        Self { gone: Arc::new(watch::channel(()).0), running: Arc::default() }
    }
}

impl Leaving {
    /// Waits until all are gone.
    pub(crate) async fn all_gone(&self) {
        self.gone.closed().await;
    }

    /// How many programs there are of a server, whatever they do.
    pub(crate) fn running(&self, server: &ServerName) -> usize {
        self.lock().get(server).copied().unwrap_or_default()
    }

    fn one_more(&self, server: &ServerName) -> Running {
        *self.lock().entry(server.clone()).or_default() += 1;
        Running { among: self.clone(), server: server.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServerName, usize>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.among.lock();
        let left = running.get(&self.server).map_or(0, |there| there.saturating_sub(1));
        match left {
            0 => drop(running.remove(&self.server)),
            left => drop(running.insert(self.server.clone(), left)),
        }
    }
}

// === impl Ending ===

impl Ending {
    /// Waits until the process is gone.
    pub(crate) async fn exited(&mut self) {
        if self.exit.wait_for(Option::is_some).await.is_err() {
            // Nobody watches over the process any more: the runtime is going.
            std::future::pending::<()>().await;
        }
    }

    /// Standard output ends just before the process does: waits a moment for its exit status, which says more, and for
    /// its last words, which belong to it.
    pub(crate) async fn wait(mut self) -> String {
        const SOON: Duration = Duration::from_millis(500);
        let status = tokio::time::timeout(SOON, self.exit.wait_for(Option::is_some)).await;
        let Some(status) = status.ok().and_then(Result::ok).and_then(|status| status.clone()) else {
            return "it closed its standard output".into();
        };
        // Something that it started may hold standard error open for ever.
        let _ = tokio::time::timeout(SOON, self.stderr.until_end()).await;
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Nobody may be left to await a polite end: a task finishes it, and if the runtime is gone, a signal does.
        let group = Arc::clone(&self.group);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let here = self.leaving.gone.subscribe();
                drop(runtime.spawn(async move {
                    group.stop().await;
                    drop(here);
                }));
            }
            // The group kills what is left when it is dropped.
            Err(_) => drop(group),
        }
    }
}
