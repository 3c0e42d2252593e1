//! In: requests for the origin of a permit. Out: their responses, after at most a few redirects within that origin.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderValue, LOCATION};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use url::Url;

use super::ask::{Address, Ask, Preset};
use super::body::{Answer, ResponseBody};
use super::dial::Connector;
use super::error::shown;
use super::head::Head;
use super::pool::{Limits, Pool};
use super::{IDLE_TIMEOUT, MAX_IDLE, NetError};
use crate::policy::ConnectPermit;
use crate::secret::SecretUrl;
use crate::text::Foreign;

/// How many redirects are followed, one after the other.
const MAX_REDIRECTS: usize = 3;

/// One server's endpoint, with its connections. Cheap to clone; the clones share them.
#[derive(Clone)]
pub struct Endpoint {
    url: SecretUrl,
    /// Its address as requests name it, and the connections that lead there. `None` if no request can name it.
    way: Option<(Address, Arc<Pool>)>,
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn new(connector: Connector, permit: &ConnectPermit) -> Self {
        let url = permit.url().clone();
        let limits = Limits { idle: MAX_IDLE, age: IDLE_TIMEOUT };
        let way = url.expose().as_str().parse().ok();
        let way = way.map(|uri: Uri| (Address::new(uri.clone()), Pool::new(connector, uri, limits)));
        Self { url, way }
    }

    /// Where it is.
    pub fn url(&self) -> &SecretUrl {
        &self.url
    }

    /// What its requests say in the header `Host`, where they have one.
    pub(crate) fn host(&self) -> Option<&HeaderValue> {
        self.way.as_ref().map(|(_, pool)| pool.host())
    }

    /// Closes the connections that are not in use, and keeps none from now on.
    pub(crate) fn close(&self) {
        if let Some((_, pool)) = &self.way {
            pool.close();
        }
    }

    /// Sends a request and waits for the head of its response. Dropping the future closes the request.
    ///
    /// Only requests for the permit's own origin are sent. A 307 or 308 within the origin is followed with the same
    /// method, headers and body; every other redirect is an error, and its target is not contacted. Headers that
    /// describe how a message travels, like `Connection`, are left out.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<ResponseBody>, NetError> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await;
        let preset = Preset::new(parts.headers);
        let ask = Ask { method: &parts.method, preset: &preset, own: &[], body: &body.to_bytes() };
        let answer = self.ask(Some(&parts.uri), &ask).await?;
        let mut response = Response::new(answer.body);
        *response.status_mut() = answer.head.status();
        *response.headers_mut() = answer.head.to_map();
        Ok(response)
    }

    /// The same, with headers that were made ready. `None` is the address of the permit itself.
    pub(crate) async fn ask(&self, uri: Option<&Uri>, ask: &Ask<'_>) -> Result<Answer, NetError> {
        let Some((home, pool)) = &self.way else {
            return Err(NetError::OtherOrigin { to: shown(self.url.expose()) });
        };
        let elsewhere = uri.filter(|uri| *uri != home.whole());
        let mut url = elsewhere.map(|uri| self.own(uri)).transpose()?;
        let mut other = elsewhere.map(|uri| Address::new(uri.clone()));
        let mut hops = 0;
        loop {
            let answer = pool.send(other.as_ref().unwrap_or(home), ask).await?;
            if !is_redirect(answer.head.status()) {
                return Ok(answer);
            }
            let from = url.as_ref().unwrap_or_else(|| self.url.expose());
            let to = self.follow(from, &answer.head, hops)?;
            answer.body.skip();
            hops += 1;
            let unreadable = |_| NetError::Redirect { to: shown(&to), reason: UNREADABLE };
            other = Some(Address::new(to.as_str().parse().map_err(unreadable)?));
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

    fn follow(&self, from: &Url, head: &Head, hops: usize) -> Result<Url, NetError> {
        let location = head.get(LOCATION).and_then(|value| std::str::from_utf8(value).ok());
        let location = location.filter(|location| location.is_ascii());
        let Some(mut to) = location.and_then(|location| from.join(location).ok()) else {
            return Err(NetError::Redirect { to: Foreign::new("nowhere"), reason: UNREADABLE });
        };
        to.set_fragment(None);
        let keeps_method =
            matches!(head.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
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
