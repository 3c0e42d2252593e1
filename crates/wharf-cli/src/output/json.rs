//! The JSON that programs read.

use std::fmt::Write as _;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};
use wharf::config::{Origin, PendingFile, Problem};
use wharf::text::is_unsafe_to_show;

use crate::failure::Failure;

/// A JSON text that can be shown at a terminal: what could drive it is written as JSON's own escapes.
pub(crate) fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe_to_show(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a `String` cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Why something failed.
pub(crate) fn failure(failure: &Failure) -> Value {
    json!({
        "kind": failure.kind(),
        "message": failure.to_string(),
        "side": failure.side(),
        "retryable": failure.is_retryable(),
        "mayHaveRun": failure.may_have_run(),
        "hint": failure.next_step(),
    })
}

/// Something wrong in a file.
pub(crate) fn problem(problem: &Problem) -> Value {
    json!({
        "message": problem.message,
        "file": problem.file,
        "line": problem.line(),
        "column": problem.place.as_ref().map(|place| place.column),
        "server": problem.server,
        "hint": problem.hint,
    })
}

/// A project's file that is not trusted.
pub(crate) fn pending(file: &PendingFile) -> Value {
    let server = |s: &wharf::config::PendingServer| json!({ "name": s.name, "does": s.does, "reads": s.reads, "sets": s.sets });
    json!({
        "file": file.path,
        "changedSinceTrusted": file.changed_since_trusted,
        "servers": file.servers.iter().map(server).collect::<Vec<_>>(),
        "obstacle": file.obstacle.as_ref().map(problem),
    })
}

/// Where a server was written.
pub(crate) fn origin(origin: &Origin) -> Value {
    match origin {
        Origin::File { path, line } => json!({ "file": path, "line": line }),
        Origin::Given => json!("given"),
        Origin::BuiltIn => json!("built-in"),
    }
}

/// A time for a program.
pub(crate) fn second(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    Timestamp::from_second(time.as_second()).ok().map(|time| time.to_string())
}
