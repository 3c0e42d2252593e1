//! In: a body from outside and a limit. Out: its bytes, never more than the limit.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;

use super::NetError;
use super::error::chain;

/// Reads a whole body of at most `max` bytes. A longer one is refused as soon as that is known.
pub async fn read_body<B>(body: B, max: usize) -> Result<Bytes, NetError>
where
    B: Body<Data = Bytes>,
    B::Error: std::error::Error,
{
    if body.size_hint().lower() > max as u64 {
        return Err(NetError::TooLarge { max });
    }
    let mut body = std::pin::pin!(body);
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| NetError::Broken { reason: chain(&error) })?;
        let Ok(data) = frame.into_data() else { continue };
        let so_far = whole.len() + first.as_ref().map_or(0, Bytes::len);
        if data.len() > max - so_far {
            return Err(NetError::TooLarge { max });
        }
        match first.take() {
            // Most bodies come in one piece, which need not be copied.
            None if whole.is_empty() => first = Some(data),
            None => whole.extend_from_slice(&data),
            Some(before) => {
                whole.extend_from_slice(&before);
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}
