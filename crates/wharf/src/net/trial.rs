//! What is made of the bytes of servers and callers, for those who compare that with another reading (`fuzz`).
//!
//! In: bytes, or something that gives them in pieces. Out: heads and messages in plain values.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::head::{Framing, Head};
use super::websocket::{FrameEnd, WebSocket};

/// The head of a server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerHead {
    /// Its status.
    pub status: u16,
    /// All fields.
    pub fields: HeaderMap,
    /// Where its body ends.
    pub end: BodyEnd,
    /// How many bytes it is long.
    pub taken: usize,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// After so many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    Open,
}

/// Reads a head; `None` while there is more to come.
///
/// # Errors
/// What is wrong with it.
pub fn read_answer_head(bytes: &[u8]) -> Result<Option<AnswerHead>, &'static str> {
    let mut arrived = BytesMut::from(bytes);
    let taken = Head::take(&mut arrived, false)?;
    Ok(taken.map(|taken| AnswerHead {
        status: taken.head.status().as_u16(),
        fields: taken.head.to_map(),
        end: match taken.framing {
            Framing::Length(length) => BodyEnd::Length(length),
            Framing::Chunked => BodyEnd::Chunked,
            Framing::Open => BodyEnd::Open,
        },
        taken: bytes.len() - arrived.len(),
    }))
}

/// Reads the messages of a WebSocket to its end, and says whether that was the other side's right. `caller`: it is the one
/// that asked for the socket.
pub async fn read_websocket(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    caller: bool,
    limit: usize,
) -> (Vec<Bytes>, bool) {
    let role = if caller { Role::Server } else { Role::Client };
    let (_speaking, mut hearing) = WebSocket::new(Box::new(io), &[], role, limit).await.split();
    let mut messages = Vec::new();
    loop {
        match hearing.next().await {
            Ok(message) => messages.push(message),
            Err(FrameEnd::Over(_)) => return (messages, true),
            Err(FrameEnd::Broken(..)) => return (messages, false),
        }
    }
}
