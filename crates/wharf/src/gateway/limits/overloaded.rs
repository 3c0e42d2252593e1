//! The refusal of whoever asks for too much: what a caller reads, and what HTTP calls it.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use crate::mcp::code;
use crate::wire::{Json, RpcError};

/// There is too much to do already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Overloaded {
    /// When it may be worth asking again.
    pub(in crate::gateway) retry_after: Duration,
}

/// What programs know the error by.
const KIND: &str = "overloaded";
/// The same where one server is left alone for a while: then it is not the caller who does too much.
const UNAVAILABLE: &str = "unavailable";

// === impl Overloaded ===

impl From<Overloaded> for RpcError {
    fn from(overloaded: Overloaded) -> Self {
        let wait = overloaded.retry_after.as_millis().try_into().unwrap_or(u64::MAX);
        let data = json!({ "kind": KIND, "retryable": true, "mayHaveRun": false, "retryAfterMs": wait });
        let error = Self::new(code::INTERNAL, "too much is under way already; try again later");
        Self { data: Some(Json::of(&data)), ..error }
    }
}

/// When it may be worth asking again, and what HTTP calls it, if an error says that there is too much to do or that its
/// server is left alone.
pub(in crate::gateway) fn retry_after(error: &RpcError) -> Option<(StatusCode, Duration)> {
    let [kind, wait] = error.data.as_ref()?.pick(["kind", "retryAfterMs"]);
    let kind: String = kind?.to().ok()?;
    let status = match kind.as_str() {
        KIND => StatusCode::TOO_MANY_REQUESTS,
        UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
        _ => return None,
    };
    Some((status, Duration::from_millis(wait?.to().ok()?)))
}
