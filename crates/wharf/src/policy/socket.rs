//! In: a Unix socket as the config has it, and what was found at its path. Out: a permit to connect to it, or who else
//! could stand behind it. Looking at the file system is for `connect`, which then passes in what it saw.

use std::path::{Path, PathBuf};

use super::{Policy, SocketPermit};
use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::text::Escaped;

/// A socket that somebody wants to connect to.
#[derive(Clone, Copy, Debug)]
pub struct SocketRequest<'a> {
    /// The server it is.
    pub server: &'a ServerName,
    /// The path as its config has it.
    pub path: &'a Path,
    /// What is at that path, links not followed.
    pub file: &'a FoundFile,
    /// The folder it is in and all folders above, links resolved, the nearest first.
    pub folders: &'a [FoundFile],
    /// Who we are.
    pub us: u32,
}

/// What was found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Where, without a link on the way.
    pub path: PathBuf,
    /// What it is: `socket`, `symbolic link`, `folder` or `file`.
    pub kind: &'static str,
    /// Whose it is.
    pub owner: u32,
    /// Its permission bits.
    pub mode: u32,
}

const WRITABLE_BY_OTHERS: u32 = 0o002;
const STICKY: u32 = 0o1000;

impl Policy {
    /// May this socket be connected to?
    ///
    /// Only one that nobody but root and ourselves can have put there: whoever else could replace it would be told what
    /// the server is told.
    pub fn permit_socket(&self, request: &SocketRequest<'_>) -> Result<SocketPermit> {
        let refuse = |why: String, hint: &str| {
            let shown = request.path.display().to_string();
            Err(Error::Denied {
                what: format!("server `{}`: the socket {}", request.server, Escaped(&shown)),
                rule: format!("the rule that nobody else can stand behind it: {why}"),
                hint: hint.into(),
            })
        };
        if !request.path.is_absolute() {
            return refuse("its path is not absolute".into(), "write it from `/` on");
        }
        let FoundFile { kind, owner, .. } = request.file;
        if *kind != "socket" {
            return refuse(format!("it is a {kind}"), "give the path of the socket itself");
        }
        let trusted = |owner: u32| owner == request.us || owner == 0;
        if !trusted(*owner) {
            return refuse(
                format!("it belongs to user {owner}"),
                "connect to sockets that belong to you or to root",
            );
        }
        for (at, folder) in request.folders.iter().enumerate() {
            let shown = folder.path.display().to_string();
            let shown = Escaped(&shown);
            let hint = "put the socket into a folder that only you can write to";
            if !trusted(folder.owner) {
                return refuse(format!("the folder {shown} belongs to user {}", folder.owner), hint);
            }
            // Above, a folder like `/tmp` is harmless: in it everybody can rename only what is theirs.
            let guarded = at > 0 && folder.mode & STICKY != 0;
            if folder.mode & WRITABLE_BY_OTHERS != 0 && !guarded {
                return refuse(format!("everybody can write to the folder {shown}"), hint);
            }
        }
        let path = request.file.path.clone();
        Ok(SocketPermit { server: request.server.clone(), path, us: request.us })
    }
}
