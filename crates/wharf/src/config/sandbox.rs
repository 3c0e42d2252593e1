//! The `sandbox` key of a server: how far a program is let out of its sandbox.
//!
//! In: `true`, `false` or a table. Out: a [`SandboxSetting`]. What is not written is the default, which gives the program
//! nothing of the user's; the table adds to it. Whether a file may say `false` is for `layers`, which knows whose it is.

use std::path::PathBuf;
use std::time::Duration;

use super::domain::DomainRule;
use super::duration;
use super::fields::{Fields, Reader};
use super::node::{Entry, Node, Value};
use super::problem::{nearest, shown};

/// What a server's `sandbox` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxSetting {
    /// `false`: it runs as any other program of the user's.
    Off,
    /// `true` or a table: it runs confined, with this let in.
    On(Box<Profile>),
}

/// What a confined program is given beside what it needs to run at all: the system's own programs and libraries, its own
/// installation, and the paths that its arguments name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Files and folders it may read, absolute.
    pub read: Vec<PathBuf>,
    /// Files and folders it may read and change, absolute.
    pub write: Vec<PathBuf>,
    /// Hosts it may reach, by name; `*.example.com` stands for every name below. Defaults to none.
    pub domains: Vec<String>,
    /// Whether it may make Unix sockets, for programs that talk to their own parts that way. Defaults to false.
    pub unix_sockets: bool,
    /// The most memory it may use, in bytes. Defaults to 4 GiB.
    pub memory: u64,
    /// The most processes and threads it may have at a time. Defaults to 512.
    pub processes: u64,
    /// The most files that one of its processes may have open. Defaults to 4096.
    pub open_files: u64,
    /// The largest file it may write, in bytes. Defaults to 4 GiB.
    pub file_size: u64,
    /// The most that its private home folder, and its folder for temporary files, may each hold. Defaults to 512 MiB.
    pub scratch: u64,
    /// How long one of its processes may compute, all in all. Defaults to no limit.
    pub cpu_time: Option<Duration>,
}

const KEYS: [&str; 10] = [
    "read",
    "write",
    "domains",
    "unix_sockets",
    "memory",
    "processes",
    "open_files",
    "file_size",
    "scratch",
    "cpu_time",
];
const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

// === impl Profile ===

impl Profile {
    /// The first of its rules that names this machine itself.
    pub(super) fn names_this_machine(&self) -> Option<&str> {
        let is_local = |rule: &&String| DomainRule::parse(rule).is_ok_and(|rule| rule.loopback);
        self.domains.iter().find(is_local).map(String::as_str)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            write: Vec::new(),
            domains: Vec::new(),
            unix_sockets: false,
            memory: 4 * GIB,
            processes: 512,
            open_files: 4096,
            file_size: 4 * GIB,
            scratch: 512 * MIB,
            cpu_time: None,
        }
    }
}

/// Reads the key. `None` where it is not written, or where it is wrong and that was recorded.
pub(super) fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<SandboxSetting> {
    let entry = fields.get("sandbox")?;
    match &entry.node.value {
        Value::Bool(false) => Some(SandboxSetting::Off),
        Value::Bool(true) => Some(SandboxSetting::On(Box::default())),
        Value::Table(entries) => {
            let mut profile = Profile::default();
            let mut complete = Some(());
            for entry in entries {
                if member(reader, entry, &mut profile).is_none() {
                    complete = None;
                }
            }
            complete.map(|()| SandboxSetting::On(Box::new(profile)))
        }
        _ => {
            let message = format!(
                "`sandbox` must be true, false or a table of what it lets in, not {}",
                entry.node.kind()
            );
            reader.wrong_with(&entry.node.span, message, "write `sandbox = { read = [\"/a/folder\"] }`")
        }
    }
}

fn member(reader: &mut Reader<'_>, entry: &Entry, to: &mut Profile) -> Option<()> {
    match entry.key.as_str() {
        "read" => to.read = paths(reader, entry)?,
        "write" => to.write = paths(reader, entry)?,
        "domains" => to.domains = domains(reader, entry)?,
        "unix_sockets" => match entry.node.value {
            Value::Bool(allowed) => to.unix_sockets = allowed,
            _ => return wrong_kind(reader, entry, "true or false"),
        },
        "memory" => to.memory = size(reader, entry, 16 * MIB)?,
        "file_size" => to.file_size = size(reader, entry, 0)?,
        "scratch" => to.scratch = size(reader, entry, MIB)?,
        "processes" => to.processes = count(reader, entry)?,
        "open_files" => to.open_files = count(reader, entry)?,
        "cpu_time" => match duration::read(&entry.node, reader.source.format) {
            Ok(time) => to.cpu_time = Some(time),
            Err((reason, hint)) => {
                return reader.wrong_with(&entry.node.span, format!("`cpu_time`: {reason}"), hint);
            }
        },
        unknown => {
            let message = format!("unknown member {} of `sandbox`", shown(unknown));
            let hint = match nearest(unknown, KEYS) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("the members are {}", KEYS.map(|k| format!("`{k}`")).join(", ")),
            };
            return reader.wrong_with(&entry.key_span, message, hint);
        }
    }
    Some(())
}

fn wrong_kind<T>(reader: &mut Reader<'_>, entry: &Entry, wanted: &str) -> Option<T> {
    let message = format!("`{}` of `sandbox` must be {wanted}, not {}", entry.key, entry.node.kind());
    reader.wrong(&entry.node.span, message)
}

fn items<'e>(reader: &mut Reader<'_>, entry: &'e Entry) -> Option<Vec<(&'e Node, &'e str)>> {
    let Some(items) = entry.node.as_list() else {
        return wrong_kind(reader, entry, "a list of strings");
    };
    items.iter().map(|item| reader.item(&entry.key, item).map(|(text, _)| (item, text))).collect()
}

/// Paths as they stand: an environment must not be able to change them. A relative one starts at the file's folder.
fn paths(reader: &mut Reader<'_>, entry: &Entry) -> Option<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for (item, text) in items(reader, entry)? {
        if text.is_empty() || text.contains("${") || text.starts_with("env:") {
            let message = format!("`{}` of `sandbox` takes paths, and no variables", entry.key);
            return reader.wrong_with(&item.span, message, "write the path itself; `~/` is your home folder");
        }
        let path = match (text.strip_prefix("~/"), reader.env.0.get("HOME"), &reader.base) {
            (Some(rest), Some(home), _) if home.starts_with('/') => PathBuf::from(home).join(rest),
            (Some(_), ..) => return reader.wrong(&item.span, "`~/` means nothing where `HOME` is not set"),
            (None, _, Some(base)) => base.join(text),
            (None, _, None) => PathBuf::from(text),
        };
        if !path.is_absolute() {
            return reader.wrong_with(
                &item.span,
                "this path is relative, and nothing says to which folder",
                HINT,
            );
        }
        paths.push(normal(&path));
    }
    Some(paths)
}

const HINT: &str = "write it from `/` on";

/// The same path without `.`; `..` stays, since only the disk knows where it leads.
fn normal(path: &std::path::Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

fn domains(reader: &mut Reader<'_>, entry: &Entry) -> Option<Vec<String>> {
    let mut domains = Vec::new();
    for (item, text) in items(reader, entry)? {
        if let Err(problem) = DomainRule::parse(text) {
            let hint = "write it like \"api.example.com\", \"*.example.com\" or \"api.example.com:8443\"";
            let message = format!("{} is no rule for `domains`: {problem}", shown(text));
            return reader.wrong_with(&item.span, message, hint);
        }
        domains.push(text.to_owned());
    }
    Some(domains)
}

fn count(reader: &mut Reader<'_>, entry: &Entry) -> Option<u64> {
    let number = match &entry.node.value {
        Value::Number(_, spelling) => spelling.parse().ok(),
        _ => None,
    };
    match number.filter(|number| (1..=1_000_000).contains(number)) {
        Some(number) => Some(number),
        None => wrong_kind(reader, entry, "a whole number from 1 to 1000000"),
    }
}

/// Bytes, or a text with a unit. As everywhere here, a megabyte has 1,048,576 bytes.
fn size(reader: &mut Reader<'_>, entry: &Entry, least: u64) -> Option<u64> {
    let bytes = match &entry.node.value {
        Value::Number(_, spelling) => spelling.parse().ok(),
        Value::Text(text) => with_unit(text),
        _ => None,
    };
    match bytes.filter(|bytes| (least..=1024 * GIB).contains(bytes)) {
        Some(bytes) => Some(bytes),
        None => {
            let message = format!("`{}` of `sandbox` must be a size, at least {least} bytes", entry.key);
            reader.wrong_with(&entry.node.span, message, "write \"512MB\", \"2GB\", or a number of bytes")
        }
    }
}

/// Bytes, from a number with a unit.
pub(super) fn with_unit(text: &str) -> Option<u64> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1024,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}
