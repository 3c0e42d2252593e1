//! Ending a server: wait after its standard input was closed, then SIGTERM, then SIGKILL, to its whole tree.

use std::collections::HashMap;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::{Mutex, watch};

use super::watchdog;

/// The process group of a server.
pub(super) struct Group {
    pid: u32,
    exit: watch::Receiver<Option<String>>,
    /// Held while it is being stopped; true when that was done. Stopping twice is stopping once.
    stopped: Mutex<bool>,
}

/// How long a server may take to leave after its input was closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

impl Group {
    pub(super) fn new(pid: u32, exit: watch::Receiver<Option<String>>) -> Self {
        Self { pid, exit, stopped: Mutex::new(false) }
    }

    /// Ends the server and everything it started. The tree is written down before each step: a child that left the
    /// group with `setsid` is still found through its parents.
    pub(super) async fn stop(&self) {
        let mut stopped = self.stopped.lock().await;
        if *stopped {
            return;
        }
        let mut tree = descendants(self.pid);
        if !self.gone_within(GRACE).await {
            tree.extend(descendants(self.pid));
            self.signal(Signal::TERM);
            tree.iter().for_each(|member| member.signal(Signal::TERM));
            if !self.gone_within(GRACE).await {
                tree.extend(descendants(self.pid));
            }
        }
        self.kill();
        tree.iter().for_each(|member| member.signal(Signal::KILL));
        self.gone_within(GRACE).await;
        watchdog::release(self.pid);
        *stopped = true;
    }

    /// Kills the group at once.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    async fn gone_within(&self, time: Duration) -> bool {
        let mut exit = self.exit.clone();
        tokio::time::timeout(time, exit.wait_for(Option::is_some)).await.is_ok()
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // Gone already is what we want.
            let _ = kill_process_group(pid, signal);
        }
    }
}

/// A process below the server, known by its start time too, so that a reused number is not taken for it.
struct Member {
    pid: u32,
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

/// Everything that the process started, as far as its parents still live. Empty where there is no `/proc`.
fn descendants(root: u32) -> Vec<Member> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let processes: HashMap<u32, Stat> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| read_stat(pid).map(|stat| (pid, stat)))
        .collect();
    let below_root = |pid: &u32| {
        let mut at = *pid;
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
    let below: Vec<u32> = processes.keys().filter(|pid| below_root(pid)).copied().collect();
    below.into_iter().map(|pid| Member { pid, started: processes[&pid].started }).collect()
}

fn read_stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields after the last one are plain numbers.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat { parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
}

/// An exit status in words.
pub(super) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(0), _) => "it ended by itself (exit status 0)".into(),
        (Some(code), _) => format!("it ended with exit status {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".into(),
    }
}
