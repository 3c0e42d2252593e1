//! In: requests for the origin of a permit. Out: their responses, after at most a few redirects within that origin.

use std::fmt;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use url::Url;

use super::NetError;
use super::dial::Connector;
use super::error::shown;
use crate::policy::ConnectPermit;
use crate::secret::SecretUrl;
use crate::text::Foreign;

/// How many redirects are followed, one after the other.
const MAX_REDIRECTS: usize = 3;

/// One server's endpoint, with its connections. Cheap to clone; the clones share them.
#[derive(Clone)]
pub struct Endpoint {
    client: Client<Connector, Full<Bytes>>,
    url: SecretUrl,
    /// The same as requests name it, to know it again without reading it.
    uri: Option<Uri>,
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn new(client: Client<Connector, Full<Bytes>>, permit: &ConnectPermit) -> Self {
        let url = permit.url().clone();
        Self { client, uri: url.expose().as_str().parse().ok(), url }
    }

    /// Where it is.
    pub fn url(&self) -> &SecretUrl {
        &self.url
    }

    /// Sends a request and waits for the head of its response. Dropping the future closes the request.
    ///
    /// Only requests for the permit's own origin are sent. A 307 or 308 within the origin is followed with the same
    /// method, headers and body; every other redirect is an error, and its target is not contacted.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, NetError> {
        let (parts, body) = request.into_parts();
        let mut url = match self.uri.as_ref() == Some(&parts.uri) {
            true => None,
            false => Some(self.own(&parts.uri)?),
        };
        let mut uri = parts.uri.clone();
        let mut hops = 0;
        loop {
            let mut request = Request::new(body.clone());
            *request.method_mut() = parts.method.clone();
            *request.headers_mut() = parts.headers.clone();
            *request.uri_mut() = uri;
            let response =
                self.client.request(request).await.map_err(|error| NetError::from_client(&error))?;
            if !is_redirect(response.status()) {
                return Ok(response);
            }
            let from = url.as_ref().unwrap_or_else(|| self.url.expose());
            let to = self.follow(from, &response, hops)?;
            hops += 1;
            let unreadable = |_| NetError::Redirect { to: shown(&to), reason: UNREADABLE };
            uri = to.as_str().parse().map_err(unreadable)?;
            url = Some(to);
        }
    }

    /// The address of a request, if it is within the origin.
    fn own(&self, uri: &Uri) -> Result<Url, NetError> {
        let Ok(url) = Url::parse(&uri.to_string()) else {
            return Err(NetError::OtherOrigin { to: Foreign::new(uri.path()) });
        };
        if url.origin() != self.url.expose().origin() {
            return Err(NetError::OtherOrigin { to: shown(&url) });
        }
        Ok(url)
    }

    fn follow(&self, from: &Url, response: &Response<Incoming>, hops: usize) -> Result<Url, NetError> {
        let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        let Some(mut to) = location.and_then(|location| from.join(location).ok()) else {
            return Err(NetError::Redirect { to: Foreign::new("nowhere"), reason: UNREADABLE });
        };
        to.set_fragment(None);
        let keeps_method =
            matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let reason = if to.origin() != self.url.expose().origin() {
            "that is another server, and nothing of the request goes there"
        } else if !to.username().is_empty() || to.password().is_some() {
            "the address has a user name"
        } else if !keeps_method {
            "it would turn the request into another one"
        } else if hops >= MAX_REDIRECTS {
            "it redirects too often"
        } else {
            return Ok(to);
        };
        Err(NetError::Redirect { to: shown(&to), reason })
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("url", &self.url).finish_non_exhaustive()
    }
}

const UNREADABLE: &str = "the address cannot be read";

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}
