//! The gateway over a WebSocket: one caller, one message a text frame, either era.
//!
//! Who may come in was asked of the request that becomes the WebSocket, like of any other. What is said is answered as
//! over a pipe.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Gateway;
use super::body::{self, Reply};
use super::ending::has_looked;
use super::h1::{Head, STALLED};
use super::leaving::LAST_WORDS;
use super::outgoing::Outgoing;
use super::stay::Guest;
use super::stdio::Pipe;
use crate::net::{DEAF, FrameEnd, Hearing, LET_OUT, STOPPING, Speaking, WebSocket, accept_key};

/// The name of what is spoken.
const MCP: &str = "mcp";
/// How long a key is: sixteen bytes in base64.
const KEY: usize = 24;
/// How long the goodbyes may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// As few bytes in a millisecond as a caller may take of a message.
const SLOWEST: u64 = 16;

/// Whether a request wants to become a WebSocket.
pub(super) fn is_asked(head: &Head) -> bool {
    head.lists("upgrade", "websocket") && head.lists("connection", "upgrade")
}

/// Agrees to it, if it is asked for properly.
pub(super) fn agree(head: &Head, caller: Guest) -> Reply {
    if !head.can_switch() {
        // What is sent behind it would be frames to some, and not to others.
        return body::plain(
            StatusCode::BAD_REQUEST,
            "a request that becomes a WebSocket is HTTP/1.1 without a body",
        );
    }
    if head.one("sec-websocket-version") != Some("13") {
        return body::plain(StatusCode::UPGRADE_REQUIRED, "WebSockets of version 13 are spoken here")
            .with("sec-websocket-version", "13");
    }
    let Some(key) = head.one("sec-websocket-key").filter(|key| key.len() == KEY) else {
        return body::plain(StatusCode::BAD_REQUEST, "one Sec-WebSocket-Key is needed");
    };
    let mut reply = body::empty(StatusCode::SWITCHING_PROTOCOLS)
        .with("connection", "Upgrade")
        .with("upgrade", "websocket")
        .with("sec-websocket-accept", accept_key(key));
    if head.lists("sec-websocket-protocol", MCP) {
        reply = reply.with("sec-websocket-protocol", MCP);
    }
    reply.becomes = Some(caller);
    reply
}

/// Serves the caller until it leaves, or until the stop, or until it is let in no more: then calls under way may end
/// first. `rest` is what it has said already.
pub(super) async fn converse(
    gateway: &Gateway,
    caller: Guest,
    (stream, rest): (TcpStream, Bytes),
    mut closed: watch::Receiver<bool>,
) {
    let settings = &gateway.settings;
    let socket = WebSocket::of_caller(stream, &rest, settings.body).await;
    let (mut speaking, mut hearing) = socket.split();
    let (mut pipe, messages) = Pipe::open(gateway, caller.clone());
    let leaving = pipe.leaving();
    let patience = settings.drain + LAST_WORDS;
    let end = {
        let mut writing = pin!(write(&mut speaking, messages));
        let mut reading = pin!(read(&mut hearing, &mut pipe));
        let mut end = tokio::select! {
            end = &mut reading => End::Over(end),
            () = &mut writing => End::Deaf,
            _ = closed.wait_for(|closed| *closed) => End::Stop,
            // What it has under way ends at once, with words.
            () = gateway.desk.until_out(&caller) => End::Out,
        };
        if matches!(end, End::Stop) {
            // What it says is still heard: whether it wants something no more, and what it was asked.
            let settled = async {
                has_looked().await;
                let _ = tokio::time::timeout(patience, leaving.settle(&mut writing)).await;
            };
            tokio::select! {
                biased;
                gone = &mut reading => end = End::Over(gone),
                () = settled => {}
            }
        }
        match &end {
            End::Over(_) => {
                leaving.cancel();
                leaving.last_words(writing).await;
            }
            End::Out => drop(tokio::time::timeout(patience, leaving.settle(writing)).await),
            End::Deaf | End::Stop => {}
        }
        end
    };
    pipe.end();
    let goodbye = match &end {
        End::Over(end) => end.goodbye(),
        End::Deaf => DEAF,
        End::Stop => STOPPING,
        End::Out => LET_OUT,
    };
    let _ = tokio::time::timeout(GOODBYE, speaking.close(goodbye, hearing)).await;
}

/// What came to its end first.
enum End {
    /// What the caller says.
    Over(FrameEnd),
    /// What it takes.
    Deaf,
    /// The gateway.
    Stop,
    /// What let the caller in.
    Out,
}

/// Takes one message after the other.
async fn read(hearing: &mut Hearing, pipe: &mut Pipe) -> FrameEnd {
    loop {
        match hearing.next().await {
            Ok(frame) => {
                if let Err(error) = pipe.take(frame).await {
                    return FrameEnd::Over(error.to_string());
                }
            }
            Err(end) => return end,
        }
    }
}

/// Writes until nobody has anything to say any more, or nobody listens.
async fn write(speaking: &mut Speaking, mut messages: Outgoing) {
    while let Some(message) = speaking.keep_alive_until(messages.next()).await {
        let Ok(text) = String::from_utf8(message) else { continue };
        // A large one may take longer, if it is taken at all.
        let patience = STALLED + Duration::from_millis(text.len() as u64 / SLOWEST);
        if !matches!(tokio::time::timeout(patience, speaking.say(text)).await, Ok(Ok(()))) {
            return;
        }
    }
}
