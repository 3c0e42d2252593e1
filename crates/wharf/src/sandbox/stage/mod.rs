//! The stage: the first program of ours inside, which does what only the confined process itself can do, and then
//! becomes the server.
//!
//! In: a role on the command line, and one message for it at the beginning of standard input; what comes after belongs to
//! the server. Out: the server, or a line on standard error that begins with [`VOICE`] and the exit status [`FAILED`].

mod build;
mod calls;
mod enter;
mod hold;
mod join;
mod limits;
mod loopback;
mod relay;
mod run;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{Child, Command, ExitCode};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::STAGE;
use super::plan::Mount;

/// How a line begins that the stage itself says.
pub(crate) const VOICE: &str = "wharf sandbox: ";
/// The exit status of a stage that could not do its work.
pub(crate) const FAILED: u8 = 125;
/// The role that becomes the server.
pub(super) const RUN: &str = "run";
/// The role that keeps the way out open.
pub(super) const RELAY: &str = "relay";
/// The role that joins control groups first.
pub(super) const JOIN: &str = "join";
/// The roles of our own engine: the namespaces, and what is built in them.
pub(super) const ENTER: &str = "enter";
const BUILD: &str = "build";
/// The role that is a server which only finds out that it is confined.
pub(super) const TRIAL: &str = "trial";

/// What is built by our own engine, and who is called next.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Build {
    pub(super) mounts: Vec<Mount>,
    pub(super) role: String,
}

/// A message is at most this long.
const LONGEST: usize = 16 * 1024 * 1024;

/// To be called first thing in `main` of the program that [`Sandbox::new`](super::Sandbox::new) names, with all the
/// arguments of the process. `None`: this is no stage, go on. Otherwise the process was one, and this is its end.
pub fn stage(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()? != STAGE {
        return None;
    }
    let role = args.next().unwrap_or_default();
    let done: Result<ExitCode, String> = match role.to_str() {
        Some(RUN) => run::run().map(|never| match never {}),
        Some(RELAY) => relay::relay(),
        Some(JOIN) => join::join(args).map(|never| match never {}),
        Some(ENTER) => enter::enter(),
        Some(BUILD) => build::build(),
        Some(TRIAL) => hold::tell_version(),
        _ => Err("there is no such role".into()),
    };
    Some(done.unwrap_or_else(|why| {
        // Nobody is left to be told if this fails.
        let _ = writeln!(io::stderr(), "{VOICE}{why}");
        ExitCode::from(FAILED)
    }))
}

/// A message for a stage.
pub(super) fn message(content: &impl Serialize) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(content)?;
    let mut message = format!("{:08x}", text.len()).into_bytes();
    message.extend(text);
    Ok(message)
}

/// Starts the next stage, with what is left of standard input.
#[expect(
    clippy::disallowed_methods,
    reason = "a stage is a part of starting a server that a permit was given for"
)]
fn next(program: &str, role: &str) -> Result<Child, String> {
    let started = Command::new(program).args([STAGE, role]).env_clear().spawn();
    started.map_err(|e| format!("the next stage cannot be started: {e}"))
}

/// Waits for a process that now has our place at both pipes.
fn wait_for(mut child: Child) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    step_aside();
    match child.wait() {
        Ok(status) => code_of(status.code(), status.signal()),
        Err(_) => ExitCode::from(FAILED),
    }
}

/// Lets go of the pipes, so that whoever is at the other end sees when the server does.
fn step_aside() {
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        // If one is kept, its end is seen when we go, which is a moment later.
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// The status of another process as our own: a signal as shells tell it.
fn code_of(code: Option<i32>, signal: Option<i32>) -> ExitCode {
    let code = code.or(signal.map(|signal| 128 + signal)).and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::from(FAILED), ExitCode::from)
}

/// Reads the next message from standard input, and not one byte more.
fn receive<T: DeserializeOwned>() -> Result<T, String> {
    let lost = |why: &dyn std::fmt::Display| format!("it was not told what to do: {why}");
    let mut length = [0; 8];
    read_exactly(&mut length).map_err(|e| lost(&e))?;
    let length = std::str::from_utf8(&length).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
    let length = length.filter(|length| *length <= LONGEST).ok_or_else(|| lost(&"no length"))?;
    let mut text = vec![0; length];
    read_exactly(&mut text).map_err(|e| lost(&e))?;
    serde_json::from_slice(&text).map_err(|e| lost(&e))
}

/// Past every buffer: what follows is not ours.
fn read_exactly(mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match rustix::io::read(rustix::stdio::stdin(), &mut *into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => into = &mut into[read..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
