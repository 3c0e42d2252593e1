//! Where lines come from: an editor at a terminal, or a pipe.
//!
//! In: wishes for a line, for the prompt or as the answer to a question. Out: what was typed. Whoever reads sits on a
//! thread of its own, so that waiting for the keyboard holds up nothing else.

use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, ExternalPrinter};
use tokio::sync::{Notify, oneshot};

use super::complete::{Completion, Shelf};
use super::history::Discretion;
use crate::app::{App, Setup};
use crate::failure::{Failure, Result};
use crate::output::Above;
use crate::terminal::Lines;

/// What was typed.
#[derive(Debug)]
pub(super) enum Input {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// There is no more.
    Ended,
}

/// Reads lines, one at a time. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    wishes: Sender<Wish>,
    /// Ctrl-C at a question, which ends the command that asks.
    interrupts: Arc<Notify>,
    /// Whether a line is being edited.
    busy: Arc<AtomicBool>,
}

/// Somebody waits for a line.
struct Wish {
    prompt: String,
    purpose: Purpose,
    reply: oneshot::Sender<Input>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The next command: completed and remembered.
    Command,
    /// An answer to a question: neither.
    Answer,
}

/// Puts the terminal back as it was, however the prompt ends.
#[derive(Debug)]
pub(super) struct Restore {
    before: Termios,
    /// Whether a line is still being edited, though nobody will read it.
    busy: Arc<AtomicBool>,
}

/// The editor, as its thread has it.
struct Desk {
    editor: rustyline::Editor<Completion, FileHistory>,
    history: Option<PathBuf>,
    discretion: Discretion,
    /// Whether a line is being edited.
    busy: Arc<AtomicBool>,
    interrupts: Arc<Notify>,
}

/// How many lines are remembered.
const REMEMBERED: usize = 1000;
/// How much may wait to be shown above the line. What is more is left out.
const WAITING: usize = 256;

// === impl Reader ===

impl Reader {
    /// An editor at the terminal. What `app.ui` says from now on goes above its line.
    pub(super) fn at_terminal(app: &App, setup: &Setup, shelf: Shelf) -> Result<(Self, Restore)> {
        let broken = |error: &dyn std::fmt::Display| Failure::general(format!("no prompt here: {error}"));
        let before = tcgetattr(std::io::stdin()).map_err(|error| broken(&error))?;
        let config = rustyline::Config::builder()
            .completion_type(CompletionType::List)
            .history_ignore_space(true)
            .max_history_size(REMEMBERED)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(|error| broken(&error))?
            .build();
        let mut editor = rustyline::Editor::with_config(config).map_err(|error| broken(&error))?;
        editor.set_helper(Some(Completion::new(shelf)));
        let history = app.world.own.as_ref().map(|own| own.history.clone());
        if let Some(path) = &history {
            // The first time there is none.
            let _ = editor.load_history(path);
        }
        let busy = Arc::new(AtomicBool::new(false));
        // A terminal that can do nothing but write has no way to do it above the line.
        if let Ok(printer) = editor.create_external_printer() {
            app.ui.edit_below(above(printer, Arc::clone(&busy))?);
        }
        let secrets = setup.config.servers.values().map(wharf::config::ServerConfig::redactor).collect();
        let interrupts = Arc::new(Notify::new());
        let mut desk = Desk {
            editor,
            history,
            discretion: Discretion::new(secrets),
            busy: Arc::clone(&busy),
            interrupts: Arc::clone(&interrupts),
        };
        let wishes = serve(move |wish| desk.read(wish))?;
        let restore = Restore { before, busy: Arc::clone(&busy) };
        Ok((Self { wishes, interrupts, busy }, restore))
    }

    /// Standard input as it comes.
    pub(super) fn of_pipe() -> Result<Self> {
        let wishes = serve(|_| {
            let mut line = String::new();
            match std::io::stdin().lock().read_line(&mut line) {
                Ok(0) | Err(_) => Input::Ended,
                Ok(_) => Input::Line(line),
            }
        })?;
        Ok(Self { wishes, interrupts: Arc::default(), busy: Arc::default() })
    }

    /// The next command.
    pub(super) async fn line(&self, prompt: &str) -> Input {
        self.wish(prompt, Purpose::Command).await.unwrap_or(Input::Ended)
    }

    /// Waits for Ctrl-C at a question.
    pub(super) async fn interrupted(&self) {
        self.interrupts.notified().await;
    }

    fn wish(&self, prompt: &str, purpose: Purpose) -> oneshot::Receiver<Input> {
        let (reply, replied) = oneshot::channel();
        // Where nobody reads any more, the reply is that there is no more.
        let _ = self.wishes.send(Wish { prompt: prompt.to_owned(), purpose, reply });
        replied
    }
}

impl Lines for Reader {
    fn ask(&self, question: &str) -> Option<String> {
        match self.wish(question, Purpose::Answer).blocking_recv() {
            Ok(Input::Line(line)) => Some(line),
            _ => None,
        }
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }
}

/// Fulfils wishes on a thread of its own.
fn serve(mut read: impl FnMut(&Wish) -> Input + Send + 'static) -> Result<Sender<Wish>> {
    let (wishes, waiting): (_, Receiver<Wish>) = mpsc::channel();
    let serving = move || {
        for wish in waiting {
            if wish.reply.is_closed() {
                continue;
            }
            let input = read(&wish);
            // Whoever wished may have gone.
            let _ = wish.reply.send(input);
        }
    };
    match std::thread::Builder::new().name("lines".into()).spawn(serving) {
        Ok(_) => Ok(wishes),
        Err(error) => Err(Failure::general(format!("cannot start a thread: {error}"))),
    }
}

/// Prints above the line that is being edited, on a thread of its own: the editor may be slow to take it.
fn above(mut printer: impl ExternalPrinter + Send + 'static, busy: Arc<AtomicBool>) -> Result<Above> {
    let (texts, waiting) = mpsc::sync_channel::<String>(WAITING);
    let printing = move || waiting.into_iter().try_for_each(|text| printer.print(text).ok());
    std::thread::Builder::new()
        .name("above".into())
        .spawn(printing)
        .map_err(|error| Failure::general(format!("cannot start a thread: {error}")))?;
    Ok(Above(Box::new(move |text| {
        let is_edited = busy.load(Ordering::Acquire);
        if is_edited {
            let _ = texts.try_send(text.to_owned());
        }
        is_edited
    })))
}

// === impl Desk ===

impl Desk {
    fn read(&mut self, wish: &Wish) -> Input {
        let is_command = wish.purpose == Purpose::Command;
        if let Some(completion) = self.editor.helper_mut() {
            completion.enabled = is_command;
        }
        self.busy.store(true, Ordering::Release);
        let read = self.editor.readline(&wish.prompt);
        self.busy.store(false, Ordering::Release);
        match read {
            Ok(line) => {
                if is_command && !line.trim().is_empty() && self.discretion.may_keep(&line) {
                    self.remember(&line);
                }
                Input::Line(line)
            }
            Err(ReadlineError::Interrupted) => {
                if !is_command {
                    self.interrupts.notify_waiters();
                }
                Input::Interrupted
            }
            Err(_) => Input::Ended,
        }
    }

    /// A history that cannot be written is no reason to stop.
    fn remember(&mut self, line: &str) {
        let is_new = self.editor.add_history_entry(line).unwrap_or(false);
        if let (true, Some(path)) = (is_new, &self.history) {
            let _ = own_folder(path)
                .and_then(|()| self.editor.append_history(path).map_err(std::io::Error::other));
        }
    }
}

/// The folder of a file, for nobody else to look into.
fn own_folder(file: &Path) -> std::io::Result<()> {
    match file.parent() {
        Some(folder) => std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder),
        None => Ok(()),
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
        if self.busy.swap(false, Ordering::AcqRel) {
            let _ = std::io::stdout().write_all(b"\n");
        }
    }
}

impl std::fmt::Debug for Wish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wish").field("purpose", &self.purpose).finish_non_exhaustive()
    }
}
