//! Bounds that hold for a server and everything it starts together: control groups, where the machine lets us make them.
//!
//! In: the limits of a profile. Out: a [`Cgroup`] that the stage joins before anything else, in either version of the
//! kernel's interface, or none. It goes when the server has gone; what a killed gateway left is swept up by the next.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::plan::Limits;

/// A group in each hierarchy that bounds something.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folders: Vec<PathBuf>,
}

/// Where groups can be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hierarchies {
    memory: Option<Hierarchy>,
    processes: Option<Hierarchy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    parent: PathBuf,
    /// The file that bounds.
    file: &'static str,
}

const NAME: &str = "wharf-";
/// A group that is empty for so long is nobody's any more; sooner, if the gateway that made it is gone. Its number alone
/// is not enough: it may be one of another container.
const STALE: Duration = Duration::from_secs(60);
const ORPHANED: Duration = Duration::from_secs(2);
/// How often a group is tried to be removed at once, and later, and how long is waited in between.
const AT_ONCE: usize = 20;
const LATER: usize = 100;
const MOMENT: Duration = Duration::from_millis(2);

// === impl Hierarchies ===

impl Hierarchies {
    /// Looks where groups can be made.
    pub(super) fn find() -> Self {
        let (Ok(own), Ok(mounts)) =
            (fs::read_to_string("/proc/self/cgroup"), fs::read_to_string("/proc/self/mountinfo"))
        else {
            return Self::default();
        };
        let unified = Self::unified(&own, &mounts);
        let old = |controller: &str, file| {
            let parent = place(&own, &mounts, Some(controller)).filter(|parent| may_make(parent))?;
            Some(Hierarchy { parent, file })
        };
        let found = Self {
            memory: unified.memory.or_else(|| old("memory", "memory.limit_in_bytes")),
            processes: unified.processes.or_else(|| old("pids", "pids.max")),
        };
        found.sweep();
        found
    }

    /// The one hierarchy of today: beside our own group, because a group with processes has none below it.
    fn unified(own: &str, mounts: &str) -> Self {
        let Some(group) = place(own, mounts, None) else { return Self::default() };
        let mut found = Self::default();
        for parent in group.ancestors().take(2).filter(|parent| may_make(parent)) {
            let given = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
            let has = |controller| given.split_whitespace().any(|word| word == controller);
            let at = |file| Hierarchy { parent: parent.to_path_buf(), file };
            if has("memory") && found.memory.is_none() {
                found.memory = Some(at("memory.max"));
            }
            if has("pids") && found.processes.is_none() {
                found.processes = Some(at("pids.max"));
            }
        }
        found
    }

    fn sweep(&self) {
        for hierarchy in self.memory.iter().chain(&self.processes) {
            let Ok(entries) = hierarchy.parent.read_dir() else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let stale = if is_orphan(&name) { ORPHANED } else { STALE };
                let is_old =
                    || entry.metadata().ok()?.modified().ok()?.elapsed().ok().filter(|age| *age > stale);
                if name.starts_with(NAME) && is_old().is_some() {
                    // One that is in use cannot be removed.
                    let _ = fs::remove_dir(entry.path());
                }
            }
        }
    }

    /// Makes a group with these bounds; `None` where none can be made.
    pub(super) fn make(&self, limits: &Limits) -> io::Result<Option<Cgroup>> {
        let mut group = Cgroup { folders: Vec::new() };
        let name = format!("{NAME}{}-{:016x}", std::process::id(), fastrand::u64(..));
        let bounds = [(&self.memory, limits.memory), (&self.processes, limits.processes)];
        for (hierarchy, bound) in bounds {
            let Some(Hierarchy { parent, file }) = hierarchy else { continue };
            let folder = parent.join(&name);
            if !group.folders.contains(&folder) {
                fs::create_dir(&folder)?;
                group.folders.push(folder.clone());
            }
            fs::write(folder.join(file), bound.to_string())?;
        }
        Ok((!group.folders.is_empty()).then_some(group))
    }

    /// What is bounded by groups, in words.
    pub(super) fn describe(&self) -> String {
        let by = |found: &Option<Hierarchy>| if found.is_some() { "control group" } else { "process limit" };
        format!("memory by {}, processes by {}", by(&self.memory), by(&self.processes))
    }
}

/// Whether the process that made a group is gone, by the number in its name.
fn is_orphan(name: &str) -> bool {
    let maker = name.strip_prefix(NAME).and_then(|rest| rest.split('-').next());
    maker.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
}

/// Whether a group can be made there, and processes moved into it from beside it.
fn may_make(parent: &Path) -> bool {
    use rustix::fs::{Access, access};
    let writable = |path: &Path| access(path, Access::WRITE_OK).is_ok();
    writable(parent) && writable(&parent.join("cgroup.procs"))
}

/// The folder of our own group: in the hierarchy of a controller, or in the unified one.
fn place(own: &str, mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
    let group = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = match controller {
            Some(controller) => controllers.split(',').any(|one| one == controller),
            None => controllers.is_empty(),
        };
        is_it.then_some(path)
    })?;
    let (root, at) = mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut fields = front.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        let mut kind = back.split(' ');
        let is_it = match (kind.next()?, controller) {
            ("cgroup", Some(controller)) => kind.nth(1)?.split(',').any(|option| option == controller),
            ("cgroup2", None) => true,
            _ => false,
        };
        is_it.then_some((root, at))
    })?;
    let below = Path::new(group).strip_prefix(root).ok()?;
    let folder = Path::new(at).join(below);
    folder.is_dir().then_some(folder)
}

// === impl Cgroup ===

impl Cgroup {
    /// The files into which a process writes itself to join.
    pub(super) fn doors(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.join("cgroup.procs")).collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.folders);
        // The kernel may still be burying the last process, which takes it a moment.
        for _ in 0..AT_ONCE {
            remove(&mut left);
            if left.is_empty() {
                return;
            }
            std::thread::sleep(MOMENT);
        }
        // If that takes longer, nobody waits for it; and if longer still, the next gateway sweeps.
        let wait = move || {
            for _ in 0..LATER {
                std::thread::sleep(10 * MOMENT);
                remove(&mut left);
                if left.is_empty() {
                    return;
                }
            }
        };
        drop(std::thread::Builder::new().name("wharf-cgroup".into()).spawn(wait));
    }
}

/// Removes the groups that can be, and keeps the others.
fn remove(folders: &mut Vec<PathBuf>) {
    folders.retain(|folder| fs::remove_dir(folder).is_err() && folder.exists());
}
