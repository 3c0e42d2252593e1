//! Learning a profile: a confined start is watched from outside, and what it was refused is read from the notes.
//!
//! In: the notes of `strace`, which is found as bubblewrap is, what the egress proxy was asked for, and what the server is
//! let into so far. Out: the files and folders that it looked for in vain though they are there, and the hosts. The server
//! stays confined while it is watched: nothing that it is not let into is shown to it, no host is reached unless a person
//! said so, and a person decides what of the proposal is given.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::egress::Asked;
use super::grants::{Access, Grants, real};
use super::plan::PROXY_PORT;
use super::{Confined, STAGE, Sandbox, bwrap, secrets, stage};

/// What a server would need that it is not let into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// What it tried to read.
    pub read: Vec<PathBuf>,
    /// What it tried to change.
    pub write: Vec<PathBuf>,
    /// The hosts that it asked for, as rules for `domains`.
    pub domains: Vec<String>,
    /// What it looked for where secrets are kept. That is told, and never proposed.
    pub secret: Vec<PathBuf>,
}

/// How programs are watched.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    strace: PathBuf,
    /// Where its notes go.
    notes: PathBuf,
    asked: Arc<Asked>,
    /// Whether every public host is let through meanwhile.
    lets_out: bool,
}

/// Where the system has it.
const STRACE: [&str; 2] = ["/usr/bin/strace", "/bin/strace"];
/// What it watches for: files, and services of this machine that are asked for past the proxy.
const TRACED: &str = "trace=%file,bind,connect,getsockname";
/// So many files of one folder stand for the folder.
const MANY: usize = 4;
/// Nobody reads a longer list.
const MOST_SERVICES: usize = 20;
/// What the C library looks for in every process, and every process does without: the proxy looks names up.
const BY_HABIT: [&str; 5] =
    ["/etc/resolv.conf", "/etc/host.conf", "/etc/ld.so.preload", "/etc/krb5.conf", "/etc/nsswitch.conf"];
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
    /// Watches what programs look for, and writes it to this file: see [`Sandbox::learn`]. Hosts that they ask for are
    /// noted, too, and refused.
    ///
    /// # Errors
    /// If there is no `strace` to watch with.
    pub fn watched(mut self, notes: impl Into<PathBuf>) -> Result<Self, String> {
        let strace = bwrap::find_in(&STRACE, "strace")?;
        let (notes, asked) = (notes.into(), Arc::default());
        self.watch = Some(Watch { strace, notes, asked, lets_out: false });
        Ok(self)
    }

    /// While programs are watched, they reach every public host that they ask for by its name. What they were given to
    /// read can then leave the machine.
    #[must_use]
    pub fn let_out(mut self) -> Self {
        if let Some(watch) = &mut self.watch {
            watch.lets_out = true;
        }
        self
    }

    /// Reads from the notes of a run that this sandbox watched what the program was refused, beyond what it is let into
    /// already, to read and to change.
    pub fn learn(&self, notes: &str, let_in: (&[PathBuf], &[PathBuf])) -> Learnt {
        let calls = calls(notes);
        let (read, write) = let_in;
        let within = |places: &[PathBuf], path: &Path| places.iter().any(|place| path.starts_with(place));
        let grants = Grants::new(self);
        let (mut reads, mut writes, mut secret) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for refused in calls.iter().filter_map(|call| refusal(call)) {
            // A file that is to be made is made in its folder.
            let found =
                real(&refused.path).or_else(|| real(refused.path.parent()?).filter(|_| refused.changes));
            let Some(path) = found else { continue };
            if within(write, &path) || (!refused.changes && within(read, &path)) {
                continue;
            }
            if secrets::are_in(&path) {
                secret.insert(path);
            } else if refused.changes && grants.allows(&path, Access::Write) {
                writes.insert(path);
            } else if !refused.changes && grants.allows(&path, Access::Read) {
                reads.insert(path);
            }
        }
        reads.retain(|path| !path.ancestors().any(|above| writes.contains(above)));
        let mut domains: BTreeSet<String> = self.watch.iter().flat_map(|watch| watch.asked.rules()).collect();
        domains.extend(local_services(&calls));
        let (read, write) = (gather(&reads, &grants), gather(&writes, &grants));
        Learnt { read, write, domains: domains.into_iter().collect(), secret: secret.into_iter().collect() }
    }

    pub(super) fn watch(&self, confined: Confined) -> Confined {
        let Some(Watch { strace, notes, .. }) = &self.watch else { return confined };
        let mut args: Vec<OsString> =
            ["-f", "-qq", "-s", "4096", "-e", TRACED, "-e", "signal=none", "-A", "-o"]
                .map(Into::into)
                .to_vec();
        args.extend([notes.into(), "--".into(), confined.program.into()]);
        args.extend(confined.args);
        Confined { program: strace.clone(), args, ..confined }
    }
}

// === impl Watch ===

impl Watch {
    pub(super) fn hosts(&self) -> (Arc<Asked>, bool) {
        (Arc::clone(&self.asked), self.lets_out)
    }
}

/// Something that was looked for in vain.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    path: PathBuf,
    changes: bool,
}

/// Services of this machine that were asked for past the proxy, as most programs do for loopback: what nobody inside
/// listens at.
fn local_services(calls: &[String]) -> BTreeSet<String> {
    let (mut wanted, mut own) = (BTreeSet::new(), BTreeSet::from([PROXY_PORT]));
    for call in calls {
        let Some((port, ip)) = address(call) else { continue };
        match call.split('(').next() {
            Some("connect") if ip.is_loopback() => {
                wanted.insert((port, ip));
            }
            Some("bind" | "getsockname") => drop(own.insert(port)),
            _ => {}
        }
    }
    let foreign = wanted.into_iter().filter(|(port, _)| *port != 0 && !own.contains(port));
    foreign.take(MOST_SERVICES).map(|(port, ip)| SocketAddr::new(ip, port).to_string()).collect()
}

/// The port and the address that a call is about: `sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")`.
fn address(call: &str) -> Option<(u16, IpAddr)> {
    let (_, rest) = call.split_once("_port=htons(")?;
    let (port, rest) = rest.split_once(')')?;
    Some((port.parse().ok()?, rest.split('"').nth(1)?.parse().ok()?))
}

/// The calls in the notes, each on one line, from the moment on when a stage has become the server.
fn calls(notes: &str) -> Vec<String> {
    let mut unfinished: HashMap<&str, &str> = HashMap::new();
    let (mut calls, mut in_server, mut becoming) = (Vec::new(), false, None);
    for line in notes.lines() {
        let Some((pid, said)) = line.split_once(' ') else { continue };
        let said = said.trim_start();
        if said.starts_with("execve(") {
            let is_last_stage = said.contains(&format!("\"{STAGE}\", \"{}\"]", stage::RUN));
            // Another start begins with what confines it.
            if is_last_stage || said.contains(&format!("\"{STAGE}\"")) || said.contains("/bwrap\"") {
                (in_server, becoming) = (false, is_last_stage.then_some(pid));
            } else if becoming == Some(pid) {
                in_server = true;
            }
        }
        if !in_server {
            continue;
        }
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
        calls.push(whole);
    }
    calls
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
    if !path.is_absolute() || kernel || quoted.contains('\\') || BY_HABIT.contains(&quoted) {
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
            .filter(|parent| grants.allows(parent, Access::Write) && !secrets::are_below(parent))
            .map_or_else(|| path.clone(), Path::to_path_buf)
    };
    let all: BTreeSet<PathBuf> = paths.iter().map(stands_for).collect();
    all.iter().filter(|path| !path.ancestors().skip(1).any(|above| all.contains(above))).cloned().collect()
}
