//! In: a folder into which packages were fetched. Out: what was resolved, and the program in it; written down, so that it
//! is known the next time without asking anybody.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{PackageSpec, Source};
use crate::text::Escaped;

/// Packages in the cache, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fetched {
    /// Where they are.
    pub folder: PathBuf,
    /// What is run.
    pub entry: Entry,
    /// Everything that was fetched, the package that is run first, the others by name.
    pub resolved: Vec<Resolved>,
}

/// A package as it was found in its registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resolved {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Hashes of what was fetched. Where there is more than one, it was one of them: `uv` names those of every platform.
    pub integrity: Vec<String>,
}

/// What is run, by its place in the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Entry {
    /// A script for Node.
    Node(PathBuf),
    /// A script for the Python of the folder.
    Python(PathBuf),
    /// A program.
    Program(PathBuf),
}

/// What is written down beside the packages.
#[derive(Serialize, Deserialize)]
struct Record {
    version: u32,
    entry: Entry,
    /// The interpreter that the folder was made for.
    python: Option<PathBuf>,
    resolved: Vec<Resolved>,
}

const RECORD: &str = "wharf-package.json";
const VERSION: u32 = 1;
/// A package manager's report is not longer.
const MAX_REPORT: u64 = 32 * 1024 * 1024;
const VENV_PYTHON: &str = "venv/bin/python";

// === impl Fetched ===

impl Fetched {
    /// Looks at what a package manager left, and writes it down.
    ///
    /// # Errors
    /// What is not as it should be, in words.
    pub(crate) fn settle(spec: &PackageSpec, folder: &Path) -> Result<Self, String> {
        let (mut resolved, entry) = match spec.source {
            Source::Npm => (npm_resolved(folder)?, npm_entry(spec, folder)?),
            Source::Uv => (uv_resolved(folder)?, python_entry(spec, folder)?),
            Source::Pip => (pip_resolved(folder)?, python_entry(spec, folder)?),
        };
        resolved.sort();
        let same = |name: &str| normal(name) == normal(&spec.main().name);
        let at = resolved.iter().position(|package| same(&package.name));
        let main = resolved.remove(at.ok_or("the package is not among what was fetched")?);
        resolved.insert(0, main);
        let python = folder.join(VENV_PYTHON).canonicalize().ok();
        let record = Record { version: VERSION, entry: entry.clone(), python, resolved: resolved.clone() };
        let text = serde_json::to_vec_pretty(&record).map_err(|error| error.to_string())?;
        std::fs::write(folder.join(RECORD), text).map_err(|error| error.to_string())?;
        Ok(Self { folder: folder.to_path_buf(), entry, resolved })
    }

    /// Reads what was written down. `None` if it is not there, or not usable any more.
    pub(crate) fn load(folder: &Path) -> Option<Self> {
        let record: Record = serde_json::from_slice(&read(&folder.join(RECORD)).ok()?).ok()?;
        let known = record.version == VERSION && !record.resolved.is_empty();
        let entry = folder.join(record.entry.path());
        // An interpreter that was replaced takes the folder's packages with it.
        let python = folder.join(VENV_PYTHON).canonicalize().ok() == record.python;
        let whole = known && python && is_inside(record.entry.path()) && entry.is_file();
        whole.then(|| Self { folder: folder.to_path_buf(), entry: record.entry, resolved: record.resolved })
    }

    /// The package that is run.
    pub fn main(&self) -> &Resolved {
        // None is made without.
        &self.resolved[0]
    }

    /// Everything that was fetched, in one SHA-256: names, versions, and what their registries say they must hash to.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for package in &self.resolved {
            let parts = [&package.name, &package.version].into_iter().chain(&package.integrity);
            for part in parts {
                hash.update(part.len().to_be_bytes());
                hash.update(part);
            }
            hash.update([0; 8]);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What was fetched, on one line.
    pub fn words(&self) -> String {
        let Resolved { name, version, .. } = self.main();
        let words = match self.resolved.len() - 1 {
            0 => format!("package {name} {version}"),
            1 => format!("package {name} {version} and 1 other"),
            others => format!("package {name} {version} and {others} others"),
        };
        Escaped(&words).to_string()
    }

    /// The program and what stands before the server's own arguments.
    pub(crate) fn command(&self, node: Option<PathBuf>) -> Option<(PathBuf, Vec<OsString>)> {
        let script = self.folder.join(self.entry.path());
        match self.entry {
            Entry::Node(_) => Some((node?, vec![script.into()])),
            Entry::Python(_) => Some((self.folder.join(VENV_PYTHON), vec![script.into()])),
            Entry::Program(_) => Some((script, Vec::new())),
        }
    }
}

// === impl Entry ===

impl Entry {
    /// Where it is in the folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Node(path) | Self::Python(path) | Self::Program(path) => path,
        }
    }
}

/// Every package of npm's own lockfile.
fn npm_resolved(folder: &Path) -> Result<Vec<Resolved>, String> {
    let lock = report(&folder.join("package-lock.json"))?;
    let packages = lock["packages"].as_object().ok_or("npm wrote no list of packages")?;
    let of = |(place, package): (&String, &Value)| {
        let (_, name) = place.rsplit_once("node_modules/")?;
        let integrity = package["integrity"].as_str().map(str::to_owned);
        Some(Resolved {
            name: name.to_owned(),
            version: package["version"].as_str()?.to_owned(),
            integrity: integrity.into_iter().collect(),
        })
    };
    let mut resolved: Vec<Resolved> = packages.iter().filter_map(of).collect();
    resolved.sort();
    resolved.dedup();
    Ok(resolved)
}

fn npm_entry(spec: &PackageSpec, folder: &Path) -> Result<Entry, String> {
    let main = &spec.main().name;
    let link = match &spec.command {
        Some(command) => folder.join("node_modules/.bin").join(command),
        None => {
            let package = folder.join("node_modules").join(main);
            let about = report(&package.join("package.json"))?;
            package.join(own_command(&about, main)?)
        }
    };
    let real = link.canonicalize().map_err(|_| {
        format!("package `{main}` has no command `{}`", spec.command.as_deref().unwrap_or(main))
    })?;
    let path = within(folder, &real)?;
    Ok(match shebang(&real).as_deref() {
        Some("node") => Entry::Node(path),
        None if real.extension().is_some_and(|ending| ["js", "cjs", "mjs"].iter().any(|e| ending == *e)) => {
            Entry::Node(path)
        }
        _ => Entry::Program(path),
    })
}

/// The file that npx would run of a package: its only command, or the one of its name.
fn own_command<'a>(about: &'a Value, name: &str) -> Result<&'a str, String> {
    let short = name.rsplit('/').next().unwrap_or(name);
    let found = match &about["bin"] {
        Value::String(file) => Some(file.as_str()),
        Value::Object(commands) if commands.len() == 1 => commands.values().next().and_then(Value::as_str),
        Value::Object(commands) => commands.get(short).and_then(Value::as_str),
        _ => None,
    };
    found.ok_or_else(|| format!("package `{name}` has no command of its own; name one with `--package`"))
}

/// The requirements that `uv` resolved: `name==version ; marker \`, and a line for each hash.
fn uv_resolved(folder: &Path) -> Result<Vec<Resolved>, String> {
    let text = read(&folder.join("resolved.txt")).map_err(|error| error.to_string())?;
    let mut resolved: Vec<Resolved> = Vec::new();
    for line in String::from_utf8_lossy(&text).lines() {
        let line = line.trim().trim_end_matches('\\').trim();
        if let Some(hash) = line.strip_prefix("--hash=") {
            if let Some(package) = resolved.last_mut() {
                package.integrity.push(hash.to_owned());
            }
        } else if let Some((name, version)) = line.split_once("==") {
            let name = name.split('[').next().unwrap_or(name).trim().to_owned();
            let version = version.split(';').next().unwrap_or(version).trim().to_owned();
            resolved.push(Resolved { name, version, integrity: Vec::new() });
        }
    }
    Ok(resolved)
}

/// The report of `pip`.
fn pip_resolved(folder: &Path) -> Result<Vec<Resolved>, String> {
    let report = report(&folder.join("report.json"))?;
    let installed = report["install"].as_array().ok_or("pip wrote no report")?;
    let of = |package: &Value| {
        let hashes = package["download_info"]["archive_info"]["hashes"].as_object();
        let hashes = hashes
            .into_iter()
            .flatten()
            .filter_map(|(kind, hash)| Some(format!("{kind}:{}", hash.as_str()?)));
        Some(Resolved {
            name: package["metadata"]["name"].as_str()?.to_owned(),
            version: package["metadata"]["version"].as_str()?.to_owned(),
            integrity: hashes.collect(),
        })
    };
    Ok(installed.iter().filter_map(of).collect())
}

fn python_entry(spec: &PackageSpec, folder: &Path) -> Result<Entry, String> {
    let command = spec.command.as_deref().unwrap_or(&spec.main().name);
    let command = command.split('@').next().unwrap_or(command);
    let spellings = [command.to_owned(), command.replace('_', "-"), command.replace('-', "_")];
    let place = |name: &String| Path::new("venv/bin").join(name);
    let found = spellings.iter().map(place).find(|path| folder.join(path).is_file());
    let package = &spec.main().name;
    let path = found.ok_or_else(|| format!("package `{package}` has no command `{command}`"))?;
    let is_script = shebang(&folder.join(&path)).is_some_and(|program| program.starts_with("python"));
    Ok(if is_script { Entry::Python(path) } else { Entry::Program(path) })
}

/// The program that a script is for, if it says nothing beside that.
fn shebang(path: &Path) -> Option<String> {
    let mut start = [0; 256];
    let count = std::fs::File::open(path).ok()?.read(&mut start).ok()?;
    let line =
        std::str::from_utf8(start[..count].strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?).ok()?;
    let mut words = line.split_whitespace().filter(|word| !word.ends_with("/env"));
    let program = words.next()?.rsplit('/').next()?.to_owned();
    words.next().is_none().then_some(program)
}

/// A real path by its place in the folder, which it must not leave.
fn within(folder: &Path, real: &Path) -> Result<PathBuf, String> {
    let folder = folder.canonicalize().map_err(|error| error.to_string())?;
    let outside = "its command leads out of what was fetched";
    real.strip_prefix(&folder).map(Path::to_path_buf).map_err(|_| outside.to_owned())
}

fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// PyPI takes `My_Pkg` and `my-pkg` for the same; npm has no two names that differ so.
pub(super) fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

fn report(path: &Path) -> Result<Value, String> {
    let unreadable = |error: String| format!("the package manager's report cannot be read: {error}");
    let bytes = read(path).map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_REPORT).read_to_end(&mut bytes)?;
    Ok(bytes)
}
