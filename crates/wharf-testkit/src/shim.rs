//! A library that makes the world harder for a process that is started with it: pipes that hold one page and
//! are interrupted, a wall clock that jumps.
//!
//! In: a folder. Out: the path for `LD_PRELOAD`. It is C, because it stands in for functions of the C library; the
//! compiler is the one that links Rust programs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles it into a folder.
///
/// # Panics
/// If there is no `cc`, or it fails.
pub fn build(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    std::fs::write(&source, include_str!("shim.c")).expect("a folder that can be written");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .output()
        .expect("`cc`, which links Rust programs too");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}
