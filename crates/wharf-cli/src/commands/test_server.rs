//! `wharf test-server`: a server to try a client with.

use std::net::SocketAddr;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::demo;
use crate::failure::{Failure, Result};

/// Be a small MCP server, to try a client with
///
/// Speaks both eras of the protocol, on standard input and output, until the input ends. It has the tools echo,
/// get_time, add, sleep, blob, fail, note and ask, resources, of which the note changes with the tool of that name, and
/// prompts whose arguments it completes. `wharf call demo …` starts it by itself.
#[derive(Debug, Args)]
pub(crate) struct TestServerArgs {
    /// Listen for HTTP at this address instead, until Ctrl-C; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:8765")]
    http: Option<SocketAddr>,
}

impl TestServerArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let served = match self.http {
            None => demo::run_stdio().await,
            Some(addr) => {
                // Listened for before anybody is told that the server is there.
                let mut interrupt = signal(SignalKind::interrupt())
                    .map_err(|error| Failure::general(format!("cannot listen for Ctrl-C: {error}")))?;
                tokio::select! {
                    served = demo::run_http(addr, |at| app.ui.say(format_args!("listening on http://{at}/mcp"))) => served,
                    _ = interrupt.recv() => Ok(()),
                }
            }
        };
        served.map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::general(format!("the test server ended: {error}")),
        })
    }
}
