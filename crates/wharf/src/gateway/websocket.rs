//! The gateway over a WebSocket: one caller, one message a text frame, either era.
//!
//! Who may come in was asked of the request that becomes the WebSocket, like of any other. What is said is answered as
//! over a pipe.

use std::sync::OnceLock;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, StatusCode};
use hyper::upgrade::OnUpgrade;
use tokio::sync::{mpsc, watch};

use super::Gateway;
use super::body::{self, Reply};
use super::guard::single;
use super::stay::Guest;
use super::stdio::Pipe;
use crate::net::{CLOSING, FrameEnd, Speaking, WebSocket, accept_key};

/// A connection that becomes a WebSocket.
#[derive(Clone)]
pub(super) struct Upgrade {
    on: OnUpgrade,
    caller: Guest,
}

/// The name of what is spoken.
const MCP: &str = "mcp";
/// How long a key is: sixteen bytes in base64.
const KEY: usize = 24;
/// How long the goodbyes may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Whether a request wants to become a WebSocket.
pub(super) fn is_asked(headers: &HeaderMap) -> bool {
    has(headers, header::UPGRADE, "websocket") && has(headers, header::CONNECTION, "upgrade")
}

/// Whether a list in a header has this word.
fn has(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}

/// Agrees to it, if it is asked for properly.
pub(super) fn agree<B>(request: &mut Request<B>, caller: Guest, upgrade: &OnceLock<Upgrade>) -> Reply {
    let headers = request.headers();
    if single(headers, header::SEC_WEBSOCKET_VERSION.as_str()) != Some("13") {
        let mut reply = body::plain(StatusCode::UPGRADE_REQUIRED, "WebSockets of version 13 are spoken here");
        reply.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return reply;
    }
    let key = single(headers, header::SEC_WEBSOCKET_KEY.as_str()).filter(|key| key.len() == KEY);
    let Some(accept) = key.and_then(|key| HeaderValue::from_str(&accept_key(key)).ok()) else {
        return body::plain(StatusCode::BAD_REQUEST, "one Sec-WebSocket-Key is needed");
    };
    let speaks_mcp = has(headers, header::SEC_WEBSOCKET_PROTOCOL, MCP);
    let mut reply = body::accepted();
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let told = reply.headers_mut();
    told.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    told.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    told.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if speaks_mcp {
        told.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(MCP));
    }
    // Nothing comes after an upgrade: it is the first one of its connection.
    let _ = upgrade.set(Upgrade { on: hyper::upgrade::on(request), caller });
    reply
}

/// Serves the caller until it leaves, or until the stop, or until it is let in no more: then calls under way may end
/// first.
pub(super) async fn converse(gateway: &Gateway, upgrade: Upgrade, mut closed: watch::Receiver<bool>) {
    let Ok(upgraded) = upgrade.on.await else { return };
    let settings = &gateway.settings;
    let socket = WebSocket::of_caller(upgraded, settings.body).await;
    let (mut speaking, mut hearing) = socket.split();
    let (mut pipe, messages) = Pipe::open(gateway, upgrade.caller.clone());
    let goodbye = {
        let writing = write(&mut speaking, messages);
        tokio::pin!(writing);
        let reading = async {
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
        };
        let mut deaf = false;
        let end = tokio::select! {
            end = reading => Some(end),
            () = &mut writing => {
                deaf = true;
                Some(FrameEnd::Over("it does not read".into()))
            }
            _ = closed.wait_for(|closed| *closed) => None,
            // What it has under way ends at once, with words.
            () = gateway.desk.ending.until_out(&upgrade.caller) => None,
        };
        let patience = if end.is_some() { Duration::ZERO } else { settings.drain };
        let written = async {
            // What has ended is not asked again.
            if !deaf {
                writing.await;
            }
        };
        pipe.leave(written, patience).await;
        end.map_or(CLOSING, |end| end.code())
    };
    let _ = tokio::time::timeout(GOODBYE, speaking.close(goodbye, hearing)).await;
}

/// Writes until nobody has anything to say any more, or nobody listens.
async fn write(speaking: &mut Speaking, mut messages: mpsc::Receiver<Vec<u8>>) {
    while let Some(message) = speaking.keep_alive_until(messages.recv()).await {
        let Ok(text) = String::from_utf8(message) else { continue };
        if speaking.say(text).await.is_err() {
            return;
        }
    }
}
