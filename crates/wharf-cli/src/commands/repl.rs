//! `wharf repl`: a prompt to try servers at, as an agent would use them.

use clap::{Args, ValueEnum};
use wharf::policy::Permission;

use crate::app::App;
use crate::failure::Result;
use crate::repl::Repl;

/// Try servers and tools at a prompt
///
/// What is typed is done through the session of an agent named `you`: it sees what it connected, and is asked before a
/// tool is called. Nothing is connected until `/mcp connect` says so. Without a terminal, commands are read from
/// standard input, nobody is asked, and the first failure becomes the exit status.
#[derive(Debug, Args)]
#[command(after_help = "\
At the prompt:
  /mcp connect demo
  demo.echo message=hello
  /help

In a script:
  printf '/mcp connect demo --allow-all\\ndemo.add a=1 b=2\\n' | wharf repl")]
pub(crate) struct ReplArgs {
    /// How far the session is trusted: yolo is never asked, sandboxed has no servers
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "trusted")]
    permission: Level,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Yolo,
    Trusted,
    Sandboxed,
}

impl ReplArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        Repl::run(app, self.permission.into()).await
    }
}

impl From<Level> for Permission {
    fn from(level: Level) -> Self {
        match level {
            Level::Yolo => Self::Yolo,
            Level::Trusted => Self::Trusted,
            Level::Sandboxed => Self::Sandboxed,
        }
    }
}
