//! Proofs that policy said yes. Their fields are private to this room.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::config::Profile;
use crate::names::{CallerName, ServerName, ToolName};
use crate::secret::{Secret, SecretUrl};

/// A program may be started, exactly so.
#[derive(Debug)]
pub struct LaunchPermit {
    pub(super) server: ServerName,
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(String, Secret)>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) confinement: Confinement,
    pub(super) warnings: Vec<String>,
}

/// How a program is confined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// It runs in a sandbox that lets this in.
    Within(Box<Profile>),
    /// It runs as any other program of the user's: the user said so, or it is part of Wharf.
    Off,
}

/// An endpoint may be reached, within these address rules.
#[derive(Clone, Debug)]
pub struct ConnectPermit {
    pub(super) server: ServerName,
    pub(super) url: SecretUrl,
    pub(super) loopback: bool,
    pub(super) private_networks: bool,
    pub(super) warnings: Vec<String>,
}

/// A Unix socket may be connected to, exactly this one.
#[derive(Clone, Debug)]
pub struct SocketPermit {
    pub(super) server: ServerName,
    pub(super) path: PathBuf,
    pub(super) us: u32,
}

/// A tool may be called by a caller. It lives no longer than the names it was given for: every call is judged anew.
#[derive(Debug)]
pub struct CallPermit<'a> {
    pub(super) caller: &'a CallerName,
    pub(super) server: &'a ServerName,
    pub(super) tool: &'a ToolName,
}

impl LaunchPermit {
    /// The server it is for.
    pub fn server(&self) -> &ServerName {
        &self.server
    }
    /// The program, absolute.
    pub fn program(&self) -> &Path {
        &self.program
    }
    /// Its arguments.
    pub fn args(&self) -> &[OsString] {
        &self.args
    }
    /// The whole environment of the child.
    pub fn env(&self) -> &[(String, Secret)] {
        &self.env
    }
    /// The folder it starts in; `None` means an empty folder of ours.
    pub fn cwd(&self) -> Option<&Path> {
        self.cwd.as_deref()
    }
    /// How it is confined.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }
    /// What a person should know, though it is allowed.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
    /// Whether the same is started in the same way. Every part is named here, so that a new one cannot be forgotten.
    pub(super) fn allows_like(&self, other: &Self) -> bool {
        let Self { server, program, args, env, cwd, confinement, warnings: _ } = self;
        (server, program, args) == (&other.server, &other.program, &other.args)
            && (env, cwd, confinement) == (&other.env, &other.cwd, &other.confinement)
    }
}

impl ConnectPermit {
    /// The server it is for.
    pub fn server(&self) -> &ServerName {
        &self.server
    }
    /// The endpoint.
    pub fn url(&self) -> &SecretUrl {
        &self.url
    }
    /// Whether loopback addresses may be dialled: only where the trusted config's own URL names one.
    pub fn loopback(&self) -> bool {
        self.loopback
    }
    /// Whether addresses of private networks may be dialled.
    pub fn private_networks(&self) -> bool {
        self.private_networks
    }
    /// What a person should know, though it is allowed.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
    /// Whether the same is reached within the same rules.
    pub(super) fn allows_like(&self, other: &Self) -> bool {
        let Self { server, url, loopback, private_networks, warnings: _ } = self;
        (server, url) == (&other.server, &other.url)
            && (loopback, private_networks) == (&other.loopback, &other.private_networks)
    }
}

impl SocketPermit {
    /// The server it is for.
    pub fn server(&self) -> &ServerName {
        &self.server
    }
    /// The socket, with no link on the way to it.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Whether a user may be the one that listens there.
    pub fn may_listen(&self, user: u32) -> bool {
        user == self.us || user == 0
    }
}

impl<'a> CallPermit<'a> {
    /// Who may call.
    pub fn caller(&self) -> &'a CallerName {
        self.caller
    }
    /// The server.
    pub fn server(&self) -> &'a ServerName {
        self.server
    }
    /// The tool, by its original name.
    pub fn tool(&self) -> &'a ToolName {
        self.tool
    }
}
