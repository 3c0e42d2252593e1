//! What must hold for any bytes, one file for each fuzz target. The targets in `fuzz_targets` feed them bytes without end;
//! the tests feed them the seeds of `seeds`, so that no target can rot.

pub(crate) mod argv;
pub(crate) mod environment;
pub(crate) mod frame;
pub(crate) mod json_strict;
pub(crate) mod lines;
pub(crate) mod names;
pub(crate) mod public_names;
pub(crate) mod schema;
pub(crate) mod shown;
pub(crate) mod sse;
pub(crate) mod url;

/// What is done with bytes. It panics where something does not hold.
pub(crate) type Check = fn(&[u8]);

/// Each check by the name of its target.
pub(crate) const ALL: [(&str, Check); 11] = [
    ("argv", argv::check),
    ("environment", environment::check),
    ("frame", frame::check),
    ("json_strict", json_strict::check),
    ("lines", lines::check),
    ("names", names::check),
    ("public_names", public_names::check),
    ("schema", schema::check),
    ("shown", shown::check),
    ("sse", sse::check),
    ("url", url::check),
];
