//! Whether something private came into a session.

use std::sync::{Arc, OnceLock};

use crate::policy::Tainted;

/// A mark that, once set, stays. Clones share it: scopes of one caller have one.
#[derive(Clone, Debug, Default)]
pub struct Taint(Arc<OnceLock<Tainted>>);

impl Taint {
    /// No mark yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was read first, if anything private was.
    pub fn get(&self) -> Option<&Tainted> {
        self.0.get()
    }

    /// Marks it. The first mark stays: it says where it began.
    pub fn set(&self, tainted: impl FnOnce() -> Tainted) {
        self.0.get_or_init(tainted);
    }
}
