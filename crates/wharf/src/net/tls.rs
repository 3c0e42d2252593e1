//! In: the machine's certificates and those the user adds. Out: a TLS handshake that trusts these and nothing else.
//! There is no way to switch verification off.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::NetError;
use super::error::chain;
use crate::error::{Error, Result};
use crate::text::Foreign;

const HTTP1: &[u8] = b"http/1.1";

/// Cheap to clone; the clones share what was read once.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    extra: Arc<RootCertStore>,
    config: Arc<OnceCell<Arc<ClientConfig>>>,
}

// === impl Tls ===

impl Tls {
    pub(super) fn new(extra_roots: &[Vec<u8>]) -> Result<Self> {
        let mut extra = RootCertStore::empty();
        for pem in extra_roots {
            let unreadable = |reason: &str| Error::Config {
                message: format!("an extra certificate cannot be read: {reason}"),
                hint: Some("give a file that begins with `-----BEGIN CERTIFICATE-----`".into()),
            };
            let before = extra.len();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| unreadable(&error.to_string()))?;
                extra.add(certificate).map_err(|error| unreadable(&error.to_string()))?;
            }
            if extra.len() == before {
                return Err(unreadable("there is none in it"));
            }
        }
        Ok(Self { extra: Arc::new(extra), config: Arc::default() })
    }

    pub(super) async fn handshake(
        &self,
        host: &str,
        tcp: TcpStream,
        only_http1: bool,
    ) -> Result<TlsStream<TcpStream>, NetError> {
        let failed = |reason: String| NetError::Tls { host: Foreign::new(host), reason };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
        let config = self.config.get_or_try_init(|| self.build()).await.map_err(failed)?;
        let mut config = Arc::clone(config);
        if only_http1 {
            Arc::make_mut(&mut config).alpn_protocols = vec![HTTP1.to_vec()];
        }
        let connector = TlsConnector::from(config);
        connector.connect(name, tcp).await.map_err(|error| failed(chain(&error)))
    }

    /// Reading the machine's certificates blocks, and is not needed before the first `https:`.
    async fn build(&self) -> Result<Arc<ClientConfig>, String> {
        let native = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs);
        let native = native.await.map_err(|error| error.to_string())?;
        let mut roots = RootCertStore::clone(&self.extra);
        roots.add_parsable_certificates(native.certs);
        if roots.is_empty() {
            return Err("no trusted certificates were found on this machine".into());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), HTTP1.to_vec()];
        Ok(Arc::new(config))
    }
}
