//! Who was let in, and whether what let it in still counts.
//!
//! In: a key, a token, or the rule that anybody may come. Out: a [`Guest`], which goes with everything that it does here.
//! When its key or its token is taken back, whatever it has under way ends; who finds out that it was is `terms`.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::host::Session;
use crate::names::{CallerName, ServerName, ToolName};

/// A caller, and what let it in.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    name: CallerName,
    stay: Stay,
}

/// What let somebody in, until it is taken back. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Stay(Arc<Term>);

#[derive(Debug)]
struct Term {
    is_over: AtomicBool,
    /// The second after which it is over by itself, as whoever looks after it counts.
    until: u64,
}

/// What somebody does here: a tool of a server, or something else of it.
#[derive(Clone, Debug)]
pub(super) struct Doing {
    pub(super) scope: Session,
    pub(super) server: ServerName,
    pub(super) tool: Option<ToolName>,
}

/// What was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Withdrawn {
    /// What let the caller in.
    Entry,
    /// What it was given.
    Gift,
}

// === impl Guest ===

impl Guest {
    pub(super) fn new(name: CallerName, stay: &Stay) -> Self {
        Self { name, stay: stay.clone() }
    }

    /// Whoever started us, or has our own user's rights: nothing lets it in that could be taken back.
    pub(super) fn own() -> Self {
        Self { name: CallerName::local(), stay: Stay::default() }
    }

    /// Who it is.
    pub(super) fn name(&self) -> &CallerName {
        &self.name
    }

    /// What let it in.
    pub(super) fn stay(&self) -> &Stay {
        &self.stay
    }
}

impl Deref for Guest {
    type Target = CallerName;

    fn deref(&self) -> &CallerName {
        &self.name
    }
}

// === impl Stay ===

impl Stay {
    /// One that whoever looks after it ends after this second.
    pub(super) fn until(second: u64) -> Self {
        Self(Arc::new(Term { is_over: AtomicBool::new(false), until: second }))
    }

    /// Whether it was taken back.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Acquire)
    }

    /// Takes it back.
    pub(super) fn end(&self) {
        self.0.is_over.store(true, Ordering::Release);
    }

    /// Whether it counts when the other does not any more.
    pub(super) fn outlasts(&self, other: &Self) -> bool {
        !self.is_over() && (other.is_over() || self.0.until > other.0.until)
    }

    /// Whether somebody else has it too.
    pub(super) fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Default for Stay {
    /// One that ends when it is taken back.
    fn default() -> Self {
        Self::until(u64::MAX)
    }
}

// === impl Doing ===

impl Doing {
    /// Whether it is still given to whoever does it.
    pub(super) fn is_given(&self) -> bool {
        self.scope.may_use(&self.server, self.tool.as_ref())
    }
}

// === impl Withdrawn ===

impl Withdrawn {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Entry => {
                "its key or token was taken back or has expired, so what it had under way was ended"
            }
            Self::Gift => "it is not given this any more, so what it had under way was ended",
        }
    }
}
