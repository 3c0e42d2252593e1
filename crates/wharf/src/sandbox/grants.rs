//! What is let in, and what never is.
//!
//! In: paths, asked for by the user or guessed from the command line. Out: mounts, by the real place of each path, with
//! the links that lead there; nothing twice, parents before what lies in them. The user's home folder, what lies above
//! it, and the folders that hold Wharf's own files are not let in, whoever asks.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::Sandbox;
use super::plan::Mount;

/// What may be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Read,
    Write,
}

/// The paths gathered so far.
#[derive(Debug)]
pub(super) struct Grants<'a> {
    sandbox: &'a Sandbox,
    /// Real places, parents first.
    places: BTreeMap<PathBuf, Access>,
    /// Links on the way to them: where each is, and what it says.
    links: BTreeMap<PathBuf, PathBuf>,
    warnings: Vec<String>,
}

/// Where a path really is.
struct Walked {
    real: PathBuf,
    links: Vec<(PathBuf, PathBuf)>,
}

/// The kernel's own, which the sandbox has its own of.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Folders of everybody: the files in them may be let in one by one, they themselves may not by mere mention.
const SHARED: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

// === impl Grants ===

impl<'a> Grants<'a> {
    pub(super) fn new(sandbox: &'a Sandbox) -> Self {
        Self { sandbox, places: BTreeMap::new(), links: BTreeMap::new(), warnings: Vec::new() }
    }

    /// A part of the system, which is let in if it is there.
    pub(super) fn system(&mut self, path: &str) {
        if let Ok(walked) = walk(Path::new(path)) {
            self.take(walked, Access::Read);
        }
    }

    /// A path that the user wrote into the profile: it must be there, and it must be possible.
    pub(super) fn demand(&mut self, path: &Path, access: Access) -> Result<(), String> {
        let key = if access == Access::Write { "write" } else { "read" };
        let shown = crate::text::Escaped(&path.display().to_string()).to_string();
        let walked = walk(path).map_err(|e| format!("`{key}` of its sandbox names {shown}: {e}"))?;
        if let Some(why) = self.never(&walked.real, access) {
            return Err(format!("`{key}` of its sandbox names {shown}, which {why}"));
        }
        self.take(walked, access);
        Ok(())
    }

    /// A path that the command line mentions: let in if that is harmless, and told of if it is not.
    pub(super) fn offer(&mut self, path: &Path, access: Access, what: &str) {
        let Ok(walked) = walk(path) else { return };
        let shown = crate::text::Escaped(&path.display().to_string()).to_string();
        let shared = SHARED.iter().any(|folder| walked.real == Path::new(folder))
            || walked.real.components().count() <= 2;
        let why = match self.never(&walked.real, access) {
            Some(why) => why,
            None if shared && walked.real.is_dir() => "is too wide to be let in by mention".to_owned(),
            None => return self.take(walked, access),
        };
        if !self.covers(&walked.real) {
            self.warnings.push(format!("{what} is {shown}, which {why}; it is not let into the sandbox"));
        }
    }

    /// A path that belongs to the program itself. Where a whole folder would be too much, nothing is said: the caller
    /// offers less.
    pub(super) fn try_folder(&mut self, folder: &Path) -> bool {
        let Ok(walked) = walk(folder) else { return false };
        let wide = walked.real.components().count() <= 2
            || SHARED.iter().any(|shared| walked.real == Path::new(shared));
        if wide || self.never(&walked.real, Access::Read).is_some() {
            return self.covers(&walked.real);
        }
        self.take(walked, Access::Read);
        true
    }

    /// Whether a real place is let in already.
    pub(super) fn covers(&self, real: &Path) -> bool {
        real.ancestors().any(|above| self.places.contains_key(above))
    }

    fn take(&mut self, walked: Walked, access: Access) {
        self.links.extend(walked.links);
        let held = self.places.entry(walked.real).or_insert(access);
        *held = access.max(*held);
    }

    /// Why a place is never let in.
    fn never(&self, real: &Path, access: Access) -> Option<String> {
        if real == Path::new("/") {
            return Some("is everything".into());
        }
        if KERNEL.iter().any(|kernel| real.starts_with(kernel)) {
            return Some("is the kernel's: the sandbox has its own".into());
        }
        if self.sandbox.homes().any(|home| home == real) {
            return Some("is your home folder: name what it needs of it".into());
        }
        if self.sandbox.homes().any(|home| home.starts_with(real)) {
            return Some("holds your home folder: name what it needs of it".into());
        }
        if self.sandbox.protected().any(|own| real.starts_with(own)) {
            return Some("belongs to Wharf itself".into());
        }
        // A folder of ours that is not there yet could be made; a single file is covered.
        let ours = |own: &Path| own.starts_with(real) && !own.is_file();
        if access == Access::Write && self.sandbox.protected().any(ours) {
            return Some("holds files of Wharf itself, which no server may change".into());
        }
        None
    }

    /// The mounts, in the order in which they must be made, and what a person should know.
    pub(super) fn settle(mut self) -> Result<(Vec<Mount>, Vec<String>), String> {
        let all = std::mem::take(&mut self.places);
        let covered = |place: &Path, access: &Access| {
            place.ancestors().skip(1).any(|above| all.get(above).is_some_and(|held| held >= access))
        };
        let kept = all.iter().filter(|(place, access)| !covered(place, access));
        let mut mounts: Vec<Mount> = Vec::new();
        for (place, access) in kept {
            if place.to_str().is_none() {
                return Err(format!("the path {} is not UTF-8", place.display()));
            }
            let (from, at) = (place.clone(), place.clone());
            mounts.push(match access {
                Access::Read => Mount::Read { from, at },
                Access::Write => Mount::Write { from, at },
            });
        }
        let visible = |at: &Path| at.ancestors().any(|above| all.contains_key(above));
        let links = self.links.into_iter().filter(|(at, to)| !visible(at) && to.to_str().is_some());
        mounts.extend(links.map(|(at, to)| Mount::Link { to, at }));
        for own in self.sandbox.protected().filter(|own| visible(own)) {
            let at = own.to_path_buf();
            if own.is_dir() {
                mounts.push(Mount::Nothing { at });
            } else if own.exists() {
                mounts.push(Mount::Text { at, text: String::new() });
            }
        }
        Ok((mounts, self.warnings))
    }
}

/// Goes to where a path really is, and notes every link on the way.
fn walk(path: &Path) -> std::io::Result<Walked> {
    /// As many links as the kernel follows.
    const LINKS: usize = 40;
    let mut walked = Walked { real: PathBuf::from("/"), links: Vec::new() };
    let parts =
        |path: &Path| -> Vec<OsString> { path.components().map(|c| c.as_os_str().to_owned()).collect() };
    let mut left: VecDeque<OsString> = parts(path).into();
    while let Some(part) = left.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => walked.real = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(walked.real.pop()),
            Some(Component::Normal(name)) => {
                let here = walked.real.join(name);
                if !here.symlink_metadata()?.is_symlink() {
                    walked.real = here;
                    continue;
                }
                if walked.links.len() == LINKS {
                    return Err(std::io::Error::other("too many links"));
                }
                let to = here.read_link()?;
                for part in parts(&to).into_iter().rev() {
                    left.push_front(part);
                }
                walked.links.push((here, to));
            }
            _ => {}
        }
    }
    Ok(walked)
}

/// Where a path really is, if it is there.
pub(super) fn real(path: &Path) -> Option<PathBuf> {
    walk(path).ok().map(|walked| walked.real)
}

/// Every place on the way to where a path really is, the path itself first: links one by one.
pub(super) fn hops(path: &Path) -> Vec<PathBuf> {
    let mut hops = vec![path.to_path_buf()];
    let mut at = path.to_path_buf();
    while hops.len() < 16
        && let Ok(to) = at.read_link()
    {
        at = at.parent().unwrap_or(Path::new("/")).join(to);
        hops.push(at.clone());
    }
    hops.extend(real(path));
    hops
}
