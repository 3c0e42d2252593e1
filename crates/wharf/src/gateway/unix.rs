//! The gateway at a Unix socket: callers of our own user, one message a line, either era.
//!
//! In: a path. Out: a socket there that only we can use, until it is dropped. What is said is answered as over a pipe.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use futures_util::FutureExt as _;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use tokio::io::{BufReader, Interest};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::barred::{Bar, Whence};
use super::h1::STALLED;
use super::{Gateway, accept, stdio};
use crate::error::{Error, Result};
use crate::net::is_listening;
use crate::text::Escaped;

/// A socket that is listened at. When it is dropped, the socket is gone.
#[derive(Debug)]
pub struct UnixDoor {
    listener: UnixListener,
    file: SocketFile,
}

/// The socket in the file system.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and number: what others put in its place is not ours to remove.
    id: (u64, u64),
}

const WRITABLE_BY_OTHERS: u32 = 0o022;

// === impl UnixDoor ===

impl UnixDoor {
    /// Begins to listen. The folder is made, for us alone, if it is not there; one that others can write to is refused.
    /// A socket that nobody listens at any more is replaced.
    pub async fn bind(path: &Path) -> Result<Self> {
        let shown = Escaped(&path.display().to_string()).to_string();
        let failed = |error: io::Error| Error::Config {
            message: format!("cannot listen at {shown}: {error}"),
            hint: Some("give a path in a folder of your own, such as /run/user/1000/wharf/wharf.sock".into()),
        };
        let other = |why: &str| failed(io::Error::other(why));
        let folder = path.parent().filter(|_| path.is_absolute() && path.file_name().is_some());
        let folder = folder.ok_or_else(|| other("the path must be absolute"))?;
        make_private(folder).map_err(failed)?;
        let meta = folder.metadata().map_err(failed)?;
        if meta.uid() != geteuid().as_raw() || meta.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(other("others can write to the folder"));
        }
        // Two that start at once would remove each other's socket.
        let lock = File::open(folder).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| other("another program is about to listen in this folder; try again"))?;
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(there) if !there.file_type().is_socket() => {
                return Err(other("something else is there, which is not a socket"));
            }
            Ok(_) if is_listening(path).await => return Err(other("somebody listens there already")),
            Ok(_) => std::fs::remove_file(path).map_err(failed)?,
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let meta = path.symlink_metadata().map_err(failed)?;
        let file = SocketFile { path: path.to_path_buf(), id: (meta.dev(), meta.ino()) };
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.file.path
    }
}

/// Makes the folder, if it is not there, so that only we can look into it.
fn make_private(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.path.symlink_metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == self.id) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Serves until told to stop, then lets what is under way end.
pub(super) async fn serve(gateway: &Gateway, door: UnixDoor, stop: impl Future<Output = ()>) {
    let UnixDoor { listener, file } = door;
    let stop = async {
        stop.await;
        // From now on nobody finds the way here.
        drop(file);
    };
    let converse = |stream, closed| converse(gateway.clone(), stream, closed);
    accept::receive(listener, gateway, stop, converse).await;
}

async fn converse(gateway: Gateway, stream: UnixStream, mut closed: watch::Receiver<bool>) {
    // Who it is, says the system. Whoever is not us is not answered.
    let user = stream.peer_cred().ok().map(|peer| peer.uid());
    if user != Some(geteuid().as_raw()) {
        let bar = Bar::Identity("this socket is another user's");
        gateway.desk.gate.turn_away(user.map_or(Whence::Unknown, Whence::User), bar);
        return;
    }
    let (input, output) = stream.into_split();
    let stop = async { drop(closed.wait_for(|closed| *closed).await) };
    // A caller that breaks off, or says too much, is no news here.
    let (pipe, bounds) = ((BufReader::new(input), output), (gateway.settings.body, Some(STALLED)));
    let _ = stdio::serve_until(&gateway, pipe, bounds, (stop, is_gone)).await;
}

/// Whether the other end is closed in both directions: then nobody reads an answer either.
fn is_gone(input: &mut BufReader<OwnedReadHalf>) -> bool {
    let ready = input.get_ref().ready(Interest::WRITABLE).now_or_never();
    ready.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_write_closed()))
}
