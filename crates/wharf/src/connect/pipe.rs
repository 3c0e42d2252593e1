//! Messages as lines, over the pipes of a program or a Unix socket: one ordered writer, one reader at a time.
//!
//! A message is written by whoever sends it, at once, if the pipe has room and nobody waits in front; otherwise it
//! queues and a task writes it. So the order of sending is the order on the wire, and a lone call costs no detour. Where
//! many calls are under way their messages queue on purpose: the task writes together what was sent meanwhile.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedWriteHalf, pipe};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::inbox::{Closed, Inbox};
use super::link::{LinkFailure, Outgoing, Sent};
use super::reader::{Inlet, Reader, Turn};
use super::stdio::{Child, Ending};
use crate::error::StderrTail;
use crate::wire::Line;

/// The standard input and output of a program, or a socket.
pub(crate) struct PipeLink {
    writer: Arc<Writer>,
    reader: Arc<Reader>,
    inbox: Arc<Inbox>,
    /// The program, if we started it.
    child: Option<Child>,
}

/// What lines are written to.
enum Outlet {
    Stdin(pipe::Sender),
    Socket(OwnedWriteHalf),
}

struct Writer {
    queue: Mutex<Queue>,
    /// Rung when the queue got something to write, or was closed.
    bell: Notify,
    /// What errors call that which is written to.
    name: &'static str,
}

struct Queue {
    /// `None` once the link is closed: dropping it is what closes the server's standard input.
    pipe: Option<Arc<Outlet>>,
    bytes: BytesMut,
    /// How many bytes went into the pipe since the start.
    written: u64,
    /// Why it cannot be written any more, though nobody closed it.
    broken: Option<String>,
}

/// What may wait for a server that does not read. A request of ten megabytes still fits.
const QUEUE_MAX: usize = 32 * 1024 * 1024;
/// How long the reader has to tell how a server ended that takes nothing any more.
const SOON: Duration = Duration::from_secs(2);

impl PipeLink {
    /// Starts reading and writing. The reader ends when the server closes its side.
    pub(crate) fn start(
        child: Child,
        stdin: pipe::Sender,
        stdout: pipe::Receiver,
        inbox: Arc<Inbox>,
    ) -> Self {
        Self::over(Inlet::Stdout(stdout), Outlet::Stdin(stdin), inbox, Some(child))
    }

    /// The same over a socket.
    pub(crate) fn over_socket(stream: UnixStream, inbox: Arc<Inbox>) -> Self {
        let (input, output) = stream.into_split();
        Self::over(Inlet::Socket(input), Outlet::Socket(output), inbox, None)
    }

    fn over(inlet: Inlet, outlet: Outlet, inbox: Arc<Inbox>, child: Option<Child>) -> Self {
        let name = outlet.name();
        let queue = Mutex::new(Queue {
            pipe: Some(Arc::new(outlet)),
            bytes: BytesMut::new(),
            written: 0,
            broken: None,
        });
        let writer = Arc::new(Writer { queue, bell: Notify::new(), name });
        tokio::spawn(write_on(Arc::clone(&writer), Arc::clone(&inbox)));
        let reader = Arc::new(Reader::new(inlet, Arc::clone(&inbox)));
        let ending = child.as_ref().map(Child::ending);
        tokio::spawn(read_on(Reading(Arc::clone(&reader)), Arc::clone(&inbox), ending));
        let back = Arc::downgrade(&writer);
        inbox.answer_through(move |frame| {
            if let Some(writer) = back.upgrade() {
                // A closed pipe is noticed by the reader too; an answer to a server that left is not missed.
                let _ = writer.send(frame, false);
            }
        });
        Self { writer, reader, inbox, child }
    }

    /// Sends a request, at the first poll. Its answer comes through the reader.
    pub(crate) async fn carry(&self, out: Outgoing<'_>) -> Result<Sent, LinkFailure> {
        self.inbox.monitor.traffic(&self.inbox.server, true, &out.frame);
        match self.writer.send(out.frame, out.crowded) {
            Ok(start) => Ok(Sent(start)),
            // The reader knows more of a server that left: how it ended, and its last words.
            Err(reason) if self.writer.is_closed() => {
                let closed = tokio::time::timeout(SOON, self.inbox.until_closed()).await;
                Err(LinkFailure::NotSent(closed.map_or(reason, |closed| closed.reason)))
            }
            Err(reason) => Err(LinkFailure::NotSent(reason)),
        }
    }

    /// A turn for a call to read its answer itself.
    pub(super) fn turn(&self, call: u64) -> Turn<'_> {
        self.reader.turn(call)
    }

    /// Whether any byte of a request went into the pipe.
    pub(crate) fn reached(&self, sent: Sent) -> bool {
        self.writer.lock().written > sent.0
    }

    pub(crate) fn notify(&self, frame: Vec<u8>) {
        self.inbox.monitor.traffic(&self.inbox.server, true, &frame);
        let _ = self.writer.send(frame, false);
    }

    pub(crate) async fn close(&self) {
        self.end_input();
        if let Some(child) = &self.child {
            child.stop().await;
        }
        self.inbox.close(Closed::by_us());
    }

    /// What its words about a call that failed may mean, where it is confined.
    pub(crate) fn advice(&self, said: &str) -> Option<String> {
        self.child.as_ref()?.advice(said)
    }

    pub(crate) fn stderr(&self) -> StderrTail {
        self.child.as_ref().map(Child::stderr).unwrap_or_default()
    }

    fn end_input(&self) {
        if let Some(child) = &self.child {
            child.mark_tree();
        }
        self.writer.close();
    }
}

impl Drop for PipeLink {
    fn drop(&mut self) {
        self.end_input();
        self.inbox.close(Closed::by_us());
    }
}

// === impl Outlet ===

impl Outlet {
    fn name(&self) -> &'static str {
        match self {
            Self::Stdin(_) => "its standard input",
            Self::Socket(_) => "the socket",
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdin(pipe) => pipe.try_write(bytes),
            Self::Socket(socket) => socket.try_write(bytes),
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Stdin(pipe) => pipe.writable().await,
            Self::Socket(socket) => socket.writable().await,
        }
    }
}

// === impl Writer ===

impl Writer {
    /// Takes a frame, and says at which byte of the stream it starts. It may go out with those that come next.
    fn send(&self, mut frame: Vec<u8>, together: bool) -> Result<u64, String> {
        frame.push(b'\n');
        let mut queue = self.lock();
        let start = queue.written + queue.bytes.len() as u64;
        let waiting = together || !queue.bytes.is_empty();
        if queue.bytes.len() > QUEUE_MAX {
            return Err(format!("it does not read {}, and too much waits for it", self.name));
        }
        let rest = if waiting { &frame[..] } else { &frame[self.write(&mut queue, &frame)?..] };
        if queue.pipe.is_none() {
            return Err(format!("{} is closed", self.name));
        }
        if !rest.is_empty() {
            queue.bytes.extend_from_slice(rest);
            drop(queue);
            self.bell.notify_one();
        }
        Ok(start)
    }

    /// Writes as much as the pipe takes now. Whoever writes on hears of one that takes nothing any more.
    fn write(&self, queue: &mut Queue, bytes: &[u8]) -> Result<usize, String> {
        queue.write(bytes).inspect_err(|_| self.bell.notify_one())
    }

    /// No more is taken; the server sees the end of its standard input.
    fn close(&self) {
        let mut queue = self.lock();
        queue.pipe = None;
        queue.bytes.clear();
        drop(queue);
        self.bell.notify_one();
    }

    fn is_closed(&self) -> bool {
        self.lock().pipe.is_none()
    }

    /// Writes what waits. Gives the pipe if it must have room first, and nothing at all once it is closed.
    fn write_waiting(&self) -> Option<Option<Arc<Outlet>>> {
        let mut queue = self.lock();
        let pipe = queue.pipe.clone()?;
        let mut bytes = std::mem::take(&mut queue.bytes);
        let n = queue.write(&bytes).ok()?;
        bytes.advance(n);
        queue.bytes = bytes;
        Some((!queue.bytes.is_empty()).then_some(pipe))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Writes as much as the pipe takes now; returns how much that was.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let Some(pipe) = &self.pipe else {
            return Err("it is closed".into());
        };
        let result = loop {
            match pipe.try_write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        match result {
            Ok(n) => {
                self.written += n as u64;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => {
                let reason = format!("{} cannot be written: {e}", pipe.name());
                self.pipe = None;
                self.broken = Some(reason.clone());
                Err(reason)
            }
        }
    }
}

/// Writes what could not be written at once, until the link is closed. A server that takes nothing any more is lost,
/// even if it lives and its standard output is open.
async fn write_on(writer: Arc<Writer>, inbox: Arc<Inbox>) {
    while let Some(pipe) = writer.write_waiting() {
        match pipe {
            None => writer.bell.notified().await,
            Some(pipe) => tokio::select! {
                ready = pipe.writable() => if ready.is_err() { return },
                () = writer.bell.notified() => {}
            },
        }
    }
    let Some(reason) = writer.lock().broken.clone() else { return };
    // The reader has more to say of the end, if there was one.
    let _ = tokio::time::timeout(SOON, inbox.until_closed()).await;
    inbox.close(Closed { reason, protocol: false });
}

/// What ends the reading, beside the end of what is read.
enum End {
    Closed,
    Exited,
}

/// The reading of a server's messages. Dropped, it closes what is read, whoever else knows the reader.
struct Reading(Arc<Reader>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Reads messages until the server closes its side. `ending` is how the program ends that writes them, if it is one of
/// ours.
async fn read_on(reading: Reading, inbox: Arc<Inbox>, ending: Option<Ending>) {
    let reader = &reading.0;
    // Together, so that a read that has nothing to do with them costs one look at both.
    let mut ends = FuturesUnordered::<Pin<Box<dyn Future<Output = End> + Send>>>::new();
    let closing = Arc::clone(&inbox);
    ends.push(Box::pin(async move {
        closing.until_closed().await;
        End::Closed
    }));
    if let Some(mut process) = ending.clone() {
        ends.push(Box::pin(async move {
            process.exited().await;
            End::Exited
        }));
    }
    // Something that the server started may hold its standard output open for ever: a dead server is at its end too, as
    // soon as what it wrote was read.
    let mut dead_since = None;
    let why = loop {
        let read = tokio::select! {
            biased;
            read = poll_fn(|cx| reader.poll_read(cx)) => read,
            Some(end) = ends.next() => match end {
                // Closed from our side: the pipe goes, and with it what the server still writes.
                End::Closed => return,
                End::Exited => {
                    dead_since = Some(Instant::now());
                    reader.keep_for_task();
                    continue;
                }
            },
            // Lazily: as a plain expression it would be made, with a look at the clock, for every read.
            () = async { tokio::time::sleep(LAST_READ).await }, if dead_since.is_some() => {
                break end(ending, reader.name()).await
            }
        };
        if dead_since.is_some_and(|since| since.elapsed() > LAST_READS) {
            break end(ending, reader.name()).await;
        }
        match read {
            Ok(0) => break end(ending, reader.name()).await,
            Ok(_) if inbox.is_closed() => return,
            Ok(_) if reader.is_flooded() => tokio::task::yield_now().await,
            Ok(_) => {}
            Err(e) => break format!("{} cannot be read: {e}", reader.name()),
        }
    };
    // A server may leave its last line break out. Half a message is none: its call ends with the connection.
    if let Some(Line::Text(text)) = reader.finish() {
        inbox.take_last(text);
    }
    inbox.close(Closed { reason: why, protocol: false });
}

/// Why what is read is at its end.
async fn end(ending: Option<Ending>, name: &str) -> String {
    match ending {
        Some(ending) => ending.wait().await,
        None => format!("it closed {name}"),
    }
}

/// How long nothing more must come from a dead server until it is taken to be all, and how long it may take altogether.
const LAST_READ: Duration = Duration::from_millis(50);
const LAST_READS: Duration = Duration::from_secs(2);
