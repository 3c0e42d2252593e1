//! The `wharf` command: parse, look at the world, run one command, tell the shell how it ended.

mod app;
mod arguments;
mod browser;
mod catalogues;
mod cli;
mod commands;
mod demo;
mod descriptors;
mod eras;
mod events;
mod exit;
mod failure;
mod linger;
mod lockfiles;
mod logins;
mod logs;
mod memory;
mod output;
mod reception;
mod reload;
mod repl;
mod rest;
mod standard;
mod terminal;
mod troubles;
mod watched;
mod world;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser as _};
use tokio::runtime::{Builder, Runtime};

use app::App;
use cli::{Cli, Command};
use exit::Exit;
use failure::Failure;
use output::Ui;
use world::World;

fn main() -> ExitCode {
    // Inside a sandbox this program prepares it and then becomes the server.
    if let Some(code) = wharf::sandbox::stage(std::env::args_os()) {
        return code;
    }
    // Answers the shell's completion request and ends, if this is one.
    clap_complete::CompleteEnv::with_factory(Cli::command).complete();
    let Cli { globals, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(wrong) => return misread(&wrong),
    };
    let world = match World::look() {
        Ok(world) => world,
        Err(error) => {
            anstream::eprintln!("error: cannot find out where I am: {error}");
            return Exit::General.into();
        }
    };
    let ui = Arc::new(Ui::new(&world, &globals));
    let app = App { world, globals, ui };
    let done = match runtime(&command) {
        Ok(runtime) => {
            let done = runtime.block_on(run(&app, command));
            // A thread that still reads the keyboard must not keep the command from ending.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(Failure::general(format!("cannot start: {error}"))),
    };
    match done {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => app.ui.fail(&failure).into(),
    }
}

/// One thread does for a command; a gateway may have more.
fn runtime(command: &Command) -> std::io::Result<Runtime> {
    let threads = match command {
        Command::Serve(serve) => {
            descriptors::raise();
            serve.threads()
        }
        _ => 1,
    };
    match threads {
        0 | 1 => Builder::new_current_thread().on_thread_park(linger::before_sleep).enable_all().build(),
        more => Builder::new_multi_thread().worker_threads(more).enable_all().build(),
    }
}

/// A command line that cannot be read, or that only asks for help. A program that asked for JSON is told in JSON.
fn misread(wrong: &clap::Error) -> ExitCode {
    if !wrong.use_stderr() || !std::env::args_os().any(|word| word == "--json") {
        wrong.exit();
    }
    let text = wrong.render().to_string();
    let message = text.trim_start_matches("error: ").lines().take_while(|line| !line.is_empty());
    let failure = Failure::usage(message.map(str::trim).collect::<Vec<_>>().join(" "));
    anstream::eprintln!("{}", serde_json::json!({ "error": output::json::failure(&failure) }));
    failure.exit().into()
}

async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Call(args) => args.run(app).await,
        Command::Serve(args) => args.run(app).await,
        Command::Status(args) => args.run(app).await,
        Command::Top(args) => args.run(app).await,
        Command::Keys(args) => args.run(app),
        Command::Login(args) => args.run(app).await,
        Command::Logout(args) => args.run(app).await,
        Command::Tools(args) => args.run(app).await,
        Command::Codegen(args) => args.run(app).await,
        Command::Render(args) => args.run(app).await,
        Command::Resources(args) => args.run(app).await,
        Command::Prompts(args) => args.run(app).await,
        Command::Repl(args) => args.run(app).await,
        Command::Servers(args) => args.run(app),
        Command::Check(args) => args.run(app),
        Command::Sandbox(args) => args.run(app).await,
        Command::Lock(args) => args.run(app).await,
        Command::Diff(args) => args.run(app).await,
        Command::Init(args) => args.run(app),
        Command::Add(args) => args.run(app),
        Command::Remove(args) => args.run(app),
        Command::Trust(args) => args.run(app),
        Command::Audit(args) => args.run(app).await,
        Command::Approve(args) => args.run(app).await,
        Command::TestServer(args) => args.run(app).await,
        Command::Completions(args) => args.run(app),
    }
}
