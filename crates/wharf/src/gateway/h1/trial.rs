//! What the gateway makes of a request's head, for those who compare that with another reading (`fuzz`).
//!
//! In: bytes. Out: everything that is asked of a head later, in plain values.

use bytes::BytesMut;

use super::head::{BadHead, Framing, Head};

/// A head as the gateway reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The verb.
    pub method: String,
    /// The path of the target.
    pub path: String,
    /// What follows it.
    pub query: Option<String>,
    /// How long the body is; `None`: it comes in chunks.
    pub length: Option<u64>,
    /// For each name that was asked for: whether it is there, and its value if it stands there once and is text.
    pub fields: Vec<(bool, Option<String>)>,
    /// How many bytes it is long.
    pub taken: usize,
}

/// Reads a head; `None` while there is more to come. Names are in small letters.
///
/// # Errors
/// The status that it is refused with.
pub fn read_request_head(bytes: &[u8], names: &[&str]) -> Result<Option<RequestHead>, u16> {
    let mut arrived = BytesMut::from(bytes);
    let head = Head::take(&mut arrived).map_err(|bad: BadHead| bad.words().0.as_u16())?;
    Ok(head.map(|head| RequestHead {
        method: head.method().to_string(),
        path: head.path().to_owned(),
        query: head.query().map(str::to_owned),
        length: match head.framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        },
        fields: names.iter().map(|name| (head.has(name), head.one(name).map(str::to_owned))).collect(),
        taken: bytes.len() - arrived.len(),
    }))
}
