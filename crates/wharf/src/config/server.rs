//! One server as it was meant.

use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use sha2::{Digest, Sha256};
use url::Url;

use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::secret::{Redactor, Secret, SecretUrl};

use super::resilience::Resilience;
use super::sandbox::SandboxSetting;

/// A server to dock: how to start or reach it, and what may be seen of it.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its name: the identity that rules speak of.
    pub name: ServerName,
    /// How it is started or reached.
    pub transport: Transport,
    /// Whether it is used at all. Defaults to true.
    pub enabled: bool,
    /// Whether its traffic and standard error go out as events. Defaults to false.
    pub debug: bool,
    /// How long a call may take without a sign of life. Defaults to 30 seconds.
    pub timeout: Duration,
    /// How long it may take to start and shake hands. Defaults to 60 seconds: `npx` and `uvx` may have to download first.
    pub start_timeout: Duration,
    /// What stands before its tools' names. `None` means the server's name; empty means nothing.
    pub tool_prefix: Option<String>,
    /// The only tools that are shown, by original name. `None` means all; an empty list means none.
    pub enabled_tools: Option<Vec<String>>,
    /// Tools that are not shown, taken away after the allowlist.
    pub disabled_tools: Vec<String>,
    /// When it is connected. Defaults to lazy.
    pub connect: Connect,
    /// Who may use one connection together. `None` leaves it to the transport and the era.
    pub share: Option<Share>,
    /// How it is confined, if it is a program. `None` is the default profile.
    pub sandbox: Option<SandboxSetting>,
    /// What is done when it fails.
    pub resilience: Resilience,
    /// Who we are where somebody logs in at it.
    pub oauth: OAuth,
    /// Where it was written.
    pub origin: Origin,
}

/// How a server is started or reached.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Transport {
    /// A program of ours, spoken with over its standard input and output.
    Stdio(Stdio),
    /// A Streamable HTTP endpoint.
    Http(Remote),
    /// An endpoint of the old HTTP+SSE transport.
    Sse(Remote),
    /// A WebSocket endpoint: one message a text frame.
    WebSocket(Remote),
    /// A Unix socket of this machine: one message a line.
    Unix(UnixSocket),
}

/// A program to start.
#[derive(Clone, Debug, Default)]
pub struct Stdio {
    /// Its name or path, as written.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables it is given.
    pub env: IndexMap<String, Secret>,
    /// Variables it is given from our own environment, by name.
    pub env_passthrough: Vec<String>,
    /// The folder it starts in. `None` means an empty folder of ours.
    pub cwd: Option<PathBuf>,
    /// The folder of the file that defines it: relative paths in `args` and `cwd` start here.
    pub base: Option<PathBuf>,
}

/// An endpoint to reach.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Where it is.
    pub url: SecretUrl,
    /// Headers that go with every request.
    pub headers: IndexMap<String, Secret>,
}

/// How Wharf logs in at a server. Everything has a default: most servers need nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OAuth {
    /// The client that was registered by hand at the authorization server.
    pub client_id: Option<String>,
    /// Its secret, if it has one.
    pub client_secret: Option<Secret>,
    /// The address of the document that describes us, for authorization servers that take one.
    pub client_metadata_url: Option<Url>,
    /// The only authorization server that is logged in at.
    pub issuer: Option<String>,
    /// What a token is asked to be good for, where the server does not say.
    pub scopes: Vec<String>,
    /// The port that the browser comes back to. Defaults to any that is free.
    pub callback_port: Option<u16>,
}

/// A socket in the file system to reach.
#[derive(Clone, Debug)]
pub struct UnixSocket {
    /// Where it is, absolute.
    pub path: PathBuf,
}

/// When a server is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connect {
    /// At the first use.
    #[default]
    Lazy,
    /// When the host starts.
    Eager,
    /// Only by hand; using it before is an error.
    Manual,
}

/// Who may use one connection together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Everyone.
    All,
    /// Each caller has its own.
    PerCaller,
    /// Each use has its own.
    Never,
}

/// Where a server was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a file, at a line (counted from 1).
    File {
        /// The file.
        path: PathBuf,
        /// The line of the server's name.
        line: usize,
    },
    /// On the command line, or in the program that uses the library.
    Given,
    /// Part of Wharf: the `demo` server. Exempt from the command allowlist.
    BuiltIn,
}

impl ServerConfig {
    /// A server with every default, as a program that uses the library writes it.
    pub fn new(name: ServerName, transport: Transport) -> Self {
        Self {
            name,
            transport,
            enabled: true,
            debug: false,
            timeout: Duration::from_secs(30),
            start_timeout: Duration::from_secs(60),
            tool_prefix: None,
            enabled_tools: None,
            disabled_tools: Vec::new(),
            connect: Connect::Lazy,
            share: None,
            resilience: Resilience::default(),
            oauth: OAuth::default(),
            sandbox: None,
            origin: Origin::Given,
        }
    }

    /// A program to start.
    pub fn stdio(
        name: ServerName,
        command: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self::new(name, Transport::Stdio(Stdio { command: command.into(), args, ..Stdio::default() }))
    }

    /// A server that is reached by Streamable HTTP.
    ///
    /// # Errors
    /// If `url` is no address. It is not repeated in the error: it may hold a secret.
    pub fn http(name: ServerName, url: &str) -> Result<Self> {
        let remote = Remote::at(&name, url)?;
        Ok(Self::new(name, Transport::Http(remote)))
    }

    /// A server that is reached by WebSocket, at an address with `ws:` or `wss:`.
    ///
    /// # Errors
    /// If `url` is no address. It is not repeated in the error: it may hold a secret.
    pub fn websocket(name: ServerName, url: &str) -> Result<Self> {
        let remote = Remote::at(&name, url)?;
        Ok(Self::new(name, Transport::WebSocket(remote)))
    }

    /// A server that listens at a Unix socket of this machine.
    pub fn unix(name: ServerName, path: impl Into<PathBuf>) -> Self {
        Self::new(name, Transport::Unix(UnixSocket { path: path.into() }))
    }

    /// `stdio`, `http`, `sse`, `ws` or `unix`.
    pub fn transport_name(&self) -> &'static str {
        match self.transport {
            Transport::Stdio(_) => "stdio",
            Transport::Http(_) => "http",
            Transport::Sse(_) => "sse",
            Transport::WebSocket(_) => "ws",
            Transport::Unix(_) => "unix",
        }
    }

    /// Which of several instances it is, counted from 1; `None` where there is but one.
    pub fn instance(&self) -> Option<usize> {
        let is_first = match &self.transport {
            Transport::Stdio(_) => self.resilience.instances > 1,
            Transport::Http(_) | Transport::Sse(_) | Transport::WebSocket(_) => {
                !self.resilience.replicas.is_empty()
            }
            Transport::Unix(_) => false,
        };
        self.resilience.instance.or(is_first.then_some(1))
    }

    /// The configurations of the instances that there are beside the first.
    pub fn others(&self) -> Vec<Self> {
        let mut alone = self.clone();
        (alone.resilience.instances, alone.resilience.replicas) = (1, Vec::new());
        let mut others = match &self.transport {
            Transport::Stdio(_) => vec![alone; self.resilience.instances.saturating_sub(1)],
            Transport::Http(_) | Transport::Sse(_) | Transport::WebSocket(_) => {
                let at = |url: &SecretUrl| {
                    let mut other = alone.clone();
                    if let Transport::Http(remote) | Transport::Sse(remote) | Transport::WebSocket(remote) =
                        &mut other.transport
                    {
                        remote.url = url.clone();
                    }
                    other
                };
                self.resilience.replicas.iter().map(at).collect()
            }
            Transport::Unix(_) => Vec::new(),
        };
        for (n, other) in others.iter_mut().enumerate() {
            other.resilience.instance = Some(n + 2);
        }
        others
    }

    /// Erases this server's secrets from text.
    pub fn redactor(&self) -> Redactor {
        match &self.transport {
            Transport::Stdio(stdio) => Redactor::new(stdio.env.values().cloned()),
            Transport::Http(remote) | Transport::Sse(remote) | Transport::WebSocket(remote) => {
                let headers = remote.headers.values().cloned();
                let replicas = self.resilience.replicas.iter().flat_map(SecretUrl::secrets);
                let addresses = remote.url.secrets().chain(replicas);
                Redactor::new(headers.chain(addresses).chain(self.oauth.client_secret.clone()))
            }
            Transport::Unix(_) => Redactor::new([]),
        }
    }

    /// What makes a connection the same connection: everything that the server could notice. Never shown.
    pub fn identity(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        part(self.name.as_str());
        part(self.transport_name());
        match &self.transport {
            Transport::Stdio(stdio) => {
                part(&stdio.command);
                stdio.args.iter().for_each(|a| part(a));
                part("env");
                stdio.env.iter().for_each(|(k, v)| [k.as_str(), v.expose()].into_iter().for_each(&mut part));
                part("passthrough");
                stdio.env_passthrough.iter().for_each(|n| part(n));
                part(&format!("{:?} {:?} {:?}", stdio.cwd, stdio.base, self.sandbox));
            }
            Transport::Unix(socket) => part(&format!("{:?}", socket.path)),
            Transport::Http(remote) | Transport::Sse(remote) | Transport::WebSocket(remote) => {
                part(remote.url.expose().as_str());
                remote
                    .headers
                    .iter()
                    .for_each(|(k, v)| [k.as_str(), v.expose()].into_iter().for_each(&mut part));
                self.resilience.replicas.iter().for_each(|url| part(url.expose().as_str()));
                part("oauth");
                part(self.oauth.client_id.as_deref().unwrap_or_default());
                part(self.oauth.client_metadata_url.as_ref().map_or("", Url::as_str));
            }
        }
        hash.finalize().into()
    }
}

impl Remote {
    fn at(name: &ServerName, url: &str) -> Result<Self> {
        let url = url
            .parse()
            .map_err(|why| Error::config(format!("the address of server `{name}` cannot be read: {why}")))?;
        Ok(Self { url: SecretUrl::new(url), headers: IndexMap::default() })
    }
}
