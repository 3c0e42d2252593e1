//! What a confined server may not ask of the kernel.

use serde_json::json;

use super::everywhere;

/// Makes a system call by its number, and fails as Python does.
const CALL: &str = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
    def call(*args):\n    r = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])\n    \
    if r < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n    return r\n";

#[test]
fn sbx_08_nothing_is_privileged() {
    everywhere(|prison| {
        let status = "out = [l.split() for l in open('/proc/self/status') if l.startswith(('Cap', 'NoNewPrivs', 'Seccomp:'))]";
        let told = prison.run(json!(true), &[status]);
        let told = &told.works().steps[0];
        for line in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(told.contains(&format!("['{line}:', '0000000000000000']")), "{told}");
        }
        assert!(told.contains("['NoNewPrivs:', '1']") && told.contains("['Seccomp:', '2']"), "{told}");
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn sbx_08_dangerous_calls_are_refused() {
    everywhere(|prison| {
        let calls = [
            ("mount", "call(165, b'none', b'/tmp', b'tmpfs', 0, None)"),
            ("umount2", "call(166, b'/tmp', 2)"),
            ("unshare", "call(272, 0x10000000)"),
            ("setns", "call(308, os.open('/proc/self/ns/net', 0), 0)"),
            ("clone of a namespace", "call(56, 0x10000000 | 17, 0, 0, 0, 0)"),
            ("ptrace", "call(101, 16, os.getppid(), 0, 0)"),
            ("process_vm_readv", "call(310, os.getppid(), 0, 0, 0, 0, 0)"),
            ("bpf", "call(321, 0, 0, 0)"),
            ("perf_event_open", "call(298, 0, 0, -1, -1, 0)"),
            ("keyctl", "call(250, 0, -3, 1)"),
            ("add_key", "call(248, b'user', b'x', b'y', 1, -3)"),
            ("io_uring_setup", "call(425, 1, 0)"),
            ("userfaultfd", "call(323, 0)"),
            ("open_by_handle_at", "call(304, 0, 0, 0)"),
            ("pivot_root", "call(155, b'/', b'/')"),
            ("chroot", "call(161, b'/tmp')"),
            ("typing into a terminal", "import fcntl; fcntl.ioctl(0, 0x5412, b'x')"),
            ("the same with a longer number", "call(16, 0, 0x100005412, b'x')"),
            ("a file that is another's", "open('/tmp/f', 'w').close(); os.chmod('/tmp/f', 0o4755)"),
            ("one that is born so", "call(257, -100, b'/tmp/g', 0o101, 0o4755)"),
            ("the other way into the kernel", "call(0x40000000 | 165, b'none', b'/tmp', b'tmpfs', 0, None)"),
            ("mknod", "os.mknod('/tmp/null', 0o20666, os.makedev(1, 3))"),
        ];
        let codes: Vec<String> = calls.iter().map(|(_, code)| format!("{CALL}{code}")).collect();
        let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
        let told = prison.run(json!(true), &codes);
        for ((name, _), step) in calls.iter().zip(&told.steps) {
            let refused = step.contains("Operation not permitted")
                || (name.contains("other way") && step.contains("not implemented"));
            assert!(step.starts_with("error: ") && refused, "{name}: {step}");
        }
        // What every program does is not touched.
        let ordinary = [
            "import threading\nt = threading.Thread(target=print); t.start(); t.join()",
            "import subprocess; out = subprocess.check_output(['/bin/echo', 'ahoy'])",
            "import multiprocessing; out = multiprocessing.Semaphore(1)",
            "import os; open('/tmp/f', 'w').close(); os.chmod('/tmp/f', 0o755)",
            "import os; pid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)",
            "import socket, mmap; mmap.mmap(-1, 4096); out = socket.if_nameindex()",
        ];
        prison.run(json!(true), &ordinary[1..]).works();
    });
}

#[test]
fn sbx_08_a_program_of_another_user_brings_nothing_along() {
    everywhere(|prison| {
        // `su` belongs to root and would make anyone root; in here it makes nobody anything.
        let code = "import subprocess; out = subprocess.run(['/bin/su', '-c', 'id'], capture_output=True, stdin=subprocess.DEVNULL).returncode";
        let told = prison.run(json!(true), &[code]);
        assert_ne!(told.works().steps[0], "ok: 0");
    });
}
