//! In: a host and the rules of a permit. Out: a connection to an address that was judged.
//! A [`Vetted`] list is made only by judging, and only such a list is dialled: nothing is looked up in between.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::Uri;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::stream::Stream;
use super::tls::Tls;
use super::{NetError, NetOptions, Resolve};
use crate::policy::{ConnectPermit, EgressPermit, address};
use crate::text::Foreign;

/// How long an address may be silent before the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);
/// How many addresses of a host are tried.
const MAX_ADDRESSES: usize = 8;

/// Opens connections for one endpoint.
#[derive(Clone)]
pub(super) struct Connector {
    loopback: bool,
    private_networks: bool,
    timeout: Duration,
    keepalive: Duration,
    resolver: Arc<dyn Resolve>,
    tls: Tls,
}

/// What lies beyond public addresses and may be reached.
#[derive(Clone, Copy, Debug)]
struct Reach {
    loopback: bool,
    private_networks: bool,
}

/// Addresses that may be dialled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Vetted(Vec<SocketAddr>);

// === impl Connector ===

impl Connector {
    pub(super) fn new(permit: &ConnectPermit, options: &NetOptions, tls: Tls) -> Self {
        Self {
            loopback: permit.loopback(),
            private_networks: permit.private_networks(),
            timeout: options.connect_timeout,
            keepalive: options.keepalive,
            resolver: Arc::clone(&options.resolver),
            tls,
        }
    }

    pub(super) async fn connect(&self, uri: &Uri) -> Result<Stream, NetError> {
        // The brackets of an IPv6 address belong to the URI, not to the host.
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let secure = matches!(uri.scheme_str(), Some("https" | "wss"));
        // Only HTTP/1.1 can be turned into a WebSocket.
        let upgraded = matches!(uri.scheme_str(), Some("ws" | "wss"));
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let connecting = async {
            let tcp = dial((host, port), self.vet(host, port).await?, self.keepalive).await?;
            if !secure {
                return Ok(Stream::Clear(tcp));
            }
            let tls = self.tls.handshake(host, tcp, upgraded).await?;
            Ok(Stream::Tls(Box::new(tls)))
        };
        let late = |_| NetError::Timeout { host: place(host, port), after: self.timeout };
        timeout(self.timeout, connecting).await.map_err(late)?
    }

    pub(super) async fn vet(&self, host: &str, port: u16) -> Result<Vetted, NetError> {
        let reach = Reach { loopback: self.loopback, private_networks: self.private_networks };
        reach.vet(host, port, &*self.resolver).await
    }
}

/// Opens a connection for a confined server, to a host that its rules name. The networks around this machine are closed
/// to it whatever the name.
pub(crate) async fn reach(permit: &EgressPermit, options: &NetOptions) -> Result<TcpStream, NetError> {
    let (host, port) = (permit.target().host(), permit.target().port());
    let rules = Reach { loopback: permit.loopback(), private_networks: false };
    let connecting = async {
        let vetted = rules.vet(host, port, &*options.resolver).await?;
        dial((host, port), vetted, options.keepalive).await
    };
    let late = |_| NetError::Timeout { host: place(host, port), after: options.connect_timeout };
    timeout(options.connect_timeout, connecting).await.map_err(late)?
}

// === impl Reach ===

impl Reach {
    /// The addresses of a host that may be dialled. Literal addresses are judged like any other.
    async fn vet(self, host: &str, port: u16, resolver: &dyn Resolve) -> Result<Vetted, NetError> {
        let (addresses, loopback) = if let Ok(ip) = host.parse::<IpAddr>() {
            (vec![ip], self.loopback)
        } else if address::is_loopback_name(host) {
            // Nobody else is asked what this machine is called.
            (vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()], self.loopback)
        } else {
            let unresolved = |reason: String| NetError::Dns { host: Foreign::new(host), reason };
            let answers = resolver.resolve(host).await.map_err(|error| unresolved(error.to_string()))?;
            if answers.is_empty() {
                return Err(unresolved("it has no address".into()));
            }
            // A name that is not ours must not lead to this machine, whatever the permit says about literals.
            (answers, false)
        };
        let mut refused = None;
        let mut vetted = Vec::new();
        for ip in addresses {
            match address::judge(ip, loopback, self.private_networks) {
                Ok(()) => vetted.push(SocketAddr::new(ip, port)),
                Err(kind) => refused = refused.or(Some((ip, kind))),
            }
        }
        vetted.truncate(MAX_ADDRESSES);
        match refused {
            Some((ip, kind)) if vetted.is_empty() => {
                Err(NetError::Refused { host: Foreign::new(host), ip, kind })
            }
            _ => Ok(Vetted(vetted)),
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("loopback", &self.loopback)
            .field("private_networks", &self.private_networks)
            .finish_non_exhaustive()
    }
}

// === impl Vetted ===

impl Vetted {
    #[cfg(test)]
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.0
    }
}

/// The first connection that comes about. An address that fails or stays silent lets the next one start.
async fn dial((host, port): (&str, u16), vetted: Vetted, keepalive: Duration) -> Result<TcpStream, NetError> {
    let mut waiting = vetted.0.into_iter();
    let mut running = FuturesUnordered::new();
    let mut last = "it has no address".to_owned();
    loop {
        match waiting.next() {
            Some(address) => running.push(open(address, keepalive)),
            None if running.is_empty() => {
                return Err(NetError::Connect { host: place(host, port), reason: last });
            }
            None => {}
        }
        let patience = if waiting.len() > 0 { STAGGER } else { Duration::MAX };
        match timeout(patience, running.next()).await {
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => last = error.to_string(),
            Ok(None) | Err(_) => {}
        }
    }
}

/// A host with its port: several servers of one host are told apart by it.
fn place(host: &str, port: u16) -> Foreign {
    Foreign::from(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

async fn open(address: SocketAddr, keepalive: Duration) -> io::Result<TcpStream> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that opens outbound sockets; the address is vetted"
    )]
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    watch(&stream, keepalive);
    Ok(stream)
}

/// Lets the system notice that nobody is there any more: a network that drops everything tells nothing, and a stream of
/// news that waits would wait for ever. A system that has no such thing works as before.
fn watch(stream: &TcpStream, silence: Duration) {
    use rustix::net::sockopt;
    const ASKED: u32 = 3;
    let silence = silence.max(Duration::from_secs(1));
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, silence);
    let _ = sockopt::set_tcp_keepintvl(stream, (silence / ASKED).max(Duration::from_secs(1)));
    let _ = sockopt::set_tcp_keepcnt(stream, ASKED);
    // What was sent and never acknowledged is the same silence.
    #[cfg(target_os = "linux")]
    let _ = sockopt::set_tcp_user_timeout(stream, (2 * silence).as_millis().try_into().unwrap_or(u32::MAX));
}
