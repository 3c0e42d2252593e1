//! Where requests go, and what they show there.
//!
//! In: a request of any kind for a server. Out: its response. A server that refuses what it is shown is shown something
//! newer, once: 401 means that nothing was run.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;

use super::{LAST_WORDS, headers};
use crate::connect::auth::{Challenge, Pass, Shown};
use crate::error::Error;
use crate::names::ServerName;
use crate::net::{Endpoint, NetError};

/// Where requests go.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    pub(crate) uri: Uri,
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
    pub(crate) async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Unsent> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        match &self.pass {
            None => self.endpoint.send(request).await.map_err(Unsent::Net),
            Some(pass) => self.send_with(pass, request).await,
        }
    }

    async fn send_with(
        &self,
        pass: &Arc<Pass>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unsent> {
        let barred = |error| Unsent::Barred(Box::new(error));
        let shown = pass.show().await.map_err(barred)?;
        let mut response = self.show(request.clone(), shown.as_deref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            let challenge = Challenge::read(response.headers());
            let newer = Box::pin(pass.refused(shown.as_deref(), challenge)).await.map_err(barred)?;
            if let Some(newer) = newer {
                response = self.show(request, Some(&newer)).await?;
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
        mut request: Request<Full<Bytes>>,
        shown: Option<&Shown>,
    ) -> Result<Response<Incoming>, Unsent> {
        if let Some(shown) = shown {
            request.headers_mut().insert(AUTHORIZATION, shown.header.clone());
        }
        self.endpoint.send(request).await.map_err(Unsent::Net)
    }

    /// Ends a session, if the server is willing; nobody waits for its consent.
    pub(super) async fn end_session(self, post: HeaderMap, session: HeaderValue) {
        let mut headers = headers::for_end(&post);
        headers.insert(headers::SESSION, session);
        let sent = self.send(Method::DELETE, headers, Bytes::new());
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
