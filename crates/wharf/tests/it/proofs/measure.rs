//! What a process holds: what must be the same again when everything is over.

use std::fs;

/// What is there of a process that could be left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Open descriptors.
    pub(crate) files: usize,
    /// Threads.
    pub(crate) threads: usize,
    /// Processes below it that ended and were not reaped.
    pub(crate) zombies: usize,
    /// Processes below it that live.
    pub(crate) children: usize,
    /// Tasks of the runtime this is called in.
    pub(crate) tasks: usize,
}

impl Held {
    /// What this process holds now.
    pub(crate) fn now() -> Self {
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        let (zombies, children) = below(std::process::id());
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        Self { files: count("/proc/self/fd"), threads: count("/proc/self/task"), zombies, children, tasks }
    }

    /// Whether nothing is more than it was.
    pub(crate) fn is_within(self, before: Self) -> bool {
        self.files <= before.files
            && self.threads <= before.threads
            && self.zombies <= before.zombies
            && self.children <= before.children
            && self.tasks <= before.tasks
    }
}

/// How many children of a process are zombies, and how many live.
fn below(parent: u32) -> (usize, usize) {
    let parent = parent.to_string();
    let (mut zombies, mut children) = (0, 0);
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let mut rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let (state, above) = (rest.next().unwrap_or_default(), rest.next().unwrap_or_default());
        match state {
            "Z" | "X" if above == parent => zombies += 1,
            _ if above == parent => children += 1,
            _ => {}
        }
    }
    (zombies, children)
}

/// Resident memory of this process in KiB.
pub(crate) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
