//! Where project files are looked for.

use std::path::{Path, PathBuf};

/// The folders from the farthest ancestor to `start` itself, which comes last.
///
/// The root of the file system is not a project, and neither is `stop` (the user's home) or anything above it: they
/// are left out, unless one of them is `start`.
pub fn find_folders(start: &Path, stop: Option<&Path>) -> Vec<PathBuf> {
    let above = start.ancestors().skip(1);
    let mut folders: Vec<PathBuf> = std::iter::once(start)
        .chain(above.take_while(|folder| Some(*folder) != stop && folder.parent().is_some()))
        .map(Path::to_path_buf)
        .collect();
    if Some(start) == stop {
        folders.truncate(1);
    }
    folders.reverse();
    folders
}
