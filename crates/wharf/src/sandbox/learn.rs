//! Learning a profile: a confined start is watched from outside, and what it was refused is read from the notes.
//!
//! In: the notes of `strace`, which is found as bubblewrap is, and what the server is let into so far. Out: the files and
//! folders that it looked for in vain though they are there. The server stays confined while it is watched: nothing that it
//! is not let into is shown to it, and the person decides what of the proposal is given.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::grants::{Access, Grants, real};
use super::{Confined, Sandbox, bwrap};

/// What a server would need that it is not let into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// What it tried to read.
    pub read: Vec<PathBuf>,
    /// What it tried to change.
    pub write: Vec<PathBuf>,
}

/// Where the system has it.
const STRACE: [&str; 2] = ["/usr/bin/strace", "/bin/strace"];
/// So many files of one folder stand for the folder.
const MANY: usize = 4;
/// Calls that change something, whatever their flags.
const CHANGES: [&str; 11] = [
    "mkdir",
    "mkdirat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "creat",
    "symlinkat",
    "truncate",
];

impl Sandbox {
    /// Watches what programs look for, and writes it to this file: see [`Sandbox::learn`].
    ///
    /// # Errors
    /// If there is no `strace` to watch with.
    pub fn watched(mut self, notes: impl Into<PathBuf>) -> Result<Self, String> {
        let strace = bwrap::find_in(&STRACE, "strace")?;
        self.watch = Some((strace, notes.into()));
        Ok(self)
    }

    /// Reads from the notes of a watched run what `program` was refused, beyond what it is let into already.
    pub fn learn(&self, notes: &str, program: &Path, let_in: (&[PathBuf], &[PathBuf])) -> Learnt {
        let (read, write) = let_in;
        let within = |places: &[PathBuf], path: &Path| places.iter().any(|place| path.starts_with(place));
        let grants = Grants::new(self);
        let (mut reads, mut writes) = (BTreeSet::new(), BTreeSet::new());
        for refused in refusals(notes, program) {
            // A file that is to be made is made in its folder.
            let found =
                real(&refused.path).or_else(|| real(refused.path.parent()?).filter(|_| refused.changes));
            let Some(path) = found else { continue };
            if refused.changes && !within(write, &path) && grants.allows(&path, Access::Write) {
                writes.insert(path);
            } else if !refused.changes
                && !within(read, &path)
                && !within(write, &path)
                && grants.allows(&path, Access::Read)
            {
                reads.insert(path);
            }
        }
        reads.retain(|path| !path.ancestors().any(|above| writes.contains(above)));
        Learnt { read: gather(&reads, &grants), write: gather(&writes, &grants) }
    }

    pub(super) fn watch(&self, confined: Confined) -> Confined {
        let Some((strace, notes)) = &self.watch else { return confined };
        let mut args: Vec<OsString> =
            ["-f", "-qq", "-s", "4096", "-e", "trace=%file", "-e", "signal=none", "-A", "-o"]
                .map(Into::into)
                .to_vec();
        args.extend([notes.into(), "--".into(), confined.program.into()]);
        args.extend(confined.args);
        Confined { program: strace.clone(), args, ..confined }
    }
}

/// Something that was looked for in vain.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    path: PathBuf,
    changes: bool,
}

/// What failed, from the moment on when the server itself was started.
fn refusals(notes: &str, program: &Path) -> Vec<Refused> {
    let start = format!("execve(\"{}\"", program.display());
    let mut unfinished: HashMap<&str, &str> = HashMap::new();
    let mut refused = Vec::new();
    for line in notes.lines().skip_while(|line| !line.contains(&start)) {
        let Some((pid, said)) = line.split_once(' ') else { continue };
        let said = said.trim_start();
        let whole = if let Some(begun) = said.strip_suffix(" <unfinished ...>") {
            unfinished.insert(pid, begun);
            continue;
        } else if let Some((_, rest)) =
            said.strip_prefix("<... ").and_then(|said| said.split_once(" resumed>"))
        {
            format!("{}{rest}", unfinished.remove(pid).unwrap_or_default())
        } else {
            said.to_owned()
        };
        refused.extend(refusal(&whole));
    }
    refused
}

fn refusal(call: &str) -> Option<Refused> {
    const REASONS: [&str; 4] = ["= -1 ENOENT", "= -1 EACCES", "= -1 EROFS", "= -1 EPERM"];
    if !REASONS.iter().any(|reason| call.contains(reason)) {
        return None;
    }
    let (name, arguments) = call.split_once('(')?;
    let quoted = arguments.split_once('"')?.1.split_once('"')?.0;
    let path = Path::new(quoted);
    // The kernel's own are another matter, and so is what was escaped.
    let kernel = ["/proc", "/sys", "/dev"].iter().any(|kernel| path.starts_with(kernel));
    if !path.is_absolute() || kernel || quoted.contains('\\') {
        return None;
    }
    let opened = ["O_WRONLY", "O_RDWR", "O_CREAT", "W_OK"].iter().any(|flag| arguments.contains(flag));
    Some(Refused { path: path.to_path_buf(), changes: opened || CHANGES.contains(&name) })
}

/// Whole folders in the place of many of their files, and nothing twice.
fn gather(paths: &BTreeSet<PathBuf>, grants: &Grants<'_>) -> Vec<PathBuf> {
    let mut folders: HashMap<&Path, usize> = HashMap::new();
    for parent in paths.iter().filter_map(|path| path.parent()) {
        *folders.entry(parent).or_default() += 1;
    }
    let stands_for = |path: &PathBuf| {
        let parent = path.parent().filter(|parent| folders.get(parent).is_some_and(|files| *files >= MANY));
        parent
            .filter(|parent| grants.allows(parent, Access::Write))
            .map_or_else(|| path.clone(), Path::to_path_buf)
    };
    let all: BTreeSet<PathBuf> = paths.iter().map(stands_for).collect();
    all.iter().filter(|path| !path.ancestors().skip(1).any(|above| all.contains(above))).cloned().collect()
}
