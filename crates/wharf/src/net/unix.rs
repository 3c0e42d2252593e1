//! In: a permit for a Unix socket. Out: a connection to it, if those listen there who may.

use std::path::Path;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{HttpClient, NetError};
use crate::policy::SocketPermit;
use crate::text::Foreign;

impl HttpClient {
    /// Connects to a socket. Whoever began to listen there is asked of the system, and must be one that the permit is
    /// for: what stood at the path when it was judged may be gone.
    pub(crate) async fn unix(&self, permit: &SocketPermit) -> Result<UnixStream, NetError> {
        let shown = || Foreign::new(permit.path().display().to_string());
        let failed = |error: std::io::Error| NetError::Connect { host: shown(), reason: error.to_string() };
        let after = self.options.connect_timeout;
        let late = |_| NetError::Timeout { host: shown(), after };
        let stream = timeout(after, open(permit.path())).await.map_err(late)?.map_err(failed)?;
        let user = stream.peer_cred().map_err(failed)?.uid();
        if !permit.may_listen(user) {
            return Err(NetError::Stranger { path: shown(), user });
        }
        Ok(stream)
    }
}

/// Whether somebody listens at a socket of our own. Nothing is said to them.
pub(crate) async fn is_listening(path: &Path) -> bool {
    match open(path).await {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::ConnectionRefused,
    }
}

async fn open(path: &Path) -> std::io::Result<UnixStream> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that opens sockets of the file system; the path is judged, or our own"
    )]
    UnixStream::connect(path).await
}
