//! What a schema lost on the way to a provider.

use std::fmt;

use crate::text::Escaped;

/// One thing that a provider's form of a tool does not say as its server said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where, as a JSON pointer into the schema of the arguments; empty for the schema or the tool as a whole.
    pub path: String,
    /// The keyword, as the server wrote it.
    pub keyword: String,
    /// What became of it.
    pub how: How,
    /// Whether the model may now send what the server's schema refuses. Arguments are always checked against the
    /// server's own schema, so such a call ends in words about what is wrong with it.
    pub widens: bool,
}

/// What became of a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// It is gone.
    Dropped,
    /// It is gone from the schema and stands in the description, in words.
    Described,
    /// It is said in another way.
    Rewritten,
}

// === impl Loss ===

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { "/" } else { &self.path };
        write!(f, "{}: `{}` {}", Escaped(place), Escaped(&self.keyword), self.how)?;
        if self.widens { f.write_str(" (the model may send what the server refuses)") } else { Ok(()) }
    }
}

// === impl How ===

impl How {
    /// A short, stable word for it, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Described => "described",
            Self::Rewritten => "rewritten",
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dropped => "is dropped",
            Self::Described => "is moved into the description",
            Self::Rewritten => "is rewritten",
        })
    }
}
