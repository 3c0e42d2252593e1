//! The refusal of whoever asks for too much: what a caller reads, and what HTTP calls it.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use crate::mcp::code;
use crate::wire::{Json, RpcError};

/// More is asked for than may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Overloaded {
    pub(in crate::gateway) why: Why,
    /// When it may be worth asking again.
    pub(in crate::gateway) retry_after: Duration,
}

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Why {
    /// One caller asks too often.
    Requests,
    /// One server is called too often.
    Calls,
    /// Too much is under way.
    Much,
}

/// How soon a queue may have moved.
const SOON: Duration = Duration::from_secs(1);
/// What programs know the error by.
const KIND: &str = "overloaded";
/// The same where one server is left alone for a while: then it is not the caller who does too much.
const UNAVAILABLE: &str = "unavailable";

// === impl Overloaded ===

impl Overloaded {
    /// Too much is under way, and some of it may soon have ended.
    pub(in crate::gateway) const MUCH: Self = Self { why: Why::Much, retry_after: SOON };

    /// Something is done too often. Without an end to the wait that can be told, soon.
    pub(super) fn often(why: Why, wait: Option<Duration>) -> Self {
        Self { why, retry_after: wait.unwrap_or(SOON).max(Duration::from_millis(1)) }
    }
}

impl From<Overloaded> for RpcError {
    fn from(Overloaded { why, retry_after }: Overloaded) -> Self {
        let wait = retry_after.as_millis().try_into().unwrap_or(u64::MAX);
        let data = json!({ "kind": KIND, "retryable": true, "mayHaveRun": false, "retryAfterMs": wait });
        let again = Duration::from_millis(wait);
        let error = match why {
            Why::Requests => format!("the rate limit of your requests is used up; try again in {again:?}"),
            Why::Calls => {
                format!("the rate limit of calls to this server is used up; try again in {again:?}")
            }
            Why::Much => "too much is under way already; try again later".to_owned(),
        };
        let error = Self::new(code::INTERNAL, error);
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
