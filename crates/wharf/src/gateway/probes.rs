//! What is asked of the gateway about itself: `/healthz`, `/readyz`, `/metrics`, `/status`.
//!
//! In: requests that are no message. Out: their answers, also while the gateway stops and takes no calls any more. Who
//! may know more than whether it is ready is said in `docs/decisions/0014-watching.md`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::body::{self, Reply};
use super::http::{ARRIVE, Door, HEAD};
use super::terms::Admission;
use super::{guard, metrics, ready};
use crate::names::CallerName;

/// How many may ask at a time while the gateway stops.
const AT_THE_END: usize = 64;

impl Door {
    /// Answers what is no message.
    pub(super) async fn probe(&self, request: &Request<Incoming>) -> Reply {
        let (gateway, path) = (&self.gateway, request.uri().path());
        match (request.method(), path) {
            (_, "/healthz" | "/readyz" | "/metrics" | "/status") => {}
            _ => return body::plain(StatusCode::NOT_FOUND, "the gateway is at /mcp"),
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return body::not_allowed("GET, HEAD");
        }
        if path == "/healthz" {
            return body::plain(StatusCode::OK, "ok");
        }
        let admission = gateway.settings.admission.load_full();
        let refused = match admission.admit(request.headers(), self.resource.url()).await {
            Ok(caller) if self.may_watch(&admission, &caller) => None,
            Ok(_) => {
                let why = "watching the gateway is not this caller's; see `operators` in `[gateway]`";
                Some(body::plain(StatusCode::FORBIDDEN, why))
            }
            Err(refused) => Some(self.resource.refuse(refused, &admission)),
        };
        match (path, refused) {
            // Whoever only sends callers here or not needs no name; what is the matter is not told to strangers.
            ("/readyz", refused) => self.readiness(refused.is_none()),
            (_, Some(refused)) => {
                metrics::count(&gateway.desk.rejections.auth);
                refused
            }
            ("/metrics", None) => body::typed(StatusCode::OK, metrics::CONTENT_TYPE, metrics::page(gateway)),
            (_, None) => body::message(StatusCode::OK, ready::status(gateway).to_string().into_bytes()),
        }
    }

    fn readiness(&self, in_full: bool) -> Reply {
        let servers = self.gateway.desk.host().status();
        let obstacles = ready::obstacles(&self.gateway, &servers);
        let status = if obstacles.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut told = ready::document(&obstacles);
        if let (false, Some(members)) = (in_full, told.as_object_mut()) {
            members.remove("reasons");
        }
        body::message(status, told.to_string().into_bytes())
    }

    /// Whether a caller may see what all callers do. Where callers are given parts of the whole, only those may who are
    /// named.
    fn may_watch(&self, admission: &Admission, caller: &CallerName) -> bool {
        match &admission.operators {
            Some(operators) => operators.contains(caller),
            None => self.gateway.desk.callers.load().is_none(),
        }
    }

    /// Answers while the gateway stops: whoever asks is told that it does. Never ends by itself.
    pub(super) async fn while_stopping(self: &Arc<Self>, listener: &TcpListener) {
        let mut asking = JoinSet::new();
        loop {
            while asking.len() >= AT_THE_END {
                asking.join_next().await;
            }
            match listener.accept().await {
                Ok((stream, _)) => drop(asking.spawn(Arc::clone(self).last_words(stream))),
                // No descriptor to spare: the next one may do better.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    async fn last_words(self: Arc<Self>, stream: TcpStream) {
        let door = &self;
        let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
            Ok::<_, Infallible>(match guard::check(&request, &door.gateway.settings) {
                Err((status, why)) => body::plain(status, why),
                Ok(()) if matches!(request.uri().path(), "/mcp" | "/sse" | "/messages") => stopping(),
                Ok(()) => door.probe(&request).await,
            })
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(self.gateway.desk.clock.clone())
            .header_read_timeout(ARRIVE)
            .max_buf_size(HEAD)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // Whoever breaks off needs no answer.
        let _ = connection.await;
    }
}

fn stopping() -> Reply {
    let mut reply = body::plain(StatusCode::SERVICE_UNAVAILABLE, "the gateway stops; nothing was done");
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    reply
}
