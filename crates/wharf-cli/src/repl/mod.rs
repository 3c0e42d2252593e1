//! The prompt: lines in, one command each, until there are no more.
//!
//! In: what is typed at a terminal or comes through a pipe. Out: what the session of an agent named `you` gives. How a
//! line is edited is `editor`'s, what it means `line`'s; what the session may do is the library's to decide.

mod call;
mod complete;
mod editor;
mod history;
mod line;
mod mcp;
mod news;

use std::sync::Arc;

use wharf::host::Session;
use wharf::policy::Permission;

use crate::app::{App, OpenHost, Setup, interrupted};
use crate::failure::{Failure, Result};
use crate::terminal::{AtTerminal, Lines};
use complete::{Book, Shelf};
use editor::{Input, Reader};
use line::Command;

const AGENT: &str = "you";
const PROMPT: &str = "wharf> ";
const HELP: &str = "\
/mcp                          the servers, and which are connected
/mcp connect NAME             connect a server
    --allow-all | --per-tool    ask for nothing | for every tool by itself
    --shared | --private        for every agent | for this session alone (the default)
/mcp disconnect NAME          disconnect it
/mcp tools [NAME]             the tools of connected servers
/help                         this
/quit                         leave (or Ctrl-D)

SERVER.TOOL name=value …      call a tool; name:=json, name=@file and {\"name\": \"value\"} work too
Tab completes, Ctrl-C ends a call.
";

/// A prompt, and the session behind it.
#[derive(Debug)]
pub(crate) struct Repl<'a> {
    app: &'a App,
    setup: &'a Setup,
    session: Session,
    reader: Reader,
    /// Whether a person sits at a terminal.
    attended: bool,
}

/// Whether there is another line after this one.
enum Next {
    Line,
    End,
}

impl<'a> Repl<'a> {
    /// Reads and does until the end of the input.
    pub(crate) async fn run(app: &'a App, permission: Permission) -> Result<()> {
        let mut setup = app.setup()?;
        if let Err(pending) = setup.settle(app, None) {
            // Without them there is still the built-in server.
            app.ui.warn(format_args!("{pending}; {}", pending.next_step().unwrap_or_default()));
        }
        setup.report(app, None)?;
        let terminals = app.world.terminals;
        let attended = terminals.stdin && terminals.stdout && terminals.stderr;
        let shelf = Shelf::default();
        let (reader, _restore) = if attended {
            let (reader, restore) = Reader::at_terminal(app, &setup, shelf.clone())?;
            (reader, Some(restore))
        } else {
            (Reader::of_pipe()?, None)
        };
        let asker = || {
            let lines = attended.then(|| Arc::new(reader.clone()) as Arc<dyn Lines>);
            AtTerminal::with(Arc::clone(&app.ui), lines)
        };
        let open = app.open(&setup, Vec::new(), asker()).await?;
        let session = open.host.session(AGENT).permission(permission).asker(asker()).start()?;
        shelf.put(Some(Book::new(&setup, session.clone())));
        let repl = Repl { app, setup: &setup, session, reader, attended };
        let done = repl.all(&open).await;
        repl.session.close().await;
        drop(repl);
        shelf.put(None);
        open.close().await;
        done
    }

    async fn all(&self, open: &OpenHost) -> Result<()> {
        let ui = &self.app.ui;
        if self.attended {
            tokio::spawn(news::tell(Arc::clone(ui), open.host.events().subscribe()));
            ui.note("Wharf: `/mcp` lists servers, `/help` says what else there is, Ctrl-D leaves.");
            if self.setup.is_bare() {
                ui.note("No server is configured yet; try `/mcp connect demo`.");
            }
        }
        let mut failed = None;
        loop {
            let input = tokio::select! {
                biased;
                input = self.reader.line(PROMPT) => input,
                // At a prompt Ctrl-C is a key like others.
                () = interrupted() => return Err(Failure::Interrupted),
            };
            let line = match input {
                Input::Line(line) => line,
                Input::Interrupted => {
                    ui.note("(`/quit` or Ctrl-D leaves)");
                    continue;
                }
                Input::Ended => break,
            };
            let done = tokio::select! {
                // Ctrl-C at a question closes the question too: whoever pressed it need not hear that it went unanswered.
                biased;
                () = self.reader.interrupted() => Err(Failure::Interrupted),
                () = interrupted() => Err(Failure::Interrupted),
                done = self.one(&line) => done,
            };
            match done {
                Ok(Next::Line) => {}
                Ok(Next::End) => break,
                Err(Failure::BrokenPipe) => return Err(Failure::BrokenPipe),
                Err(Failure::Interrupted) if !self.attended => return Err(Failure::Interrupted),
                Err(failure) => {
                    let exit = ui.fail(&failure);
                    failed.get_or_insert(exit);
                }
            }
        }
        match failed.filter(|_| !self.attended) {
            Some(exit) => Err(Failure::Said(exit)),
            None => Ok(()),
        }
    }

    async fn one(&self, line: &str) -> Result<Next> {
        match line::parse(line)? {
            Command::Nothing => {}
            Command::Quit => return Ok(Next::End),
            Command::Help => self.app.ui.data(HELP.as_bytes())?,
            Command::Servers => self.servers()?,
            Command::Connect(wish) => self.connect(wish).await?,
            Command::Disconnect(server) => self.disconnect(&server).await?,
            Command::Tools(server) => self.tools(server.as_deref()).await?,
            Command::Call(name, rest) => self.call(&name, &rest).await?,
        }
        Ok(Next::Line)
    }
}

/// The library speaks to programs; at the prompt the next step is a command.
fn in_words_of_the_prompt(error: wharf::Error) -> Failure {
    use wharf::Error;
    match error {
        Error::Denied { what, rule, .. } if rule.starts_with("consent") => {
            let hint =
                "say yes when asked, connect with `--allow-all`, or start with `--permission yolo`".into();
            Error::Denied { what, rule, hint }.into()
        }
        Error::Denied { what, rule, .. } if rule.starts_with("the permission") => {
            let hint = "start with `wharf repl --permission trusted`".into();
            Error::Denied { what, rule, hint }.into()
        }
        other => other.into(),
    }
}

/// The names that are most like one that is not there, as a hint.
pub(crate) fn did_you_mean(name: &str, known: &[&str]) -> String {
    const ALIKE: f64 = 0.75;
    let alike = |other: &&str| strsim::jaro_winkler(name, other);
    let best = known.iter().copied().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    match best.filter(|best| alike(best) >= ALIKE) {
        Some(best) => format!("did you mean `{}`?", wharf::text::Escaped(best)),
        None => {
            let known: Vec<String> =
                known.iter().map(|name| format!("`{}`", wharf::text::Escaped(name))).collect();
            format!("there {} {}", if known.len() == 1 { "is only" } else { "are" }, known.join(", "))
        }
    }
}

/// A failure to find something by its name.
fn not_found(what: &str, name: &str, known: &[&str]) -> Failure {
    Failure::usage(format!("there is no {what} `{}`", wharf::text::Escaped(name)))
        .hint(did_you_mean(name, known))
}
