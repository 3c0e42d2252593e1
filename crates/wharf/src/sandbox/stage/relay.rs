//! The way out: a port on the loopback of the sandbox, from which everything goes to the egress proxy's socket.
//!
//! In: connections of the server, as bytes. Out: the same bytes on a connection to the proxy, which decides. Nothing is
//! looked at here: whoever controls this process has gained nothing that the server did not have.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, ExitCode};
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use super::{RUN, next, receive, wait_for};
use crate::sandbox::plan::{PROXY_PORT, Relay, STAGE_AT};

/// How many connections there may be at a time; more wait.
const CONNECTIONS: usize = 128;

pub(super) fn relay() -> Result<ExitCode, String> {
    let Relay { socket } = receive()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT));
    let listener = listener.map_err(|e| format!("the way out cannot be opened: {e}"))?;
    listener.set_nonblocking(true).map_err(|e| e.to_string())?;
    // The server runs as the same user, and must not be able to look into us.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|e| format!("it cannot be closed to others: {e}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("the way out cannot be opened: {e}"))?;
    let server = {
        let _inside = runtime.enter();
        // The server decides how it answers this one; the way out stays open until it is gone.
        let terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        let server = next(STAGE_AT, RUN)?;
        drop(terminate);
        server
    };
    Ok(runtime.block_on(async {
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(_) => return wait_for(server),
        };
        tokio::select! {
            () = accept(listener, socket) => ExitCode::FAILURE,
            code = ended(server) => code,
        }
    }))
}

async fn ended(server: Child) -> ExitCode {
    tokio::task::spawn_blocking(|| wait_for(server)).await.unwrap_or(ExitCode::FAILURE)
}

async fn accept(listener: tokio::net::TcpListener, socket: std::path::PathBuf) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((server, _)) => {
                let socket = socket.clone();
                tokio::spawn(async move {
                    pass(server, &socket).await;
                    drop(place);
                });
            }
            // No more open files, for now.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "inside the sandbox, where the proxy's socket is the only one there is"
)]
async fn pass(mut server: TcpStream, socket: &std::path::Path) {
    if let Ok(mut proxy) = UnixStream::connect(socket).await {
        // Either side may leave when it likes.
        let _ = copy_bidirectional(&mut server, &mut proxy).await;
    }
}
