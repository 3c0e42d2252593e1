//! Bubblewrap: finding one that can be trusted, and telling it the plan.
//!
//! In: a plan. Out: its command line. Bubblewrap is no policy of its own: what it is told here is all the protection there
//! is, so every flag has its reason beside it. It is looked for in the system's own folders, never on `PATH`.

use std::ffi::OsString;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::plan::{Mount, Plan, STAGE_AT};
use super::{Confined, STAGE};

/// Where bubblewrap is installed by the system.
const PLACES: [&str; 2] = ["/usr/bin/bwrap", "/bin/bwrap"];

/// The system's bubblewrap, if nobody but root can have put it there. The error says what to do.
pub(super) fn find() -> Result<PathBuf, String> {
    let mut why = "bubblewrap is not installed".to_owned();
    for place in PLACES {
        match trusted(Path::new(place)) {
            Ok(Some(real)) => return Ok(real),
            Ok(None) => {}
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

fn trusted(place: &Path) -> Result<Option<PathBuf>, String> {
    const WRITABLE: u32 = 0o022;
    let Ok(real) = place.canonicalize() else { return Ok(None) };
    for part in real.ancestors() {
        let meta =
            part.symlink_metadata().map_err(|e| format!("{} cannot be looked at: {e}", part.display()))?;
        // In a user namespace the system's files belong to nobody.
        if meta.uid() != 0 || meta.mode() & WRITABLE != 0 {
            return Err(format!(
                "{} is not trusted: others than root can change {}",
                place.display(),
                part.display()
            ));
        }
    }
    Ok(Some(real))
}

/// The command line for a plan.
pub(super) fn confine(program: &Path, plan: &Plan) -> io::Result<Confined> {
    let mut line = Line { args: Vec::new(), files: Vec::new() };
    line.words(&[
        // Each on its own, and none of them optional: what cannot be had must not be passed over.
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        // The init of the namespace goes when we go, and with it everything inside.
        "--die-with-parent",
        // No terminal to type into.
        "--new-session",
        // As root it would keep them all.
        "--cap-drop",
        "ALL",
        "--hostname",
        "wharf",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]);
    for mount in &plan.mounts {
        line.mount(mount)?;
    }
    // As root it could change the kernel's settings through the one; the others are folders in memory.
    for read_only in ["/proc", "/dev", "/"] {
        line.words(&["--remount-ro", read_only]);
    }
    line.words(&["--chdir", "/"]);
    line.words(&["--", STAGE_AT, STAGE, plan.first_role()]);
    let preamble = plan.messages(false)?;
    Ok(Confined { program: program.to_path_buf(), args: line.args, preamble, files: line.files, group: None })
}

struct Line {
    args: Vec<OsString>,
    files: Vec<OwnedFd>,
}

impl Line {
    fn words(&mut self, words: &[&str]) {
        self.args.extend(words.iter().map(Into::into));
    }

    fn paths(&mut self, flag: &str, paths: [&Path; 2]) {
        self.args.push(flag.into());
        self.args.extend(paths.map(|path| path.as_os_str().to_owned()));
    }

    fn mount(&mut self, mount: &Mount) -> io::Result<()> {
        match mount {
            Mount::Read { from, at } => self.paths("--ro-bind", [from, at]),
            Mount::Write { from, at } => self.paths("--bind", [from, at]),
            Mount::Link { to, at } => self.paths("--symlink", [to, at]),
            Mount::Private { at, size } => {
                self.words(&["--perms", "0700", "--size", &size.to_string(), "--tmpfs"]);
                self.args.push(at.into());
            }
            Mount::Nothing { at } => {
                self.words(&["--perms", "0500", "--size", "4096", "--tmpfs"]);
                self.args.push(at.into());
                self.args.extend(["--remount-ro".into(), at.into()]);
            }
            Mount::Text { at, text } => {
                let file = memory_file(text)?;
                self.args.extend(["--ro-bind-data".into(), file.as_raw_fd().to_string().into(), at.into()]);
                self.files.push(file);
            }
        }
        Ok(())
    }
}

/// A file in memory that the next program we start inherits. It holds nothing that another one may not see.
fn memory_file(text: &str) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let mut file = std::fs::File::from(memfd_create("wharf", MemfdFlags::empty())?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}
