//! What happens to servers when Wharf itself is killed.
//!
//! A small shell waits on a pipe from us. While we live it is told which process groups are ours; when the pipe
//! closes, however we died, it kills those that are left. One per process of ours, started with the first server.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// `+N FOLDER` adds a group and the folder that is its own, `-N` takes both away. At the end of input every group that is
/// left is killed, and what left its group with `setsid` too: as far as its parents still live, and where it still stands in
/// the server's own folder, whoever of them lives. Then the folders go.
/// Nothing is stopped first: a stopped group whose parent is just dying is sent SIGHUP, and its children would get away.
const SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT
groups=' ' folders='|'
while read -r line; do
  n=${line#?}; n=${n%% *}
  case $line in
    '+'*' '*) groups="$groups$n " folders="$folders$n:${line#* }|" ;;
    '+'*) groups="$groups$n " ;;
    '-'*)
      case $groups in *" $n "*) groups="${groups%% $n *} ${groups#* $n }" ;; esac
      case $folders in *"|$n:"*) rest=${folders#*"|$n:"}; folders="${folders%%"|$n:"*}|${rest#*"|"}" ;; esac ;;
  esac
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
set -f; IFS='|'
for entry in $folders; do
  case $entry in *:/*/wharf-*) folder=${entry#*:} ;; *) continue ;; esac
  set +f
  for cwd in /proc/[0-9]*/cwd; do
    if [ "$cwd" -ef "$folder" ]; then pid=${cwd#/proc/}; kill -s KILL "${pid%/cwd}" 2>/dev/null; fi
  done
  set -f
  /bin/rm -rf -- "$folder"
done
"#;

/// This server's group dies with us, and its folder goes.
pub(super) fn guard(pid: u32, folder: Option<&Path>) {
    // What stands between two entries cannot stand in one; such a folder stays.
    match folder.and_then(Path::to_str).filter(|folder| !folder.contains(['|', '\n'])) {
        Some(folder) => tell(&format!("+{pid} {folder}\n")),
        None => tell(&format!("+{pid}\n")),
    }
}

/// This server's group is gone.
pub(super) fn release(pid: u32) {
    tell(&format!("-{pid}\n"));
}

fn tell(line: &str) {
    static PIPE: OnceLock<Option<Mutex<ChildStdin>>> = OnceLock::new();
    if let Some(pipe) = PIPE.get_or_init(start) {
        let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
        // If the watchdog was killed, servers still see the end of their input when we go.
        let _ = pipe.write_all(line.as_bytes());
    }
}

#[expect(clippy::disallowed_methods, reason = "the watchdog is part of starting servers safely")]
fn start() -> Option<Mutex<ChildStdin>> {
    use std::os::unix::process::CommandExt;
    let mut child = Command::new("/bin/sh")
        .args(["-c", SCRIPT])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()?;
    let stdin = child.stdin.take();
    // Reaped when it ends, which is after us unless somebody killed it.
    drop(std::thread::Builder::new().name("wharf-watchdog".into()).spawn(move || drop(child.wait())));
    stdin.map(Mutex::new)
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
