//! Everything that is shown.
//!
//! In: data, notes and failures. Out: data on standard output and nothing else there; notes, progress and errors on
//! standard error. A table for a person, tab-separated lines for a pipe, one JSON document for `--json`.

pub(crate) mod json;
pub(crate) mod result;
mod table;

pub(crate) use table::{Giving, fitted};

use std::fmt::Display;
use std::io::{self, Write as _};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::world::Terminals;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();
const DIM: Style = Style::new().dimmed();

/// Nothing is shown for what takes less.
const PATIENCE: Duration = Duration::from_millis(400);
const FRAME: Duration = Duration::from_millis(100);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The way to the person or program that reads.
#[derive(Debug)]
pub(crate) struct Ui {
    /// Whether output is JSON.
    pub(crate) json: bool,
    /// Whether notes and warnings are kept back.
    pub(crate) quiet: bool,
    /// How much is told of what happens.
    pub(crate) verbose: u8,
    /// Which streams are a terminal.
    pub(crate) terminals: Terminals,
    /// How many characters fit on a line.
    pub(crate) width: u16,
    /// Whether everything that is told is a line of a log.
    logs: AtomicBool,
    status: Mutex<Status>,
    above: OnceLock<Above>,
}

/// Prints above a line that is being edited. It says whether there is one.
pub(crate) struct Above(pub(crate) Box<dyn Fn(&str) -> bool + Send + Sync>);

/// How grave a line of a log is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// The line at the bottom that says what is being waited for.
#[derive(Debug, Default)]
struct Status {
    text: Option<String>,
    since: Option<Instant>,
    /// Somebody is asking the person something.
    held: bool,
    shown: bool,
    frame: usize,
}

impl std::fmt::Debug for Above {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Above")
    }
}

// === impl Level ===

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

// === impl Ui ===

impl Ui {
    pub(crate) fn new(world: &crate::world::World, globals: &crate::cli::Globals) -> Self {
        globals.color.write_global();
        Self {
            json: globals.json,
            quiet: globals.quiet,
            verbose: globals.verbose,
            terminals: world.terminals,
            width: world.width,
            logs: AtomicBool::new(false),
            status: Mutex::default(),
            above: OnceLock::new(),
        }
    }

    /// From now on, whatever is told is a line of JSON.
    pub(crate) fn keep_log(&self) {
        self.logs.store(true, Ordering::Relaxed);
    }

    /// Whether whatever is told is a line of JSON.
    pub(crate) fn keeps_log(&self) -> bool {
        self.logs.load(Ordering::Relaxed)
    }

    /// A line of the log: when, how grave, and what.
    pub(crate) fn log(&self, level: Level, what: Value) {
        if self.quiet && matches!(level, Level::Debug | Level::Info) {
            return;
        }
        let mut line = json!({ "time": jiff::Timestamp::now().to_string(), "level": level.as_str() });
        if let (Some(line), Value::Object(what)) = (line.as_object_mut(), what) {
            line.extend(what);
        }
        self.say(line);
    }

    /// The same of something that was said, if a log is kept.
    fn is_logged(&self, level: Level, text: impl Display) -> bool {
        if self.keeps_log() {
            let text = text.to_string();
            self.log(level, json!({ "event": "message", "message": text.trim() }));
        }
        self.keeps_log()
    }

    /// From now on, what is said while a line is edited goes above it.
    pub(crate) fn edit_below(&self, above: Above) {
        // Nobody sets it twice.
        let _ = self.above.set(above);
    }

    /// Data, byte for byte.
    pub(crate) fn data(&self, bytes: &[u8]) -> io::Result<()> {
        self.erase();
        // An editor needs a terminal for its output, and what is shown at one is text.
        if self.above.get().is_some() && self.is_put_above(String::from_utf8_lossy(bytes)) {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// One JSON document.
    pub(crate) fn document(&self, value: &Value) -> io::Result<()> {
        let text = if self.terminals.stdout {
            serde_json::to_string_pretty(value).map(|text| json::safe(&text))
        } else {
            serde_json::to_string(value)
        };
        self.data(format!("{}\n", text.map_err(io::Error::other)?).as_bytes())
    }

    /// Rows: a table with a head for a person, tab-separated lines without one for a pipe.
    pub(crate) fn rows(&self, head: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        self.table(rows, |width| table::aligned(head, rows, width))
    }

    /// The same, where columns give way if there is little room.
    pub(crate) fn rows_giving(&self, head: &[&str], rows: &[Vec<String>], way: &Giving) -> io::Result<()> {
        self.table(rows, |width| fitted(head, rows, width, way))
    }

    fn table(&self, rows: &[Vec<String>], draw: impl FnOnce(u16) -> String) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        if !self.terminals.stdout {
            return self.data(table::tab_separated(rows).as_bytes());
        }
        self.erase();
        let table = draw(self.width);
        if self.is_put_above(&table) {
            return Ok(());
        }
        let mut out = anstream::stdout().lock();
        out.write_all(table.as_bytes())?;
        out.flush()
    }

    /// Something that was done, or is worth knowing.
    pub(crate) fn note(&self, text: impl Display) {
        match (self.quiet, self.json) {
            (true, _) => {}
            _ if self.is_logged(Level::Info, &text) => {}
            (false, true) => self.say(json!({ "note": text.to_string() })),
            (false, false) => self.say(text),
        }
    }

    /// What was done: a note for a person, one document for a program.
    pub(crate) fn done(&self, document: &Value, note: impl Display) -> io::Result<()> {
        if self.json {
            return self.document(document);
        }
        self.note(note);
        Ok(())
    }

    /// Something doubtful.
    pub(crate) fn warn(&self, text: impl Display) {
        match (self.quiet, self.json) {
            (true, _) => {}
            _ if self.is_logged(Level::Warn, &text) => {}
            (false, true) => self.say(json!({ "warning": text.to_string() })),
            (false, false) => self.say(format_args!("{WARNING}warning:{WARNING:#} {text}")),
        }
    }

    /// Something that failed while the rest went on.
    pub(crate) fn trouble(&self, text: impl Display) {
        match self.json {
            _ if self.is_logged(Level::Error, &text) => {}
            true => self.say(json!({ "problem": text.to_string() })),
            false => self.say(format_args!("{ERROR}error:{ERROR:#} {text}")),
        }
    }

    /// What is told only to those who want to know.
    pub(crate) fn detail(&self, text: impl Display) {
        if !self.is_logged(Level::Debug, &text) {
            self.say(format_args!("{DIM}{text}{DIM:#}"));
        }
    }

    /// A line on standard error.
    pub(crate) fn say(&self, text: impl Display) {
        self.erase();
        if self.is_put_above(format_args!("{text}\n")) {
            return;
        }
        // With nobody there to read it, there is nobody to tell that either.
        let _ = writeln!(anstream::stderr().lock(), "{text}");
    }

    fn is_put_above(&self, text: impl Display) -> bool {
        let Some(Above(above)) = self.above.get() else { return false };
        let styled = text.to_string();
        match anstream::AutoStream::choice(&io::stderr()) {
            anstream::ColorChoice::Never => above(&anstream::adapter::strip_str(&styled).to_string()),
            _ => above(&styled),
        }
    }

    /// A question, without the end of its line.
    pub(crate) fn prompt(&self, text: impl Display) {
        self.erase();
        let mut out = anstream::stderr().lock();
        let _ = write!(out, "{text}").and_then(|()| out.flush());
    }

    /// Why the command ended, and what the shell is told.
    pub(crate) fn fail(&self, failure: &Failure) -> Exit {
        match failure {
            Failure::BrokenPipe | Failure::Said(_) => {}
            _ if self.is_logged(Level::Error, failure) => {}
            _ if self.json => self.say(json!({ "error": json::failure(failure) })),
            Failure::Interrupted => self.say("interrupted"),
            _ => {
                self.trouble(failure);
                if let Some(hint) = failure.next_step() {
                    self.say(format_args!("{HINT}hint:{HINT:#} {hint}"));
                }
                if let Some(more) = failure.more() {
                    self.say(format_args!("{HINT}usage:{HINT:#} {more}"));
                }
            }
        }
        failure.exit()
    }

    /// Waits for something, and says so at a terminal if it takes long.
    pub(crate) async fn wait<T>(&self, what: String, work: impl Future<Output = T>) -> T {
        if !self.terminals.stderr || self.quiet {
            return work.await;
        }
        self.now(what);
        self.lock().since = Some(Instant::now());
        let mut work = pin!(work);
        let mut frames = tokio::time::interval(FRAME);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.lock().text = None;
                    self.erase();
                    return done;
                }
                _ = frames.tick() => self.draw(),
            }
        }
    }

    /// What is being waited for now.
    pub(crate) fn now(&self, what: String) {
        self.lock().text = Some(what);
    }

    /// Keeps the line away while a person is asked, and lets it back afterwards.
    pub(crate) fn hold(&self, held: bool) {
        self.erase();
        self.lock().held = held;
    }

    fn draw(&self) {
        let mut status = self.lock();
        let waited = status.since.map(|since| since.elapsed()).unwrap_or_default();
        let Some(text) = status.text.clone().filter(|_| waited >= PATIENCE && !status.held) else { return };
        status.frame = (status.frame + 1) % FRAMES.len();
        let seconds = if waited.as_secs() > 1 { format!(" {} s", waited.as_secs()) } else { String::new() };
        let room = usize::from(self.width).saturating_sub(seconds.len() + 4);
        let text: String = text.chars().take(room).collect();
        let mut out = anstream::stderr().lock();
        let frame = FRAMES[status.frame];
        let _ = write!(out, "\r\x1b[2K{frame} {text}{DIM}{seconds}{DIM:#}").and_then(|()| out.flush());
        status.shown = true;
    }

    fn erase(&self) {
        let mut status = self.lock();
        if std::mem::take(&mut status.shown) {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
