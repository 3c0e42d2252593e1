//! WebSockets, from either side: the request that becomes one, and text frames within limits.
//!
//! In: a permit, or a connection that a caller's request was upgraded on. Out: whole text messages. There is no
//! compression, and what is not text, not masked as it should be, or too large ends the connection.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::ask::{Address, Ask, Preset};
use super::dial::Connector;
use super::error::{chain, shown};
use super::head::Head;
use super::line::Line;
use super::stream::Stream;
use super::{HttpClient, NetError};
use crate::policy::ConnectPermit;
use crate::text::Foreign;

/// A connection, whoever opened it.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}
type Io = Box<dyn Duplex>;
type Frames = WebSocketStream<Io>;

/// A connection that carries text messages both ways.
pub(crate) struct WebSocket(Frames);

/// The half that reads.
pub(crate) struct Hearing(SplitStream<Frames>);

/// The half that writes.
pub(crate) struct Speaking {
    sink: SplitSink<Frames, Message>,
    next_ping: Instant,
}

/// How the reading ended.
#[derive(Debug)]
pub(crate) enum FrameEnd {
    /// The other side went away.
    Over(String),
    /// The other side broke the rules.
    Broken(CloseCode, String),
}

/// What the other side is told at the end: a code and a few words.
pub(crate) type Goodbye<'a> = (CloseCode, &'a str);

/// How often the other side is asked whether it lives.
const PING: Duration = Duration::from_secs(30);
/// After so much silence it does not. A message that takes longer to arrive is of no use to anybody any more.
const SILENCE: Duration = Duration::from_secs(120);
/// How many bytes of a reason fit into a frame that closes.
const REASON: usize = 123;
/// The name of what is spoken.
const MCP: &str = "mcp";
/// Why a connection is closed when the gateway stops, and when its caller is let in no more.
pub(crate) const STOPPING: Goodbye<'static> = (CloseCode::Away, "the gateway stops");
pub(crate) const LET_OUT: Goodbye<'static> =
    (CloseCode::Away, "the key or token was taken back or has expired");
/// Why one is closed that takes nothing.
pub(crate) const DEAF: Goodbye<'static> = (CloseCode::Normal, "nothing is read at the other end");

impl HttpClient {
    /// The WebSocket that a permit names. Messages of more than `limit` bytes end it.
    pub(crate) async fn websocket(
        &self,
        permit: &ConnectPermit,
        headers: HeaderMap,
        limit: usize,
    ) -> Result<WebSocket, NetError> {
        let url = permit.url().expose();
        let host = Foreign::new(url.host_str().unwrap_or_default());
        let uri: Uri = url.as_str().parse().map_err(|_| NetError::OtherOrigin { to: shown(url) })?;
        let connector = Connector::new(permit, &self.options, self.tls.clone());
        let after = self.options.connect_timeout;
        let opening = open(&connector, &uri, headers);
        let opened = timeout(after, opening).await.map_err(|_| NetError::Timeout { host, after })?;
        let (stream, rest) = opened?;
        Ok(WebSocket::new(Box::new(stream), &rest, Role::Client, limit).await)
    }
}

/// Asks for the upgrade. A redirect is not followed: its target was judged by nobody.
async fn open(connector: &Connector, uri: &Uri, headers: HeaderMap) -> Result<(Stream, BytesMut), NetError> {
    let stream = connector.connect(uri).await?;
    let key = generate_key();
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(host).map_err(|_| NetError::NotSent)?;
    let own = [
        (header::HOST, host.clone()),
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
        (header::SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key).map_err(|_| NetError::NotSent)?),
        (header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(MCP)),
    ];
    let (address, body) = (Address::new(uri.clone()), Bytes::new());
    let ask = Ask { method: &Method::GET, preset: &Preset::new(headers), own: &own, body: &body };
    let write = |out: &mut Vec<u8>| ask.write_head(out, &address, &host);
    let (line, head, _) = Line::new(stream).exchange(write, &body, false).await?;
    check(&head, &key)?;
    Ok(line.into_parts())
}

/// Whether an answer is a yes, to us and to nobody else.
fn check(head: &Head, key: &str) -> Result<(), NetError> {
    let status = head.status();
    let refuse = |reason: &str| Err(NetError::NotUpgraded { status: status.as_u16(), reason: reason.into() });
    let value = |name: HeaderName| head.get(name).and_then(|value| std::str::from_utf8(value).ok());
    if status.is_redirection() {
        let to = value(header::LOCATION).and_then(|to| url::Url::parse(to).ok());
        let to = to.map_or_else(|| Foreign::new("elsewhere"), |to| shown(&to));
        return Err(NetError::Redirect { to, reason: "a WebSocket is not looked for elsewhere" });
    }
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return refuse("");
    }
    if !value(header::UPGRADE).is_some_and(|to| to.eq_ignore_ascii_case("websocket")) {
        return refuse("it switches to another protocol");
    }
    if value(header::SEC_WEBSOCKET_ACCEPT) != Some(&accept_key(key)) {
        return refuse("it does not answer the key it was sent");
    }
    // Many servers never say what is spoken.
    if value(header::SEC_WEBSOCKET_PROTOCOL).is_some_and(|spoken| spoken != MCP) {
        return refuse("it wants to speak another protocol than `mcp`");
    }
    if head.get(header::SEC_WEBSOCKET_EXTENSIONS).is_some() {
        return refuse("it uses an extension that nobody asked for");
    }
    Ok(())
}

/// What proves that a key was read.
pub(crate) fn accept_key(key: &str) -> String {
    derive_accept_key(key.as_bytes())
}

// === impl WebSocket ===

impl WebSocket {
    /// A connection on which a caller's request was upgraded, and what came behind that.
    pub(crate) async fn of_caller(stream: TcpStream, rest: &[u8], limit: usize) -> Self {
        Self::new(Box::new(stream), rest, Role::Server, limit).await
    }

    pub(super) async fn new(io: Io, rest: &[u8], role: Role, limit: usize) -> Self {
        let config = WebSocketConfig::default().max_message_size(Some(limit)).max_frame_size(Some(limit));
        Self(WebSocketStream::from_partially_read(io, rest.to_vec(), role, Some(config)).await)
    }

    pub(crate) fn split(self) -> (Speaking, Hearing) {
        let (sink, stream) = self.0.split();
        (Speaking { sink, next_ping: Instant::now() + PING }, Hearing(stream))
    }
}

// === impl Hearing ===

impl Hearing {
    /// The next whole message. Questions whether we live are answered on the way.
    pub(crate) async fn next(&mut self) -> Result<Bytes, FrameEnd> {
        loop {
            let Ok(frame) = timeout(SILENCE, self.0.next()).await else {
                return Err(FrameEnd::Over(format!("nothing came from it for {SILENCE:?}")));
            };
            return match frame {
                Some(Ok(Message::Text(text))) => Ok(text.into()),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Binary(_))) => Err(FrameEnd::Broken(
                    CloseCode::Unsupported,
                    "binary frames, where messages are text".into(),
                )),
                Some(Ok(Message::Close(why))) => Err(FrameEnd::Over(closed(why.as_ref()))),
                Some(Err(error)) => Err(FrameEnd::of(error)),
                None => Err(FrameEnd::Over(closed(None))),
            };
        }
    }
}

fn closed(why: Option<&CloseFrame>) -> String {
    match why {
        Some(why) if !why.reason.is_empty() => {
            format!("it closed the socket ({}): {}", why.code, crate::text::Escaped(&why.reason))
        }
        Some(why) => format!("it closed the socket ({})", why.code),
        None => "it closed the socket".into(),
    }
}

// === impl Speaking ===

impl Speaking {
    /// Writes one message.
    pub(crate) async fn say(&mut self, text: String) -> Result<(), String> {
        self.sink.send(Message::text(text)).await.map_err(|error| chain(&error))
    }

    /// Waits, and asks from time to time whether the other side lives. Its answers are heard by the other half.
    pub(crate) async fn keep_alive_until<T>(&mut self, done: impl Future<Output = T>) -> T {
        tokio::pin!(done);
        loop {
            tokio::select! {
                biased;
                done = &mut done => return done,
                () = tokio::time::sleep_until(self.next_ping) => {
                    self.next_ping = Instant::now() + PING;
                    // Whether it arrived is seen by whether it is answered.
                    let _ = self.sink.send(Message::Ping(Bytes::new())).await;
                }
            }
        }
    }

    /// Says goodbye, or answers the other side's, and waits until it is over.
    pub(crate) async fn close(&mut self, (code, reason): Goodbye<'_>, mut hearing: Hearing) {
        let reason = crate::text::beginning(reason, REASON).into();
        // After the other side's goodbye no second one is sent: then the answer to it waits, and goes out by reading on.
        let _ = self.sink.send(Message::Close(Some(CloseFrame { code, reason }))).await;
        while let Some(Ok(_)) = hearing.0.next().await {}
    }
}

// === impl FrameEnd ===

impl FrameEnd {
    fn of(error: WsError) -> Self {
        match error {
            WsError::Capacity(CapacityError::MessageTooLong { size, max_size }) => Self::Broken(
                CloseCode::Size,
                format!("a message of {size} bytes, more than the limit of {max_size}"),
            ),
            WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Self::Over("it hung up".into()),
            WsError::Utf8(_) => Self::Broken(CloseCode::Invalid, "a text that is not UTF-8".into()),
            error @ (WsError::Protocol(_) | WsError::Capacity(_) | WsError::AttackAttempt) => {
                Self::Broken(CloseCode::Protocol, chain(&error))
            }
            WsError::ConnectionClosed | WsError::AlreadyClosed => Self::Over(closed(None)),
            error => Self::Over(chain(&error)),
        }
    }

    /// What the other side is told of it.
    pub(crate) fn goodbye(&self) -> Goodbye<'_> {
        match self {
            Self::Over(_) => (CloseCode::Normal, ""),
            Self::Broken(code, reason) => (*code, reason),
        }
    }
}
