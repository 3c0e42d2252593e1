//! Where requests go, and what they show there.
//!
//! In: a request of any kind for a server. Out: its response. A server that refuses what it is shown is shown something
//! newer, once: 401 means that nothing was run.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri};

use super::{LAST_WORDS, headers};
use crate::connect::auth::{Challenge, Pass, Shown};
use crate::error::Error;
use crate::names::ServerName;
use crate::net::{Answer, Ask, Endpoint, NetError, Preset};

/// Where requests go.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    /// Another address there than that of the endpoint itself.
    pub(crate) uri: Option<Uri>,
    /// What they show there, where somebody can log in.
    pub(crate) pass: Option<Arc<Pass>>,
}

/// Why a request got no response.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// Something on the way.
    Net(NetError),
    /// There is nothing to show.
    Barred(Box<Error>),
}

// === impl Target ===

impl Target {
    /// Sends a request.
    pub(crate) async fn send(&self, ask: &Ask<'_>) -> Result<Answer, Unsent> {
        match &self.pass {
            None => self.endpoint.ask(self.uri.as_ref(), ask).await.map_err(Unsent::Net),
            Some(pass) => self.send_with(pass, ask).await,
        }
    }

    async fn send_with(&self, pass: &Arc<Pass>, ask: &Ask<'_>) -> Result<Answer, Unsent> {
        let barred = |error| Unsent::Barred(Box::new(error));
        let shown = pass.show().await.map_err(barred)?;
        let mut answer = self.show(ask, shown.as_deref()).await?;
        if answer.head.status() == StatusCode::UNAUTHORIZED {
            let challenge = Challenge::read(&answer.head.to_map());
            let newer = Box::pin(pass.refused(shown.as_deref(), challenge)).await.map_err(barred)?;
            if let Some(newer) = newer {
                answer.body.skip();
                answer = self.show(ask, Some(&newer)).await?;
            }
        }
        if answer.head.status() == StatusCode::FORBIDDEN
            && let Some(challenge) = Challenge::read(&answer.head.to_map()).filter(Challenge::wants_more)
        {
            // It is only for the next login; this request fails either way.
            let _ = Box::pin(pass.wants_more(challenge)).await;
        }
        Ok(answer)
    }

    async fn show(&self, ask: &Ask<'_>, shown: Option<&Shown>) -> Result<Answer, Unsent> {
        let (mut own, mut ask) = (Vec::new(), *ask);
        if let Some(shown) = shown {
            own.extend_from_slice(ask.own);
            own.push((AUTHORIZATION, shown.header.clone()));
            ask.own = &own;
        }
        self.endpoint.ask(self.uri.as_ref(), &ask).await.map_err(Unsent::Net)
    }

    /// Ends a session, if the server is willing; nobody waits for its consent.
    pub(super) async fn end_session(self, post: HeaderMap, session: HeaderValue) {
        let mut headers = headers::for_end(&post);
        headers.insert(headers::SESSION, session);
        let (preset, body) = (Preset::new(headers), Bytes::new());
        let ask = Ask { method: &Method::DELETE, preset: &preset, own: &[], body: &body };
        let _ = tokio::time::timeout(LAST_WORDS, self.send(&ask)).await;
    }
}

// === impl Unsent ===

impl Unsent {
    /// The error for whoever wanted to connect.
    pub(crate) fn into_error(self, server: &ServerName, transport: &'static str) -> Error {
        match self {
            Self::Net(error) => error.into_error(server, transport),
            Self::Barred(error) => *error,
        }
    }
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(error) => error.fmt(f),
            Self::Barred(error) => error.fmt(f),
        }
    }
}
