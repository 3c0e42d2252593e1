//! A file is replaced whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::text::Escaped;

/// What temporary files are called, around a random number.
const BEFORE: &str = ".wharf-";
const AFTER: &str = ".tmp";
/// Temporary files are this old only if nobody finishes them any more.
const OLD: Duration = Duration::from_secs(60);

/// Writes a text to a file through a temporary one beside it, so that no reader and no crash ever sees half of it.
///
/// An existing file keeps its permissions, and a link keeps pointing to it. A new file is for its owner alone, as it
/// may come to hold secrets. Folders that are missing are made. Temporary files that a killed program left are removed.
///
/// # Errors
/// If the folder cannot be made or written to. The file is then as it was.
pub fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    replace(&target, text)
        .map_err(|error| Error::config(format!("cannot write {}: {error}", Escaped(&path.to_string_lossy()))))
}

fn replace(target: &Path, text: &str) -> io::Result<()> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_folder(folder)?;
    sweep(folder, |name| name.starts_with(BEFORE) && name.ends_with(AFTER));
    let (mut file, temporary) = create_beside(folder)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| match fs::metadata(target) {
            Ok(facts) => file.set_permissions(facts.permissions()),
            Err(_) => Ok(()),
        })
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, target));
    if written.is_err() {
        // The error that matters is the one above.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn create_beside(folder: &Path) -> io::Result<(File, PathBuf)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let path = folder.join(format!("{BEFORE}{:016x}{AFTER}", fastrand::u64(..)));
    options.open(&path).map(|file| (file, path))
}

/// Removes the files of a folder that a writer which was killed in the middle left there, as far as their names tell that
/// they are such. Nobody writes for as long as they are old.
pub(crate) fn sweep(folder: &Path, is_left: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if entry.file_name().to_str().is_some_and(&is_left) && age().is_some_and(|age| age > OLD) {
            // One that cannot be removed harms nobody.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
