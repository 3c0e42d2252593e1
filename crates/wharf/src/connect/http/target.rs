//! Where requests go, and what they show there.
//!
//! In: a request of any kind for a server. Out: its response. A server that refuses what it is shown is shown something
//! newer, once: 401 means that nothing was run.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode, Uri};

use super::{LAST_WORDS, headers};
use crate::connect::auth::{Challenge, Pass, Shown};
use crate::error::Error;
use crate::names::ServerName;
use crate::net::{Endpoint, NetError, ResponseBody};

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
    /// Sends a request with the headers that are made for it, or made again.
    pub(crate) async fn send(
        &self,
        method: Method,
        headers: impl Fn() -> HeaderMap,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, Unsent> {
        match &self.pass {
            None => {
                self.endpoint.send_with(method, self.uri.as_ref(), headers, body).await.map_err(Unsent::Net)
            }
            Some(pass) => self.send_with(pass, method, headers, body).await,
        }
    }

    async fn send_with(
        &self,
        pass: &Arc<Pass>,
        method: Method,
        headers: impl Fn() -> HeaderMap,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, Unsent> {
        let barred = |error| Unsent::Barred(Box::new(error));
        let shown = pass.show().await.map_err(barred)?;
        let mut response = self.show(&method, &headers, &body, shown.as_deref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            let challenge = Challenge::read(response.headers());
            let newer = Box::pin(pass.refused(shown.as_deref(), challenge)).await.map_err(barred)?;
            if let Some(newer) = newer {
                response.into_body().skip();
                response = self.show(&method, &headers, &body, Some(&newer)).await?;
            }
        }
        if response.status() == StatusCode::FORBIDDEN
            && let Some(challenge) = Challenge::read(response.headers()).filter(Challenge::wants_more)
        {
            // It is only for the next login; this request fails either way.
            let _ = Box::pin(pass.wants_more(challenge)).await;
        }
        Ok(response)
    }

    async fn show(
        &self,
        method: &Method,
        headers: &impl Fn() -> HeaderMap,
        body: &Bytes,
        shown: Option<&Shown>,
    ) -> Result<Response<ResponseBody>, Unsent> {
        let headers = || {
            let mut headers = headers();
            if let Some(shown) = shown {
                headers.insert(AUTHORIZATION, shown.header.clone());
            }
            headers
        };
        let sent = self.endpoint.send_with(method.clone(), self.uri.as_ref(), headers, body.clone());
        sent.await.map_err(Unsent::Net)
    }

    /// Ends a session, if the server is willing; nobody waits for its consent.
    pub(super) async fn end_session(self, post: HeaderMap, session: HeaderValue) {
        let mut headers = headers::for_end(&post);
        headers.insert(headers::SESSION, session);
        let sent = self.send(Method::DELETE, || headers.clone(), Bytes::new());
        let _ = tokio::time::timeout(LAST_WORDS, sent).await;
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
