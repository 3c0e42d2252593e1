//! The guarded dialer, against a listener on loopback that counts who came (l15 and the hostile cases SSRF).

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use url::Url;
use wharf::config::{Origin, Remote};
use wharf::names::ServerName;
use wharf::net::{Endpoint, HttpClient, NetError, NetOptions, Resolve, read_body};
use wharf::policy::Policy;
use wharf::secret::SecretUrl;

/// A listener that counts connections and keeps the requests, and answers by the request's path.
struct Server {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

type Answer = Arc<dyn Fn(&str) -> String + Send + Sync>;

impl Server {
    async fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::start_with(answer, None).await
    }

    async fn start_with(
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            accepted: Arc::default(),
            requests: Arc::default(),
        };
        let (accepted, requests, answer): (_, _, Answer) =
            (server.accepted.clone(), server.requests.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (requests, answer, tls) = (requests.clone(), answer.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &requests, &answer).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &requests, &answer).await;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.address.port())
    }
}

/// Speaks just enough HTTP/1.1; an empty answer closes the connection.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    requests: &Mutex<Vec<String>>,
    answer: &Answer,
) {
    let mut buffer = Vec::new();
    loop {
        let Some(head) = buffer.windows(4).position(|w| w == b"\r\n\r\n") else {
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => continue,
            }
        };
        let text = String::from_utf8_lossy(&buffer[..head]).to_lowercase();
        let length =
            text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        while buffer.len() < head + 4 + length {
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let request = String::from_utf8_lossy(&buffer[..head + 4 + length]).into_owned();
        buffer.drain(..head + 4 + length);
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        requests.lock().unwrap().push(request);
        let answer = answer(&path);
        if answer.is_empty() || stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn redirect(status: u16, to: &str) -> String {
    format!("HTTP/1.1 {status} Elsewhere\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
}

/// Says the same of every name, and counts how often it was asked.
struct Says(Vec<IpAddr>, AtomicUsize);

impl Resolve for Says {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(self.0.clone()) })
    }
}

fn endpoint_with(policy: &Policy, url: &str, options: NetOptions) -> Endpoint {
    let remote = Remote { url: SecretUrl::new(Url::parse(url).unwrap()), headers: Default::default() };
    let permit = policy.permit_connect(&ServerName::parse("srv").unwrap(), &remote, &Origin::Given).unwrap();
    HttpClient::new(options).unwrap().for_permit(&permit)
}

fn endpoint(url: &str) -> Endpoint {
    endpoint_with(&Policy::strict(), url, NetOptions::default())
}

async fn post(endpoint: &Endpoint, url: &str) -> Result<String, NetError> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header("x-api-key", "canary")
        .body(Full::new(Bytes::from_static(b"{\"canary\":1}")))
        .unwrap();
    let response = endpoint.send(request).await?;
    let body = read_body(response.into_body(), 1 << 20).await?;
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn l15_a_server_on_loopback_that_the_config_names_is_reached() {
    let server = Server::start(|_| ok("hello")).await;
    assert_eq!(post(&endpoint(&server.url()), &server.url()).await.unwrap(), "hello");
    let port = server.address.port();
    for host in ["localhost", "a.localhost", "127.1", "2130706433"] {
        let url = Url::parse(&format!("http://{host}:{port}/mcp")).unwrap();
        assert_eq!(post(&endpoint(url.as_str()), url.as_str()).await.unwrap(), "hello", "{host}");
    }
    assert_eq!(server.accepted(), 5);
}

#[tokio::test]
async fn l15_connections_are_kept_and_nothing_is_added_to_a_request() {
    let server = Server::start(|_| ok("hello")).await;
    let endpoint = endpoint(&server.url());
    for _ in 0..5 {
        post(&endpoint, &server.url()).await.unwrap();
    }
    assert_eq!(server.accepted(), 1);
    let request = server.requests()[0].to_lowercase();
    for header in ["accept-encoding", "cookie", "proxy", "user-agent", "authorization"] {
        assert!(!request.contains(header), "{request}");
    }
}

#[tokio::test]
async fn ssrf_04_a_name_that_resolves_to_loopback_is_not_contacted() {
    let server = Server::start(|_| ok("secret")).await;
    let port = server.address.port();
    for answers in
        [vec!["127.0.0.1"], vec!["::ffff:127.0.0.1"], vec!["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1"]]
    {
        let answers = answers.into_iter().map(|ip| ip.parse().unwrap()).collect();
        let resolver = Arc::new(Says(answers, AtomicUsize::new(0)));
        let url = format!("http://inward.test:{port}/mcp");
        let options = NetOptions { resolver: resolver.clone(), ..NetOptions::default() };
        let error = post(&endpoint_with(&Policy::strict(), &url, options), &url).await.unwrap_err();
        assert!(matches!(error, NetError::Refused { .. }) && error.is_before_send(), "{error}");
        assert_eq!(resolver.1.load(Ordering::SeqCst), 1);
    }
    assert_eq!(server.accepted(), 0);
    post(&endpoint(&server.url()), &server.url()).await.unwrap();
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn ssrf_05_private_networks_do_not_include_this_machine() {
    let server = Server::start(|_| ok("secret")).await;
    let url = format!("http://inward.test:{}/mcp", server.address.port());
    let says = Says(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], AtomicUsize::new(0));
    let options = NetOptions { resolver: Arc::new(says), ..NetOptions::default() };
    let endpoint = endpoint_with(&Policy::strict().with_private_networks(true), &url, options);
    let error = post(&endpoint, &url).await.unwrap_err();
    assert!(matches!(error, NetError::Refused { kind: "a loopback address", .. }), "{error}");
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn ssrf_07_a_redirect_never_leaves_the_origin() {
    let target = Server::start(|_| ok("secret")).await;
    let port = target.address.port();
    let targets = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("//127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("http://2130706433:{port}/"),
        "http://169.254.169.254/latest/meta-data?token=canary".into(),
        "file:///etc/passwd".into(),
        "gopher://x/".into(),
    ];
    for to in targets {
        for status in [301, 302, 303, 307, 308] {
            let to = to.clone();
            let server = Server::start(move |_| redirect(status, &to)).await;
            let error = post(&endpoint(&server.url()), &server.url()).await.unwrap_err();
            assert!(matches!(error, NetError::Redirect { .. }) && !error.is_before_send(), "{error}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
    assert_eq!(target.accepted(), 0);
}

#[tokio::test]
async fn ssrf_07_a_redirect_within_the_origin_keeps_method_and_body() {
    for status in [307, 308] {
        let server = Server::start(move |path| match path {
            "/mcp" => redirect(status, "/mcp/"),
            "/mcp/" => redirect(status, "third?x=1"),
            "/mcp/third?x=1" => ok("arrived"),
            other => ok(other),
        })
        .await;
        assert_eq!(post(&endpoint(&server.url()), &server.url()).await.unwrap(), "arrived");
        let requests = server.requests();
        assert_eq!(requests.len(), 3);
        assert!(requests.iter().all(|r| r.starts_with("POST ")
            && r.contains("x-api-key: canary")
            && r.ends_with("{\"canary\":1}")));
    }
    for status in [301, 302, 303] {
        let server =
            Server::start(move |path| if path == "/mcp" { redirect(status, "/x") } else { ok("x") }).await;
        post(&endpoint(&server.url()), &server.url()).await.unwrap_err();
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn ssrf_07_redirects_end_after_three() {
    let server = Server::start(|path| {
        let hops: usize = path.trim_start_matches("/mcp").len();
        if hops < 3 { redirect(307, &format!("{path}x")) } else { ok("arrived") }
    })
    .await;
    assert_eq!(post(&endpoint(&server.url()), &server.url()).await.unwrap(), "arrived");
    for to in ["/mcp", "/mcpx"] {
        let server = Server::start(move |_| redirect(307, to)).await;
        let error = post(&endpoint(&server.url()), &server.url()).await.unwrap_err();
        assert!(matches!(error, NetError::Redirect { .. }), "{error}");
        assert_eq!(server.requests().len(), 4);
    }
    for to in ["", "http://[", "http://ada@127.0.0.1/"] {
        let server = Server::start(move |_| redirect(307, to)).await;
        post(&endpoint(&server.url()), &server.url()).await.unwrap_err();
    }
}

#[tokio::test]
async fn ssrf_10_an_endpoint_sends_nothing_to_another_origin() {
    let (own, other) = (Server::start(|_| ok("own")).await, Server::start(|_| ok("other")).await);
    let endpoint = endpoint(&own.url());
    for url in [
        other.url(),
        own.url().replace("127.0.0.1", "localhost"),
        own.url().replace("http:", "https:"),
        "/mcp".into(),
    ] {
        let error = post(&endpoint, &url).await.unwrap_err();
        assert!(matches!(error, NetError::OtherOrigin { .. }) && error.is_before_send(), "{error}");
    }
    assert_eq!((own.accepted(), other.accepted()), (0, 0));
    assert_eq!(post(&endpoint, &own.url().replace("/mcp", "/messages?id=1")).await.unwrap(), "own");
}

#[tokio::test]
async fn l15_an_error_says_whether_the_request_can_have_left() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let error = post(&endpoint(&url), &url).await.unwrap_err();
    assert!(matches!(error, NetError::Connect { .. }) && error.is_before_send(), "{error}");
    let error = error.into_error(&ServerName::parse("srv").unwrap(), "http");
    assert!(error.is_retryable(), "{error}");

    let server = Server::start(|_| String::new()).await;
    let error = post(&endpoint(&server.url()), &server.url()).await.unwrap_err();
    assert!(matches!(error, NetError::Broken { .. }) && !error.is_before_send(), "{error}");
    assert_eq!(server.requests().len(), 1, "what may have run is not sent again");

    struct Nothing;
    impl Resolve for Nothing {
        fn resolve<'a>(
            &'a self,
            _: &'a str,
        ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
            Box::pin(async { Err(io::Error::other("no such name")) })
        }
    }
    let options = NetOptions { resolver: Arc::new(Nothing), ..NetOptions::default() };
    let endpoint = endpoint_with(&Policy::strict(), "https://gone.test/", options);
    let error = post(&endpoint, "https://gone.test/").await.unwrap_err();
    assert!(matches!(error, NetError::Dns { .. }) && error.is_before_send(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn l15_connecting_has_a_deadline() {
    struct Never;
    impl Resolve for Never {
        fn resolve<'a>(
            &'a self,
            _: &'a str,
        ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
            Box::pin(std::future::pending())
        }
    }
    let options = NetOptions {
        resolver: Arc::new(Never),
        connect_timeout: Duration::from_secs(7),
        ..NetOptions::default()
    };
    let endpoint = endpoint_with(&Policy::strict(), "https://slow.test/", options);
    let error = post(&endpoint, "https://slow.test/").await.unwrap_err();
    assert!(matches!(error, NetError::Timeout { after, .. } if after == Duration::from_secs(7)), "{error}");
    assert!(error.is_before_send());
}

/// A server on loopback with a certificate for `name`, and that certificate.
async fn tls_server(name: &str, expired: bool) -> (Server, Vec<u8>) {
    let (acceptor, pem) = tls_acceptor(name, expired, &[]);
    (Server::start_with(|_| ok("hello"), Some(acceptor)).await, pem)
}

pub(crate) fn tls_acceptor(name: &str, expired: bool, protocols: &[&[u8]]) -> (TlsAcceptor, Vec<u8>) {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    if expired {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), certificate.pem().into_bytes())
}

#[tokio::test]
async fn ssrf_15_a_server_that_cannot_prove_itself_gets_nothing() {
    for (name, expired, trusted, fine) in [
        ("localhost", false, true, true),
        ("localhost", false, false, false),
        ("other.test", false, true, false),
        ("localhost", true, true, false),
    ] {
        let (server, pem) = tls_server(name, expired).await;
        let url = format!("https://localhost:{}/mcp", server.address.port());
        let extra_roots = if trusted { vec![pem] } else { Vec::new() };
        let endpoint =
            endpoint_with(&Policy::strict(), &url, NetOptions { extra_roots, ..NetOptions::default() });
        let answer = post(&endpoint, &url).await;
        if fine {
            assert_eq!(answer.unwrap(), "hello");
        } else {
            let error = answer.unwrap_err();
            assert!(
                matches!(error, NetError::Tls { .. }) && error.is_before_send(),
                "{name} {expired} {trusted}: {error}"
            );
            assert_eq!(server.requests().len(), 0);
        }
    }
}

#[tokio::test]
async fn ssrf_15_plain_text_on_a_tls_port_is_refused() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("https://{}/mcp", listener.local_addr().unwrap());
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(ok("hello").as_bytes()).await.unwrap();
        let mut sent = Vec::new();
        let _ = stream.read_to_end(&mut sent).await;
        sent
    });
    let error = post(&endpoint(&url), &url).await.unwrap_err();
    assert!(matches!(error, NetError::Tls { .. }), "{error}");
    let sent = answering.await.unwrap();
    assert!(!sent.windows(6).any(|w| w == b"canary"), "the request stayed here");
}

#[tokio::test]
async fn l15_http_2_is_spoken_where_the_server_offers_it() {
    let (acceptor, pem) = tls_acceptor("localhost", false, &[b"h2"]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("https://localhost:{}/mcp", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
        let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
            let version = format!("{:?}", request.version());
            Ok::<_, io::Error>(http::Response::new(Full::new(Bytes::from(version))))
        });
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(stream, service)
            .await;
    });
    let options = NetOptions { extra_roots: vec![pem], ..NetOptions::default() };
    let endpoint = endpoint_with(&Policy::strict(), &url, options);
    for _ in 0..3 {
        assert_eq!(post(&endpoint, &url).await.unwrap(), "HTTP/2.0");
    }
}

#[test]
fn ssrf_15_an_unreadable_certificate_is_an_error() {
    for pem in
        [&b""[..], b"not a certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        let options = NetOptions { extra_roots: vec![pem.to_vec()], ..NetOptions::default() };
        HttpClient::new(options).unwrap_err();
    }
    HttpClient::new(NetOptions::default()).unwrap();
}

#[tokio::test]
async fn exh_01_a_body_is_read_up_to_its_limit() {
    for (length, fits) in [(0, true), (99, true), (100, true), (101, false), (100_000, false)] {
        let whole = Full::new(Bytes::from(vec![b'x'; length]));
        let pieces = vec![b'x'; length]
            .chunks(7)
            .map(|c| Ok::<_, io::Error>(http_body::Frame::data(Bytes::copy_from_slice(c))))
            .collect::<Vec<_>>();
        let pieces = StreamBody::new(futures_util::stream::iter(pieces));
        for answer in [read_body(whole.map_err(io::Error::other), 100).await, read_body(pieces, 100).await] {
            match answer {
                Ok(bytes) => assert!(fits && bytes.len() == length),
                Err(error) => assert!(!fits && matches!(error, NetError::TooLarge { max: 100 }), "{error}"),
            }
        }
    }
}

#[tokio::test]
async fn exh_01_an_endless_body_is_cut_at_the_limit() {
    let server = Server::start(|_| format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(300_000))).await;
    let request = Request::get(server.url()).body(Full::default()).unwrap();
    let response = endpoint(&server.url()).send(request).await.unwrap();
    let error = read_body(response.into_body(), 1000).await.unwrap_err();
    assert!(matches!(error, NetError::TooLarge { max: 1000 }), "{error}");
}

#[tokio::test]
async fn exh_02_a_compressed_answer_is_not_inflated() {
    let server = Server::start(|_| {
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nbomb".into()
    })
    .await;
    assert_eq!(post(&endpoint(&server.url()), &server.url()).await.unwrap(), "bomb");
}
