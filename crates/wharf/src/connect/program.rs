//! Finding the program behind a command's name, once, as an absolute path.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Looks a bare name up in `PATH`, as given. Relative and empty entries of `PATH` are skipped: they would mean the
/// folder we happen to be in. A path is taken as it is, if it is absolute.
pub(crate) fn find(command: &str, path: Option<&str>) -> Option<PathBuf> {
    if command.contains('/') {
        let path = PathBuf::from(command);
        return (path.is_absolute() && is_program(&path)).then_some(path);
    }
    let folders = std::env::split_paths(path?).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(command)).find(|candidate| is_program(candidate))
}

/// A regular file that may be executed, and does not change who we are when it is.
fn is_program(path: &Path) -> bool {
    const SET_ID: u32 = 0o6000;
    path.metadata().is_ok_and(|meta| {
        let mode = meta.permissions().mode();
        meta.is_file() && mode & 0o111 != 0 && mode & SET_ID == 0
    })
}
