//! Names, parsed once and valid ever after.
//!
//! In: text from a config file, a command line or a server. Out: a name that later rooms need not check again.
//! The names that models see are made in `registry`; these are the identities behind them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::text::{Escaped, beginning};

/// The longest server name.
pub const SERVER_NAME_MAX: usize = 32;
/// The longest name of a tool that is listed at all.
pub const TOOL_NAME_MAX: usize = 512;
/// The longest name of a caller.
pub const CALLER_NAME_MAX: usize = 128;

/// A configured server: `^[a-z][a-z0-9_-]{0,31}$`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(Arc<str>);

/// A tool by the name its server gave it, byte for byte.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName(Arc<str>);

/// Who is calling.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallerName(Arc<str>);

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadName(String);

// === impl ServerName ===

impl ServerName {
    /// Takes a name as a person wrote it: letters are lowered, spaces become `_`, and the rest must fit.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let name: String = text
            .trim()
            .chars()
            .map(|c| if c == ' ' || c == '.' || c == '/' { '_' } else { c.to_ascii_lowercase() })
            .collect();
        let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
        let rest_well =
            name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-');
        if starts_well && rest_well && name.len() <= SERVER_NAME_MAX {
            return Ok(Self(name.into()));
        }
        Err(BadName(format!(
            "`{}` is not a server name: it starts with a letter, then letters, digits, `_` and `-`, at most {SERVER_NAME_MAX} in all",
            Escaped(beginning(text, 2 * SERVER_NAME_MAX))
        )))
    }
}

// === impl ToolName ===

impl ToolName {
    /// Takes a name as a server gave it. Only what could never be shown or sent is refused.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        if text.is_empty() {
            return Err(BadName("a tool's name is empty".into()));
        }
        if text.len() > TOOL_NAME_MAX {
            return Err(BadName(format!(
                "a tool's name has {} bytes, more than {TOOL_NAME_MAX}",
                text.len()
            )));
        }
        if text.chars().any(char::is_control) {
            return Err(BadName(format!("the tool name `{}` has control characters", Escaped(text))));
        }
        Ok(Self(text.into()))
    }
}

// === impl CallerName ===

impl CallerName {
    /// Takes a name as a program gave it.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        if text.is_empty() || text.len() > CALLER_NAME_MAX || text.chars().any(char::is_control) {
            return Err(BadName(format!(
                "`{}` is not a caller's name: it has 1 to {CALLER_NAME_MAX} bytes and no control characters",
                Escaped(beginning(text, CALLER_NAME_MAX))
            )));
        }
        Ok(Self(text.into()))
    }

    /// The person or program on this machine.
    pub fn local() -> Self {
        static LOCAL: LazyLock<CallerName> = LazyLock::new(|| CallerName("local".into()));
        LOCAL.clone()
    }
}

macro_rules! name_traits {
    ($($name:ident),*) => {$(
        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Escaped(&self.0).fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", Escaped(&self.0))
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}
name_traits!(ServerName, ToolName, CallerName);
