//! Where the servers lie, processes by what they were started with, and servers over HTTP that end with their test.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to be there or to be gone, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that the test started. It is killed when this goes, in a panic too.
pub(crate) struct Running(Child);

/// A file or program that `proof/install` put there.
pub(crate) fn installed(path: &str) -> String {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let cache = root.canonicalize().unwrap().join(".cache/proof");
    let file = cache.join(path);
    assert!(file.exists(), "{} is missing: run ./check", file.display());
    file.display().to_string()
}

/// The script of a reference server from npm.
pub(crate) fn reference(name: &str) -> String {
    installed(&format!("servers/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"))
}

/// The interpreter that has the servers from PyPI.
pub(crate) fn python() -> String {
    installed("python/bin/python")
}

/// The process that was started with this variable in its environment.
pub(crate) async fn with_variable(variable: &str) -> Pid {
    let found = || {
        let folders = std::fs::read_dir("/proc").unwrap().flatten();
        folders.filter_map(|f| f.file_name().to_str()?.parse().ok()).find(|pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|b| *b == 0).any(|v| v == variable.as_bytes())
        })
    };
    Pid::from_raw(until(found, variable).await).unwrap()
}

/// Stops a process where it stands, every thread of it: it takes what is sent and answers nothing.
pub(crate) async fn freeze(pid: Pid) {
    kill_process(pid, Signal::STOP).unwrap();
    let all_stopped = || {
        let mut threads =
            std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap().flatten();
        // The state stands behind the name, which is in brackets.
        let stopped = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        threads.all(stopped).then_some(())
    };
    until(all_stopped, "a frozen process").await;
}

/// Kills a process.
pub(crate) fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).unwrap();
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until a request lies unread at a port, because the process behind it is frozen.
pub(crate) async fn unread(port: u16) {
    let lies_there = || {
        let tables =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|t| std::fs::read_to_string(t).unwrap_or_default());
        // Fields: number, local address, remote address, state (1 is established), queues to send and to read.
        let found = tables.iter().flat_map(|table| table.lines().skip(1)).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let here = fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "01";
            here && fields[4].split(':').nth(1).is_some_and(|queue| queue.bytes().any(|b| b != b'0'))
        });
        found.then_some(())
    };
    until(lies_there, "a request").await;
}

async fn until<T>(mut found: impl FnMut() -> Option<T>, what: &str) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: not there after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// === impl Running ===

impl Running {
    /// `server-everything`, listening on a port. Ready when this returns.
    pub(crate) async fn everything(mode: &str, port: u16) -> Self {
        let script = reference("everything");
        let child = Command::new("node")
            .args([script.as_str(), mode])
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("node is there: run ./check");
        let mut running = Self(child);
        let listening = || {
            assert!(running.0.try_wait().unwrap().is_none(), "server-everything ended at once");
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        };
        until(listening, "server-everything").await;
        running
    }

    /// The server on rmcp, listening on a port that it chose.
    pub(crate) fn rmcp() -> (Self, u16) {
        let mut child = Command::new(wharf_testkit::rmcp_peer_path())
            .arg("--http")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        let running = Self(child);
        BufReader::new(stdout).read_line(&mut line).unwrap();
        (running, line.trim().parse().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn end(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already: then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The sandbox that real servers run in, as they do for users.
pub(crate) fn sandbox() -> wharf::sandbox::Sandbox {
    wharf::sandbox::Sandbox::new(wharf_testkit::example_path("cell"))
}
