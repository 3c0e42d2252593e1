//! The command line, as clap reads it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    add, approve, audit, call, check, codegen, completions, diff, init, keys, lock, login, prompts, remove,
    render, repl, resources, sandbox, serve, servers, status, test_server, tools, top, trust,
};

/// Docks MCP servers: lists their tools and calls them, safely.
#[derive(Debug, Parser)]
#[command(name = "wharf", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Try it: wharf call demo echo message=hello")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Globals {
    /// Read this file instead of your own and the project's; may be given again
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// Hold servers to this lockfile instead of those beside the files that define them
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) lockfile: Option<PathBuf>,
    /// Write one JSON document; errors are one JSON line on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing but the result and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Tell what happens: states, logs, servers' standard error; twice for the traffic too
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", value_parser = color, hide_default_value = true)]
    pub(crate) color: anstream::ColorChoice,
    /// How long a server may take to start, and a call to end: 30s, 500ms, 2m
    #[arg(long, global = true, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Call(call::CallArgs),
    Serve(serve::ServeArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Keys(keys::KeysArgs),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    Tools(tools::ToolsArgs),
    Codegen(codegen::CodegenArgs),
    Render(render::RenderArgs),
    Resources(resources::ResourcesArgs),
    Prompts(prompts::PromptsArgs),
    Repl(repl::ReplArgs),
    Servers(servers::ServersArgs),
    Check(check::CheckArgs),
    Sandbox(sandbox::SandboxArgs),
    Lock(lock::LockArgs),
    Diff(diff::DiffArgs),
    Init(init::InitArgs),
    Add(add::AddArgs),
    Remove(remove::RemoveArgs),
    Trust(trust::TrustArgs),
    Audit(Box<audit::AuditArgs>),
    Approve(approve::ApproveArgs),
    TestServer(test_server::TestServerArgs),
    Completions(completions::CompletionsArgs),
}

fn color(text: &str) -> Result<anstream::ColorChoice, String> {
    match text {
        "auto" => Ok(anstream::ColorChoice::Auto),
        "always" => Ok(anstream::ColorChoice::Always),
        "never" => Ok(anstream::ColorChoice::Never),
        _ => Err("it is auto, always or never".into()),
    }
}

/// `30s`, `500ms`, `2m`, `1h`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("write it like 30s, 500ms or 2m".into()),
    };
    let number: f64 = number.parse().map_err(|_| "write it like 30s, 500ms or 2m".to_owned())?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("it must be longer than nothing, and end one day".into()),
    }
}
