//! Starting a program with a permit, and ending it with everything it started.
//!
//! This is the only place in Wharf that starts a process. In: a [`LaunchPermit`]. Out: a [`Child`] in a process group of
//! its own, its pipes, the last lines of its standard error, and the certainty that nothing is left after [`Child::stop`].

mod spawner;
mod stderr;
mod stop;
mod watchdog;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::monitor::Monitor;
use crate::error::StderrTail;
use crate::names::ServerName;
use crate::policy::LaunchPermit;
use stderr::Tail;

/// A running program.
pub(crate) struct Child {
    group: Arc<stop::Group>,
    stderr: Tail,
    exit: watch::Receiver<Option<String>>,
}

/// A program that was just started.
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
}

/// Starts the program that the permit is for. A permit without a folder gets an empty one below `scratch`.
pub(crate) async fn start(
    permit: LaunchPermit,
    scratch: PathBuf,
    monitor: &Monitor,
) -> Result<Started, String> {
    let server: ServerName = permit.server().clone();
    let program = permit.program().display().to_string();
    let spawned =
        spawner::spawn(permit, scratch).await.map_err(|e| format!("`{program}` cannot be started: {e}"))?;
    let (tell_exit, exit) = watch::channel(None);
    let group = Arc::new(stop::Group::new(spawned.pid, exit.clone()));
    let stderr = Tail::follow(spawned.stderr, server, monitor.clone());
    let folder = spawned.folder;
    let mut process = spawned.process;
    tokio::spawn(async move {
        let status = process.wait().await.map_or_else(|e| format!("it was lost: {e}"), stop::describe);
        tell_exit.send_replace(Some(status));
        // The folder is the server's own; it goes with the server.
        drop(folder);
    });
    Ok(Started { child: Child { group, stderr, exit }, stdin: spawned.stdin, stdout: spawned.stdout })
}

// === impl Child ===

impl Child {
    /// Closes nothing itself: the caller closes standard input first. Then waits, terminates, kills; the whole tree.
    pub(crate) async fn stop(&self) {
        self.group.stop().await;
    }

    /// How it ended, once it has.
    pub(crate) fn exit(&self) -> watch::Receiver<Option<String>> {
        self.exit.clone()
    }

    /// Its last words.
    pub(crate) fn stderr(&self) -> StderrTail {
        self.stderr.lines()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Nobody may be left to await a polite end: a task finishes it, and if the runtime is gone, a signal does.
        let group = Arc::clone(&self.group);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { group.stop().await })),
            Err(_) => group.kill(),
        }
    }
}
