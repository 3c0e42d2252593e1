//! Where a program is at home: what it cannot run without.
//!
//! In: the program as it was found, and its arguments. Out: its installation (a virtual environment, a version of Node, a
//! package with its dependencies), its script's project, and the paths that the arguments name, let in for reading. What
//! cannot be told from the disk is not guessed: better a server that lacks a file than one that reads too much.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::grants::{Access, Grants, hops};

/// A folder that has one of these is an installation as a whole.
const INSTALLATION: [&str; 7] = [
    "pyvenv.cfg",
    "conda-meta",
    "lib/node_modules",
    "include/node",
    "Cellar",
    "tools/image",
    "libexec/pyenv",
];
/// A folder that has one of these is a project: a script in it needs its neighbours.
const PROJECT: [&str; 6] =
    ["package.json", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "deno.json"];
/// How far up a project's folder is looked for.
const UP: usize = 8;

/// Lets in what the command line needs. `path` is where the child finds programs by name.
pub(super) fn grant(grants: &mut Grants<'_>, program: &Path, args: &[OsString], path: Option<&str>) {
    grant_program(grants, program, path, 0);
    for arg in args {
        for mentioned in mentions(arg) {
            if mentioned.is_file() {
                grant_script(grants, &mentioned);
            } else {
                grants.offer(&mentioned, Access::Read, "an argument");
            }
        }
    }
}

/// The absolute paths that an argument names: `/a/b`, `--root=/a/b`, `file:///a/b` does not count.
fn mentions(arg: &OsString) -> Vec<PathBuf> {
    let Some(text) = arg.to_str() else {
        return vec![PathBuf::from(arg)];
    };
    let value = match text.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => value,
        _ => text,
    };
    if value.starts_with('/') { vec![PathBuf::from(value)] } else { Vec::new() }
}

/// The program, the installations it and everything it is a link to belong to, and what its first line names.
fn grant_program(grants: &mut Grants<'_>, program: &Path, path: Option<&str>, depth: usize) {
    for hop in hops(program) {
        if let Some(root) = installation(&hop) {
            grants.try_folder(&root);
            grant_base(grants, &root);
        }
        if let Some(modules) = modules(&hop) {
            grants.try_folder(&modules);
        }
    }
    grants.offer(program, Access::Read, "its program");
    if depth < 3
        && let Some(interpreter) = interpreter(program, path)
    {
        grant_program(grants, &interpreter, path, depth + 1);
    }
}

/// The folder of which a program in `bin` is a part, if it is known to be more than a heap of programs.
fn installation(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let root = folder.parent()?;
    let name = folder.file_name()?;
    let is_root = |root: &Path| {
        INSTALLATION.iter().any(|marker| root.join(marker).exists()) || has_python(&root.join("lib"))
    };
    if name == "bin" && is_root(root) {
        return Some(root.to_path_buf());
    }
    // The stand-ins of pyenv, asdf and mise look the real program up in here.
    let stands_in = name == "shims" && ["versions", "installs"].iter().any(|known| root.join(known).is_dir());
    stands_in.then(|| root.to_path_buf())
}

fn has_python(lib: &Path) -> bool {
    let Ok(entries) = lib.read_dir() else { return false };
    entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with("python3")))
}

/// A virtual environment is a part of the Python that made it.
fn grant_base(grants: &mut Grants<'_>, root: &Path) {
    let Ok(text) = std::fs::read_to_string(root.join("pyvenv.cfg")) else { return };
    let home = text.lines().find_map(|line| line.split_once('=').filter(|(key, _)| key.trim() == "home"));
    let Some(base) = home.map(|(_, value)| Path::new(value.trim())).filter(|base| base.is_absolute()) else {
        return;
    };
    for hop in hops(&base.join("python3")) {
        if let Some(base) = installation(&hop) {
            grants.try_folder(&base);
        }
    }
}

/// The outermost `node_modules` around a file: packages find each other there.
fn modules(file: &Path) -> Option<PathBuf> {
    file.ancestors()
        .filter(|above| above.file_name().is_some_and(|name| name == "node_modules"))
        .last()
        .map(Path::to_path_buf)
}

/// A file that an argument names: a script with its project, or just a file.
fn grant_script(grants: &mut Grants<'_>, script: &Path) {
    for hop in hops(script) {
        if let Some(modules) = modules(&hop) {
            grants.try_folder(&modules);
            continue;
        }
        let Some(folder) = hop.parent() else { continue };
        let is_code = hop.extension().and_then(|e| e.to_str()).is_some_and(|e| CODE.contains(&e));
        if !is_code {
            continue;
        }
        let is_project = |folder: &&Path| PROJECT.iter().any(|marker| folder.join(marker).is_file());
        let project = folder.ancestors().take(UP).find(is_project);
        if !project.is_some_and(|project| grants.try_folder(project)) {
            grants.try_folder(folder);
        }
        // Workspaces keep the packages of all their projects further up.
        for above in
            folder.ancestors().take(UP).map(|above| above.join("node_modules")).filter(|m| m.is_dir())
        {
            grants.try_folder(&above);
        }
    }
    grants.offer(script, Access::Read, "an argument");
}

/// The endings of files that are run, not read.
const CODE: [&str; 10] = ["js", "mjs", "cjs", "ts", "mts", "cts", "py", "pyz", "rb", "sh"];

/// The program that a script's first line names.
fn interpreter(program: &Path, path: Option<&str>) -> Option<PathBuf> {
    const LINE: u64 = 256;
    let mut head = Vec::new();
    std::fs::File::open(program).ok()?.take(LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
    let first = words.next()?;
    if !first.ends_with("/env") {
        return Some(PathBuf::from(first)).filter(|path| path.is_absolute());
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    let folders = std::env::split_paths(path?).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}
