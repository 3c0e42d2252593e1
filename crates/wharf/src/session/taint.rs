//! Whether something private came into a session.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::policy::Tainted;

/// A mark that, once set, stays. Clones share it: scopes of one caller have one.
#[derive(Clone, Debug, Default)]
pub struct Taint(Arc<ArcSwapOption<Tainted>>);

impl Taint {
    /// No mark yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was read first, if anything private was.
    pub fn get(&self) -> Option<Arc<Tainted>> {
        self.0.load_full()
    }

    /// Marks it. The first mark stays: it says where it began.
    pub fn set(&self, tainted: impl FnOnce() -> Tainted) {
        if self.0.load().is_none() {
            self.0.compare_and_swap(&None::<Arc<Tainted>>, Some(Arc::new(tainted())));
        }
    }
}
