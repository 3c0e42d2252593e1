//! A permit becomes a live connection.
//!
//! In: a server's configuration, the permits that policy made for it, and who answers its questions. Out: a
//! [`Connection`] that takes raw parameters and gives raw results, whatever the transport and the era, and a
//! [`Berth`] that keeps one alive. Which tools exist and who may call them is decided below.

mod auth;
mod berth;
mod breaker;
mod company;
mod connection;
mod era;
mod handshake;
mod http;
mod inbox;
mod launch;
mod life;
mod link;
mod listen;
mod monitor;
mod packages;
mod pipe;
mod pool;
mod program;
mod reader;
mod sse;
mod stdio;
mod timekeeper;
mod unix;
mod waiting;
mod weak;
mod ws;

pub use auth::{
    Lock, LoggedOut, LoginNotes, LoginState, Logins, Loopback, Outline, Page, SealedFiles, TokenMemory,
    TokenStore, Visiting, Visitor,
};
pub(crate) use berth::growing;
pub use berth::{Berth, Dock};
pub use company::{Companion, Told};
pub use connection::{Connection, Request};
pub use era::{EraMemory, EraStore, Verdict};
pub use inbox::{Strays, StraysByServer};
pub use life::Progress;
pub use listen::Listening;
pub use pool::Pool;
pub(crate) use program::is_judged_alike;
pub use program::{Inspected, LetIn, inspect, let_in, program_of};
pub use stdio::Leaving;
pub use weak::WeakConnection;

use std::pin::Pin;

use crate::names::ServerName;
use crate::wire::{Json, RpcError};

/// A future that answers a server's request.
pub type Answering = Pin<Box<dyn Future<Output = Result<Json, RpcError>> + Send + 'static>>;

/// Who stands behind a connection: answers what a server asks, and hears its news.
pub trait Peer: Send + Sync + 'static {
    /// What is offered to servers, in the form of the protocol's `ClientCapabilities`.
    fn capabilities(&self) -> Json;

    /// The same for a legacy server, which may be told more.
    fn legacy_capabilities(&self) -> Json {
        self.capabilities()
    }

    /// There is a new connection to a server. What was asked of the last one is not known to this one.
    fn connected(&self, connection: &Connection) {
        let _ = connection;
    }

    /// The server had forgotten the session of its connection and made another: it knows nothing that was asked of it.
    fn renewed(&self, server: &ServerName) {
        let _ = server;
    }

    /// A server asks for something: `roots/list`, `sampling/createMessage`, `elicitation/create`.
    fn request(&self, server: &ServerName, method: &str, params: Option<Json>) -> Answering;

    /// A server logs something of which nobody knows which request it is about. It is told as a notification, too.
    fn log(&self, server: &ServerName, params: &Json) {
        let _ = (server, params);
    }

    /// A server tells something. False if nobody wants to know: that is counted, and too much of it ends the connection.
    fn notification(&self, server: &ServerName, method: &str, params: Option<&Json>) -> bool;
}
