//! In: a `CONNECT` that is allowed. Out: bytes in both directions, after a look at the first of them.
//! To port 443 goes TLS for the very host, to port 80 goes HTTP, each request judged as any other. To a port that a rule
//! names, whatever it is; but TLS only for the very host.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::hello::{self, Hello};
use super::meter::Metered;
use super::plain;
use super::proxy::{Body, Open, Proxy, Refusal};
use crate::policy::{EgressPermit, Target};

/// A tunnel that was asked for and is not yet open.
pub(super) struct Tunnel {
    upgrade: OnUpgrade,
    way: Way,
}

enum Way {
    /// To a host that is connected.
    Host(Box<(Metered<TcpStream>, Open)>),
    /// To nowhere yet: what comes through is HTTP for this host.
    Http(Target),
}

// === impl Tunnel ===

impl Tunnel {
    /// Connects to the host, where a tunnel leads to it.
    pub(super) async fn prepare(
        proxy: &Arc<Proxy>,
        permit: EgressPermit,
        upgrade: OnUpgrade,
    ) -> Result<Self, Refusal> {
        let way = match permit.target().port() {
            80 => Way::Http(permit.target().clone()),
            _ => Way::Host(Box::new(proxy.open(permit).await?)),
        };
        Ok(Self { upgrade, way })
    }

    /// Runs until either side ends it.
    pub(super) async fn run(self, proxy: &Arc<Proxy>) {
        // The client may have gone before the answer; then there is nobody to tell.
        let Ok(client) = self.upgrade.await else { return };
        let client = TokioIo::new(client);
        match self.way {
            Way::Http(target) => {
                let answer = |request| async {
                    let answered = within(proxy, request, &target).await;
                    Ok::<_, Infallible>(answered.unwrap_or_else(Refusal::into_response))
                };
                proxy.requests(client, answer).await;
            }
            Way::Host(way) => {
                let (host, open) = *way;
                // However it ends, the event of the connection says how much went through.
                let _ = through(proxy, client, host, &open).await;
            }
        }
    }
}

/// A request inside of a tunnel to port 80: for the tunnel's host, and no tunnel of its own.
async fn within(
    proxy: &Arc<Proxy>,
    request: Request<Incoming>,
    target: &Target,
) -> Result<Response<Body>, Refusal> {
    if request.method() == Method::CONNECT || request.uri().authority().is_some() {
        let reason = "a tunnel leads to its own host only".to_owned();
        return Err(proxy.refuse(Some(target), StatusCode::FORBIDDEN, reason));
    }
    proxy.check_host(request.headers(), request.version(), target, target.port())?;
    plain::pass_on(proxy, request, target).await
}

async fn through(
    proxy: &Arc<Proxy>,
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut host: Metered<TcpStream>,
    open: &Open,
) -> io::Result<()> {
    let target = open.target();
    let limit = proxy.options.limits.opening;
    let mut first = Vec::with_capacity(2048);
    let opening = async {
        tokio::select! {
            opening = look(&mut client, &mut first, target) => opening,
            // Whoever speaks first is no TLS server. Where TLS must be, that changes nothing.
            _ = host.inner().readable(), if target.port() != 443 => Ok(Opening::Fine),
        }
    };
    match timeout(limit, opening).await {
        Ok(Ok(Opening::Fine)) => {
            host.write_all(&first).await?;
            copy_bidirectional(&mut client, &mut host).await?;
        }
        Ok(Ok(Opening::Refused(reason))) => {
            proxy.refuse(
                Some(target),
                StatusCode::FORBIDDEN,
                format!("the tunnel to {target} is cut: {reason}"),
            );
            client.write_all(&hello::UNRECOGNIZED_NAME).await?;
            client.shutdown().await?;
        }
        Ok(Err(error)) => return Err(error),
        Err(_) => {
            proxy.refuse(
                Some(target),
                StatusCode::FORBIDDEN,
                format!("nothing came through the tunnel to {target}"),
            );
        }
    }
    Ok(())
}

/// What the first bytes of a tunnel are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// They may pass.
    Fine,
    /// They may not.
    Refused(&'static str),
}

/// Reads until it is clear what comes through.
pub(super) async fn look(
    client: &mut (impl AsyncRead + Unpin),
    first: &mut Vec<u8>,
    target: &Target,
) -> io::Result<Opening> {
    loop {
        if client.read_buf(first).await? == 0 {
            // One that was opened in advance and not used is no trouble.
            return Ok(if first.is_empty() {
                Opening::Fine
            } else {
                Opening::Refused("it ended in its TLS hello")
            });
        }
        if target.port() != 443 && first.first() != Some(&hello::HANDSHAKE) {
            return Ok(Opening::Fine);
        }
        match hello::read(first) {
            Hello::More => {}
            Hello::Odd(reason) => return Ok(Opening::Refused(reason)),
            Hello::For(Some(name)) if name == target.host() => return Ok(Opening::Fine),
            // There is no way to name an address, and none other than the one that is reached could be meant.
            Hello::For(None) if target.is_address() => return Ok(Opening::Fine),
            Hello::For(Some(_)) => return Ok(Opening::Refused("its TLS hello is for another host")),
            Hello::For(None) => return Ok(Opening::Refused("its TLS hello names no host")),
        }
    }
}
