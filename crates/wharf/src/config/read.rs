//! A file's bytes, read once, with what its permissions say about who else may have written them.
//!
//! In: a path that the caller named. Out: the bytes, or why they are not taken: too large, not text, or open to
//! other users. Nothing is read that was not named.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::problem::Problem;

/// The largest file that is read: 1 MiB.
pub(super) const FILE_MAX: u64 = 1024 * 1024;

/// A file as it was at one moment.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    pub(super) writable: Writable,
}

/// Who but its owner may write a file, or replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Writable {
    /// Nobody.
    OwnerOnly,
    /// The owner's group.
    Group,
    /// Every user of the machine.
    World,
}

/// Reads a file; `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Contents>, Box<Problem>> {
    let failed =
        |error: std::io::Error| Box::new(Problem::of_file(path, format!("cannot read the file: {error}")));
    // Asked before it is opened: opening a pipe would wait for a writer.
    let facts = match fs::metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !facts.is_file() {
        return Err(Box::new(Problem::of_file(path, "cannot read the file: it is not a regular file")));
    }
    let file = File::open(path).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    let mut bytes = Vec::new();
    // One byte more than allowed, because a file may grow between the question and the answer.
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(Box::new(Problem::of_file(path, format!("the file is larger than {FILE_MAX} bytes"))));
    }
    Ok(Some(Contents { bytes, writable: file_writable(&facts).max(folder_writable(path)) }))
}

/// The bytes as text, without a byte order mark.
pub(super) fn text(path: &Path, bytes: &[u8]) -> Result<String, Box<Problem>> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        Box::new(Problem::of_file(path, format!("the file is not UTF-8 text (line {line})")))
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text).to_owned())
}

/// Refuses a file that others can write, with the command that mends it.
pub(super) fn refuse_writable(path: &Path, writable: Writable, limit: Writable) -> Result<(), Box<Problem>> {
    if writable <= limit {
        return Ok(());
    }
    let who = if writable == Writable::World { "every user of this machine" } else { "its group" };
    let problem = Problem::of_file(
        path,
        format!("the file, or its folder, can be written by {who}, so it is not trusted"),
    );
    Err(Box::new(problem.hint(format!("chmod go-w {}", crate::text::Escaped(&path.to_string_lossy())))))
}

#[cfg(unix)]
fn file_writable(facts: &fs::Metadata) -> Writable {
    use std::os::unix::fs::PermissionsExt as _;
    match facts.permissions().mode() {
        mode if mode & 0o002 != 0 => Writable::World,
        mode if mode & 0o020 != 0 => Writable::Group,
        _ => Writable::OwnerOnly,
    }
}

/// A folder that everyone can write lets everyone replace the file, unless it is sticky like `/tmp`. The folder of
/// the real file counts, not that of a link to it.
#[cfg(unix)]
fn folder_writable(path: &Path) -> Writable {
    use std::os::unix::fs::PermissionsExt as _;
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mode = real
        .parent()
        .and_then(|folder| fs::metadata(folder).ok())
        .map_or(0, |facts| facts.permissions().mode());
    if mode & 0o002 != 0 && mode & 0o1000 == 0 { Writable::World } else { Writable::OwnerOnly }
}

#[cfg(not(unix))]
fn file_writable(_: &fs::Metadata) -> Writable {
    Writable::OwnerOnly
}

#[cfg(not(unix))]
fn folder_writable(_: &Path) -> Writable {
    Writable::OwnerOnly
}
