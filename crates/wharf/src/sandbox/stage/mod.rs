//! The stage: the first program of ours inside, which does what only the confined process itself can do, and then
//! becomes the server.
//!
//! In: a role on the command line, and one message for it at the beginning of standard input; what comes after belongs to
//! the server. Out: the server, or a line on standard error that begins with [`VOICE`] and the exit status [`FAILED`].

mod calls;
mod hold;
mod limits;
mod run;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::STAGE;

/// How a line begins that the stage itself says.
pub(crate) const VOICE: &str = "wharf sandbox: ";
/// The exit status of a stage that could not do its work.
pub(crate) const FAILED: u8 = 125;
/// The role that becomes the server.
pub(super) const RUN: &str = "run";

/// A message is at most this long.
const LONGEST: usize = 16 * 1024 * 1024;

/// To be called first thing in `main` of the program that [`Sandbox::new`](super::Sandbox::new) names, with all the
/// arguments of the process. `None`: this is no stage, go on. Otherwise the process was one and has failed; a stage that
/// does not fail becomes the server.
pub fn stage(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()? != STAGE {
        return None;
    }
    let role = args.next().unwrap_or_default();
    let done: Result<ExitCode, String> = match role.to_str() {
        Some(RUN) => run::run().map(|never| match never {}),
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
