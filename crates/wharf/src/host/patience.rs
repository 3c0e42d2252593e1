//! How long a call may be waited for before it is sent.
//!
//! In: when a call was accepted, and its hard limit. Out: what is left of it, for every wait on its way: a server that gets
//! ready, a lane that is in use, a connection that is made again. Once it is sent its connection keeps the time; a call
//! that finds everything there asks for no timer here (`docs/decisions/0005-a-call-has-no-timer.md`).

use std::time::Duration;

use tokio::time::Instant;

use super::server::Server;
use super::{CallOptions, Host};
use crate::call::HARD_FACTOR;
use crate::error::{Error, Result, StderrTail};
use crate::event::State;
use crate::names::ServerName;

/// The time of one call.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    since: Instant,
    limit: Duration,
}

/// Of what nobody knows the timeout.
const USUAL: Duration = Duration::from_secs(20 * 60);

impl Patience {
    pub(super) fn new(since: Instant, hard: Option<Duration>, timeout: Duration) -> Self {
        Self { since, limit: hard.unwrap_or(timeout.saturating_mul(HARD_FACTOR)) }
    }

    /// How much of it is spent.
    pub(super) fn spent(&self) -> Duration {
        self.since.elapsed()
    }

    /// So much of it is spent now, and no more: a person was waited for meanwhile.
    pub(super) fn had_spent(&mut self, before: Duration) {
        let now = Instant::now();
        self.since = now.checked_sub(before).unwrap_or(now);
    }

    pub(super) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.spent())
    }

    /// What is left for a call that is about to be sent. One that comes too late is not sent any more.
    pub(super) fn rest(&self, server: &Server) -> Result<Duration> {
        match self.left() {
            Duration::ZERO => Err(self.over(server)),
            left => Ok(left),
        }
    }

    /// Waits for what is needed before a call can be sent, as long as there is time.
    pub(super) async fn wait<T, E: From<Error>>(
        &self,
        server: &Server,
        waiting: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        match tokio::time::timeout(self.left(), waiting).await {
            Ok(ended) => ended,
            Err(_) => Err(self.over(server).into()),
        }
    }

    fn over(&self, server: &Server) -> Error {
        let what = match server.state() {
            State::Connected => {
                "every connection to it that this caller may have is in use, or one is still being made"
            }
            _ => "it is still being started or reached",
        };
        Error::Connection {
            server: server.config.name.clone(),
            transport: server.config.transport_name(),
            reason: format!("the call has waited for all of its {:?}, and was not sent: {what}", self.limit),
            stderr: StderrTail::default(),
            retryable: true,
        }
    }
}

impl Host {
    /// Looks up where a call leads, which may mean to wait for servers, within the time of the call. `server` is whose
    /// tool it is, if that is known.
    pub(super) async fn in_time<T>(
        &self,
        options: &mut CallOptions<'_>,
        server: Option<&str>,
        looking: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let server = server.and_then(|server| self.scope.server(server).ok());
        let timeout = options.timeout.or(server.as_ref().map(|server| server.config.timeout));
        let limit = options.hard_timeout.or(timeout.map(|timeout| timeout.saturating_mul(HARD_FACTOR)));
        let patience = Patience::new(Instant::now(), limit, USUAL);
        let found = match &server {
            Some(server) => patience.wait(server, looking).await,
            None => match tokio::time::timeout(patience.left(), looking).await {
                Ok(found) => found,
                Err(_) => Err(self.still_awaited(&patience)),
            },
        };
        options.hard_timeout = limit.map(|_| patience.left());
        found
    }

    /// Which server was waited for, when nobody knows whose a tool is.
    fn still_awaited(&self, patience: &Patience) -> Error {
        let servers = self.scope.all_servers();
        match servers.iter().find(|server| server.config.enabled && server.state() != State::Connected) {
            Some(server) => patience.over(server),
            None => {
                let reason = "its time was over before it was known whose tool it is".into();
                Error::Cancelled { reason, sent: false }
            }
        }
    }

    /// How long a call of a server may take, from when it is accepted.
    pub(crate) fn time_for(&self, server: Option<&ServerName>) -> Duration {
        let known = server.and_then(|server| self.scope.server(server.as_str()).ok());
        known.map_or(USUAL, |server| server.config.timeout.saturating_mul(HARD_FACTOR))
    }
}
