//! What a server writes into a pipe or a socket, line by line into the inbox: read by a call that waits for its answer,
//! if one does, and by a task otherwise.
//!
//! A call that reads its own answer saves waking a task that would only wake the call. Whoever reads, reads until nothing
//! is left; then the pipe rings the [`Bell`], which knows whose turn it is. What became of the program is not judged
//! here: the end of the stream is always the task's.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use futures_util::task::AtomicWaker;
use tokio::io::AsyncReadExt;
use tokio::net::unix::{OwnedReadHalf, pipe};

use super::inbox::{Closed, Inbox};
use crate::linger::{self, For};
use crate::wire::{Line, Lines, Malformed};

/// What lines are read from.
pub(super) enum Inlet {
    Stdout(pipe::Receiver),
    Socket(OwnedReadHalf),
}

/// The lines of a server, for everyone who may read them.
pub(super) struct Reader {
    /// What errors call that which is read.
    name: &'static str,
    inbox: Arc<Inbox>,
    /// The inbox's bell, as the pipe knows it.
    waker: Waker,
    claim: AtomicU8,
    /// Whether whole lines may be left of what was read.
    left: AtomicBool,
    /// Only locked by who has the claim, and at the end. `None` then.
    source: Mutex<Option<Source>>,
}

struct Source {
    inlet: Inlet,
    lines: Lines,
    banner: Banner,
    /// How the stream ended, if a call saw it: for the task.
    end: Option<io::Result<usize>>,
}

/// Whom the pipe wakes: the call whose turn it is, or the task.
pub(super) struct Bell {
    turn: Mutex<Whose>,
    /// The call that it rang for, as long as it was told of no other: that one need not ask whether it is still its turn.
    rang: AtomicU64,
    task: AtomicWaker,
}

enum Whose {
    /// The task's, unless a call wants it.
    Free,
    /// This call's.
    Of(u64, Waker),
    /// The task's.
    Task,
}

/// A call's turn to read, which it may or may not have. Dropped, it is passed on.
pub(super) struct Turn<'a> {
    reader: &'a Reader,
    call: u64,
    /// The bell was told of this call. If it does not know it any more, it rang for it.
    told: bool,
}

/// The right to read. Whoever wanted it meanwhile is made up for.
struct Claim<'a>(&'a Reader);

/// What a call left behind.
#[derive(PartialEq)]
enum Left {
    Nothing,
    More,
}

/// How many lines in a row may be no JSON at all: programs print greetings.
struct Banner {
    left: usize,
}

/// As many messages are taken in one turn.
const MOST: usize = 128;
/// And so many that answer nothing. They are told to others on the way, which takes longer than to take an answer.
const MOST_UNASKED: u64 = 16;
/// No call has this number.
const NOBODY: u64 = u64::MAX;
/// Nobody reads.
const FREE: u8 = 0;
/// Somebody reads.
const READING: u8 = 1;
/// Somebody reads, and somebody else wanted to.
const WANTED: u8 = 2;

// === impl Inlet ===

impl Inlet {
    fn name(&self) -> &'static str {
        match self {
            Self::Stdout(_) => "its standard output",
            Self::Socket(_) => "the socket",
        }
    }
}

// === impl Reader ===

impl Reader {
    pub(super) fn new(inlet: Inlet, inbox: Arc<Inbox>) -> Self {
        let name = inlet.name();
        let lines = Lines::new(inbox.limits.line);
        let banner = Banner { left: inbox.limits.banner_lines };
        let source = Mutex::new(Some(Source { inlet, lines, banner, end: None }));
        let waker = Waker::from(Arc::clone(&inbox.bell));
        let (claim, left) = (AtomicU8::new(FREE), AtomicBool::new(false));
        Self { name, inbox, waker, claim, left, source }
    }

    /// What errors call that which is read.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The task's read: how much came, which may be nothing at the end. Pending too while a call reads.
    pub(super) fn poll_read(&self, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        self.inbox.bell.task.register(cx.waker());
        let Some(_claim) = self.claim() else { return Poll::Pending };
        match self.lock().as_mut() {
            Some(source) => match source.end.take() {
                Some(end) => Poll::Ready(end),
                None => source.poll_read(self, false),
            },
            None => Poll::Ready(Ok(0)),
        }
    }

    /// Whether so much came at once that others should have their turn before the rest of it: a server that floods must not
    /// keep them waiting. One long message is no flood.
    pub(super) fn is_flooded(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// From now on only the task reads.
    pub(super) fn keep_for_task(&self) {
        let before = std::mem::replace(&mut *self.inbox.bell.lock(), Whose::Task);
        drop(before);
    }

    /// The last line, of a stream that ended without a line break. The pipe is closed.
    pub(super) fn finish(&self) -> Option<Line> {
        self.lock().take().and_then(|mut source| source.lines.last_line())
    }

    /// A turn for a call, which it may take when it begins to wait.
    pub(super) fn turn(&self, call: u64) -> Turn<'_> {
        Turn { reader: self, call, told: false }
    }

    /// A call's read: until nothing is left, or its answer is among what came. It may linger once, if nothing is there.
    fn read_until(&self, answered: impl Fn() -> bool, mut may_linger: bool) -> Left {
        // Whoever has the claim, or gets it next, reads on.
        let Some(_claim) = self.claim() else { return Left::Nothing };
        let mut source = self.lock();
        let Some(source) = source.as_mut().filter(|source| source.end.is_none()) else {
            return Left::Nothing;
        };
        let mut last = false;
        loop {
            match source.poll_read(self, std::mem::take(&mut may_linger)) {
                Poll::Pending => return Left::Nothing,
                Poll::Ready(Ok(n)) if n > 0 && !last => last = answered() || self.is_flooded(),
                Poll::Ready(Ok(n)) if n > 0 => return Left::More,
                Poll::Ready(end) => {
                    source.end = Some(end);
                    self.inbox.bell.task.wake();
                    return Left::Nothing;
                }
            }
        }
    }

    fn claim(&self) -> Option<Claim<'_>> {
        let mut seen = FREE;
        loop {
            let next = if seen == FREE { READING } else { WANTED };
            match self.claim.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (seen == FREE).then_some(Claim(self)),
                Err(now) => seen = now,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Source>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.0.claim.swap(FREE, Ordering::AcqRel) == WANTED {
            self.0.inbox.bell.task.wake();
        }
    }
}

// === impl Turn ===

impl Turn<'_> {
    /// Whether this call waited for its turn, and may read now.
    pub(super) fn has_come(&self) -> bool {
        self.told
    }

    /// Reads until nothing is left, or the answer is there.
    pub(super) fn read(&mut self, answered: impl Fn() -> bool) {
        self.told = false;
        if !self.reader.inbox.bell.rang_for(self.call) {
            self.reader.inbox.bell.forget(self.call);
        }
        if self.reader.read_until(answered, false) == Left::More {
            self.reader.inbox.bell.ring();
        }
    }

    /// Whether it is its turn, and this thread may linger.
    pub(super) fn may_linger(&self) -> bool {
        self.told && linger::allowed().server > 0
    }

    /// Lingers, and reads what has come by then. It stays its turn.
    pub(super) fn linger(&self, answered: impl Fn() -> bool) {
        if self.reader.read_until(answered, true) == Left::More {
            self.reader.inbox.bell.ring();
        }
    }

    /// Lets the bell ring for this call, if it does for no other. What is there now was read by others, or is by them.
    pub(super) fn wait(&mut self, waker: &Waker) {
        self.told = self.reader.inbox.bell.tell(self.call, waker);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.told && !self.reader.inbox.bell.forget(self.call) {
            // It rang for this call, which has not read: somebody else must.
            self.reader.inbox.bell.ring();
        }
    }
}

// === impl Bell ===

impl Bell {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            turn: Mutex::new(Whose::Free),
            rang: AtomicU64::new(NOBODY),
            task: AtomicWaker::new(),
        })
    }

    /// A call that does not come though the bell rang must not keep the others waiting: the task reads.
    pub(super) fn call_task(&self) {
        drop(self.give_up(|_| true));
        self.task.wake();
    }

    fn ring(&self) {
        match self.give_up(|_| true) {
            Some(waker) => waker.wake(),
            None => self.task.wake(),
        }
    }

    /// False if it is another's turn.
    fn tell(&self, call: u64, waker: &Waker) -> bool {
        let mut turn = self.lock();
        let free = matches!(*turn, Whose::Free);
        if free {
            self.rang.store(NOBODY, Ordering::Relaxed);
            *turn = Whose::Of(call, waker.clone());
        }
        free
    }

    /// Whether it rang for this call, which was told since of no other turn. Only for the call itself: its own poll was woken by
    /// the ringing, and so sees what was written before.
    fn rang_for(&self, call: u64) -> bool {
        self.rang.load(Ordering::Relaxed) == call
    }

    /// False if it is not this call's turn.
    fn forget(&self, call: u64) -> bool {
        self.give_up(|whose| whose == call).is_some()
    }

    /// Ends the turn of a call. Its waker is used and dropped where nothing is locked: that may run anything.
    fn give_up(&self, is_meant: impl Fn(u64) -> bool) -> Option<Waker> {
        let mut turn = self.lock();
        match &*turn {
            Whose::Of(call, _) if is_meant(*call) => match std::mem::replace(&mut *turn, Whose::Free) {
                Whose::Of(call, waker) => {
                    self.rang.store(call, Ordering::Relaxed);
                    Some(waker)
                }
                Whose::Free | Whose::Task => None,
            },
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Whose> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

// === impl Source ===

impl Source {
    /// Passes on what is left of the last read, or reads once and passes on the lines that are whole now.
    fn poll_read(&mut self, reader: &Reader, may_linger: bool) -> Poll<io::Result<usize>> {
        if reader.is_flooded() {
            let passed = self.pass_on(reader);
            if passed > 0 {
                return Poll::Ready(Ok(passed));
            }
        }
        let n = match self.poll_fill(reader) {
            Poll::Pending if may_linger => self.linger().map_or(Poll::Pending, Poll::Ready),
            filled => filled,
        };
        let n = ready!(n)?;
        self.pass_on(reader);
        Poll::Ready(Ok(n))
    }

    fn poll_fill(&mut self, reader: &Reader) -> Poll<io::Result<usize>> {
        let cx = &mut Context::from_waker(&reader.waker);
        loop {
            let room = self.lines.room();
            let read = ready!(match &mut self.inlet {
                Inlet::Stdout(pipe) => pin!(pipe.read_buf(room)).poll(cx),
                Inlet::Socket(socket) => pin!(socket.read_buf(room)).poll(cx),
            });
            match read {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// What comes while this thread lingers.
    fn linger(&mut self) -> Option<io::Result<usize>> {
        let room = self.lines.room();
        let read = match &self.inlet {
            Inlet::Stdout(pipe) => linger::read(For::Server, pipe, room),
            Inlet::Socket(socket) => linger::read(For::Server, socket.as_ref(), room),
        };
        read.map(Ok)
    }

    /// Passes on as many lines as a turn has, and says how many those were.
    fn pass_on(&mut self, reader: &Reader) -> usize {
        let (unasked, mut passed) = (reader.inbox.unasked(), 0);
        let is_over = |passed| passed == MOST || reader.inbox.unasked() - unasked >= MOST_UNASKED;
        while !is_over(passed) {
            let Some(line) = self.lines.next_line() else { break };
            take_line(&reader.inbox, line, &mut self.banner, reader.name);
            passed += 1;
        }
        if self.lines.is_discarding() {
            let limit = reader.inbox.limits.line;
            reader.inbox.puzzle(|| format!("its line has more than {limit} bytes, which is the limit"));
        }
        reader.left.store(is_over(passed), Ordering::Relaxed);
        passed
    }
}

fn take_line(inbox: &Inbox, line: Line, banner: &mut Banner, source: &str) {
    match line {
        Line::Text(text) if !matches!(text.trim_ascii_start().first(), Some(b'{' | b'[')) => {
            inbox.chatter();
            if banner.left == 0 {
                let text = String::from_utf8_lossy(&text);
                let shown = inbox.monitor.redactor.redact_beginning(&text, 200).into_owned();
                let reason = format!(
                    "it writes other things than messages to {source}, for example `{}`",
                    crate::text::Escaped(&shown)
                );
                inbox.close(Closed { reason, protocol: true });
                return;
            }
            banner.left -= 1;
        }
        Line::Text(text) => {
            banner.left = inbox.limits.banner_lines;
            inbox.take(text);
        }
        Line::TooLong { id, length } => {
            let limit = inbox.limits.line;
            let reason = format!("its line has {length} bytes, more than the limit of {limit}");
            inbox.malformed(Malformed::new(id, reason));
        }
    }
}
