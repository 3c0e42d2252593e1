//! The first step, outside: into the control groups, which everything after inherits.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use super::receive;

/// Joins, and becomes the program that the rest of the command line names.
pub(super) fn join(rest: impl Iterator<Item = OsString>) -> Result<Infallible, String> {
    let doors: Vec<PathBuf> = receive()?;
    for door in doors {
        // `0` is whoever writes it.
        std::fs::write(&door, "0").map_err(|e| format!("{} cannot be joined: {e}", door.display()))?;
    }
    become_next(rest)
}

#[expect(clippy::disallowed_methods, reason = "this process itself becomes the one that confines the server")]
fn become_next(mut rest: impl Iterator<Item = OsString>) -> Result<Infallible, String> {
    let program = rest.next().ok_or("there is nothing to become")?;
    let error = Command::new(&program).args(rest).env_clear().exec();
    Err(format!("{} cannot be started: {error}", program.display()))
}
