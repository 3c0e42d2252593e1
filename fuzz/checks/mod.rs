//! What must hold for any bytes, one file for each fuzz target. The targets in `fuzz_targets` feed them bytes without end;
//! the tests feed them the seeds of `seeds`, so that no target can rot.

pub(crate) mod answer_head;
pub(crate) mod arguments;
pub(crate) mod argv;
pub(crate) mod chunks;
pub(crate) mod environment;
pub(crate) mod frame;
pub(crate) mod hello;
pub(crate) mod json_strict;
pub(crate) mod lines;
pub(crate) mod names;
pub(crate) mod public_names;
pub(crate) mod request_head;
pub(crate) mod schema;
pub(crate) mod shown;
pub(crate) mod sse;
pub(crate) mod url;
pub(crate) mod websocket;

/// What is done with bytes. It panics where something does not hold.
pub(crate) type Check = fn(&[u8]);

/// Each check by the name of its target.
pub(crate) const ALL: [(&str, Check); 17] = [
    ("answer_head", answer_head::check),
    ("arguments", arguments::check),
    ("argv", argv::check),
    ("chunks", chunks::check),
    ("environment", environment::check),
    ("frame", frame::check),
    ("hello", hello::check),
    ("json_strict", json_strict::check),
    ("lines", lines::check),
    ("names", names::check),
    ("public_names", public_names::check),
    ("request_head", request_head::check),
    ("schema", schema::check),
    ("shown", shown::check),
    ("sse", sse::check),
    ("url", url::check),
    ("websocket", websocket::check),
];
