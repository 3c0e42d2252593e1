//! The puppet's hands: bytes on its pipes, files, signals, processes. What it does with them is in `stage`.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::script::Grandchild;

pub(super) fn long_line(bytes: usize, id: Option<&String>, newline: bool) {
    let id = id.map_or_else(String::new, |id| format!(r#""id":{id},"#));
    let head = format!(r#"{{"jsonrpc":"2.0",{id}"result":{{"content":[{{"type":"text","text":""#);
    let tail = r#""}]}}"#;
    let mut room = bytes.checked_sub(head.len() + tail.len()).expect("a long line is longer than its frame");
    let mut out = std::io::stdout().lock();
    let chunk = vec![b'x'; 65_536.min(room)];
    let mut put = |bytes: &[u8]| out.write_all(bytes).unwrap_or_else(|_| exit(0));
    put(head.as_bytes());
    while room > 0 {
        let part = room.min(chunk.len());
        put(&chunk[..part]);
        room -= part;
    }
    put(tail.as_bytes());
    if newline {
        put(b"\n");
    }
    let _ = out.flush();
}

pub(super) fn write_line(line: &[u8]) {
    write(&[line, b"\n"].concat());
}

/// Writes at once. A reader that is gone ends the puppet's interest, not the puppet: it may have been told to stay.
pub(super) fn write(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

pub(super) fn say(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

pub(super) fn stderr_bytes(bytes: usize, lines: bool) {
    let mut chunk = [b'e'; 100];
    if lines {
        chunk[99] = b'\n';
    }
    let mut err = std::io::BufWriter::new(std::io::stderr().lock());
    for _ in 0..bytes / 100 {
        let _ = err.write_all(&chunk);
    }
    let _ = err.write_all(&chunk[..bytes % 100]);
}

#[expect(clippy::zombie_processes, reason = "leaving processes behind is what this is for")]
pub(super) fn spawn(grandchild: &Grandchild) {
    let own = std::env::current_exe().expect("a running puppet has a path");
    let session = if grandchild.setsid { "setsid" } else { "same" };
    let child =
        std::process::Command::new(own).args(["--sleep", session]).spawn().expect("a grandchild starts");
    write_whole(&grandchild.pid_file, &child.id().to_string());
}

pub(super) fn describe() -> Value {
    let env: HashMap<String, String> = std::env::vars_os()
        .map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
        .collect();
    let fds: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .map(|dir| dir.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    let args: Vec<String> = std::env::args().collect();
    json!({"pid": std::process::id(), "args": args, "cwd": std::env::current_dir().ok(), "env": env, "fds": fds})
}

/// Whole or not at all, so that a test that waits for the file never reads half of it.
pub(super) fn write_whole(file: &Path, text: &str) {
    let beside = file.with_extension(format!("{}.part", std::process::id()));
    std::fs::write(&beside, text).expect("the file can be written");
    std::fs::rename(&beside, file).expect("the file can be renamed");
}

/// Adds a byte to a file and says how many it has.
pub(super) fn count(file: &Path) -> u64 {
    let mut file = append(file);
    file.write_all(b"x").expect("the file can be written");
    file.metadata().expect("the file has a length").len()
}

pub(super) fn append(file: &Path) -> std::fs::File {
    OpenOptions::new().append(true).create(true).open(file).expect("the file can be opened")
}

pub(super) fn from_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    let pair =
        |p: &[char]| u8::from_str_radix(&p.iter().collect::<String>(), 16).expect("hexadecimal digits");
    digits.chunks(2).map(pair).collect()
}

/// A handler that nobody listens to takes the place of the signal's default.
pub(super) fn ignore_term() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    // The handler stays installed when the runtime is gone.
    drop(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("a handler"));
}

pub(super) fn close_stdout() {
    let nowhere = OpenOptions::new().write(true).open("/dev/null").expect("/dev/null");
    rustix::stdio::dup2_stdout(nowhere).expect("standard output can be replaced");
}

pub(super) fn close_stdin() {
    let nothing = OpenOptions::new().read(true).open("/dev/null").expect("/dev/null");
    rustix::stdio::dup2_stdin(nothing).expect("standard input can be replaced");
}

pub(super) fn signal_self(signal: rustix::process::Signal) {
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
}

pub(super) fn park() {
    loop {
        std::thread::park();
    }
}

#[expect(clippy::exit, reason = "a puppet ends when its script says so, whatever its threads do")]
pub(super) fn exit(code: i32) -> ! {
    std::process::exit(code)
}
