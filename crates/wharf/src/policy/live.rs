//! A value that may be replaced while others use it: rules that a person edits.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// What holds now. Clones share it: whoever replaces it replaces it for all.
#[derive(Clone)]
pub struct Live<T>(Arc<ArcSwap<T>>);

impl<T> Live<T> {
    /// The value as it is now. It stays as it is for whoever holds it.
    pub fn now(&self) -> Arc<T> {
        self.0.load_full()
    }

    /// A look at the value as it is now.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.0.load())
    }

    /// Puts another in its place.
    pub fn replace(&self, value: T) {
        self.0.store(Arc::new(value));
    }
}

impl<T> From<T> for Live<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(value)))
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.now().fmt(f)
    }
}
