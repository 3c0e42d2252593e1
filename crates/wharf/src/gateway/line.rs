//! The way back to a caller while its request is under way: progress, log messages, and in the legacy era questions.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::mpsc;

use super::notes::Notes;
use super::reel::Reel;
use super::stay::{Doing, Guest, Withdrawn};
use crate::connect::Progress;
use crate::host::Session;
use crate::mcp::{LogLevel, method};
use crate::names::{CallerName, ServerName, ToolName};
use crate::wire::{Json, Members, notification};

/// The way back. Cheap to clone; all clones lead to the same place, also when it moves.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<Inner>);

/// The other end of a line. Dropped, nobody reads any more.
#[derive(Debug)]
pub(super) struct NotesRead(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    way: Mutex<Way>,
    /// What waits for one reader.
    notes: Notes,
    /// Who is at the other end, and what for.
    guest: Guest,
    doing: OnceLock<Doing>,
}

#[derive(Debug)]
struct Way {
    goal: Goal,
    /// The token under which the caller wants to hear of progress.
    token: Option<Json>,
}

/// Where messages go.
#[derive(Clone, Debug)]
enum Goal {
    /// To the one reader of this line.
    Notes,
    /// To the one reader of another.
    NotesOf(Arc<Inner>),
    /// To where others write too.
    Channel(mpsc::Sender<Vec<u8>>),
    /// To a stream that can be read on after a break.
    Reel(Arc<Reel>),
}

// === impl Line ===

impl Line {
    /// A line, and its other end.
    pub(super) fn new(guest: Guest) -> (Self, NotesRead) {
        let line = Self::of(Goal::Notes, guest);
        let read = NotesRead(Arc::clone(&line.0));
        (line, read)
    }

    /// Over a channel that others use too.
    pub(super) fn over(notes: mpsc::Sender<Vec<u8>>, guest: &Guest) -> Self {
        Self::of(Goal::Channel(notes), guest.clone())
    }

    /// Over a stream that can be read on after a break.
    pub(super) fn through(reel: Arc<Reel>, guest: &Guest) -> Self {
        Self::of(Goal::Reel(reel), guest.clone())
    }

    fn of(goal: Goal, guest: Guest) -> Self {
        let way = Mutex::new(Way { goal, token: None });
        Self(Arc::new(Inner { way, notes: Notes::default(), guest, doing: OnceLock::new() }))
    }

    /// Who is at the other end.
    pub(super) fn caller(&self) -> &CallerName {
        self.0.guest.name()
    }

    /// Says what the request is about, before it is judged whether that is given.
    pub(super) fn is_for(&self, scope: &Session, server: &ServerName, tool: Option<&ToolName>) {
        let doing = || Doing { scope: scope.clone(), server: server.clone(), tool: tool.cloned() };
        self.0.doing.get_or_init(doing);
    }

    /// Whether the request may not go on, and why.
    pub(super) fn withdrawn(&self) -> Option<Withdrawn> {
        if self.0.guest.stay().is_over() {
            return Some(Withdrawn::Entry);
        }
        self.0.doing.get().is_some_and(|doing| !doing.is_given()).then_some(Withdrawn::Gift)
    }

    /// Who is at the other end, and of which server it wants something, as far as is known.
    pub(super) fn between(&self) -> (CallerName, Option<ServerName>) {
        (self.0.guest.name().clone(), self.0.doing.get().map(|doing| doing.server.clone()))
    }

    /// The caller wants to hear of progress under this token.
    pub(super) fn report_as(&self, token: Option<Json>) {
        // Most want to hear of none.
        if token.is_some() {
            self.lock().token = token;
        }
    }

    /// What goes on was asked for anew: from now on everything goes where this other line leads.
    pub(super) fn lead_to(&self, other: &Self) {
        let (goal, token) = {
            let way = other.lock();
            let goal = match &way.goal {
                Goal::Notes => Goal::NotesOf(Arc::clone(&other.0)),
                goal => goal.clone(),
            };
            (goal, way.token.clone())
        };
        *self.lock() = Way { goal, token };
        // What is under way is now the other's.
        if let Some(doing) = self.0.doing.get() {
            let _ = other.0.doing.set(doing.clone());
        }
    }

    /// Says something. A caller that does not read misses some of it; an answer is never held up. False if nobody
    /// reads any more.
    pub(super) fn say(&self, message: Vec<u8>) -> bool {
        match &self.lock().goal {
            Goal::Notes => self.0.notes.put(message).is_some(),
            Goal::NotesOf(other) => other.notes.put(message).is_some(),
            Goal::Channel(notes) => {
                !matches!(notes.try_send(message), Err(mpsc::error::TrySendError::Closed(_)))
            }
            Goal::Reel(reel) => reel.say(&message),
        }
    }

    /// Says something that must be heard now, or not at all. False if nobody reads.
    pub(super) fn ask(&self, message: &[u8]) -> bool {
        match &self.lock().goal {
            Goal::Notes => self.0.notes.put(message.to_vec()) == Some(true),
            Goal::NotesOf(other) => other.notes.put(message.to_vec()) == Some(true),
            Goal::Channel(notes) => notes.try_send(message.to_vec()).is_ok(),
            Goal::Reel(reel) => reel.say_now(message),
        }
    }

    /// Passes progress on under the token that the caller gave.
    pub(super) fn progress(&self, progress: &Progress) {
        let Some(token) = self.lock().token.clone() else { return };
        let mut params = Members::new();
        params.json("progressToken", &token);
        match &progress.raw {
            Some(raw) => params.append_without(raw, &["progressToken"]),
            None => {
                params.json("progress", &Json::of(&progress.progress));
                if let Some(total) = progress.total {
                    params.json("total", &Json::of(&total));
                }
                if let Some(message) = &progress.message {
                    params.text("message", message.raw());
                }
                &mut params
            }
        };
        self.say(notification(method::PROGRESS, &params));
    }

    /// Passes a log message on, if it is grave enough.
    pub(super) fn log(&self, from: Option<LogLevel>, params: &Json) {
        let level = params.member("level").and_then(|level| level.to::<String>().ok());
        let level = level.as_deref().and_then(LogLevel::parse);
        if from.is_none_or(|from| level.is_none_or(|level| level >= from)) {
            self.say(notification(method::MESSAGE, &Members::of(params)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Way> {
        self.0.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl NotesRead ===

impl Deref for NotesRead {
    type Target = Notes;

    fn deref(&self) -> &Notes {
        &self.0.notes
    }
}

impl Drop for NotesRead {
    fn drop(&mut self) {
        self.close();
    }
}
