//! What can go wrong on the way to an endpoint, and whether the request can have left before it did.

use std::error::Error as StdError;
use std::net::IpAddr;
use std::time::Duration;

use hyper::client::conn::TrySendError;

use crate::error::{Error, StderrTail};
use crate::names::ServerName;
use crate::policy::address;
use crate::secret::SecretUrl;
use crate::text::Foreign;

/// Why a request got no response, or its response cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address rules forbid every address of the host. Nothing was contacted.
    #[error("`{host}` is {ip}, which is {kind}")]
    Refused {
        /// The host.
        host: Foreign,
        /// The first of its addresses that was refused.
        ip: IpAddr,
        /// What kind of address it is.
        kind: &'static str,
    },
    /// The request is for another origin than the permit. Nothing was contacted.
    #[error("`{to}` is not on the server that may be reached")]
    OtherOrigin {
        /// Where it was to go, without its query.
        to: Foreign,
    },
    /// The host's name stands for no address.
    #[error("`{host}` could not be resolved: {reason}")]
    Dns {
        /// The host.
        host: Foreign,
        /// What the resolver said.
        reason: String,
    },
    /// No connection came about.
    #[error("could not connect to `{host}`: {reason}")]
    Connect {
        /// The host and its port, or the socket.
        host: Foreign,
        /// What the system said.
        reason: String,
    },
    /// The server could not prove that it is the one it should be.
    #[error("no trusted TLS connection to `{host}`: {reason}")]
    Tls {
        /// The host.
        host: Foreign,
        /// What is wrong.
        reason: String,
    },
    /// Connecting took too long.
    #[error("could not connect to `{host}` within {after:?}")]
    Timeout {
        /// The host and its port.
        host: Foreign,
        /// How long was waited.
        after: Duration,
    },
    /// The server sent us elsewhere, where we do not go.
    #[error("the server redirects to `{to}`: {reason}")]
    Redirect {
        /// Where to.
        to: Foreign,
        /// Why it is not followed.
        reason: &'static str,
    },
    /// Somebody else listens at the socket than should. Nothing was sent.
    #[error("user {user} listens at `{path}`, who is neither you nor root")]
    Stranger {
        /// The socket.
        path: Foreign,
        /// Who it is.
        user: u32,
    },
    /// The server did not turn its connection into a WebSocket.
    #[error("{}", not_upgraded(*.status, .reason))]
    NotUpgraded {
        /// What it answered with.
        status: u16,
        /// What is wrong.
        reason: String,
    },
    /// The request was written to a connection that closed before the server can have read it.
    #[error("the connection closed before the request was sent")]
    NotSent,
    /// The connection broke after the request may have left.
    #[error("the connection broke: {reason}")]
    Broken {
        /// What happened.
        reason: String,
    },
    /// What the server answered is no answer, or can be read in two ways.
    #[error("the server's answer cannot be read: {reason}")]
    Unreadable {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The body is longer than it may be.
    #[error("the answer is longer than {max} bytes")]
    TooLarge {
        /// The limit.
        max: usize,
    },
}

// === impl NetError ===

impl NetError {
    /// Whether the request certainly never left, so that sending it again cannot make anything happen twice.
    pub fn is_before_send(&self) -> bool {
        match self {
            Self::Refused { .. }
            | Self::OtherOrigin { .. }
            | Self::Dns { .. }
            | Self::Connect { .. }
            | Self::Tls { .. }
            | Self::Timeout { .. }
            | Self::Stranger { .. }
            | Self::NotUpgraded { .. }
            | Self::NotSent => true,
            Self::Redirect { .. } | Self::Broken { .. } | Self::Unreadable { .. } | Self::TooLarge { .. } => {
                false
            }
        }
    }

    /// Whether a rule of ours said no, rather than the network.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. } | Self::OtherOrigin { .. } | Self::Redirect { .. } | Self::Stranger { .. }
        )
    }

    /// The error for whoever wanted to connect to a server. For a request that was under way, ask
    /// [`is_before_send`](Self::is_before_send) first: this cannot say that an outcome is unknown.
    pub fn into_error(self, server: &ServerName, transport: &'static str) -> Error {
        if self.is_refusal() {
            let hint = match &self {
                Self::Refused { ip, .. } if address::judge(*ip, false, true).is_ok() => {
                    "to reach servers in your own network, write in your `wharf.toml`:\n  [policy]\n  private_networks = true"
                }
                Self::Refused { .. } => {
                    "this kind of address is never reached through a name; see what the name stands for"
                }
                Self::Stranger { .. } => "connect to sockets that you or root serve",
                _ => "if you trust the other address, make it the server's `url`",
            };
            return Error::Denied {
                what: format!("server `{server}`: {self}"),
                rule: "the address rules".into(),
                hint: hint.into(),
            };
        }
        if let Self::NotUpgraded { status: 401 | 403, .. } = self {
            return Error::Auth { server: server.clone(), reason: self.to_string() };
        }
        let retryable = matches!(
            self,
            Self::NotUpgraded { status: 429 | 500.., .. }
                | Self::Dns { .. }
                | Self::Connect { .. }
                | Self::Timeout { .. }
                | Self::NotSent
        );
        Error::Connection {
            server: server.clone(),
            transport,
            reason: self.to_string(),
            stderr: StderrTail::default(),
            retryable,
        }
    }

    /// Reads from what the client of HTTP/2 says whether the request left.
    pub(super) fn of_exchange<T>(error: TrySendError<T>) -> Self {
        // A request that comes back was not begun; hyper also says "canceled" only of such.
        if error.message().is_some() || error.error().is_canceled() {
            return Self::NotSent;
        }
        Self::Broken { reason: chain(&error.into_error()) }
    }
}

fn not_upgraded(status: u16, reason: &str) -> String {
    match status {
        101 => format!("the server's answer makes no WebSocket: {reason}"),
        status => format!("the server answered with HTTP status {status}, not with a WebSocket"),
    }
}

/// An error with its causes, on one line.
pub(super) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    crate::text::Escaped(&text).to_string()
}

/// An address for an error: without query and password.
pub(super) fn shown(url: &url::Url) -> Foreign {
    SecretUrl::new(url.clone()).to_string().into()
}
