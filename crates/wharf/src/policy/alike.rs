//! In: two policies and one request. Out: whether the request comes out the same under both, so that what runs under the one
//! may go on under the other. What a lock accepts is left out: it holds at each start, list and call.

use super::{LaunchRequest, Policy};
use crate::config::{ServerConfig, Transport};
use crate::error::Result;

impl Policy {
    /// Whether both let the same program be started in the same way, or neither does.
    pub(crate) fn launches_like(&self, other: &Self, request: &LaunchRequest<'_>) -> bool {
        let [one, other] = [self, other].map(|policy| policy.with_lock(None).permit_launch(request));
        is_alike(&one, &other, |one, other| one.allows_like(other))
    }

    /// Whether both let a server be reached within the same rules, or neither does.
    pub(crate) fn reaches_like(&self, other: &Self, config: &ServerConfig) -> bool {
        let (name, origin) = (&config.name, &config.origin);
        let [one, other] = match &config.transport {
            Transport::Http(remote) | Transport::Sse(remote) => {
                [self, other].map(|policy| policy.permit_connect(name, remote, origin))
            }
            Transport::WebSocket(remote) => {
                [self, other].map(|policy| policy.permit_websocket(name, remote, origin))
            }
            // Who stands behind a socket is asked of the file system, not of the rules.
            Transport::Stdio(_) | Transport::Unix(_) => return true,
        };
        is_alike(&one, &other, |one, other| one.allows_like(other))
    }

    /// Whether both show the same of what servers offer.
    pub(crate) fn shows_like(&self, other: &Self) -> bool {
        self.rules.lock == other.rules.lock && self.rules.scan == other.rules.scan
    }
}

fn is_alike<P>(one: &Result<P>, other: &Result<P>, like: impl Fn(&P, &P) -> bool) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => like(one, other),
        (one, other) => one.is_err() && other.is_err(),
    }
}
