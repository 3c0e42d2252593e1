//! Reaching a server at a Unix socket: looks at the file and its folders, asks policy, connects. What is said there is
//! lines, as over the pipes of a program: `pipe` carries them.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use super::berth::Dock;
use super::connection::Wire;
use super::link::Link;
use super::pipe::PipeLink;
use crate::config::{ServerConfig, UnixSocket};
use crate::error::{Error, Result, StderrTail};
use crate::names::ServerName;
use crate::policy::{FoundFile, Policy, SocketPermit, SocketRequest};
use crate::text::Escaped;

impl Dock {
    /// Connects to a socket.
    pub(super) async fn reach_socket(&self, config: &ServerConfig, socket: &UnixSocket) -> Result<Wire> {
        let permit =
            permit(&self.policy.now(), &config.name, socket)?.map_err(|reason| Error::Connection {
                server: config.name.clone(),
                transport: "unix",
                reason,
                stderr: StderrTail::default(),
                retryable: true,
            })?;
        let stream = self.net.unix(&permit).await.map_err(|e| e.into_error(&config.name, "unix"))?;
        let inbox = self.inbox(config);
        let link = Link::Pipe(PipeLink::over_socket(stream, Arc::clone(&inbox)));
        Ok(Wire { server: config.name.clone(), transport: "unix", link, inbox })
    }
}

/// Asks policy about a socket. The inner error says why there is none to ask about.
pub(super) fn permit(
    policy: &Policy,
    server: &ServerName,
    socket: &UnixSocket,
) -> Result<Result<SocketPermit, String>> {
    let (file, folders) = match look(socket) {
        Ok(found) => found,
        Err(e) => {
            let shown = socket.path.display().to_string();
            return Ok(Err(format!("there is no socket at {}: {e}", Escaped(&shown))));
        }
    };
    let us = rustix::process::geteuid().as_raw();
    policy
        .permit_socket(&SocketRequest { server, path: &socket.path, file: &file, folders: &folders, us })
        .map(Ok)
}

/// What is at the path, and the folders on the way to it. Links among the folders are resolved, the last one is not.
fn look(socket: &UnixSocket) -> io::Result<(FoundFile, Vec<FoundFile>)> {
    let nameless = || io::Error::from(io::ErrorKind::InvalidInput);
    let name = socket.path.file_name().ok_or_else(nameless)?;
    let folder = socket.path.parent().ok_or_else(nameless)?.canonicalize()?;
    let path = folder.join(name);
    let file = found(path.clone(), &path.symlink_metadata()?);
    let folders = folder.ancestors().map(|folder| Ok(found(folder.to_path_buf(), &folder.metadata()?)));
    Ok((file, folders.collect::<io::Result<_>>()?))
}

fn found(path: PathBuf, meta: &Metadata) -> FoundFile {
    let kind = match meta.file_type() {
        kind if kind.is_socket() => "socket",
        kind if kind.is_symlink() => "symbolic link",
        kind if kind.is_dir() => "folder",
        _ => "file",
    };
    FoundFile { path, kind, owner: meta.uid(), mode: meta.mode() }
}
