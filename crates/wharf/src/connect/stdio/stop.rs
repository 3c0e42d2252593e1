//! Ending a server: wait after its standard input was closed, then SIGTERM, then SIGKILL, to its whole tree.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::PoisonError;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::{Mutex, watch};

use super::spawner::OwnFolder;
use super::watchdog::Guarded;
use crate::sandbox::Cgroup;

/// The process group of a server.
pub(super) struct Group {
    pid: u32,
    confined: bool,
    exit: watch::Receiver<Option<String>>,
    grace: Duration,
    /// Held while it is being stopped; true when that was done. Stopping twice is stopping once.
    stopped: Mutex<bool>,
    /// What it started, as far as that was seen.
    tree: std::sync::Mutex<Vec<Member>>,
    /// The folder it was started in, if it is ours: it goes with the server, after the last process that may use it.
    folder: std::sync::Mutex<Option<OwnFolder>>,
    /// Goes with it.
    bounds: std::sync::Mutex<Option<Cgroup>>,
    /// Goes when nothing of it is left.
    guarded: std::sync::Mutex<Option<Guarded>>,
}

/// What a group is made of.
pub(super) struct Held {
    pub(super) pid: u32,
    /// It runs in a sandbox: the process that we started only holds it, and goes with the one inside.
    pub(super) confined: bool,
    /// The folder it was started in, if it is ours.
    pub(super) folder: Option<OwnFolder>,
    /// What bounds all of it.
    pub(super) bounds: Option<Cgroup>,
    /// What ends it if we are killed.
    pub(super) guarded: Guarded,
}

/// How long SIGKILL may take to be seen. A process that hangs in the kernel is not waited for.
const KILLED: Duration = Duration::from_secs(2);

impl Group {
    pub(super) fn new(held: Held, exit: watch::Receiver<Option<String>>, grace: Duration) -> Self {
        let (stopped, tree) = (Mutex::new(false), std::sync::Mutex::default());
        let Held { pid, confined, folder, bounds, guarded } = held;
        let bounds = std::sync::Mutex::new(bounds);
        let folder = std::sync::Mutex::new(folder);
        let guarded = std::sync::Mutex::new(Some(guarded));
        Self { pid, confined, exit, grace, stopped, tree, folder, bounds, guarded }
    }

    /// Writes down everything below the server. A child that left the group with `setsid` is found through its parents, as
    /// long as they live, and by the server's own folder, as long as it stands there.
    pub(super) fn mark_tree(&self) {
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        let now = members(self.pid, folder.as_ref().map(OwnFolder::path));
        self.tree.lock().unwrap_or_else(PoisonError::into_inner).extend(now);
    }

    /// Ends the server and everything it started. The tree is written down before each step.
    pub(super) async fn stop(&self) {
        let mut stopped = self.stopped.lock().await;
        if *stopped {
            return;
        }
        self.mark_tree();
        if !self.gone_within(self.grace).await {
            self.mark_tree();
            self.signal(Signal::TERM);
            self.gone_within(self.grace).await;
        }
        // Also after a crash: what it left behind still stands in its folder.
        self.mark_tree();
        self.signal(Signal::KILL);
        self.gone_within(KILLED).await;
        self.clear_away();
        *stopped = true;
    }

    /// What remains to be done when every process is gone.
    fn clear_away(&self) {
        drop(self.guarded.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.bounds.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.folder.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    async fn gone_within(&self, time: Duration) -> bool {
        let mut exit = self.exit.clone();
        tokio::time::timeout(time, exit.wait_for(Option::is_some)).await.is_ok()
    }

    fn signal(&self, signal: Signal) {
        // What holds a sandbox would go at once and take the server along, which is to have its chance to leave.
        let spare = self.confined && signal != Signal::KILL;
        if !spare && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // Gone already is what we want.
            let _ = kill_process_group(pid, signal);
        }
        let tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        let below = tree.iter().filter(|member| !(spare && member.parent == self.pid));
        below.for_each(|member| member.signal(signal));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The runtime went before the server could be ended politely.
        if !*self.stopped.get_mut() {
            self.mark_tree();
            self.signal(Signal::KILL);
            self.clear_away();
        }
    }
}

/// A process below the server, known by its start time too, so that a reused number is not taken for it.
struct Member {
    pid: u32,
    parent: u32,
    started: u64,
}

impl Member {
    fn signal(&self, signal: Signal) {
        let same = read_stat(self.pid).is_some_and(|stat| stat.started == self.started);
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw).filter(|_| same) {
            let _ = kill_process(pid, signal);
        }
    }
}

struct Stat {
    parent: u32,
    started: u64,
}

/// Everything that the process started, as far as its parents still live, and everything that stands in its own folder.
/// Empty where there is no `/proc`.
fn members(root: u32, folder: Option<&Path>) -> Vec<Member> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let processes: HashMap<u32, Stat> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| read_stat(pid).map(|stat| (pid, stat)))
        .collect();
    let below_root = |pid: u32| {
        let mut at = pid;
        // Bounded: a chain of parents is never longer than the table.
        for _ in 0..processes.len() {
            match processes.get(&at) {
                Some(stat) if stat.parent == root => return true,
                Some(stat) => at = stat.parent,
                None => return false,
            }
        }
        false
    };
    let folder = folder.and_then(|folder| folder.canonicalize().ok());
    let stands_there = |pid: u32| folder.as_ref().is_some_and(|folder| stands_in(pid, folder));
    let all = processes.iter().filter(|(pid, _)| **pid != std::process::id());
    let ours = all.filter(|(pid, _)| below_root(**pid) || stands_there(**pid));
    ours.map(|(pid, stat)| Member { pid: *pid, parent: stat.parent, started: stat.started }).collect()
}

/// Whether a process has its working folder or its root in there. Of processes of others nobody can tell.
fn stands_in(pid: u32, folder: &Path) -> bool {
    let within = |what: &str| {
        std::fs::read_link(format!("/proc/{pid}/{what}")).is_ok_and(|place| place.starts_with(folder))
    };
    within("cwd") || within("root")
}

fn read_stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields after the last one are plain numbers.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat { parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
}

/// An exit status in words. What holds a sandbox tells of a signal inside by a number, as shells do.
pub(super) fn describe(status: ExitStatus, confined: bool) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code @ 129..=192), _) if confined => format!("it was killed by signal {}", code - 128),
        (Some(0), _) => "it ended by itself (exit status 0)".into(),
        (Some(code), _) => format!("it ended with exit status {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".into(),
    }
}
