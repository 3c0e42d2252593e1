//! The guarded dialer: the only place that opens outbound sockets.
//!
//! In: a [`ConnectPermit`] and requests for its origin. Out: responses, or what went wrong and whether the request can
//! have left. Names are resolved once and the address that was judged is the one that is dialled; redirects never leave
//! the origin; proxies, cookies and compression are not here, because each is a way around the rules.

mod ask;
mod body;
mod dial;
mod endpoint;
mod error;
mod head;
mod line;
mod pool;
mod resolve;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod trial;
mod unix;
mod websocket;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use ask::{Ask, Preset, is_of_the_journey};
pub(crate) use body::Answer;
pub use body::{ResponseBody, read_body};
pub(crate) use dial::reach;
pub use endpoint::Endpoint;
pub use error::NetError;
pub(crate) use head::Head;
pub use resolve::{Resolve, SystemResolver};
#[doc(hidden)]
pub use trial::{AnswerHead, BodyEnd, read_answer_head, read_websocket};
pub(crate) use unix::is_listening;
pub(crate) use websocket::{DEAF, FrameEnd, Hearing, LET_OUT, STOPPING, Speaking, WebSocket, accept_key};

use crate::error::Result;
use crate::policy::ConnectPermit;
use dial::Connector;
use tls::Tls;

/// Connections that are kept for the next request, for each endpoint: as many as calls are under way at a busy server,
/// or each further call would open one of its own.
const MAX_IDLE: usize = 1024;
/// How long they are kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// How endpoints are reached.
#[derive(Clone)]
pub struct NetOptions {
    /// Certificates, as PEM, that are trusted beside those of the machine.
    pub extra_roots: Vec<Vec<u8>>,
    /// How long resolving, connecting and the TLS handshake may take together. Defaults to 10 seconds.
    pub connect_timeout: Duration,
    /// How long a connection may be silent before the other side is asked whether it is still there. One that does not
    /// answer for as long again is closed. Defaults to 30 seconds.
    pub keepalive: Duration,
    /// Who turns names into addresses. Defaults to the machine's resolver.
    pub resolver: Arc<dyn Resolve>,
}

/// Makes endpoints. Cheap to clone; one for the whole host.
#[derive(Clone, Debug)]
pub struct HttpClient {
    options: NetOptions,
    tls: Tls,
}

// === impl NetOptions ===

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            extra_roots: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            keepalive: Duration::from_secs(30),
            resolver: Arc::new(SystemResolver),
        }
    }
}

impl fmt::Debug for NetOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetOptions")
            .field("extra_roots", &self.extra_roots.len())
            .field("connect_timeout", &self.connect_timeout)
            .field("keepalive", &self.keepalive)
            .finish_non_exhaustive()
    }
}

// === impl HttpClient ===

impl HttpClient {
    /// Reads the extra certificates; an unreadable one is an error. Those of the machine are read at the first use.
    pub fn new(options: NetOptions) -> Result<Self> {
        let tls = Tls::new(&options.extra_roots)?;
        Ok(Self { options, tls })
    }

    /// The endpoint that a permit names, with a connection pool of its own.
    pub fn for_permit(&self, permit: &ConnectPermit) -> Endpoint {
        let connector = Connector::new(permit, &self.options, self.tls.clone());
        Endpoint::new(connector, permit)
    }
}
