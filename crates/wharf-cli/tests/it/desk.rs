//! A place to type commands at: a home and a project of its own, and nothing else of this machine but `/bin`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

pub(crate) const WHARF: &str = env!("CARGO_BIN_EXE_wharf");

/// A home, and a project in it.
pub(crate) struct Desk {
    home: tempfile::TempDir,
}

/// The lines that a program writes, read as they come. Whoever waits for one does not wait for ever.
pub(crate) struct Lines(Receiver<String>);

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Lines {
    pub(crate) fn of(from: impl Read + Send + 'static) -> Self {
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(from).lines().map_while(Result::ok);
            lines.map(|line| tell.send(line)).take_while(Result::is_ok).for_each(drop);
        });
        Self(lines)
    }

    pub(crate) fn next(&self, what: &str) -> String {
        let next = self.0.recv_timeout(Duration::from_secs(60));
        next.unwrap_or_else(|e| panic!("{what} is waited for in vain: {e}"))
    }
}

impl Desk {
    pub(crate) fn new() -> Self {
        let desk = Self { home: tempfile::tempdir().unwrap() };
        fs::create_dir(desk.project()).unwrap();
        desk
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap()
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.home().join(".config/wharf/wharf.toml")
    }

    /// A command in the project's folder; nobody sits at a terminal.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.program(WHARF, args)
    }

    /// Another program, in the same world.
    pub(crate) fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.project())
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", "/usr/bin:/bin")
            .env("TMPDIR", self.home())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // A command that wants no input may be gone before it gets any.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Ran::from(child.wait_with_output().unwrap())
    }

    /// Writes a file that nobody else may change.
    pub(crate) fn write(&self, path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// The user's own file. The servers of a desk leave marks in its home, so they run without a sandbox, unless the file
    /// has something to say about that.
    pub(crate) fn user(&self, text: &str) {
        let has_rules = text.starts_with("[policy]\n") || text.contains("\n[policy]\n");
        let text = match has_rules && !text.contains("sandbox") {
            true => text.replacen("[policy]\n", "[policy]\nsandbox = false\n", 1),
            false => text.to_owned(),
        };
        self.write(&self.config(), &text);
    }

    /// The project's `.mcp.json`.
    pub(crate) fn mcp_json(&self, text: &str) {
        self.write(&self.project().join(".mcp.json"), text);
    }

    /// A server that leaves a mark when it starts, and then does what the script says.
    pub(crate) fn server(&self, name: &str, script: &str) -> String {
        let path = self.home().join(name);
        let mark = self.mark();
        let text = format!("#!/bin/sh\necho $$ > '{}'\n{script}\n", mark.display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A server that leaves a mark and works.
    pub(crate) fn good_server(&self) -> String {
        self.server("good", &format!("exec '{WHARF}' test-server"))
    }

    /// A server that leaves a mark, says something and ends.
    pub(crate) fn dying_server(&self) -> String {
        self.server("dying", "echo 'no token was given' >&2; exit 3")
    }

    /// The mark that the servers leave: the number of the last process that was started.
    pub(crate) fn mark(&self) -> PathBuf {
        self.home().join("was-started")
    }

    /// Whether a process is there, by its number.
    pub(crate) fn is_alive(&self, pid: &str) -> bool {
        Command::new("kill").args(["-0", pid.trim()]).output().unwrap().status.success()
    }

    /// Kills a process that this desk started.
    pub(crate) fn kill(&self, pid: &str) {
        assert!(Command::new("kill").args(["-KILL", pid.trim()]).status().unwrap().success());
    }

    /// Asks a process that this desk started to end.
    pub(crate) fn end(&self, pid: &str) {
        assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
    }

    pub(crate) fn was_started(&self) -> bool {
        self.mark().exists()
    }
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The one line of JSON on standard error.
    pub(crate) fn error(&self) -> Value {
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        serde_json::from_str::<Value>(&self.err).unwrap_or_else(|e| panic!("{e}: {self:?}"))["error"].clone()
    }

    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}
