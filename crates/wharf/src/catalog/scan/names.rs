//! Names that are like others, and words about the tools of others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::words::tokens;
use super::{Finding, Hit, Severity, Subject};
use crate::mcp::ListKind;
use crate::names::ServerName;
use crate::text::Escaped;
use crate::wire::Json;

/// The names by which tools of all servers are known.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    /// Servers by the name of a tool.
    tools: BTreeMap<String, BTreeSet<ServerName>>,
}

/// Words that make a mention of another's tool an instruction.
const ORDERS: [&str; 16] = [
    "before",
    "beforehand",
    "always",
    "must",
    "instead",
    "whenever",
    "replaced",
    "changed",
    "deprecated",
    "ahead",
    "after",
    "first",
    "every",
    "never",
    "recipient",
    "each",
];
/// How far such a word may be, in words.
const NEAR: usize = 12;
/// What a tool is called that changes something.
const CHANGES: [&str; 24] = [
    "delete",
    "drop",
    "remove",
    "write",
    "create",
    "update",
    "send",
    "pay",
    "transfer",
    "wipe",
    "destroy",
    "purge",
    "insert",
    "modify",
    "edit",
    "push",
    "publish",
    "upload",
    "kill",
    "reset",
    "overwrite",
    "truncate",
    "revoke",
    "buy",
];
/// Characters of other scripts that look like a Latin one. Small on purpose: the ones that names are forged with.
const ALIKE: [(&str, char); 21] = [
    ("аαａ", 'a'),
    ("ЬвВβ", 'b'),
    ("сϲСϹ", 'c'),
    ("ԁ", 'd'),
    ("еЕεΕ", 'e'),
    ("ɡ", 'g'),
    ("һНΗ", 'h'),
    ("іІιΙıｉ", 'i'),
    ("јЈ", 'j'),
    ("кКκΚ", 'k'),
    ("ⅼӏӀ", 'l'),
    ("мМΜ", 'm'),
    ("ոΝ", 'n'),
    ("оОοΟօ", 'o'),
    ("рРρΡ", 'p'),
    ("ѕЅ", 's'),
    ("тТτΤ", 't'),
    ("υս", 'u'),
    ("νѵ", 'v'),
    ("хХχΧ", 'x'),
    ("уУγΥ", 'y'),
];

// === impl Neighbours ===

impl Neighbours {
    /// Nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A server has a tool of this name.
    pub fn add(&mut self, server: &ServerName, tool: &str) {
        if is_distinctive(tool) {
            self.tools.entry(tool.to_owned()).or_default().insert(server.clone());
        }
    }

    /// Where a server's words speak of a tool that only others have.
    pub(super) fn hits(&self, server: &ServerName, text: &str) -> Vec<Hit> {
        if self.tools.is_empty() || !text.contains(char::is_whitespace) {
            return Vec::new();
        }
        let words = tokens(text);
        let is_other = |name: &str| self.tools.get(name).is_some_and(|servers| !servers.contains(server));
        let mut hits = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let name = &text[word.range.clone()];
            if is_other(name) {
                let near = &words[at.saturating_sub(NEAR)..(at + NEAR).min(words.len())];
                let ordered = near.iter().any(|word| ORDERS.contains(&&*word.text));
                let severity = if ordered { Severity::High } else { Severity::Medium };
                hits.push(Hit { rule: "model.reference", severity, range: word.range.clone() });
            }
        }
        hits
    }
}

/// Whether a name is no ordinary word, so that its mention means the tool.
fn is_distinctive(name: &str) -> bool {
    let inner_capital = name.chars().skip(1).any(char::is_uppercase) && name.chars().any(char::is_lowercase);
    name.len() >= 6 && (name.contains(['_', '-', '.']) || inner_capital)
}

/// Names of tools of different servers that a reader takes for one another. Names that are the same are no forgery: they are
/// told apart by their servers; and neither is another way to part the same words.
pub fn look_alikes<'a>(all: impl Iterator<Item = (&'a ServerName, &'a str)>) -> Vec<Finding> {
    let mut by_looks: BTreeMap<String, BTreeSet<(&ServerName, &str)>> = BTreeMap::new();
    for (server, name) in all {
        by_looks.entry(looks(name)).or_default().insert((server, name));
    }
    let mut findings = Vec::new();
    for alike in by_looks.values() {
        for (server, name) in alike {
            let other = alike.iter().find(|(of, other)| of != server && plain(other) != plain(name));
            if let Some((of, other)) = other {
                findings.push(Finding {
                    rule: "name.look-alike",
                    severity: Severity::High,
                    server: (*server).clone(),
                    subject: Subject::Definition(ListKind::Tools, (*name).to_owned()),
                    pointer: "/name".into(),
                    range: 0..name.len(),
                    excerpt: format!("{} is like {} of {of}", Escaped(&shown(name)), Escaped(&shown(other))),
                });
            }
        }
    }
    findings
}

/// A name with every letter of another script as its number.
fn shown(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii() { c.to_string() } else { format!("\\u{{{:x}}}", c as u32) })
        .collect()
}

/// A name that has letters of more than one script.
pub(super) fn mixed(name: &str) -> Option<Hit> {
    let latin = name.chars().any(|c| c.is_ascii_alphabetic());
    let alike = name.char_indices().find(|(_, c)| !c.is_ascii() && folded(*c).is_some());
    let (at, c) = alike.filter(|_| latin)?;
    let range: Range<usize> = at..at + c.len_utf8();
    Some(Hit { rule: "name.mixed-script", severity: Severity::High, range })
}

/// A tool that says it changes nothing, and is called what changes something.
pub(super) fn contradiction(name: &str, raw: &Json) -> Option<Hit> {
    let claims = raw.member("annotations")?.member("readOnlyHint")?;
    let parted = parted(name);
    let changes = parted.split(' ').any(|word| CHANGES.contains(&word));
    let is_it = claims.as_str() == "true" && changes;
    is_it.then_some(Hit {
        rule: "annotation.contradiction",
        severity: Severity::Medium,
        range: 0..name.len(),
    })
}

/// A name as words.
fn parted(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        match c {
            '_' | '-' | '.' | '/' | ' ' => out.push(' '),
            c if c.is_uppercase() => {
                out.push(' ');
                out.extend(c.to_lowercase());
            }
            c => out.push(c),
        }
    }
    out
}

/// A name without what parts its words, in lower case.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !"_-./ ".contains(*c)).flat_map(char::to_lowercase).collect()
}

/// How a name looks to somebody who does not look closely.
fn looks(name: &str) -> String {
    let letters = name.chars().filter(|c| !"_-./ ".contains(*c));
    let folded: String = letters.flat_map(|c| folded(c).unwrap_or(c).to_lowercase()).collect();
    let alike = folded.replace("rn", "m").replace("vv", "w").replace("cl", "d");
    alike.replace(['1', 'i', '|', '!'], "l").replace('0', "o").replace('5', "s")
}

/// The Latin letter that a character looks like.
pub(super) fn folded(c: char) -> Option<char> {
    if c.is_ascii() {
        return None;
    }
    if let '\u{ff01}'..='\u{ff5e}' = c {
        return char::from_u32(c as u32 - 0xfee0);
    }
    if let '\u{1d400}'..='\u{1d6a3}' = c {
        // Mathematical alphabets: twenty-six capitals, then as many small letters, again and again.
        let place = (c as u32 - 0x1d400) % 52;
        return char::from_u32(u32::from(b'a') + place % 26);
    }
    ALIKE.iter().find(|(like, _)| like.contains(c)).map(|(_, latin)| *latin)
}
