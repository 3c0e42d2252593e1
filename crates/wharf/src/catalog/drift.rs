//! What changed since it was accepted, in words and as a diff.
//!
//! In: an entry of the lockfile, and the same server as it is now. Out: every change, with the places of a definition that
//! differ and both texts; and a lockfile that has taken some of them. Text that servers wrote is escaped where it is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::lockfile::{LockEntry, Lockfile};
use super::pinned::Definition;
use crate::mcp::ListKind;
use crate::names::ServerName;
use crate::text::Escaped;
use crate::wire::canonical::pretty;

/// What changed of one server.
#[derive(Clone, Debug)]
pub struct Drift {
    /// The server.
    pub server: ServerName,
    /// Every change; none, if it is as it was accepted.
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Of what.
    pub what: What,
    /// How.
    pub how: How,
    /// What was accepted, with a line for each member; nothing hides in it.
    pub before: Option<String>,
    /// What there is now, in the same form.
    pub after: Option<String>,
    /// Which places of a definition differ, like `inputSchema/properties/path`.
    pub places: Vec<String>,
}

/// What a change is of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The whole server.
    Server,
    /// What is started or reached.
    Source,
    /// The program itself.
    Program,
    /// The revision of the protocol.
    Revision,
    /// What it wants a model to know.
    Instructions,
    /// A tool, a prompt or a resource template, by its name.
    Definition(ListKind, String),
}

/// How something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It was not there when the lockfile was written.
    Added,
    /// It is another one.
    Changed,
    /// It is gone.
    Removed,
}

/// How many places of one definition are named.
const PLACES: usize = 6;
/// Longer texts are not compared line by line.
const LINES: usize = 3000;

// === impl Drift ===

impl Drift {
    /// Compares what was accepted of a server, if anything was, with what it is now.
    pub fn of(server: &ServerName, before: Option<&LockEntry>, now: &LockEntry) -> Self {
        let mut changes = Vec::new();
        match before {
            None => {
                changes.push(Change::whole(What::Server, None, Some(now.source.words())));
                add_all(now, &mut changes);
            }
            Some(before) => compare(before, now, &mut changes),
        }
        Self { server: server.clone(), changes }
    }

    /// A server that is in the lockfile and not configured any more.
    pub fn gone(server: &ServerName, before: &LockEntry) -> Self {
        let change = Change::whole(What::Server, Some(before.source.words()), None);
        Self { server: server.clone(), changes: vec![change] }
    }

    /// Whether it is as it was accepted.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

fn compare(before: &LockEntry, now: &LockEntry, changes: &mut Vec<Change>) {
    if before.source != now.source {
        let (before, after) = (before.source.words(), now.source.words());
        changes.push(Change::whole(What::Source, Some(before), Some(after)));
    }
    let program = |entry: &LockEntry| {
        let one = |(hash, path): (&String, &String)| format!("{} {hash}", Escaped(path));
        entry.programs.iter().map(one).collect::<Vec<_>>().join("\n")
    };
    if now.programs.keys().any(|hash| !before.programs.contains_key(hash)) {
        changes.push(Change::whole(What::Program, Some(program(before)), Some(program(now))));
    }
    if before.revision != now.revision {
        let (before, after) = (before.revision.to_string(), now.revision.to_string());
        changes.push(Change::whole(What::Revision, Some(before), Some(after)));
    }
    if before.instructions != now.instructions {
        changes.push(Change::whole(
            What::Instructions,
            before.instructions.clone(),
            now.instructions.clone(),
        ));
    }
    let kinds: BTreeSet<ListKind> = before.lists.keys().chain(now.lists.keys()).copied().collect();
    for kind in kinds {
        let (old, new) = (before.lists.get(&kind), now.lists.get(&kind));
        let names: BTreeSet<&String> = old.iter().chain(&new).flat_map(|list| list.keys()).collect();
        for name in names {
            let one =
                |list: Option<&BTreeMap<String, Definition>>| list.and_then(|list| list.get(name)).cloned();
            changes.extend(Change::definition(kind, name, one(old), one(new)));
        }
    }
}

fn add_all(now: &LockEntry, changes: &mut Vec<Change>) {
    for (kind, list) in &now.lists {
        let new =
            list.iter().filter_map(|(name, one)| Change::definition(*kind, name, None, Some(one.clone())));
        changes.extend(new);
    }
}

// === impl Change ===

impl Change {
    fn whole(what: What, before: Option<String>, after: Option<String>) -> Self {
        let how = How::of(before.is_some(), after.is_some());
        Self { what, how, before, after, places: Vec::new() }
    }

    fn definition(
        kind: ListKind,
        name: &str,
        before: Option<Definition>,
        after: Option<Definition>,
    ) -> Option<Self> {
        let places = match (&before, &after) {
            (Some(before), Some(after)) if before.fingerprint == after.fingerprint => return None,
            (Some(before), Some(after)) => places(before, after),
            _ => Vec::new(),
        };
        let text = |one: Option<Definition>| one.map(|one| pretty(&one.raw));
        let what = What::Definition(kind, name.to_owned());
        Some(Self { places, ..Self::whole(what, text(before), text(after)) })
    }

    /// Whether it keeps something from being used until it is accepted. A revision or instructions are only told of, and
    /// what is gone cannot be used anyway.
    pub fn blocks(&self) -> bool {
        !matches!(self.what, What::Revision | What::Instructions) && self.how != How::Removed
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &Option<String>| Escaped(text.as_deref().unwrap_or("nothing")).to_string();
        match (&self.what, self.how) {
            (What::Definition(kind, name), how) => {
                write!(f, "{} `{}` ", kind.word(), Escaped(name))?;
                match how {
                    How::Added => f.write_str("is new"),
                    How::Removed => f.write_str("is gone"),
                    How::Changed => {
                        let places: Vec<String> =
                            self.places.iter().map(|p| Escaped(p).to_string()).collect();
                        write!(f, "changed: {}", places.join(", "))
                    }
                }
            }
            (What::Server, How::Removed) => f.write_str("it is not configured any more"),
            (What::Server, _) => write!(f, "it is new: {}", short(&self.after)),
            (What::Source, _) => {
                write!(f, "it is `{}` now, and was `{}`", short(&self.after), short(&self.before))
            }
            (What::Program, _) => f.write_str("its program, or a package that it runs, is another one"),
            (What::Revision, _) => {
                write!(f, "it speaks {} now, and spoke {}", short(&self.after), short(&self.before))
            }
            (What::Instructions, _) => f.write_str("what it wants a model to know changed"),
        }
    }
}

impl How {
    fn of(before: bool, after: bool) -> Self {
        match (before, after) {
            (false, _) => Self::Added,
            (true, false) => Self::Removed,
            (true, true) => Self::Changed,
        }
    }

    /// `added`, `changed` or `removed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

// === impl Lockfile ===

impl Lockfile {
    /// Takes what a server is now: all of it, or only what bears this name. False if there was nothing to take. Programs
    /// that were accepted before stay accepted unless all of it is written anew: other machines may have them.
    pub fn accept(&mut self, server: &ServerName, now: &LockEntry, only: Option<&str>) -> bool {
        let Some(known) = self.servers.get_mut(server) else {
            self.servers.insert(server.clone(), now.clone());
            return true;
        };
        let before = known.clone();
        let Some(only) = only else {
            let programs = std::mem::take(&mut known.programs);
            *known = LockEntry { programs: now.programs.clone(), ..now.clone() };
            known.programs.extend(programs);
            keep_spelling(known, &before);
            return *known != before;
        };
        let kinds: BTreeSet<ListKind> = known.lists.keys().chain(now.lists.keys()).copied().collect();
        for kind in kinds {
            match now.lists.get(&kind).and_then(|list| list.get(only)) {
                Some(one) => {
                    known.lists.entry(kind).or_default().insert(only.to_owned(), one.clone());
                }
                None => {
                    known.lists.get_mut(&kind).map(|list| list.remove(only));
                }
            }
        }
        keep_spelling(known, &before);
        *known != before
    }
}

/// What means the same stays as it was written: a server that lists its members in another order makes no diff.
fn keep_spelling(now: &mut LockEntry, before: &LockEntry) {
    for (kind, list) in &mut now.lists {
        let Some(old) = before.lists.get(kind) else { continue };
        for (name, one) in list.iter_mut() {
            if let Some(known) = old.get(name).filter(|known| known.fingerprint == one.fingerprint) {
                one.clone_from(known);
            }
        }
    }
}

/// Which places of two definitions differ.
fn places(before: &Definition, after: &Definition) -> Vec<String> {
    let value = |one: &Definition| one.raw.to::<Value>().unwrap_or_default();
    let mut places = Vec::new();
    differing(&value(before), &value(after), &mut String::new(), &mut places);
    if places.is_empty() {
        places.push("the way it is written".into());
    }
    if places.len() > PLACES {
        let more = places.len() - PLACES;
        places.truncate(PLACES);
        places.push(format!("and {more} more"));
    }
    places
}

fn differing(before: &Value, after: &Value, at: &mut String, places: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let length = at.len();
                at.push_str(if at.is_empty() { "" } else { "/" });
                at.push_str(key);
                match (one.get(key), other.get(key)) {
                    (Some(one), Some(other)) => differing(one, other, at, places),
                    _ => places.push(at.clone()),
                }
                at.truncate(length);
            }
        }
        (before, after) if before != after => places.push(at.clone()),
        _ => {}
    }
}

/// The lines of a unified diff of two texts: each with `-`, `+` or a space before it. Runs of lines that did not change are
/// cut to three.
pub fn diff_lines(before: &str, after: &str) -> Vec<(char, String)> {
    let (one, other): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let start = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let end = one[start..].iter().rev().zip(other[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&one[start..one.len() - end], &other[start..other.len() - end]);
    let mut lines: Vec<(char, &str)> = one[..start].iter().map(|line| (' ', *line)).collect();
    lines.extend(middle(a, b));
    lines.extend(one[one.len() - end..].iter().map(|line| (' ', *line)));
    trimmed(&lines)
}

/// The longest run of lines that both have stays; the rest is gone or new.
fn middle<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(char, &'a str)> {
    if a.len() > LINES || b.len() > LINES {
        return a.iter().map(|line| ('-', *line)).chain(b.iter().map(|line| ('+', *line))).collect();
    }
    let width = b.len() + 1;
    let mut longest = vec![0u16; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i * width + j] = match a[i] == b[j] {
                true => longest[(i + 1) * width + j + 1] + 1,
                false => longest[(i + 1) * width + j].max(longest[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        let same = i < a.len() && j < b.len() && a[i] == b[j];
        if same {
            lines.push((' ', a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j >= b.len() || (i < a.len() && longest[(i + 1) * width + j] >= longest[i * width + j + 1])
        {
            lines.push(('-', a[i]));
            i += 1;
        } else {
            lines.push(('+', b[j]));
            j += 1;
        }
    }
    lines
}

fn trimmed(lines: &[(char, &str)]) -> Vec<(char, String)> {
    const AROUND: usize = 3;
    let near = |at: usize| {
        let from = at.saturating_sub(AROUND);
        lines[from..(at + AROUND + 1).min(lines.len())].iter().any(|(sign, _)| *sign != ' ')
    };
    let mut shown = Vec::new();
    for (at, (sign, line)) in lines.iter().enumerate() {
        if near(at) {
            shown.push((*sign, Escaped(line).to_string()));
        } else if shown.last().is_none_or(|(sign, _)| *sign != '@') {
            shown.push(('@', String::new()));
        }
    }
    shown
}
