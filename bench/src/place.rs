//! Programs that are measured: echo servers, `wharf serve` in a home of its own, and any other gateway.
//!
//! In: which servers are behind it, and how. Out: something that listens, or a pipe. What Wharf saw of servers is
//! remembered in its home, as it is at a user's.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::callers::{Peer as _, Pipe, Web, tool};
use crate::echo::Malice;
use crate::process::{Kept, descendants, is_elsewhere};
use crate::speech::{Address, Ask, Era};

/// How one speaks with a server or a gateway.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Stdio,
}

/// An echo server.
#[derive(Clone, Copy, Default)]
pub(crate) struct Server {
    pub(crate) tools: usize,
    pub(crate) busy: Duration,
    pub(crate) malice: Option<Malice>,
    /// Where it stays, if not anywhere.
    pub(crate) core: Option<usize>,
    /// Where it listens already; without it, the gateway starts it.
    pub(crate) port: Option<u16>,
}

/// A program that listens, ended with this.
pub(crate) struct Listening {
    pub(crate) child: Option<Kept>,
    pub(crate) address: Address,
    /// What a gateway was told, for as long as it runs.
    folder: Option<tempfile::TempDir>,
}

/// The Wharf that is measured.
#[derive(Clone)]
pub(crate) struct Wharf {
    pub(crate) program: PathBuf,
    /// Whether servers are confined, as they are by default.
    pub(crate) sandbox: bool,
}

/// A home with a configuration.
pub(crate) struct Place {
    home: tempfile::TempDir,
    wharf: Wharf,
}

/// Another gateway.
#[derive(Clone)]
pub(crate) enum Other {
    /// A command line with `{port}` in it, or one that speaks over its standard input and output.
    Command(String),
    /// One that runs already.
    Url(String),
}

/// Where another gateway's words go.
const LOG: &str = "log";
/// How long another gateway may take to start.
const START: Duration = Duration::from_secs(60);

// === impl Transport ===

impl Transport {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Stdio => "stdio",
        }
    }
}

// === impl Server ===

impl Server {
    pub(crate) fn new(tools: usize, busy: Duration) -> Self {
        Self { tools, busy, ..Self::default() }
    }

    /// What it is started with, over this transport.
    fn args(&self, transport: Transport) -> Vec<String> {
        let kind = if transport == Transport::Http { "http" } else { "stdio" };
        let mut args = vec!["echo".to_owned(), kind.to_owned(), "--tools".to_owned(), self.tools.to_string()];
        if !self.busy.is_zero() {
            args.extend(["--busy".to_owned(), self.busy.as_micros().to_string()]);
        }
        args.extend(self.core.into_iter().flat_map(|core| ["--core".to_owned(), core.to_string()]));
        let malice = Malice::ALL.iter().find(|(_, malice)| Some(*malice) == self.malice);
        args.extend(malice.into_iter().flat_map(|(name, _)| ["--hostile".to_owned(), (*name).to_owned()]));
        args
    }

    /// Starts it to listen.
    pub(crate) fn listen(&self) -> Listening {
        let mut command = Command::new(me());
        command.args(self.args(Transport::Http)).stdin(Stdio::piped()).stdout(Stdio::piped());
        Listening::new(command.spawn().unwrap(), |line| line.trim().parse().ok())
    }

    /// Starts it to be spoken with over a pipe.
    pub(crate) fn pipe(&self, era: Era) -> Pipe {
        let mut command = Command::new(me());
        command.args(self.args(Transport::Stdio)).stdin(Stdio::piped()).stdout(Stdio::piped());
        Pipe::with(command.spawn().unwrap(), era).unwrap()
    }

    /// The command line that a gateway starts it with.
    pub(crate) fn command_line(&self) -> String {
        format!("{} {}", me().display(), self.args(Transport::Stdio).join(" "))
    }
}

// === impl Listening ===

impl Listening {
    /// Waits for the line that tells the port.
    fn new(mut child: Child, port: impl FnOnce(&str) -> Option<u16>) -> Self {
        let output = child.stdout.take().unwrap();
        let child = Some(Kept::new(child));
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        let port = port(&line).unwrap_or_else(|| panic!("no port in `{line}`"));
        Self { address: Address::local(port), child, folder: None }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.authority.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Kept::pid)
    }

    /// What another gateway said last.
    fn last_words(&self) -> String {
        let file = self.folder.as_ref().map(|folder| folder.path().join(LOG));
        let log = file.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        log.trim().lines().next_back().map_or_else(String::new, |line| format!("; it said: {line}"))
    }
}

// === impl Wharf ===

impl Wharf {
    /// As it is by default, or with servers that are not confined where that does not work on this machine; and whether
    /// they are confined.
    pub(crate) fn at(program: PathBuf) -> Result<(Self, bool), String> {
        let mut wharf = Self { program, sandbox: true };
        let confined = wharf.confines().or_else(|_| {
            wharf.sandbox = false;
            wharf.confines()
        })?;
        Ok((wharf, confined))
    }

    /// Has a server started, and looks whether it sees this machine as we do.
    fn confines(&self) -> Result<bool, String> {
        let place = self.place(&[("up".to_owned(), Server::new(2, Duration::ZERO))], "");
        let mut pipe = place.pipe(Era::Modern)?;
        let echo = tool(&mut pipe, "echo")?;
        pipe.ask(&Ask::Echo(echo))?;
        Ok(descendants(pipe.pid()).into_iter().any(is_elsewhere))
    }

    pub(crate) fn version(&self) -> String {
        let output = Command::new(&self.program).arg("--version").output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// With servers by name, everything else as it is by default but for these lines of configuration.
    pub(crate) fn place(&self, servers: &[(String, Server)], lines: &str) -> Place {
        let home = tempfile::tempdir().unwrap();
        let confined = if self.sandbox { "" } else { "sandbox = false\n" };
        let mut text = format!("[policy]\ncommands = [{:?}]\n{confined}\n{lines}", me());
        for (name, server) in servers {
            let line = match server.port {
                Some(port) => format!("url = \"http://127.0.0.1:{port}/mcp\""),
                None => format!("command = {:?}\nargs = {:?}", me(), server.args(Transport::Stdio)),
            };
            let breaker = if server.malice == Some(Malice::DieAgain) { "breaker = false\n" } else { "" };
            text.push_str(&format!("\n[mcp.{name}]\n{line}\n{breaker}"));
        }
        let file = home.path().join(".config/wharf/wharf.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        Place { home, wharf: self.clone() }
    }
}

// === impl Place ===

impl Place {
    /// Starts the gateway for HTTP, and waits until it listens.
    pub(crate) fn serve(&self) -> Listening {
        self.serve_under(&[], &[])
    }

    /// The same, under another program and with further options.
    pub(crate) fn serve_under(&self, under: &[String], options: &[&str]) -> Listening {
        let mut command = self.command(under, &["serve", "--port", "0", "--json", "--quiet"]);
        command.args(options);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        Listening::new(child, |line| {
            let rest = &line[line.find("127.0.0.1:")? + "127.0.0.1:".len()..];
            rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
        })
    }

    /// Starts the gateway for a pipe.
    pub(crate) fn pipe(&self, era: Era) -> Result<Pipe, String> {
        self.pipe_under(&[], &[], era)
    }

    /// The same, under another program and with further options.
    pub(crate) fn pipe_under(&self, under: &[String], options: &[&str], era: Era) -> Result<Pipe, String> {
        let mut command = self.command(under, &["serve", "--stdio", "--quiet"]);
        command.args(options);
        let failed = |e| format!("{}: {e}", self.wharf.program.display());
        Pipe::with(command.stdin(Stdio::piped()).spawn().map_err(failed)?, era)
    }

    fn command(&self, under: &[String], args: &[&str]) -> Command {
        let home = self.home.path().canonicalize().unwrap();
        let program = self.wharf.program.display().to_string();
        let mut words = under.iter().cloned().chain([program]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(args).current_dir(&home).env_clear();
        command.env("HOME", &home).env("PATH", "/usr/bin:/bin");
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }
}

// === impl Other ===

impl Other {
    /// How one speaks with it.
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Command(line) if !line.contains("{port}") => Transport::Stdio,
            _ => Transport::Http,
        }
    }

    /// Starts it if it does not run, and waits until it has a tool to call.
    pub(crate) fn serve(&self, server: &Server, era: Era) -> Result<Listening, String> {
        let mut listening = match self {
            Self::Url(url) => {
                let address = Address::parse(url).ok_or_else(|| format!("`{url}` is not an http:// URL"))?;
                Listening { child: None, address, folder: None }
            }
            Self::Command(line) => {
                let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).unwrap().port();
                let (child, folder) = start(line, server, free);
                let child = Some(Kept::new(child));
                Listening { child, address: Address::local(free), folder: Some(folder) }
            }
        };
        let started = Instant::now();
        loop {
            let heard = Web::connect(&listening.address, era).and_then(|mut web| tool(&mut web, "echo"));
            let over = listening.child.as_mut().is_some_and(Kept::is_over);
            match heard {
                Ok(_) => return Ok(listening),
                Err(why) if over || started.elapsed() > START => return Err(why + &listening.last_words()),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Starts it for a pipe.
    pub(crate) fn pipe(&self, server: &Server, era: Era) -> Result<(Pipe, tempfile::TempDir), String> {
        let Self::Command(line) = self else { return Err("an URL is no pipe".to_owned()) };
        let (child, folder) = start(line, server, 0);
        Ok((Pipe::with(child, era)?, folder))
    }
}

/// Starts a command line with its marks filled in.
fn start(line: &str, server: &Server, port: u16) -> (Child, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp.json");
    let url = server.port.map_or_else(String::new, |port| format!("http://127.0.0.1:{port}/mcp"));
    let entry = match server.port {
        Some(_) => format!("{{\"type\": \"http\", \"url\": {url:?}}}"),
        None => format!("{{\"command\": {:?}, \"args\": {:?}}}", me(), server.args(Transport::Stdio)),
    };
    fs::write(&config, format!("{{\"mcpServers\": {{\"up\": {entry}}}}}\n")).unwrap();
    let line = line
        .replace("{port}", &port.to_string())
        .replace("{config}", &config.display().to_string())
        .replace("{command}", &server.command_line())
        .replace("{url}", &url);
    let mut command = Command::new("/bin/sh");
    // In place of the shell, so that it is the gateway that is looked at and ended.
    command.arg("-c").arg(format!("exec {line}")).stdin(Stdio::piped());
    // What nobody reads must not go into a pipe, which fills up.
    let log = fs::File::create(folder.path().join(LOG)).unwrap();
    match port {
        0 => command.stdout(Stdio::piped()),
        _ => command.stdout(log.try_clone().unwrap()),
    };
    (command.stderr(log).spawn().unwrap(), folder)
}

/// This program.
pub(crate) fn me() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// The program of this name that was built beside this one.
pub(crate) fn beside(name: &str) -> PathBuf {
    me().parent().unwrap_or(Path::new(".")).join(name)
}
