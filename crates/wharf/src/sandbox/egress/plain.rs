//! In: a plain HTTP request for a host that is not yet judged. Out: the host's answer, streamed. Each request has a
//! connection of its own, so nothing in one can be read as part of another.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use super::proxy::{Body, Open, Proxy, Refusal};
use crate::policy::Target;

/// What belongs to one connection and not to the message.
const OF_THE_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The body of a host's answer; with it go the connection and its event.
struct Answer {
    body: Incoming,
    _connection: Connection,
    _open: Open,
}

/// Drives a connection until it is dropped.
struct Connection(JoinHandle<()>);

/// Judges the host and passes the request on to it.
pub(super) async fn pass_on(
    proxy: &Arc<Proxy>,
    mut request: Request<Incoming>,
    target: &Target,
) -> Result<Response<Body>, Refusal> {
    let permit = proxy.permit(target)?;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let odd = |_| proxy.refuse(Some(target), StatusCode::BAD_REQUEST, "its address cannot be read".into());
    let uri: Uri = path.parse().map_err(odd)?;
    let host = HeaderValue::from_str(&target.authority(80))
        .map_err(|_| proxy.refuse(Some(target), StatusCode::BAD_REQUEST, "its host cannot be read".into()))?;
    let (stream, open) = proxy.open(permit).await?;
    let failed = |error: hyper::Error| Refusal::of_host(format!("{} did not answer: {error}", open.target()));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    strip(request.headers_mut());
    // It was answered already, by reading the body.
    request.headers_mut().remove(header::EXPECT);
    request.headers_mut().insert(header::HOST, host);
    let mut response = sender.send_request(request).await.map_err(failed)?;
    strip(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(|body| Answer { body, _connection: connection, _open: open }.boxed()))
}

/// Takes away what belongs to the connection, also what `Connection` says does.
fn strip(headers: &mut HeaderMap) {
    let listed = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed: Vec<HeaderName> =
        listed.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in listed.into_iter().chain(OF_THE_CONNECTION) {
        // A message without these would mean something else.
        if name != header::HOST && name != header::CONTENT_LENGTH {
            headers.remove(name);
        }
    }
}

// === impl Answer ===

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}
