//! The one thread that starts programs.
//!
//! Some ways of tying a child to its parent (`bwrap --die-with-parent`, `PR_SET_PDEATHSIG`) mean the *thread* that
//! started it; tokio's threads come and go. This one stays for the life of the process.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::mpsc;

use rustix::pipe::PipeFlags;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Unstarted;
use super::watchdog::{self, Guarded};
use crate::names::ServerName;
use crate::policy::{Confinement, LaunchPermit};
use crate::sandbox::{self, Cgroup, Clue, Sandbox, WayOut};

/// A process that was just started.
pub(super) struct Spawned {
    pub(super) pid: u32,
    pub(super) process: tokio::process::Child,
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
    /// The empty folder it was started in, where the permit named none. Removed when dropped.
    pub(super) folder: Option<OwnFolder>,
    /// How it was confined, if it was.
    pub(super) inside: Option<Inside>,
    /// Kept until nothing of it is left.
    pub(super) guarded: Guarded,
}

/// What belongs to a start in a sandbox.
pub(super) struct Inside {
    pub(super) group: Option<Cgroup>,
    /// What goes down its standard input before anything else.
    pub(super) preamble: Vec<u8>,
    pub(super) clue: Clue,
    pub(super) warnings: Vec<String>,
}

/// An empty folder that is removed with everything in it.
#[derive(Debug)]
pub(in crate::connect) struct OwnFolder(PathBuf);

struct Order {
    permit: LaunchPermit,
    scratch: PathBuf,
    room: Room,
    runtime: Handle,
    done: oneshot::Sender<Result<Spawned, Unstarted>>,
}

/// Where a confined program goes, if there is such a place.
type Room = (Option<Sandbox>, Option<WayOut>);

/// Starts a process in the spawner's thread.
pub(super) async fn spawn(
    permit: LaunchPermit,
    scratch: PathBuf,
    sandbox: Option<Sandbox>,
    way_out: Option<WayOut>,
) -> Result<Spawned, Unstarted> {
    let gone = || Unstarted::Failed("the thread that starts programs is gone".into());
    let (done, spawned) = oneshot::channel();
    let order = Order { permit, scratch, room: (sandbox, way_out), runtime: Handle::current(), done };
    orders().send(order).map_err(|_| gone())?;
    spawned.await.map_err(|_| gone())?
}

fn orders() -> &'static mpsc::Sender<Order> {
    static ORDERS: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    ORDERS.get_or_init(|| {
        let (send, take) = mpsc::channel::<Order>();
        let work = move || {
            while let Ok(Order { permit, scratch, room, runtime, done }) = take.recv() {
                // A runtime without a reactor makes tokio panic; the thread must outlive that.
                let attempt = AssertUnwindSafe(|| start(&permit, &scratch, &room, &runtime));
                let started = std::panic::catch_unwind(attempt)
                    .unwrap_or_else(|_| Err(Unstarted::Failed("the runtime cannot start programs".into())));
                // A caller that gave up meanwhile drops the child with the receiver, which ends it.
                let _ = done.send(started);
            }
        };
        // Without the thread nothing can be started; the send then fails and says so.
        drop(std::thread::Builder::new().name("wharf-spawner".into()).spawn(work));
        send
    })
}

/// Starts what the permit is for, and in no other way than it says.
fn start(
    permit: &LaunchPermit,
    scratch: &Path,
    (sandbox, way_out): &Room,
    runtime: &Handle,
) -> Result<Spawned, Unstarted> {
    let _inside = runtime.enter();
    let failed =
        |e: io::Error| Unstarted::Failed(format!("`{}` cannot be started: {e}", permit.program().display()));
    watchdog::close_inherited();
    let profile = match permit.confinement() {
        Confinement::Within(profile) => profile,
        Confinement::Off => {
            let folder = if permit.cwd().is_some() {
                None
            } else {
                Some(OwnFolder::new(permit.server(), scratch).map_err(failed)?)
            };
            return plain(permit, folder).map_err(failed);
        }
    };
    let unconfined = |(reason, hint)| Unstarted::Unconfined { reason, hint };
    let sandbox = sandbox.as_ref().ok_or_else(|| unconfined(sandbox::none_given()))?;
    let plan = sandbox.plan(permit, profile, way_out.as_ref()).map_err(unconfined)?;
    let confined = sandbox.confine(&plan).map_err(failed)?;
    let mut command = command(&confined.program);
    command.args(&confined.args).current_dir("/");
    let socket = way_out.as_ref().and_then(|way_out| way_out.socket.parent());
    let mut spawned = spawn_now(command, None, socket).map_err(failed)?;
    // The command line spoke of them.
    drop(confined.files);
    let clue = Clue::new(permit.server(), &plan, sandbox);
    spawned.inside =
        Some(Inside { group: confined.group, preamble: confined.preamble, clue, warnings: plan.warnings });
    Ok(spawned)
}

/// As any other program, in the folder that the permit names or in an empty one.
fn plain(permit: &LaunchPermit, folder: Option<OwnFolder>) -> io::Result<Spawned> {
    let mut command = command(permit.program());
    command.args(permit.args()).envs(permit.env().iter().map(|(name, value)| (name, value.expose())));
    if let Some(cwd) = permit.cwd().or_else(|| folder.as_ref().map(|f| f.0.as_path())) {
        command.current_dir(cwd);
    }
    spawn_now(command, folder, None)
}

#[expect(clippy::disallowed_methods, reason = "the one place that starts servers, with a permit in hand")]
fn command(program: &Path) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(program);
    command.env_clear();
    command
}

/// `other` is a folder that is somebody else's to remove, unless we are killed.
fn spawn_now(
    mut command: tokio::process::Command,
    folder: Option<OwnFolder>,
    other: Option<&Path>,
) -> io::Result<Spawned> {
    let (theirs, stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let guarded = watchdog::guard(theirs.as_fd(), folder.as_ref().map(|f| f.0.as_path()).or(other))?;
    command
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut process = command.spawn()?;
    let pid = process.id().ok_or_else(|| io::Error::other("it ended at once"))?;
    guarded.runs_as(pid);
    // Ours is the other end alone, so that the server's going is noticed.
    drop(command);
    let (Some(stdout), Some(stderr)) = (process.stdout.take(), process.stderr.take()) else {
        return Err(io::Error::other("its pipes are missing"));
    };
    let stdout: OwnedFd = stdout.into_owned_fd()?;
    let stderr: OwnedFd = stderr.into_owned_fd()?;
    // A larger pipe lets a server write a large answer in one go; where it is refused, the normal one does.
    let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE);
    Ok(Spawned {
        pid,
        process,
        stdin: pipe::Sender::from_owned_fd(stdin)?,
        stdout: pipe::Receiver::from_owned_fd(stdout)?,
        stderr: pipe::Receiver::from_owned_fd(stderr)?,
        folder,
        inside: None,
        guarded,
    })
}

/// How much a server may write before it waits for us.
const PIPE: usize = 256 * 1024;

// === impl OwnFolder ===

impl OwnFolder {
    pub(in crate::connect) fn new(server: &ServerName, scratch: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let name = format!("wharf-{}-{:016x}", server, fastrand::u64(..));
        let path = scratch.join(name);
        // 0700 and freshly made: nobody else can have put anything there.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(in crate::connect) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // What the server left there is its rubbish; failing to remove it harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
