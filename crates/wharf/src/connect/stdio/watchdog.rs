//! What happens to servers when Wharf itself is killed.
//!
//! A small shell waits at the other end of a socket. While we live it is told which process groups are ours; when the socket
//! closes, however we died, it kills those that are left. One per process of ours, started with the first server.
//!
//! Before a server is started the watchdog is told by what it will be known: the pipe that is its standard input. Until the
//! process that was started has become the server it holds the socket open. So there is no moment at which we could be killed
//! and a server were running that nobody finds.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::SendFlags;

/// `+ENTRY PIPE FOLDER` adds a server by its standard input and the folder that is its own, `=ENTRY GROUP` tells which group it
/// is, `-ENTRY` takes it away. At the end of input a server whose group was not told is looked for by its pipe. Then every group
/// that is left is killed, and what left its group with `setsid` too: as far as its parents still live, and where it
/// still stands in the server's own folder, whoever of them lives; that is looked for until nothing is found, since what was
/// being killed may have started more. Then the folders go.
/// Nothing is stopped first: a stopped group whose parent is just dying is sent SIGHUP, and its children would get away.
const SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT
groups=' ' entries='|' pipes=' '
while read -r line; do
  n=${line#?}
  case $line in
    '+'*)
      rest=${n#* } n=${n%% *} folder=
      case $rest in *' '*) folder=${rest#* } rest=${rest%% *} ;; esac
      entries="$entries$n pipe:[$rest] $folder|" ;;
    '='*)
      group=${n#* } n=${n%% *}
      case $entries in *"|$n "*)
        rest=${entries#*"|$n "}
        entries="${entries%%"|$n "*}|$n $group ${rest#* }" ;;
      esac ;;
    '-'*)
      case $entries in *"|$n "*) rest=${entries#*"|$n "}; entries="${entries%%"|$n "*}|${rest#*"|"}" ;; esac ;;
  esac
done
rest=${entries#'|'}
while [ -n "$rest" ]; do
  entry=${rest%%'|'*} rest=${rest#*'|'}
  entry=${entry#* }
  case $entry in
    pipe:*) pipes="$pipes${entry%% *} " ;;
    *) groups="$groups${entry%% *} " ;;
  esac
done
if [ "$pipes" != ' ' ]; then
  found=$(/bin/ls -l /proc/[0-9]*/fd/0 2>/dev/null)
  while read -r line; do
    case $line in *' /proc/'*'/fd/0 -> pipe:'*) ;; *) continue ;; esac
    pid=${line##* /proc/}
    case $pipes in *" ${line##* -> } "*) groups="$groups${pid%%/*} " ;; esac
  done <<END
$found
END
fi
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

/// What is longer might not arrive in one piece; such a folder stays.
const LONGEST: usize = 4000;

/// A server that the watchdog knows of, until this is dropped.
pub(super) struct Guarded {
    entry: u64,
}

/// Whatever is started with this as its standard input dies with us, and the folder goes.
pub(super) fn guard(stdin: BorrowedFd<'_>, folder: Option<&Path>) -> io::Result<Guarded> {
    static ENTRIES: AtomicU64 = AtomicU64::new(1);
    let guarded = Guarded { entry: ENTRIES.fetch_add(1, Ordering::Relaxed) };
    let pipe = rustix::fs::fstat(stdin)?.st_ino;
    // What stands between two entries cannot stand in one.
    let fits = |folder: &&str| folder.len() < LONGEST && !folder.contains(['|', '\n']);
    match folder.and_then(Path::to_str).filter(fits) {
        Some(folder) => say(&format!("+{} {pipe} {folder}\n", guarded.entry))?,
        None => say(&format!("+{} {pipe}\n", guarded.entry))?,
    }
    Ok(guarded)
}

/// Says a line in one piece, whoever else speaks. If the watchdog was killed, or there is none, nobody hears it, and that is no
/// reason to start nothing: servers still see the end of their input when we go.
fn say(line: &str) -> io::Result<()> {
    let Some(watchdog) = watchdog() else { return Ok(()) };
    loop {
        match rustix::net::send(watchdog, line.as_bytes(), SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(other) => return Err(other.into()),
        }
    }
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

// === impl Guarded ===

impl Guarded {
    /// It runs, in this group.
    pub(super) fn runs_as(&self, group: u32) {
        // Not told, it is found by its pipe.
        let _ = say(&format!("={} {group}\n", self.entry));
    }
}

impl Drop for Guarded {
    /// The group is gone, or there never was one.
    fn drop(&mut self) {
        let _ = say(&format!("-{}\n", self.entry));
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
