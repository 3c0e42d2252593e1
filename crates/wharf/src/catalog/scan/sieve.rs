//! The phrases of `words`, sorted so that a text is gone through once and not once for each phrase.
//!
//! In: the phrases and marks. Out: which groups of synonyms a word belongs to, where marks are, and whether a phrase stands in
//! a row of words. What the phrases are is not here.

use std::collections::HashMap;

use super::words::{CALLED, FILES, IMITATIONS, MARKUP, PHRASES, Phrase, SIGNS, Token};
use super::{Hit, Severity};

/// Which of all groups of synonyms a word belongs to, a bit for each group.
pub(super) type Groups = u128;

/// A phrase, ready to be looked for.
pub(super) struct Sought {
    phrase: &'static Phrase,
    /// The group of each of its words.
    words: Vec<Groups>,
    /// All of them: a text that lacks one does not have the phrase.
    pub(super) all: Groups,
}

/// Everything that is looked for, taken apart once, so that a text is gone through once and not once for each phrase.
pub(super) struct Sieve {
    pub(super) anywhere: Vec<Sought>,
    pub(super) in_results: Vec<Sought>,
    /// Synonyms by the byte they begin with.
    words: [Vec<Synonym>; 256],
    addresses: Groups,
    files: Groups,
    /// Marks, and names by which a model is called, by the byte they begin with in either case; each by its place.
    marks: [Vec<usize>; 256],
}

struct Synonym {
    text: &'static str,
    /// Whether any ending will do.
    begins: bool,
    groups: Groups,
}

// === impl Sieve ===

impl Sieve {
    pub(super) fn new() -> Self {
        let mut known: HashMap<&'static str, Groups> = HashMap::new();
        let mut sought = |phrases: &'static [Phrase]| -> Vec<Sought> {
            let mut group = |words: &&'static str| {
                let next = 1 << known.len();
                *known.entry(*words).or_insert(next)
            };
            let mut one = |phrase: &'static Phrase| {
                let words: Vec<Groups> = phrase.words.iter().map(&mut group).collect();
                let all = words.iter().fold(0, |all, group| all | group);
                Sought { phrase, words, all }
            };
            phrases.iter().map(&mut one).collect()
        };
        let (anywhere, in_results) = (sought(&PHRASES), sought(&IMITATIONS));
        let mut words = [const { Vec::new() }; 256];
        let (mut addresses, mut files) = (0, 0);
        for (synonyms, group) in known {
            match synonyms {
                "@" => addresses = group,
                "~" => files = group,
                synonyms => synonyms.split(' ').for_each(|word| add(&mut words, word, group)),
            }
        }
        let marks = std::array::from_fn(|byte| {
            let begins = |mark: &str| mark.bytes().next().is_some_and(|b| usize::from(b) == byte);
            let either = |mark: &str| begins(mark) || begins(&mark.to_ascii_uppercase());
            marks().enumerate().filter(|(_, (mark, _))| either(mark)).map(|(place, _)| place).collect()
        });
        Self { anywhere, in_results, words, addresses, files, marks }
    }

    /// The groups that a word belongs to. Most words belong to none.
    pub(super) fn groups(&self, word: &str) -> Groups {
        let Some(first) = word.bytes().next() else { return 0 };
        let is = |synonym: &&Synonym| match synonym.begins {
            true => word.starts_with(synonym.text),
            false => word == synonym.text,
        };
        let synonyms = self.words[usize::from(first)].iter().filter(is);
        let mut groups = synonyms.fold(0, |groups, synonym| groups | synonym.groups);
        if is_address(word) {
            groups |= self.addresses;
        }
        if is_secret_file(word) {
            groups |= self.files;
        }
        groups
    }

    /// The first place of each mark.
    pub(super) fn markup(&self, text: &str, hits: &mut Vec<Hit>) {
        let mut found = [None; MARKUP.len() + CALLED.len()];
        for (at, byte) in text.bytes().enumerate() {
            for place in &self.marks[usize::from(byte)] {
                let mark = mark(*place).0.as_bytes();
                let there = text.as_bytes().get(at..at + mark.len());
                if found[*place].is_none() && there.is_some_and(|there| there.eq_ignore_ascii_case(mark)) {
                    found[*place] = Some(at);
                }
            }
        }
        let hit = |((mark, (rule, severity)), start): (Mark, Option<usize>)| {
            start.map(|start| Hit { rule, severity, range: start..start + mark.len() })
        };
        hits.extend(marks().zip(found).filter_map(hit));
    }
}

/// A mark, the rule that it breaks, and how grave that is.
type Mark = (&'static str, (&'static str, Severity));

/// All marks, and all names by which a model is called.
fn marks() -> impl Iterator<Item = Mark> {
    (0..MARKUP.len() + CALLED.len()).map(mark)
}

fn mark(place: usize) -> Mark {
    match MARKUP.get(place) {
        Some(mark) => (mark, ("model.markup", Severity::High)),
        None => (CALLED[place - MARKUP.len()], ("model.address", Severity::Medium)),
    }
}

/// Puts a synonym where it is looked for.
fn add(words: &mut [Vec<Synonym>; 256], word: &'static str, groups: Groups) {
    let (text, begins) = word.strip_suffix('*').map_or((word, false), |beginning| (beginning, true));
    let Some(first) = text.bytes().next() else { return };
    let known = &mut words[usize::from(first)];
    match known.iter_mut().find(|known| known.text == text && known.begins == begins) {
        Some(known) => known.groups |= groups,
        None => known.push(Synonym { text, begins, groups }),
    }
}

fn is_address(word: &str) -> bool {
    word.contains("://") || (word.contains('@') && word.rsplit('@').next().is_some_and(|h| h.contains('.')))
}

fn is_secret_file(word: &str) -> bool {
    // Every one of them has such a sign, and most words have none.
    word.bytes().any(|b| SIGNS.contains(&b))
        && (word == ".env" || FILES.iter().any(|file| word.contains(file)))
}

// === impl Sought ===

impl Sought {
    pub(super) fn find(&self, words: &[Token<'_>], groups: &[Groups]) -> Option<Hit> {
        let first = self.words.first()?;
        let mut starts = (0..words.len()).filter(|at| groups[*at] & first != 0);
        let (at, last) = starts.find_map(|at| Some((at, self.rest(groups, at)?)))?;
        let Phrase { rule, severity, .. } = *self.phrase;
        Some(Hit { rule, severity, range: words[at].range.start..words[last].range.end })
    }

    fn rest(&self, groups: &[Groups], first: usize) -> Option<usize> {
        let mut at = first;
        for wanted in &self.words[1..] {
            let end = (at + 1 + self.phrase.within).min(groups.len());
            at = (at + 1..end).find(|next| groups[*next] & wanted != 0)?;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_of_synonyms_has_a_bit() {
        let groups: std::collections::HashSet<_> =
            PHRASES.iter().chain(&IMITATIONS).flat_map(|phrase| phrase.words).collect();
        assert!(groups.len() <= Groups::BITS as usize, "{} groups", groups.len());
    }

    #[test]
    fn every_secret_file_has_a_sign() {
        let has_sign = |file: &&str| file.bytes().any(|b| SIGNS.contains(&b));
        assert!(FILES.iter().all(has_sign) && has_sign(&".env"));
    }
}
