//! The only parser of bytes from outside.
//!
//! In: bytes from a pipe or a socket. Out: messages whose `params` and `result` are still the bytes that came
//! ([`Json`]), checked once and never rebuilt. It knows JSON-RPC and framing, nothing of MCP.
//! Why by hand: `docs/decisions/0001-own-wire-layer.md`.

pub(crate) mod canonical;
mod duplicates;
mod envelope;
pub(crate) mod http1;
mod id_finder;
mod json;
mod limits;
mod lines;
mod pending;
mod pieces;
mod scan;
mod sse;
#[cfg(test)]
mod tests;
mod write;

pub use canonical::fingerprint;
pub(crate) use envelope::split_batch;
pub use envelope::{Malformed, Message, ReplyId, RpcError, is_batch, parse_frame, parse_message};
#[doc(hidden)]
pub use http1::{BadChunks, Chunks, Next as NextChunk};
pub(crate) use id_finder::IdFinder;
pub use json::{Json, JsonError};
pub(crate) use json::{Place, Sorted, text_of};
pub use limits::Limits;
pub use lines::{Line, Lines};
pub use pending::{Pending, Ticket};
pub use pieces::Pieces;
pub use sse::{SseEvent, SseParser, SseTooLong};
pub use write::{Members, notification, request, response_error, response_result};
