//! Programs that were started: kept so that they end, and what the kernel knows of them.
//!
//! In: children. Out: their memory, their time on a core, how many programs they started. And on which cores all of
//! this runs.

use std::fs;
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A program that ends with this.
pub(crate) struct Kept {
    child: Child,
    ended: bool,
}

/// On which cores everything runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    All,
    One,
    /// The caller on one, the servers on another, the gateway where it wants: each message wakes a core, as it does where
    /// callers and servers are not on the core that happens to be awake.
    Apart,
}

/// Every program that runs, so that none is left when a measurement hangs.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// How long a program may take to end by itself.
const GRACE: Duration = Duration::from_secs(20);

// === impl Kept ===

impl Kept {
    pub(crate) fn new(child: Child) -> Self {
        RUNNING.lock().unwrap().push(child.id());
        Self { child, ended: false }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended already.
    pub(crate) fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended, having been told to.
    pub(crate) fn end(&mut self) {
        let started = Instant::now();
        while !self.is_over() && started.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.ended = true;
        RUNNING.lock().unwrap().retain(|pid| *pid != self.child.id());
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn terminate(&mut self) {
        // Its number may be another's by then.
        if !self.ended {
            signal(self.pid(), Signal::TERM);
            self.end();
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.terminate();
    }
}

// === impl Cores ===

impl Cores {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all cores",
            Self::One => "one core",
            Self::Apart => "cores apart",
        }
    }

    /// Runs this, and whatever it starts, on these.
    pub(crate) fn with<T>(self, work: impl FnOnce() -> T) -> T {
        let all = sched_getaffinity(None).unwrap();
        if self == Self::One {
            stay_on(last_core());
        }
        let done = work();
        sched_setaffinity(None, &all).unwrap();
        done
    }

    /// Whether this machine has them.
    pub(crate) fn are_there(self) -> bool {
        self != Self::Apart || first_core() != last_core()
    }

    /// The core that servers stay on, if it is not the caller's.
    pub(crate) fn of_servers(self) -> Option<usize> {
        (self == Self::Apart).then(last_core)
    }

    /// The caller begins to ask: from now on it stays where the servers are not.
    pub(crate) fn settle(self) {
        if self == Self::Apart {
            stay_on(first_core());
        }
    }
}

/// This thread, and what it starts, stays on a core.
pub(crate) fn stay_on(core: usize) {
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).unwrap();
}

fn first_core() -> usize {
    let all = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap()
}

fn last_core() -> usize {
    let all = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).rev().find(|core| all.is_set(*core)).unwrap()
}

/// How much memory a program has, in kilobytes.
pub(crate) fn resident(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// How much of it is no file's, so not the program itself.
pub(crate) fn written(pid: u32) -> u64 {
    memory(pid, "RssAnon:")
}

fn memory(pid: u32, kind: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// How long a program's threads were on a core.
pub(crate) fn on_core(pid: u32) -> Duration {
    // The clocks of whole processes are too coarse for a short round; those of threads count nanoseconds.
    let of_thread = |task: fs::DirEntry| {
        let clock = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        clock.split_whitespace().next().and_then(|on| on.parse().ok()).unwrap_or(0)
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    Duration::from_nanos(tasks.flatten().map(of_thread).sum())
}

/// The programs that it has started and that still run.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let of_thread = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let numbers: Vec<String> = tasks.map(of_thread).collect();
    numbers.iter().flat_map(|text| text.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}

/// These, and those that they have started.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let own = children(pid);
    own.iter().copied().chain(own.iter().flat_map(|child| descendants(*child))).collect()
}

/// Whether a program sees other files than we do.
pub(crate) fn is_elsewhere(pid: u32) -> bool {
    let world = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    world(&pid.to_string()).is_some_and(|theirs| Some(theirs) != world("self"))
}

/// Lets this program and those it starts have as many files open as they may.
pub(crate) fn raise_files() {
    let most = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}

/// What this machine is, in a line.
pub(crate) fn machine() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "Machine: {cores} cores, {}, Linux {}, load {}.",
        model.trim_start_matches([' ', '\t', ':']),
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")
    )
}

/// Ends everything when it is not done after this long: a figure that never comes is a failure too.
pub(crate) fn end_after(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("not done after {limit:?}");
        RUNNING.lock().unwrap().iter().for_each(|pid| signal(*pid, Signal::KILL));
        std::process::exit(1);
    });
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, signal);
    }
}
