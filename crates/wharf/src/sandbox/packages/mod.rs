//! Packages that launchers would fetch: `npx`, `uvx` and `pipx` become two steps, one that fetches and one that runs.
//!
//! In: a launcher's command line. Out: which packages it wants, how they are fetched into a folder that is complete or
//! absent, what was resolved, and the program that then runs from there, without a network. Nothing is started here:
//! `connect` does that.

mod environment;
mod outcome;
mod read;
mod steps;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

pub use outcome::{Entry, Fetched, Resolved};
pub(crate) use steps::{Step, Tool};

/// Which packages a command line wants, and what it runs of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackageSpec {
    /// Who fetches them.
    pub source: Source,
    /// The packages, the one that is run first.
    pub packages: Vec<Requirement>,
    /// The command that is run, where it is not the package's own.
    pub command: Option<String>,
    /// The version of Python that is asked for.
    pub python: Option<String>,
    /// Options of the launcher that are the package manager's, too.
    pub options: Vec<String>,
    /// What the server is given.
    pub args: Vec<String>,
}

/// Where packages come from, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// npm, by `npm`.
    Npm,
    /// PyPI, by `uv`.
    Uv,
    /// PyPI, by `pip`.
    Pip,
}

/// A package that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Its name.
    pub name: String,
    /// Its version, where that is exact.
    pub version: Option<String>,
    /// Both, as the package manager is told.
    pub text: String,
}

/// How packages are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageOptions {
    /// Where they are kept: a folder of ours.
    pub cache: PathBuf,
    /// The user's home folder, for the registry settings in it. Defaults to none.
    pub home: Option<PathBuf>,
    /// Whether packages may run code of their own while they are installed. Defaults to false.
    pub scripts: bool,
    /// Packages that may, by name, whatever the others may. Defaults to none.
    pub scripts_of: Vec<String>,
    /// How long fetching may take. Defaults to 5 minutes.
    pub time: Duration,
    /// How large a package may be, with everything that it needs. Defaults to 1 GiB.
    pub size: u64,
}

// === impl PackageSpec ===

impl PackageSpec {
    /// Reads a launcher's command line. `None` if it is not one that fetches.
    ///
    /// # Errors
    /// If it is, but cannot be taken apart: why, in words.
    pub fn read<A: AsRef<std::ffi::OsStr>>(program: &Path, args: &[A]) -> Result<Option<Self>, String> {
        read::read(program, args)
    }

    /// The package that is run.
    pub fn main(&self) -> &Requirement {
        // The reader makes none without.
        &self.packages[0]
    }

    /// The name of its folder in the cache: for people to recognise, and different for whatever is different.
    pub(crate) fn folder_name(&self, options: &PackageOptions) -> String {
        let mut hash = Sha256::new();
        let texts = self.packages.iter().map(|package| package.text.as_str());
        let platform = [std::env::consts::OS, std::env::consts::ARCH];
        let scripts = if options.runs_scripts(self) { "scripts" } else { "" };
        let kind = format!("{:?}", self.source);
        let rest = [scripts, &kind, self.python.as_deref().unwrap_or_default()];
        let all =
            platform.into_iter().chain(rest).chain(self.options.iter().map(String::as_str)).chain(texts);
        for part in all {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
        let label: String = self.main().to_string().chars().take(80).map(plain).collect();
        format!("{}-{digest}", label.trim_start_matches(['-', '.']))
    }

    /// What was fetched before, if it is there and whole.
    pub fn find(&self, options: &PackageOptions) -> Option<Fetched> {
        Fetched::load(&options.cache.join(self.folder_name(options)))
    }
}

// === impl PackageOptions ===

impl PackageOptions {
    /// Whether a package may run code of its own while it is installed, and what it needs with it.
    fn runs_scripts(&self, spec: &PackageSpec) -> bool {
        let same = |name: &String| outcome::normal(name) == outcome::normal(&spec.main().name);
        self.scripts || self.scripts_of.iter().any(same)
    }
}

// === impl Requirement ===

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

// === impl PackageOptions ===

impl PackageOptions {
    /// The defaults, with this cache.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            cache: cache.into(),
            home: None,
            scripts: false,
            scripts_of: Vec::new(),
            time: Duration::from_secs(300),
            size: 1 << 30,
        }
    }
}
