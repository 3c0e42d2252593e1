//! TLS through a tunnel: whole, and only for the host of the tunnel.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use wharf::event::Reached;

use super::{Wall, status};
use crate::support::soon;

/// A host with a certificate for every name in use here; says `tide` to whoever shook hands.
struct SafePage {
    port: u16,
    certificate: CertificateDer<'static>,
}

impl SafePage {
    async fn open() -> Self {
        let names = ["localhost", "evil.example"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names.to_vec()).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if let Ok(mut stream) = acceptor.accept(stream).await {
                        let _ = stream.write_all(b"tide").await;
                        let _ = stream.shutdown().await;
                    }
                });
            }
        });
        Self { port, certificate }
    }

    fn client(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }
}

async fn shake(stream: UnixStream, config: ClientConfig, name: &str) -> Result<String, String> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    soon("a handshake", async {
        let mut stream = connector.connect(name, stream).await.map_err(|e| e.to_string())?;
        let mut said = String::new();
        stream.read_to_string(&mut said).await.map_err(|e| e.to_string())?;
        Ok(said)
    })
    .await
}

async fn tunnel(wall: &Wall, authority: &str) -> UnixStream {
    let (stream, said) = wall.tunnel(authority).await;
    assert_eq!(status(&said), 200, "{said}");
    stream
}

#[tokio::test]
async fn l17_tls_goes_through_untouched() {
    let page = SafePage::open().await;
    let authority = format!("localhost:{}", page.port);
    let mut wall = Wall::around(&[&authority]);
    let stream = tunnel(&wall, &authority).await;
    assert_eq!(shake(stream, page.client(), "localhost").await.unwrap(), "tide");
    assert_eq!(wall.next().await, Reached::Opened);
    let Reached::Closed { sent, received } = wall.next().await else { panic!("it did not end") };
    assert!(sent > 200 && received > 400, "{sent} {received}");
}

#[tokio::test]
async fn sbx_05_a_tunnel_is_not_for_another_host_than_it_was_asked_for() {
    let page = SafePage::open().await;
    let authority = format!("localhost:{}", page.port);
    let mut wall = Wall::around(&[&authority, "evil.example"]);
    let error = shake(tunnel(&wall, &authority).await, page.client(), "evil.example").await.unwrap_err();
    assert!(error.to_lowercase().contains("unrecogni"), "the client is told by TLS itself: {error}");
    assert_eq!(wall.next().await, Reached::Opened);
    let Reached::Refused(reason) = wall.next().await else { panic!("it was not refused") };
    assert!(reason.contains("for another host"), "{reason}");
    assert_eq!(wall.next().await, Reached::Closed { sent: 0, received: 0 }, "not a byte got through");

    let mut nameless = page.client();
    nameless.enable_sni = false;
    let error = shake(tunnel(&wall, &authority).await, nameless.clone(), "localhost").await.unwrap_err();
    assert!(error.to_lowercase().contains("unrecogni"), "{error}");
    // There is no other way to speak TLS with an address.
    let literal = format!("127.0.0.1:{}", page.port);
    let wall = Wall::around(&[&literal]);
    assert_eq!(shake(tunnel(&wall, &literal).await, nameless, "localhost").await.unwrap(), "tide");
    let error = shake(tunnel(&wall, &literal).await, page.client(), "localhost").await.unwrap_err();
    assert!(error.to_lowercase().contains("unrecogni"), "{error}");
}

#[tokio::test]
async fn sbx_05_a_hello_in_pieces_is_read_as_a_whole() {
    let page = SafePage::open().await;
    let authority = format!("localhost:{}", page.port);
    let wall = Wall::around(&[&authority]);
    for (name, passes) in [("localhost", true), ("evil.example", false)] {
        // What the client writes goes on to the proxy byte by byte.
        let mut outer = tunnel(&wall, &authority).await;
        let (inner, mut client_end) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let mut byte = [0; 1];
            let mut back = vec![0; 4096];
            loop {
                tokio::select! {
                    read = client_end.read(&mut byte) => {
                        if read.unwrap_or(0) == 0 || outer.write_all(&byte).await.is_err() { break }
                    }
                    read = outer.read(&mut back) => {
                        let Ok(count @ 1..) = read else { break };
                        if client_end.write_all(&back[..count]).await.is_err() { break }
                    }
                }
            }
        });
        let shaken = shake(inner, page.client(), name).await;
        assert_eq!(shaken.is_ok(), passes, "{name}: {shaken:?}");
    }
}
