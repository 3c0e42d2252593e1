//! The one thread that starts programs.
//!
//! Some ways of tying a child to its parent (`bwrap --die-with-parent`, `PR_SET_PDEATHSIG`) mean the *thread* that
//! started it; tokio's threads come and go. This one stays for the life of the process.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::mpsc;

use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::watchdog;
use crate::policy::LaunchPermit;

/// A process that was just started.
pub(super) struct Spawned {
    pub(super) pid: u32,
    pub(super) process: tokio::process::Child,
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
    /// The empty folder it was started in, where the permit named none. Removed when dropped.
    pub(super) folder: Option<OwnFolder>,
}

/// An empty folder that is removed with everything in it.
pub(super) struct OwnFolder(PathBuf);

struct Order {
    permit: LaunchPermit,
    scratch: PathBuf,
    runtime: Handle,
    done: oneshot::Sender<io::Result<Spawned>>,
}

/// Starts a process in the spawner's thread.
pub(super) async fn spawn(permit: LaunchPermit, scratch: PathBuf) -> io::Result<Spawned> {
    let (done, spawned) = oneshot::channel();
    let order = Order { permit, scratch, runtime: Handle::current(), done };
    orders().send(order).map_err(|_| io::Error::other("the thread that starts programs is gone"))?;
    spawned.await.map_err(|_| io::Error::other("the thread that starts programs is gone"))?
}

fn orders() -> &'static mpsc::Sender<Order> {
    static ORDERS: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    ORDERS.get_or_init(|| {
        let (send, take) = mpsc::channel::<Order>();
        let work = move || {
            while let Ok(Order { permit, scratch, runtime, done }) = take.recv() {
                // A runtime without a reactor makes tokio panic; the thread must outlive that.
                let attempt = AssertUnwindSafe(|| start(&permit, &scratch, &runtime));
                let started = std::panic::catch_unwind(attempt)
                    .unwrap_or_else(|_| Err(io::Error::other("the runtime cannot start programs")));
                // A caller that gave up meanwhile drops the child with the receiver, which ends it.
                let _ = done.send(started);
            }
        };
        // Without the thread nothing can be started; the send then fails and says so.
        drop(std::thread::Builder::new().name("wharf-spawner".into()).spawn(work));
        send
    })
}

#[expect(clippy::disallowed_methods, reason = "the one place that starts servers, with a permit in hand")]
fn start(permit: &LaunchPermit, scratch: &Path, runtime: &Handle) -> io::Result<Spawned> {
    let _inside = runtime.enter();
    let folder = if permit.cwd().is_some() { None } else { Some(OwnFolder::new(permit, scratch)?) };
    let cwd = permit.cwd().or_else(|| folder.as_ref().map(|f| f.0.as_path()));
    let mut command = tokio::process::Command::new(permit.program());
    command
        .args(permit.args())
        .env_clear()
        .envs(permit.env().iter().map(|(name, value)| (name, value.expose())))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    watchdog::close_inherited();
    let mut process = command.spawn()?;
    let pid = process.id().ok_or_else(|| io::Error::other("it ended at once"))?;
    watchdog::guard(pid, folder.as_ref().map(|f| f.0.as_path()));
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (process.stdin.take(), process.stdout.take(), process.stderr.take())
    else {
        return Err(io::Error::other("its pipes are missing"));
    };
    let stdin: OwnedFd = stdin.into_owned_fd()?;
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
    })
}

/// How much a server may write before it waits for us.
const PIPE: usize = 256 * 1024;

// === impl OwnFolder ===

impl OwnFolder {
    fn new(permit: &LaunchPermit, scratch: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let name = format!("wharf-{}-{:016x}", permit.server(), fastrand::u64(..));
        let path = scratch.join(name);
        // 0700 and freshly made: nobody else can have put anything there.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // What the server left there is its rubbish; failing to remove it harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
