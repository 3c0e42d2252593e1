//! Programs that are measured: echo servers, and `wharf serve` in a home of its own with a configuration.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::load::{Era, Pipe};

/// A home with a configuration. What was seen of servers is remembered in it.
pub(crate) struct Place {
    home: tempfile::TempDir,
}

/// Something that listens, ended with this.
pub(crate) struct Listening {
    child: Child,
    pub(crate) port: u16,
}

/// How an echo server is started.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Stdio,
    Http,
}

impl Place {
    /// Servers by name: a program, or the port that one listens at.
    pub(crate) fn new(servers: &[(String, Server)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let place = Self { home };
        let mut text = format!("[policy]\ncommands = [{:?}]\n", me());
        for (name, server) in servers {
            let line = match server {
                Server::Program(tools) => {
                    format!("command = {:?}\nargs = [\"--echo-stdio\", \"{tools}\"]", me())
                }
                Server::Port(port) => format!("url = \"http://127.0.0.1:{port}/mcp\""),
            };
            text.push_str(&format!("\n[mcp.{name}]\n{line}\n"));
        }
        let file = place.file();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        place
    }

    /// Starts the gateway for HTTP, and waits until it listens.
    pub(crate) fn serve(&self) -> Listening {
        let child = self.wharf(&["serve", "--port", "0", "--json"]).spawn().unwrap();
        Listening::new(child, |line| {
            let at = line.find("127.0.0.1:").unwrap_or_else(|| panic!("{line}")) + "127.0.0.1:".len();
            let digits = line[at..].find(|c: char| !c.is_ascii_digit()).unwrap();
            line[at..at + digits].parse().unwrap()
        })
    }

    /// Starts the gateway for a pipe.
    pub(crate) fn serve_pipe(&self, era: Era) -> Pipe {
        Pipe::with(self.wharf(&["serve", "--stdio"]).stdin(Stdio::piped()).spawn().unwrap(), era)
    }

    fn wharf(&self, args: &[&str]) -> Command {
        let home = self.home.path().canonicalize().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
        command.args(args).current_dir(&home).env_clear().env("HOME", &home).env("PATH", "/usr/bin:/bin");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }

    fn file(&self) -> PathBuf {
        self.home.path().join(".config/wharf/wharf.toml")
    }
}

/// A server behind the gateway.
pub(crate) enum Server {
    /// An echo server with so many tools, started by the gateway.
    Program(usize),
    /// One that listens already.
    Port(u16),
}

// === impl Listening ===

impl Listening {
    /// An echo server over HTTP.
    pub(crate) fn echo(tools: usize) -> Self {
        let child = echo(Kind::Http, tools).stdout(Stdio::piped()).spawn().unwrap();
        Self::new(child, |line| line.trim().parse().unwrap())
    }

    fn new(mut child: Child, port: impl FnOnce(&str) -> u16) -> Self {
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { port: port(&line), child }
    }

    /// How much memory it has, in kilobytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// How many programs it has started that still run.
    pub(crate) fn children(&self) -> usize {
        let of_thread =
            |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.map(|task| of_thread(task.unwrap()).split_whitespace().count()).sum()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An echo server over a pipe, spoken with directly.
pub(crate) fn echo_pipe(era: Era) -> Pipe {
    let mut command = echo(Kind::Stdio, 3);
    Pipe::with(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap(), era)
}

fn echo(kind: Kind, tools: usize) -> Command {
    let mut command = Command::new(me());
    let kind = match kind {
        Kind::Stdio => "--echo-stdio",
        Kind::Http => "--echo-http",
    };
    command.args([kind, &tools.to_string()]);
    command
}

fn me() -> PathBuf {
    std::env::current_exe().unwrap()
}
