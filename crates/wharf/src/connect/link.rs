//! The seam between a connection and what carries its bytes.

use std::time::Duration;

use super::http::HttpLink;
use super::pipe::PipeLink;
use super::reader::Turn;
use super::sse::SseLink;
use super::ws::WsLink;
use crate::error::{Error, StderrTail};
use crate::mcp::Revision;
use crate::net::NetError;

/// What carries the messages of a connection.
pub(crate) enum Link {
    /// The standard input and output of a program, or a Unix socket.
    Pipe(PipeLink),
    /// WebSocket.
    Ws(WsLink),
    /// Streamable HTTP.
    Http(HttpLink),
    /// HTTP+SSE.
    Sse(SseLink),
}

/// A request on its way out.
pub(crate) struct Outgoing<'a> {
    /// The number it goes under.
    pub(crate) id: u64,
    /// What is asked.
    pub(crate) method: &'a str,
    /// What it is about: a tool, a prompt, a resource.
    pub(crate) name: Option<&'a str>,
    /// The whole message, without a line break.
    pub(crate) frame: Vec<u8>,
    /// Headers that mirror parts of the message, for transports that have headers.
    pub(crate) headers: &'a [(String, String)],
    /// Whether it is one of many under way, which are better sent together.
    pub(crate) crowded: bool,
}

/// Where a request starts in the stream of bytes to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent(pub(crate) u64);

/// Why a link could not carry a request to its answer.
#[derive(Debug)]
pub(crate) enum LinkFailure {
    /// The request certainly never reached the server.
    NotSent(String),
    /// There is nothing to show to the server, and it wants to be shown something. The request was not run.
    Barred(Box<Error>),
    /// No way led to the server, or a rule forbids the way. The request was not run.
    Unreached(NetError),
    /// The request may have reached the server; its answer will not come.
    Lost(String),
    /// The server refused it outright with an HTTP status.
    Status {
        /// The status.
        status: u16,
        /// The beginning of what it said.
        body: String,
        /// Its `WWW-Authenticate` header.
        challenge: Option<String>,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// The server does not know our session any more. The request was not run.
    SessionExpired,
}

impl Link {
    /// Sends a request and does what must be done until its answer is in the inbox. Dropping the future gives the
    /// request up where the transport can express that by itself.
    pub(crate) async fn carry(&self, out: Outgoing<'_>) -> Result<Sent, LinkFailure> {
        match self {
            Self::Pipe(pipe) => pipe.carry(out).await,
            Self::Ws(ws) => ws.carry(out),
            Self::Http(http) => http.carry(out).await,
            Self::Sse(sse) => sse.carry(out).await,
        }
    }

    /// A turn for a call to read its answer, where answers come as lines.
    pub(super) fn turn(&self, call: u64) -> Option<Turn<'_>> {
        match self {
            Self::Pipe(pipe) => Some(pipe.turn(call)),
            Self::Ws(_) | Self::Http(_) | Self::Sse(_) => None,
        }
    }

    /// Whether a request may have reached the server. What never left may safely be sent again.
    pub(crate) fn reached(&self, sent: Sent) -> bool {
        match self {
            Self::Pipe(pipe) => pipe.reached(sent),
            Self::Ws(ws) => ws.reached(sent),
            // What certainly did not reach it failed before; of the rest nobody can tell.
            Self::Http(_) | Self::Sse(_) => true,
        }
    }

    /// Whether it is one stream of messages in each direction, that can end at any word.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Pipe(_) | Self::Ws(_))
    }

    /// The revision that was agreed on, for transports that repeat it with every message.
    pub(crate) fn agreed(&self, revision: Revision) {
        match self {
            Self::Pipe(_) | Self::Ws(_) | Self::Sse(_) => {}
            Self::Http(http) => http.agreed(revision),
        }
    }

    /// Ends the handshake. What is sent next does not overtake this.
    pub(crate) async fn initialized(&self, frame: Vec<u8>) -> Result<(), LinkFailure> {
        match self {
            Self::Pipe(pipe) => pipe.notify(frame),
            Self::Ws(ws) => ws.notify(frame),
            Self::Http(http) => http.initialized(frame).await?,
            Self::Sse(sse) => sse.initialized(frame).await?,
        }
        Ok(())
    }

    /// Sends a notification, after everything that was sent before it.
    pub(crate) fn notify(&self, frame: Vec<u8>) {
        match self {
            Self::Pipe(pipe) => pipe.notify(frame),
            Self::Ws(ws) => ws.notify(frame),
            Self::Http(http) => http.notify(frame),
            Self::Sse(sse) => sse.notify(frame),
        }
    }

    /// Tells the server that nobody waits for a request any more.
    pub(crate) fn cancel(&self, frame: Vec<u8>) {
        match self {
            Self::Pipe(pipe) => pipe.notify(frame),
            Self::Ws(ws) => ws.notify(frame),
            Self::Http(http) => http.cancel(frame),
            Self::Sse(sse) => sse.notify(frame),
        }
    }

    /// Ends it: politely first, then not. Returns when nothing is left.
    pub(crate) async fn close(&self) {
        match self {
            Self::Pipe(pipe) => pipe.close().await,
            Self::Ws(ws) => ws.close().await,
            Self::Http(http) => http.close().await,
            Self::Sse(sse) => sse.close().await,
        }
    }

    /// What the server's words about a call that failed may mean, where it is confined.
    pub(crate) fn advice(&self, said: &str) -> Option<String> {
        match self {
            Self::Pipe(pipe) => pipe.advice(said),
            Self::Ws(_) | Self::Http(_) | Self::Sse(_) => None,
        }
    }

    /// The last lines of standard error, where there is one.
    pub(crate) fn stderr(&self) -> StderrTail {
        match self {
            Self::Pipe(pipe) => pipe.stderr(),
            Self::Ws(_) | Self::Http(_) | Self::Sse(_) => StderrTail::default(),
        }
    }
}
