//! `wharf serve`: every server as one, for whoever speaks MCP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::json;
use tokio::io::BufReader;
use tokio::net::TcpListener;
use url::Url;
use wharf::ask::Decline;
use wharf::config::ServerConfig;
use wharf::gateway::{Gateway, UnixDoor};

use crate::app::{App, Interrupts, OpenHost, Setup};
use crate::failure::{Failure, Result};
use crate::linger::Lingering;
use crate::output::Level;
use crate::reception::Reception;
use crate::rest::Resting;
use crate::{reload, standard, troubles};

/// Serve every configured server as one MCP server
///
/// Agents and editors are pointed at one address and find the tools of all servers there, whichever revision of the
/// protocol they and the servers speak. Without any configuration the built-in demo server is served. Edits of the
/// configuration apply without a restart; SIGHUP applies them at once. Ctrl-C lets calls that are under way end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf serve
  claude mcp add --transport http wharf http://127.0.0.1:7420/mcp
  wharf serve --stdio
  wharf serve --unix /run/user/1000/wharf/wharf.sock")]
pub(crate) struct ServeArgs {
    /// Listen at this port; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 7420, conflicts_with = "stdio")]
    port: u16,
    /// Listen at this address; others than this machine's own need callers with keys
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), conflicts_with = "stdio")]
    bind: IpAddr,
    /// Let in callers that have a key of this file; without it, your own file of `wharf keys` counts if there is one
    #[arg(long, value_name = "FILE", conflicts_with = "stdio")]
    keys: Option<PathBuf>,
    /// Speak over standard input and output, with the one program that started it
    #[arg(long)]
    stdio: bool,
    /// Listen at this Unix socket, for programs of your own user; one message a line
    #[arg(long, value_name = "PATH", conflicts_with_all = ["stdio", "port", "bind"])]
    unix: Option<PathBuf>,
    /// Let the gateway be called by this name too; may be given again
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Let web pages of this origin call, like `https://app.example.org`; may be given again
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// Serve with so many threads: one answers a single caller soonest, more serve more callers; half of the cores by default
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// How what happens is told on standard error: in words, or as one JSON object a line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// How what happens is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// In words
    Text,
    /// One JSON object a line
    Json,
}

impl ServeArgs {
    /// With how many threads to serve. One caller is answered soonest by one.
    pub(crate) fn threads(&self) -> usize {
        let half = || std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2).clamp(1, 16);
        self.threads.map_or_else(half, usize::from)
    }

    pub(crate) async fn run(self, app: &App) -> Result<()> {
        if self.log_format == LogFormat::Json {
            app.ui.keep_log();
        }
        let mut setup = app.setup()?;
        if self.stdio {
            // Standard input belongs to the caller: nobody can be asked there.
            setup.refuse_pending(app, None)?;
        } else {
            setup.settle(app, None)?;
        }
        setup.report(app, None)?;
        let servers: Vec<ServerConfig> = setup.listed().filter(|server| server.enabled).cloned().collect();
        warn_of_strangers(app, &setup);
        let open = app.open_to_stay(&setup, servers, Decline).await?;
        let reception = self.reception(app)?;
        let gateway = self.gateway(&setup, &open, &reception)?;
        if self.bind.is_unspecified() && self.hosts.is_empty() && setup.config.gateway.url.is_none() {
            app.ui.warn(
                "others reach it by no name yet: say what it is called with --host, or `url` in `[gateway]`",
            );
        }
        // Whoever reads where it is may want it to read its files again at once.
        let (has_keys, hangups) = (reception.has_keys(), reload::hangups());
        let url = setup.config.gateway.url.clone();
        let lingering = Lingering::begin(gateway.clone());
        // Without it more memory is taken, and nothing else is other.
        let resting = Resting::begin(gateway.clone()).ok();
        let served = tokio::select! {
            served = self.serve(app, &gateway, &open, (url, has_keys)) => served,
            () = reload::follow(app, &open, (&gateway, reception), setup, hangups) => Ok(()),
            () = troubles::tell(&app.ui, &open.host), if app.ui.verbose == 0 && !app.ui.keeps_log() => Ok(()),
        };
        drop((resting, lingering));
        open.close().await;
        served
    }

    /// Where callers reach it: by the first name that it was given, as they are turned away at any other.
    fn address(&self, at: SocketAddr) -> String {
        let Some(name) = self.hosts.first() else { return format!("http://{at}/mcp") };
        match name.parse::<IpAddr>() {
            Ok(ip) => format!("http://{}/mcp", SocketAddr::new(ip, at.port())),
            // One that comes with a port or in brackets says all of it.
            Err(_) if name.contains(':') => format!("http://{name}/mcp"),
            Err(_) => format!("http://{name}:{}/mcp", at.port()),
        }
    }

    fn reception(&self, app: &App) -> Result<Reception> {
        match self.stdio {
            true => Ok(Reception::of_pipe()),
            false => Reception::new(app, self.keys.as_deref()),
        }
    }

    fn gateway(&self, setup: &Setup, open: &OpenHost, reception: &Reception) -> Result<Gateway> {
        let mut gateway = Gateway::builder(open.host.clone())
            .hosts(self.hosts.iter().cloned())
            .origins(self.origins.iter().cloned())
            .terms(reception.terms(setup))
            .telemetry(setup.config.telemetry.clone());
        if let Some(url) = &setup.config.gateway.url {
            gateway = gateway.url(url.clone());
        }
        Ok(gateway.build()?)
    }

    async fn serve(
        &self,
        app: &App,
        gateway: &Gateway,
        open: &OpenHost,
        (url, has_keys): (Option<Url>, bool),
    ) -> Result<()> {
        // Whoever reads where it is may stop it at once.
        let (mut once, mut twice) = (Interrupts::listen()?, Interrupts::listen()?);
        let stop = async {
            once.next().await;
            app.ui.note("stopping: calls under way may end; Ctrl-C again ends them now");
        };
        // Whoever asks twice means it.
        let twice = async {
            twice.next().await;
            twice.next().await;
        };
        if self.stdio {
            return tokio::select! {
                served = serve_pipe(gateway.clone(), stop) => served,
                () = twice => Ok(()),
            };
        }
        if let Some(path) = &self.unix {
            let door = UnixDoor::bind(&std::path::absolute(path).unwrap_or_else(|_| path.clone())).await?;
            announce_socket(app, door.path(), &open.host.servers())?;
            return tokio::select! {
                () = gateway.serve_unix(door, stop) => Ok(()),
                () = twice => Ok(()),
            };
        }
        let at = SocketAddr::new(self.bind, self.port);
        gateway.may_listen(at)?;
        let listener = TcpListener::bind(at).await.map_err(|error| {
            let hint = "choose another with --port, or 0 for a free one";
            Failure::general(format!("cannot listen at {at}: {error}")).hint(hint)
        })?;
        let at = listener.local_addr().map_err(|e| Failure::general(format!("it listens nowhere: {e}")))?;
        let url = url.map_or_else(|| self.address(at), String::from);
        announce(app, (&url, at), &open.host.servers(), has_keys)?;
        tokio::select! {
            served = gateway.serve_http(listener, stop) => Ok(served?),
            () = twice => Ok(()),
        }
    }
}

/// Serves whoever started us, in a task of its own, so that not every message wakes whoever waits for a signal. It ends
/// when this does.
async fn serve_pipe(gateway: Gateway, stop: impl Future<Output = ()>) -> Result<()> {
    let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let input = BufReader::new(standard::input());
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(async move { gateway.serve_stdio(input, standard::output(), stopped).await });
    let mut stop = std::pin::pin!(async {
        stop.await;
        drop(stopping);
        std::future::pending::<()>().await;
    });
    tokio::select! {
        served = serving.join_next() => match served {
            Some(Ok(served)) => Ok(served?),
            Some(Err(error)) => Err(Failure::general(format!("serving has failed: {error}"))),
            None => Ok(()),
        },
        () = &mut stop => Ok(()),
    }
}

/// Says at which socket it is.
fn announce_socket(app: &App, path: &Path, servers: &[Arc<ServerConfig>]) -> Result<()> {
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    if announced(app, json!({ "path": path, "servers": names }))? {
        return Ok(());
    }
    let shown = wharf::text::Escaped(&path.display().to_string()).to_string();
    app.ui.say(format_args!("serving {} at {shown}", names.join(", ")));
    app.ui.note("\nCtrl-C stops.");
    Ok(())
}

/// Says where it is to programs: to whoever started it, and to whoever reads its log.
fn announced(app: &App, mut what: serde_json::Value) -> Result<bool> {
    if app.ui.json {
        app.ui.document(&what)?;
    }
    if app.ui.keeps_log() {
        what["event"] = "serving".into();
        app.ui.log(Level::Info, what);
    }
    Ok(app.ui.json || app.ui.keeps_log())
}

/// A rule about a server that is not there does nothing; that may not be what was meant.
pub(crate) fn warn_of_strangers(app: &App, setup: &Setup) {
    for server in setup.config.flow.servers().filter(|name| !setup.config.servers.contains_key(*name)) {
        app.ui.warn(format_args!("a label in `[flow]` names a server `{server}` that is not configured"));
    }
    let is_unknown = |name: &&wharf::names::ServerName| !setup.config.servers.contains_key(*name);
    for server in setup.config.gateway.required.iter().filter(is_unknown) {
        app.ui
            .warn(format_args!("`required` in `[gateway]` names a server `{server}` that is not configured"));
    }
    let Some(rules) = &setup.config.callers else { return };
    for (caller, servers) in rules.named() {
        for server in servers.iter().filter(|name| !setup.config.servers.contains_key(**name)) {
            let caller = wharf::text::Escaped(caller);
            app.ui.warn(format_args!(
                "the rules of caller `{caller}` name a server `{server}` that is not configured"
            ));
        }
    }
}

/// What is added to each of the lines to paste where callers have keys.
const WITH_KEY: [&str; 4] = [
    " --header 'Authorization: Bearer KEY'",
    " --bearer-token-env-var WHARF_KEY   # after export WHARF_KEY=KEY",
    ",\"headers\":{\"Authorization\":\"Bearer KEY\"}",
    ", \"headers\": { \"Authorization\": \"Bearer KEY\" }",
];

/// Says where it is, and what to paste where.
fn announce(
    app: &App,
    (url, at): (&str, SocketAddr),
    servers: &[Arc<ServerConfig>],
    has_keys: bool,
) -> Result<()> {
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    if announced(app, json!({ "url": url, "listening": at, "servers": names }))? {
        return Ok(());
    }
    app.ui.say(format_args!("serving {} at {url}", names.join(", ")));
    if !url.contains(&at.to_string()) {
        app.ui.note(format_args!("listening at {at}"));
    }
    let [claude, codex, code, cursor] = if has_keys { WITH_KEY } else { [""; 4] };
    app.ui.note(format_args!("\n  Claude Code   claude mcp add --transport http wharf {url}{claude}"));
    app.ui.note(format_args!("  Codex         codex mcp add wharf --url {url}{codex}"));
    app.ui.note(format_args!(
        "  VS Code       code --add-mcp '{{\"name\":\"wharf\",\"type\":\"http\",\"url\":\"{url}\"{code}}}'"
    ));
    app.ui.note(format_args!("  Cursor        \"wharf\": {{ \"url\": \"{url}\"{cursor} }}   in mcp.json"));
    if has_keys {
        app.ui.note("\nKEY is a caller's key: wharf keys add NAME");
    }
    app.ui.note("\nCtrl-C stops.");
    Ok(())
}
