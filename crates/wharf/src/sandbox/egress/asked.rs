//! In: hosts that a server asked for and that no rule of its names. Out: the rules that would allow them, to be proposed
//! to a person. Bounded: a server may ask for as many as it likes.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::policy::Target;

/// The hosts that a server was seen to ask for.
#[derive(Debug, Default)]
pub struct Asked(Mutex<BTreeSet<String>>);

/// Nobody reads a longer list.
const MOST: usize = 100;

impl Asked {
    /// Notes one, if a rule could allow it.
    pub(super) fn note(&self, target: &Target) {
        let Some(rule) = target.rule() else { return };
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() < MOST {
            asked.insert(rule);
        }
    }

    /// The rules that would allow what was asked for, sorted; at most a hundred.
    pub fn rules(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
