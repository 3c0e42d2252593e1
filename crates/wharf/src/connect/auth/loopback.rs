//! The door that a browser comes back through: a port of this machine that takes one answer and says thank you.
//!
//! In: requests from whoever is on this machine. Out: the query of the one that belongs to the login. Requests for
//! another host, another path, or another login are sent away and change nothing.

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use url::Url;

use super::visit::Page;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// A port on 127.0.0.1.
#[derive(Debug)]
pub struct Loopback {
    listener: TcpListener,
    port: u16,
    url: Url,
}

/// What every connection needs to know.
struct Door<'a> {
    port: u16,
    page: &'a Page,
    out: mpsc::Sender<Secret>,
}

const PATH: &str = "/callback";
/// Browsers open a few at once.
const CONNECTIONS: usize = 16;
const HEAD: usize = 16 * 1024;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
const THANKS: &str = "<!doctype html><meta charset=utf-8><title>Wharf</title><p>That is all. You can close this window and go back to the terminal.";

impl Loopback {
    /// Opens the port, or any that is free.
    ///
    /// # Errors
    /// If the port is taken.
    pub async fn open(port: Option<u16>) -> Result<Self> {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).await;
        let taken = |error: std::io::Error| Error::Config {
            message: format!("cannot listen for the browser on 127.0.0.1: {error}"),
            hint: port.map(|port| format!("choose another port than {port}, or let Wharf find one")),
        };
        let listener = bound.map_err(taken)?;
        let port = listener.local_addr().map_err(taken)?.port();
        let url = Url::parse(&format!("http://127.0.0.1:{port}{PATH}"));
        let url = url.map_err(|error| Error::Internal(error.to_string()))?;
        Ok(Self { listener, port, url })
    }

    /// The address that leads here.
    pub fn url(&self) -> Url {
        self.url.clone()
    }

    /// Waits for the browser, for ever: the caller has the patience.
    ///
    /// # Errors
    /// If the port cannot be listened on any more.
    pub async fn wait(&self, page: &Page) -> Result<Secret> {
        let (out, mut answers) = mpsc::channel(1);
        let door = Arc::new(Door { port: self.port, page, out });
        let mut guests = futures_util::stream::FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(answer) = answers.recv() => {
                    // The thanks are still on their way.
                    let _ = tokio::time::timeout(std::time::Duration::from_millis(200), drain(&mut guests)).await;
                    return Ok(answer);
                }
                Some(()) = futures_util::StreamExt::next(&mut guests), if !guests.is_empty() => {}
                came = self.listener.accept(), if guests.len() < CONNECTIONS => {
                    let (stream, _) = came.map_err(|error| {
                        Error::Internal(format!("cannot listen for the browser: {error}"))
                    })?;
                    guests.push(serve(stream, Arc::clone(&door)));
                }
            }
        }
    }
}

async fn drain<F: Future<Output = ()>>(guests: &mut futures_util::stream::FuturesUnordered<F>) {
    while futures_util::StreamExt::next(guests).await.is_some() {}
}

async fn serve(stream: TcpStream, door: Arc<Door<'_>>) {
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let response = door.answer(&request);
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .max_buf_size(HEAD)
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(PATIENCE, connection).await;
}

impl Door<'_> {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        // A name of somebody else's that stands for this machine is not ours.
        let ours = ["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{}", self.port));
        if !ours || request.uri().path() != PATH {
            return plain(StatusCode::NOT_FOUND, "There is nothing here.");
        }
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "There is nothing to post here.");
        }
        let query = request.uri().query().unwrap_or_default();
        if !self.page.fits(query) {
            return plain(StatusCode::BAD_REQUEST, "This does not belong to the login that is under way.");
        }
        // A second answer to the same login changes nothing.
        let _ = self.out.try_send(Secret::new(format!("?{query}")));
        plain(StatusCode::OK, THANKS)
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
    headers.insert(http::header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
