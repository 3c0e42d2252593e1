//! Why a confined server may have failed, told from its last words.
//!
//! In: the end of its standard error, and what the plan let in. Out: the line to add to its profile, where a path that it
//! complains about is there on the machine and was not let in. Anything less certain is said as such.

use std::path::{Path, PathBuf};

use super::plan::{Mount, Plan};
use super::stage::VOICE;
use crate::names::ServerName;
use crate::text::{Escaped, Foreign};

/// What is known of a confined server when it fails.
#[derive(Clone, Debug)]
pub(crate) struct Clue {
    server: ServerName,
    readable: Vec<PathBuf>,
    writable: Vec<PathBuf>,
}

/// What programs say when a file is not there, or not theirs to change.
const MISSING: [&str; 4] = ["ENOENT", "No such file", "not found", "cannot find"];
const FORBIDDEN: [&str; 6] =
    ["EROFS", "Read-only file system", "EACCES", "Permission denied", "EPERM", "Operation not permitted"];

impl Clue {
    pub(crate) fn new(server: &ServerName, plan: &Plan) -> Self {
        let reads =
            plan.mounts.iter().filter(|mount| matches!(mount, Mount::Read { .. } | Mount::Write { .. }));
        let readable = reads.map(|mount| mount.at().to_path_buf()).collect();
        Self { server: server.clone(), readable, writable: plan.job.writable.clone() }
    }

    /// The next step, if the last words tell of one.
    pub(crate) fn advice(&self, lines: &[Foreign]) -> Option<String> {
        let lines: Vec<&str> = lines.iter().map(Foreign::raw).collect();
        if lines.iter().any(|line| line.starts_with("bwrap: ") || line.starts_with(VOICE)) {
            return Some(format!(
                "the sandbox itself failed: `wharf check` tells what this machine lacks; `sandbox = false` for `{}` in \
                 your own `wharf.toml` runs it without",
                self.server
            ));
        }
        let told = lines.iter().rev().find_map(|line| self.refused(line));
        told.map(|(key, path)| {
            let path = Escaped(&path.display().to_string()).to_string();
            format!(
                "its sandbox does not let it {key} {path}: if it should, add `sandbox.{key} = [{path:?}]` to `{}`",
                self.server
            )
        })
    }

    /// A path in a complaint that is there for us, but was not let in.
    fn refused(&self, line: &str) -> Option<(&'static str, PathBuf)> {
        let missing = MISSING.iter().any(|words| line.contains(words));
        let forbidden = FORBIDDEN.iter().any(|words| line.contains(words));
        let path = paths(line)
            .find(|path| path.symlink_metadata().is_ok() || (forbidden && parent_is_there(path)))?;
        let within = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        if missing && !within(&self.readable) && !within(&self.writable) {
            Some(("read", path))
        } else if forbidden && !within(&self.writable) {
            Some(("write", path))
        } else {
            None
        }
    }
}

fn parent_is_there(path: &Path) -> bool {
    path.parent().is_some_and(Path::is_dir)
}

/// The absolute paths in a line: between quotes, or up to a space.
fn paths(line: &str) -> impl Iterator<Item = PathBuf> {
    const QUOTES: [char; 4] = ['\'', '"', '`', ' '];
    let ends = |c: char| QUOTES.contains(&c) || matches!(c, ',' | ')' | '(' | '[' | ']');
    let words = line.split(ends).map(|word| word.trim_end_matches(['.', ':', ';']));
    let absolute = words.filter(|word| word.len() > 1 && word.starts_with('/') && !word.starts_with("//"));
    absolute.map(PathBuf::from)
}
