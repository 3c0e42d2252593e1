//! A file is replaced whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::text::Escaped;

/// Writes a text to a file through a temporary one beside it, so that no reader and no crash ever sees half of it.
///
/// An existing file keeps its permissions, and a link keeps pointing to it. A new file is for its owner alone, as it
/// may come to hold secrets. Folders that are missing are made.
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
    let path = folder.join(format!(".wharf-{:016x}.tmp", fastrand::u64(..)));
    options.open(&path).map(|file| (file, path))
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
