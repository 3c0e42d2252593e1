//! Our own engine, inside: the room.
//!
//! In: the mounts of a plan. Out: a file system with those and nothing else, no capabilities, and the next stage running
//! in it. This process stays as the first of its process namespace: it buries what is orphaned, and ends with the server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::mount::{
    MountFlags as Flags, MountPropagationFlags as Propagation, UnmountFlags, mount, mount_bind,
    mount_bind_recursive, mount_change, mount_remount, unmount,
};
use rustix::process::{DumpableBehavior, WaitOptions, pivot_root, set_dumpable_behavior, setsid, wait};
use rustix::thread::CapabilitySet;

use super::enter::die_with_parent;
use super::{Build, code_of, loopback, next, receive, step_aside};
use crate::sandbox::plan::{Mount, STAGE_AT};

/// Where the room is built, and where the machine is seen from meanwhile.
const NEW: &str = "/new";
const OLD: &str = "/old";
const TEXTS: &str = "/texts";
/// A folder that every machine has, to build in. Ours covers it, for us alone.
const BASE: &str = "/tmp";
const SAFE: Flags = Flags::NOSUID.union(Flags::NODEV);

type Done = Result<(), String>;

pub(super) fn build() -> Result<ExitCode, String> {
    die_with_parent()?;
    let Build { mounts, role } = receive()?;
    setsid().map_err(|e| format!("it cannot have a session of its own: {e}"))?;
    begin()?;
    kernel()?;
    for (number, mount) in mounts.iter().enumerate() {
        place(mount, number)
            .map_err(|e| format!("{} cannot be put into the sandbox: {e}", mount.at().display()))?;
    }
    loopback::up()?;
    rustix::system::sethostname(b"wharf").map_err(|e| format!("its name cannot be set: {e}"))?;
    for read_only in ["/new/dev", NEW] {
        seal(Path::new(read_only), true)?;
    }
    go_in()?;
    drop_privileges()?;
    let server = next(STAGE_AT, &role)?;
    step_aside();
    let server = i32::try_from(server.id()).unwrap_or_default();
    // As the first process of the namespace we are everybody's parent in the end.
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_pid() == server => {
                return Ok(code_of(status.exit_status(), status.terminating_signal()));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("the server was lost: {e}")),
        }
    }
}

/// A root of our own, from which the machine is seen under [`OLD`].
fn begin() -> Done {
    let failed = |what: &'static str| move |e: rustix::io::Errno| format!("{what}: {e}");
    mount_change("/", Propagation::PRIVATE | Propagation::REC)
        .map_err(failed("mounts cannot be made private"))?;
    mount("tmpfs", BASE, "tmpfs", SAFE, Some(c"mode=0755"))
        .map_err(failed("no folder in memory can be had"))?;
    let base = Path::new(BASE);
    for folder in [NEW, OLD, TEXTS] {
        folder_at(&base.join(folder.trim_start_matches('/')))?;
    }
    pivot_root(BASE, base.join("old").as_path()).map_err(failed("the root cannot be changed"))?;
    rustix::process::chdir("/").map_err(failed("the root cannot be gone to"))?;
    mount_bind(NEW, NEW).map_err(failed("the new root cannot be mounted"))
}

/// What the kernel gives to every room: its processes and the harmless devices.
fn kernel() -> Done {
    let failed = |what: &str, e: rustix::io::Errno| format!("{what} cannot be mounted: {e}");
    let proc = inside(Path::new("/proc"));
    folder_at(&proc)?;
    mount("proc", &proc, "proc", SAFE | Flags::NOEXEC, None).map_err(|e| failed("/proc", e))?;
    // As root it could change the kernel's settings through it.
    let read_only = Flags::BIND | Flags::RDONLY | SAFE | Flags::NOEXEC;
    mount_remount(&proc, read_only, "").map_err(|e| failed("/proc", e))?;
    let dev = inside(Path::new("/dev"));
    folder_at(&dev)?;
    mount("tmpfs", &dev, "tmpfs", Flags::NOSUID, Some(c"mode=0755")).map_err(|e| failed("/dev", e))?;
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        let (from, at) = (Path::new("/old/dev").join(name), dev.join(name));
        file_at(&at)?;
        mount_bind(&from, &at).map_err(|e| failed(name, e))?;
    }
    for (at, to) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let to = format!("/proc/self/fd{to}");
        std::os::unix::fs::symlink(to, dev.join(at)).map_err(|e| format!("/dev/{at} cannot be made: {e}"))?;
    }
    Ok(())
}

fn place(what: &Mount, number: usize) -> Done {
    let at = inside(what.at());
    let said = |e: rustix::io::Errno| e.to_string();
    match what {
        Mount::Read { from, .. } => bind(&outside(from), &at, true),
        Mount::Write { from, .. } => bind(&outside(from), &at, false),
        Mount::Link { to, .. } => {
            folder_at(at.parent().unwrap_or(Path::new(NEW)))?;
            if at.symlink_metadata().is_ok() {
                return Ok(());
            }
            std::os::unix::fs::symlink(to, &at).map_err(|e| e.to_string())
        }
        Mount::Private { size, .. } => {
            folder_at(&at)?;
            let options =
                std::ffi::CString::new(format!("mode=0700,size={size}")).map_err(|e| e.to_string())?;
            mount("tmpfs", &at, "tmpfs", SAFE, Some(options.as_c_str())).map_err(said)
        }
        Mount::Nothing { .. } => {
            folder_at(&at)?;
            mount("tmpfs", &at, "tmpfs", SAFE | Flags::RDONLY, Some(c"mode=0500,size=4096")).map_err(said)
        }
        Mount::Text { text, .. } => {
            let file = Path::new(TEXTS).join(number.to_string());
            std::fs::write(&file, text).map_err(|e| e.to_string())?;
            bind(&file, &at, true)
        }
    }
}

fn bind(from: &Path, at: &Path, read_only: bool) -> Done {
    let meta = from.metadata().map_err(|e| e.to_string())?;
    if meta.is_dir() {
        folder_at(at)?
    } else {
        file_at(at)?
    }
    mount_bind_recursive(from, at).map_err(|e| e.to_string())?;
    seal(at, read_only)
}

/// Takes from a mount, and from every mount in it, what a confined program must not have.
fn seal(at: &Path, read_only: bool) -> Done {
    let mounts = std::fs::read_to_string("/old/proc/self/mountinfo")
        .map_err(|e| format!("mounts cannot be read: {e}"))?;
    let only = read_only && (at == Path::new(NEW) || at.ends_with("dev"));
    for (place, held) in mounts.lines().filter_map(parse) {
        if place != at && (only || !place.starts_with(at)) {
            continue;
        }
        let mut flags = Flags::BIND | Flags::NOSUID | held;
        if !place.starts_with("/new/dev") {
            flags |= Flags::NODEV;
        }
        if read_only {
            flags |= Flags::RDONLY;
        }
        match mount_remount(&place, flags, "") {
            // What we cannot even get to, nobody inside can.
            Ok(()) | Err(rustix::io::Errno::ACCESS) => {}
            Err(e) => return Err(format!("{} cannot be sealed: {e}", place.display())),
        }
    }
    Ok(())
}

/// Where a mount is, and what it forbids already: that cannot be taken back, and must be said again.
fn parse(line: &str) -> Option<(PathBuf, Flags)> {
    let mut fields = line.split(' ').skip(4);
    let (place, options) = (fields.next()?, fields.next()?);
    let flag = |word: &str| match word {
        "ro" => Flags::RDONLY,
        "nosuid" => Flags::NOSUID,
        "nodev" => Flags::NODEV,
        "noexec" => Flags::NOEXEC,
        "noatime" => Flags::NOATIME,
        "nodiratime" => Flags::NODIRATIME,
        "relatime" => Flags::RELATIME,
        _ => Flags::empty(),
    };
    let held = options.split(',').map(flag).fold(Flags::empty(), |all, one| all | one);
    Some((PathBuf::from(unescape(place)), held))
}

/// The kernel writes spaces and such as `\040`.
fn unescape(text: &str) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = text.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(out)
}

/// Makes the room the root, and lets go of the machine.
fn go_in() -> Done {
    let failed = |e: rustix::io::Errno| format!("the sandbox cannot be entered: {e}");
    unmount(OLD, UnmountFlags::DETACH).map_err(failed)?;
    rustix::process::chdir(NEW).map_err(failed)?;
    pivot_root(".", ".").map_err(failed)?;
    unmount(".", UnmountFlags::DETACH).map_err(failed)?;
    rustix::process::chdir("/").map_err(failed)
}

fn drop_privileges() -> Done {
    let failed = |e: rustix::io::Errno| format!("privileges cannot be given up: {e}");
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // One that this kernel does not know.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(failed)?;
    let none = CapabilitySet::empty();
    let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(failed)?;
    rustix::thread::set_no_new_privs(true).map_err(failed)?;
    // The server runs as the same user, and must not be able to look into us.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed)
}

fn inside(path: &Path) -> PathBuf {
    Path::new(NEW).join(path.strip_prefix("/").unwrap_or(path))
}

fn outside(path: &Path) -> PathBuf {
    Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path))
}

fn folder_at(path: &Path) -> Done {
    std::fs::create_dir_all(path).map_err(|e| format!("{} cannot be made: {e}", path.display()))
}

fn file_at(path: &Path) -> Done {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    folder_at(path.parent().unwrap_or(Path::new(NEW)))?;
    std::fs::write(path, "").map_err(|e| format!("{} cannot be made: {e}", path.display()))
}
