//! What happens to servers when Wharf itself is killed.
//!
//! A small shell waits at the other end of a socket. While we live it is told which process groups are ours; when the socket
//! closes, however we died, it kills those that are left. One per process of ours, started with the first server.
//!
//! A server is told of by its own process, before it becomes the server. Until then that process holds the socket open: there
//! is no moment at which we could be killed and a server were running that nobody knows of.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::SendFlags;

/// `+GROUP ENTRY FOLDER` adds a group and the folder that is its own, `-ENTRY` takes both away. At the end of input every
/// group that is left is killed, and what left its group with `setsid` too: as far as its parents still live, and where it
/// still stands in the server's own folder, whoever of them lives; that is looked for until nothing is found, since what was
/// being killed may have started more. Then the folders go.
/// Nothing is stopped first: a stopped group whose parent is just dying is sent SIGHUP, and its children would get away.
const SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT
groups=' ' entries='|'
while read -r line; do
  n=${line#?}
  case $line in
    '+'*)
      group=${n%% *} n=${n#* } folder=
      case $n in *' '*) folder=${n#* } n=${n%% *} ;; esac
      entries="$entries$n $group $folder|" ;;
    '-'*)
      case $entries in *"|$n "*) rest=${entries#*"|$n "}; entries="${entries%%"|$n "*}|${rest#*"|"}" ;; esac ;;
  esac
done
rest=${entries#'|'}
while [ -n "$rest" ]; do
  entry=${rest%%'|'*} rest=${rest#*'|'}
  entry=${entry#* }
  groups="$groups${entry%% *} "
done
tree=$groups more=1
while [ $more = 1 ]; do
  more=0
  for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$stat" || continue
    pid=${line%% *} rest=${line##*) }
    rest=${rest#* } parent=${rest%% *}
    case $tree in *" $pid "*) continue ;; *" $parent "*) tree="$tree$pid " more=1 ;; esac
  done
done
for pid in $tree; do kill -s KILL "$pid" 2>/dev/null; done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
rest=${entries#'|'}
while [ -n "$rest" ]; do
  entry=${rest%%'|'*} rest=${rest#*'|'}
  folder=${entry#* * }
  case $folder in /*/wharf-*) ;; *) continue ;; esac
  more=1 looks=0
  while [ $more = 1 ] && [ $looks -lt 50 ]; do
    more=0 looks=$((looks + 1))
    for cwd in /proc/[0-9]*/cwd; do
      if [ "$cwd" -ef "$folder" ]; then
        pid=${cwd#/proc/}
        kill -s KILL "${pid%/cwd}" 2>/dev/null && more=1
      fi
    done
  done
  /bin/rm -rf -- "$folder"
done
"#;

/// A server that the watchdog knows of, until this is dropped.
pub(super) struct Guarded {
    entry: u64,
}

/// A line that lacks nothing but a number, which only the process itself knows.
struct Announcement {
    /// Room for the number, ` ENTRY`, ` FOLDER` if there is one, and the end of the line.
    line: Vec<u8>,
    watchdog: BorrowedFd<'static>,
}

/// Whatever this command starts dies with us, in a group of its own, and the folder goes.
#[expect(unsafe_code, reason = "nothing else can be done by a process before it becomes the server")]
pub(super) fn guard(command: &mut tokio::process::Command, folder: Option<&Path>) -> Guarded {
    static ENTRIES: AtomicU64 = AtomicU64::new(1);
    let entry = ENTRIES.fetch_add(1, Ordering::Relaxed);
    if let Some(watchdog) = watchdog() {
        let mut announcement = Announcement::new(entry, folder, watchdog);
        // SAFETY: between fork and exec only what is safe in a signal handler may be done. This fills in memory that was
        // allocated before, and makes two system calls by itself: no lock, no allocation, no code of others.
        unsafe { command.pre_exec(move || announcement.tell()) };
    }
    Guarded { entry }
}

/// The way to the watchdog, which is open for as long as we live.
fn watchdog() -> Option<BorrowedFd<'static>> {
    static WAY: OnceLock<Option<UnixStream>> = OnceLock::new();
    WAY.get_or_init(|| start().ok()).as_ref().map(UnixStream::as_fd)
}

#[expect(clippy::disallowed_methods, reason = "the watchdog is part of starting servers safely")]
fn start() -> io::Result<UnixStream> {
    use std::os::unix::process::CommandExt;
    let (ours, its) = UnixStream::pair()?;
    let mut child = Command::new("/bin/sh")
        .args(["-c", SCRIPT])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(its)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    // Reaped when it ends, which is after us unless somebody killed it.
    drop(std::thread::Builder::new().name("wharf-watchdog".into()).spawn(move || drop(child.wait())));
    Ok(ours)
}

/// Says a line in one piece, whoever else speaks. If the watchdog was killed nobody hears it, and that is no reason to start
/// nothing: servers still see the end of their input when we go. A pipe would end the process that writes to it then.
fn say(watchdog: BorrowedFd<'_>, line: &[u8]) -> Result<(), Errno> {
    loop {
        match rustix::net::send(watchdog, line, SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
    }
}

// === impl Guarded ===

impl Drop for Guarded {
    /// The group is gone, or there never was one.
    fn drop(&mut self) {
        if let Some(watchdog) = watchdog() {
            let _ = say(watchdog, format!("-{}\n", self.entry).as_bytes());
        }
    }
}

// === impl Announcement ===

impl Announcement {
    /// A sign and the most digits that the number of a process has.
    const ROOM: usize = 11;
    /// What is longer might not arrive in one piece; such a folder stays.
    const LONGEST: usize = 4096;

    fn new(entry: u64, folder: Option<&Path>, watchdog: BorrowedFd<'static>) -> Self {
        let mut line = format!("{:1$} {entry}", "", Self::ROOM);
        // What stands between two entries cannot stand in one.
        let folder = folder.and_then(Path::to_str).filter(|folder| !folder.contains(['|', '\n']));
        if let Some(folder) = folder.filter(|folder| line.len() + folder.len() + 2 <= Self::LONGEST) {
            line.push(' ');
            line.push_str(folder);
        }
        line.push('\n');
        Self { line: line.into_bytes(), watchdog }
    }

    /// In the process that is about to become the server. It becomes none if it cannot tell.
    fn tell(&mut self) -> io::Result<()> {
        let mut left = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let mut begin = Self::ROOM;
        while left > 0 && begin > 1 {
            begin -= 1;
            self.put(begin, b"0123456789".get(left as usize % 10).copied());
            left /= 10;
        }
        begin -= 1;
        self.put(begin, Some(b'+'));
        Ok(say(self.watchdog, self.line.get(begin..).unwrap_or_default())?)
    }

    fn put(&mut self, at: usize, byte: Option<u8>) {
        if let (Some(place), Some(byte)) = (self.line.get_mut(at), byte) {
            *place = byte;
        }
    }
}

/// Marks every descriptor that we inherited without the close-on-exec flag, so that no server gets it.
/// Our own are born with the flag.
pub(super) fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    for entry in entries.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if number > 2 {
            mark_close_on_exec(number);
        }
    }
}

#[expect(
    unsafe_code,
    reason = "a descriptor that we only know by its number; it is not kept, closed or read"
)]
fn mark_close_on_exec(number: i32) {
    // SAFETY: the descriptor was listed as open a moment ago. If it was closed since, the call fails with EBADF; if the
    // number was reused, the new one is ours and has the flag already. Nothing is read or closed through it.
    let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    debug_assert_eq!(descriptor.as_raw_fd(), number);
    let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
}
