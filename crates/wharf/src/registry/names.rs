//! The names that models see: valid for every provider, and no two alike.
//!
//! In: (server, tool) pairs. Out: one public name each, the same whatever the order, or none where no name can be given.
//! Names are looked up, never parsed: what a name looks like says nothing about where a call goes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::names::{ServerName, ToolName};

/// The longest public name by default: the most that every provider takes.
pub const NAME_MAX: usize = 64;
/// The longest public name for callers that take more.
pub const NAME_MAX_WIDE: usize = 128;
/// Names that start so belong to Wharf's own tools. A server's tool never gets one.
pub const RESERVED_PREFIX: &str = "wharf_";

/// How public names are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Naming {
    /// `{prefix}_{tool}`, with the server's `tool_prefix` or its name: `github_create_issue`.
    #[default]
    Prefixed,
    /// `mcp_{server}_{tool}`, in lower case with everything but letters and digits as `_`: `mcp_github_api_list_repos`.
    Mcp,
    /// The tool's own name.
    Bare,
}

/// How public names are made, and how long they may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameRules {
    /// How they are made.
    pub naming: Naming,
    /// The longest name: [`NAME_MAX`] or [`NAME_MAX_WIDE`].
    pub max_len: usize,
}

/// One tool that wants a name.
pub(super) struct Claimant<'a> {
    pub(super) server: &'a ServerName,
    pub(super) prefix: Option<&'a str>,
    pub(super) tool: &'a ToolName,
    /// The program's own tool: its name is no stranger's choice, so no stranger can take it away.
    pub(super) local: bool,
}

/// Who claimed a name.
enum Claim {
    /// One server's tool, so far.
    One(usize),
    /// More than one: it belongs to none of them.
    Several,
    /// A tool of the program itself.
    Local,
}

/// The plain name, then two with a suffix of the identity: 40 bits for every day, 128 for whoever provokes more.
const SUFFIX_DIGITS: [usize; 3] = [0, 10, 32];

// === impl NameRules ===

impl Default for NameRules {
    fn default() -> Self {
        Self { naming: Naming::default(), max_len: NAME_MAX }
    }
}

impl NameRules {
    /// Names for what servers offer beside tools, by the same rules: its server, the server's prefix, and its own name
    /// each. `None` where no name can be given.
    pub(crate) fn names<'a>(
        &self,
        all: impl Iterator<Item = (&'a ServerName, Option<&'a str>, &'a ToolName)>,
    ) -> Vec<Option<String>> {
        let claimants: Vec<_> =
            all.map(|(server, prefix, tool)| Claimant { server, prefix, tool, local: false }).collect();
        let names = self.assign(claimants.iter());
        names.into_iter().map(|name| name.filter(|name| !is_reserved(name))).collect()
    }

    /// What a tool of this server would be called there, or something like it, if it bore this public name; `None` if no
    /// tool of it can. A name says nothing of where it leads: this is for whoever has to find out.
    pub(crate) fn rest_of<'a>(
        &self,
        public: &'a str,
        (server, prefix): (&ServerName, Option<&str>),
    ) -> Option<&'a str> {
        let start = match self.naming {
            Naming::Prefixed => allowed(prefix.unwrap_or(server.as_str())),
            Naming::Mcp => format!("mcp_{}", lowered(server.as_str())),
            Naming::Bare => String::new(),
        };
        if start.is_empty() {
            return Some(public);
        }
        let (own, rest) = public.split_at_checked(start.len())?;
        rest.strip_prefix('_').filter(|_| own.eq_ignore_ascii_case(&start))
    }

    /// Gives each claimant its name, or `None` where it would still be like another's.
    ///
    /// Every claimant starts with its plain name. A name that two ever claim belongs to neither: both go on to a longer
    /// suffix. Claims are never given back, so the result does not depend on the order, and a new neighbour can take a
    /// name away from a tool but never bear it itself. The program's own tools claim first and keep what they claimed.
    pub(super) fn assign<'a>(
        &self,
        claimants: impl Iterator<Item = &'a Claimant<'a>>,
    ) -> Vec<Option<String>> {
        let claimants: Vec<_> = claimants.collect();
        let mut level = vec![0; claimants.len()];
        let mut names: Vec<Option<String>> = vec![None; claimants.len()];
        // In lower case: two names that differ in case only are alike to some.
        let mut claims: HashMap<String, Claim> = HashMap::new();
        // Everyone who has to make a claim at its level, from the end: the program's own tools first, in their order.
        let mut waiting: Vec<usize> = (0..claimants.len()).rev().collect();
        waiting.sort_by_key(|&i| claimants[i].local);
        while let Some(i) = waiting.pop() {
            let name = self.name(claimants[i], level[i]);
            let mut losers = vec![i];
            if let Some(name) = name {
                match claims.entry(name.to_ascii_lowercase()) {
                    Entry::Vacant(free) => {
                        free.insert(if claimants[i].local { Claim::Local } else { Claim::One(i) });
                        names[i] = Some(name);
                        losers.clear();
                    }
                    Entry::Occupied(mut taken) => {
                        if let Claim::One(first) = *taken.get() {
                            losers.push(first);
                            taken.insert(Claim::Several);
                        }
                    }
                }
            }
            for loser in losers {
                names[loser] = None;
                level[loser] += 1;
                if level[loser] < SUFFIX_DIGITS.len() {
                    waiting.push(loser);
                }
            }
        }
        names
    }

    /// The name at a level; `None` where the plain name is too long or says nothing.
    fn name(&self, claimant: &Claimant<'_>, level: usize) -> Option<String> {
        let (mut name, says_something) = self.plain(claimant);
        let digits = SUFFIX_DIGITS[level];
        if digits == 0 {
            return (says_something && name.len() <= self.max_len).then_some(name);
        }
        // Plain names are ASCII, so any cut is between characters.
        name.truncate(self.max_len.saturating_sub(digits + 1));
        name.push('_');
        let identity = Sha256::new()
            .chain_update(claimant.server.as_str())
            .chain_update([0])
            .chain_update(claimant.tool.as_str())
            .finalize();
        for byte in &identity[..digits / 2] {
            let _ = write!(name, "{byte:02x}");
        }
        Some(name)
    }

    /// The name before any suffix, and whether anything of the tool's own name is left in it.
    fn plain(&self, claimant: &Claimant<'_>) -> (String, bool) {
        let (server, tool) = (claimant.server.as_str(), claimant.tool.as_str());
        let joined = |prefix: &str, tool: &str| match prefix {
            "" => tool.to_owned(),
            prefix => format!("{prefix}_{tool}"),
        };
        let (name, own) = match self.naming {
            // The program chose these names itself.
            _ if claimant.local => {
                let own = allowed(tool);
                (joined(&allowed(claimant.prefix.unwrap_or_default()), &own), own)
            }
            Naming::Prefixed => {
                let prefix = claimant.prefix.unwrap_or(server);
                let own = allowed(tool);
                (joined(&allowed(prefix), &own), own)
            }
            Naming::Mcp => {
                let own = lowered(tool);
                (joined(&joined("mcp", &lowered(server)), &own), own)
            }
            Naming::Bare => (allowed(tool), allowed(tool)),
        };
        (name, own.bytes().any(|b| b.is_ascii_alphanumeric()))
    }
}

/// Whether a name belongs to Wharf's own tools.
pub(super) fn is_reserved(name: &str) -> bool {
    name.get(..RESERVED_PREFIX.len()).is_some_and(|p| p.eq_ignore_ascii_case(RESERVED_PREFIX))
}

/// `[A-Za-z0-9_-]` stay; each run of others becomes one `_`.
fn allowed(text: &str) -> String {
    replace_runs(text, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Lower case; each run of anything but letters and digits becomes one `_`, and none stands at the ends.
fn lowered(text: &str) -> String {
    replace_runs(text, |c| c.is_ascii_alphanumeric()).to_ascii_lowercase().trim_matches('_').to_owned()
}

fn replace_runs(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut name = String::with_capacity(text.len());
    let mut in_run = false;
    for c in text.chars() {
        if keep(c) {
            name.push(c);
        } else if !in_run {
            name.push('_');
        }
        in_run = !keep(c);
    }
    name
}
