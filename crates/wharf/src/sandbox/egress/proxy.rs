//! In: connections of a confined server. Out: answers to its requests, or a tunnel to a host. Every request is judged
//! by itself, whatever came before it on the same connection.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{HOST, HeaderMap};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::EgressOptions;
use super::meter::{Meter, Metered};
use super::plain;
use super::tunnel::Tunnel;
use crate::error::Error;
use crate::event::{Event, Reached};
use crate::net::{self, NetError};
use crate::policy::{EgressPermit, Target};
use crate::text::{Escaped, Foreign};

/// How many connections beyond the limit are heard, to be refused.
const REFUSALS: usize = 8;

/// A response's body.
pub(super) type Body = BoxBody<Bytes, hyper::Error>;

/// A proxy for one server.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) options: EgressOptions,
    slots: Arc<Semaphore>,
    /// For connections that are only told that they are too many. Whatever comes beyond is closed unheard.
    refusals: Arc<Semaphore>,
}

/// Why a request is not passed on. It was told of already.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    reason: String,
}

/// A connection to a host. When it is dropped, an event says how much went through it.
#[derive(Debug)]
pub(super) struct Open {
    proxy: Arc<Proxy>,
    permit: EgressPermit,
    meter: Meter,
}

/// Serves until it is dropped, and everything with it.
pub(super) async fn serve(listener: UnixListener, proxy: Arc<Proxy>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(Arc::clone(&proxy).connection(stream))),
                // Too many open files: it passes when some are closed.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

// === impl Proxy ===

impl Proxy {
    pub(super) fn new(options: EgressOptions) -> Self {
        let slots = Arc::new(Semaphore::new(options.limits.connections));
        Self { options, slots, refusals: Arc::new(Semaphore::new(REFUSALS)) }
    }

    async fn connection(self: Arc<Self>, stream: UnixStream) {
        let meter = Meter::default();
        let stream = Metered::new(stream, meter.clone());
        let full = self.slots.available_permits() == 0;
        let kind = if full { &self.refusals } else { &self.slots };
        let Ok(_slot) = Arc::clone(kind).try_acquire_owned() else { return };
        let exchange = self.exchange(stream, full);
        tokio::select! {
            () = exchange => {}
            () = meter.silent(self.options.limits.idle) => {}
        }
    }

    /// Answers requests, and then is a tunnel if one of them asked for it.
    async fn exchange(self: &Arc<Self>, stream: Metered<UnixStream>, full: bool) {
        let asked: Mutex<Option<Tunnel>> = Mutex::default();
        let answer = |request| async {
            let answered = match full {
                true => Err(self.busy(&request)),
                false => self.answer(request, &asked).await,
            };
            Ok::<_, Infallible>(answered.unwrap_or_else(Refusal::into_response))
        };
        self.requests(stream, answer).await;
        let tunnel = asked.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tunnel) = tunnel {
            tunnel.run(self).await;
        }
    }

    /// Reads requests from a stream until there are no more.
    pub(super) async fn requests<F>(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        answer: impl Fn(Request<Incoming>) -> F,
    ) where
        F: Future<Output = Result<Response<Body>, Infallible>>,
    {
        let limits = &self.options.limits;
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.opening)
            .max_buf_size(limits.head.max(8 * 1024))
            .serve_connection(TokioIo::new(stream), service_fn(answer))
            .with_upgrades()
            .await;
        if let Err(error) = served
            && error.is_parse()
        {
            self.refuse(
                None,
                StatusCode::BAD_REQUEST,
                format!("it sent no request that can be read: {error}"),
            );
        }
    }

    async fn answer(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        asked: &Mutex<Option<Tunnel>>,
    ) -> Result<Response<Body>, Refusal> {
        if request.method() != Method::CONNECT {
            let target = self.absolute(&request)?;
            return plain::pass_on(self, request, &target).await;
        }
        let target = self.connect_target(&request)?;
        let permit = self.permit(&target)?;
        let tunnel = Tunnel::prepare(self, permit, hyper::upgrade::on(&mut request)).await?;
        *asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
        Ok(Response::new(empty()))
    }

    /// The host of a request in absolute form.
    fn absolute(&self, request: &Request<Incoming>) -> Result<Target, Refusal> {
        let uri = request.uri();
        let odd = |why: &str| self.refuse(None, StatusCode::BAD_REQUEST, why.to_owned());
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(odd("this is a proxy: the request has to name its host, as in `GET http://…`"));
        };
        if scheme != "http" {
            return Err(odd("only `http:` is passed on as it is; everything else goes through `CONNECT`"));
        }
        let target = Target::parse(authority.as_str(), Some(80)).map_err(odd)?;
        self.check_host(request.headers(), request.version(), &target, 80)?;
        Ok(target)
    }

    fn connect_target(&self, request: &Request<Incoming>) -> Result<Target, Refusal> {
        let odd = |why: &str| self.refuse(None, StatusCode::BAD_REQUEST, why.to_owned());
        let authority = request.uri().authority().ok_or_else(|| odd("`CONNECT` names no host"))?;
        let target = Target::parse(authority.as_str(), None).map_err(odd)?;
        // Clients leave the port out here, or the whole header; what they say must be true.
        if request.headers().contains_key(HOST) {
            self.check_host(request.headers(), request.version(), &target, target.port())?;
        }
        Ok(target)
    }

    /// The header must name the host that the request is for: what is judged is what is reached.
    pub(super) fn check_host(
        &self,
        headers: &HeaderMap,
        version: Version,
        target: &Target,
        implied_port: u16,
    ) -> Result<(), Refusal> {
        let odd = |why: &str| self.refuse(Some(target), StatusCode::BAD_REQUEST, why.to_owned());
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (None, _) if version == Version::HTTP_10 => return Ok(()),
            (Some(host), None) => host,
            _ => return Err(odd("the request must have one `Host`")),
        };
        let host = host.to_str().map_err(|_| odd("its `Host` cannot be read"))?;
        let named = Target::parse(host, Some(implied_port)).map_err(odd)?;
        if named != *target {
            return Err(odd("its `Host` is another than the one it asks the proxy for"));
        }
        Ok(())
    }

    pub(super) fn permit(&self, target: &Target) -> Result<EgressPermit, Refusal> {
        let permitted = self.options.rules.permit(&self.options.server, target);
        permitted.map_err(|error| self.denied(target, &error))
    }

    /// The line that would allow it goes to the server, and to whoever hears of it.
    fn denied(&self, target: &Target, error: &Error) -> Refusal {
        self.note(target);
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        self.refuse(Some(target), StatusCode::FORBIDDEN, format!("{error}{hint}"))
    }

    fn note(&self, target: &Target) {
        if let Some(asked) = &self.options.asked {
            asked.note(target);
        }
    }

    fn busy(&self, request: &Request<Incoming>) -> Refusal {
        let target = request.uri().authority().and_then(|a| Target::parse(a.as_str(), Some(80)).ok());
        let most = self.options.limits.connections;
        let reason = format!("server `{}` has {most} connections already", self.options.server);
        self.refuse(target.as_ref(), StatusCode::SERVICE_UNAVAILABLE, reason)
    }

    /// Opens a connection that is allowed, and tells of it either way.
    pub(super) async fn open(
        self: &Arc<Self>,
        permit: EgressPermit,
    ) -> Result<(Metered<TcpStream>, Open), Refusal> {
        let target = permit.target();
        let (host, port) = (Foreign::new(target.host()), target.port());
        let tell = |reached| {
            let (server, rule) = (self.options.server.clone(), Some(permit.rule().to_owned()));
            self.options.events.publish(|| Event::Egress { server, host: host.clone(), port, rule, reached });
        };
        let reached = net::reach(&permit, &self.options.net).await;
        // A rule for what is refused by its address would be of no use.
        if permit.is_unruled() && !matches!(reached, Err(NetError::Refused { .. })) {
            self.note(target);
        }
        match reached {
            Ok(stream) => {
                tell(Reached::Opened);
                let meter = Meter::default();
                let stream = Metered::new(stream, meter.clone());
                Ok((stream, Open { proxy: Arc::clone(self), permit, meter }))
            }
            Err(error) => {
                let (status, reason) = (status_of(&error), error.to_string());
                let told = match status {
                    StatusCode::FORBIDDEN => Reached::Refused(reason.clone()),
                    _ => Reached::Failed(reason.clone()),
                };
                tell(told);
                Err(Refusal { status, reason })
            }
        }
    }

    /// Tells that something is refused, and makes the answer.
    pub(super) fn refuse(&self, target: Option<&Target>, status: StatusCode, reason: String) -> Refusal {
        self.options.events.publish(|| Event::Egress {
            server: self.options.server.clone(),
            host: Foreign::new(target.map_or("", Target::host)),
            port: target.map_or(0, Target::port),
            rule: None,
            reached: Reached::Refused(reason.clone()),
        });
        Refusal { status, reason }
    }
}

// === impl Refusal ===

impl Refusal {
    /// A host that is connected and does not answer.
    pub(super) fn of_host(reason: String) -> Self {
        Self { status: StatusCode::BAD_GATEWAY, reason }
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let text = Full::new(Bytes::from(format!("wharf: {}\n", Escaped(&self.reason))));
        let mut response = Response::new(text.map_err(|never| match never {}).boxed());
        *response.status_mut() = self.status;
        response.headers_mut().insert(http::header::CONTENT_TYPE, PLAIN_TEXT);
        response
    }
}

const PLAIN_TEXT: http::HeaderValue = http::HeaderValue::from_static("text/plain; charset=utf-8");

// === impl Open ===

impl Open {
    pub(super) fn target(&self) -> &Target {
        self.permit.target()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let options = &self.proxy.options;
        options.events.publish(|| Event::Egress {
            server: options.server.clone(),
            host: Foreign::new(self.target().host()),
            port: self.target().port(),
            rule: Some(self.permit.rule().to_owned()),
            reached: Reached::Closed { sent: self.meter.written(), received: self.meter.read() },
        });
    }
}

fn status_of(error: &NetError) -> StatusCode {
    match error {
        NetError::Refused { .. } => StatusCode::FORBIDDEN,
        NetError::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    }
}

pub(super) fn empty() -> Body {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed()
}
