//! What is said of a server in a word: what its connection is doing, and whether it is asked at all.

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none.
    Disconnected,
    /// It is being made for the first time.
    Connecting,
    /// It works.
    Connected,
    /// It was lost and is being made again.
    Reconnecting,
}

/// Whether a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// It is.
    Closed,
    /// It failed again and again: calls are refused at once.
    Open,
    /// One call is let through, to see.
    HalfOpen,
}

// === impl State ===

impl State {
    /// The state in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
        }
    }
}

// === impl Circuit ===

impl Circuit {
    /// The state in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}
