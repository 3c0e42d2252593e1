//! What is wrong with a file, and where.
//!
//! In: a message and a place, made by [`Source`](super::source::Source). Out: text in the manner of a compiler: the
//! message, the file and line, the line itself with a caret under the culprit, and the next step. The line is
//! masked before it gets here: no value of `env` or `headers` is ever shown.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::error::Error;
use crate::text::Escaped;

/// Something wrong, or doubtful, in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong: lower case, without a full stop.
    pub message: String,
    /// The file it is in.
    pub file: PathBuf,
    /// Where in the file; `None` if it is about the file as a whole.
    pub place: Option<Place>,
    /// The server it is about, as it was written.
    pub server: Option<String>,
    /// The next step.
    pub hint: Option<String>,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The line itself, masked, made safe to show, and cut around the caret if it is long.
    pub source: String,
    /// The characters of `source` that the caret underlines.
    pub caret: Range<usize>,
}

// === impl Problem ===

impl Problem {
    /// A problem of a file as a whole.
    pub(super) fn of_file(file: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self { message: message.into(), file: file.into(), place: None, server: None, hint: None }
    }

    /// With the next step.
    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As the error that ends a load or a command. The hint goes along as the error's own.
    pub fn to_error(&self) -> Error {
        Error::Config { message: self.without_hint(), hint: self.hint.clone() }
    }

    /// The line, counted from 1, where there is one.
    pub fn line(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.line)
    }

    fn without_hint(&self) -> String {
        let file = self.file.to_string_lossy();
        let file = Escaped(&file);
        let Some(place) = &self.place else {
            return format!("{}\n  --> {file}", self.message);
        };
        let number = place.line.to_string();
        let gutter = " ".repeat(number.len());
        let lead = " ".repeat(place.caret.start);
        let carets = "^".repeat(place.caret.len().max(1));
        format!(
            "{}\n{gutter} --> {file}:{number}:{}\n{gutter} |\n{number} | {}\n{gutter} | {lead}{carets}",
            self.message, place.column, place.source
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_hint())?;
        match &self.hint {
            Some(hint) => write!(f, "\n  = hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        problem.to_error()
    }
}

impl From<Box<Problem>> for Error {
    fn from(problem: Box<Problem>) -> Self {
        problem.to_error()
    }
}

/// A name from a file between backticks, escaped and cut, for a message.
pub(super) fn shown(name: &str) -> String {
    const LONGEST: usize = 64;
    match name.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("`{}…`", Escaped(&name[..cut])),
        None => format!("`{}`", Escaped(name)),
    }
}

/// The known name nearest to what was written, if it is near at all.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written: String = written.chars().take(64).flat_map(char::to_lowercase).collect();
    let scored = known.into_iter().map(|name| (strsim::damerau_levenshtein(&written, name), name));
    let (distance, name) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + name.chars().count() / 4).then_some(name)
}
