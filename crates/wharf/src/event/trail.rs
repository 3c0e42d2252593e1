//! The way of facts to whoever keeps the record. Unlike the bus it loses nothing: it is bounded, whoever wants to do
//! something waits for room, and where the record cannot be written nothing is done.
//!
//! In: [`Fact`]s of every room. Out: groups of them for the one keeper, which tells whether it can write.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::fact::Fact;
use crate::error::{Error, Result};

/// Where facts go. Cheap to clone; without a keeper it costs nothing. When the last clone goes, the keeper ends.
#[derive(Clone, Debug, Default)]
pub struct Trail(Option<Arc<Sender>>);

/// A call that is on record and under way. Dropped before its end, it is on record as given up.
#[derive(Debug)]
pub struct Entry {
    trail: Arc<Sender>,
    number: u64,
    over: bool,
}

/// How something ended.
#[derive(Clone, Debug)]
pub struct End {
    /// `ok`, or the kind of an error.
    pub outcome: &'static str,
    /// How long it took; `None` if nobody waited for the end.
    pub took: Option<Duration>,
    /// Why, in words, escaped.
    pub reason: Option<String>,
}

/// The other end, for the one keeper.
#[derive(Debug)]
pub struct Facts(Arc<Shared>);

/// What came in since the last time.
#[derive(Debug, Default)]
pub struct Batch {
    /// What came, in order.
    pub news: Vec<News>,
    /// How many facts there was no room for.
    pub lost: u64,
    /// Who wants to know when this much is written.
    pub waiting: Vec<oneshot::Sender<Result<()>>>,
    /// Nothing more will come.
    pub last: bool,
}

/// One thing that comes to the keeper.
#[derive(Debug)]
pub enum News {
    /// Something happened.
    Fact(Box<Fact>),
    /// A call begins.
    Begin(u64, Box<Fact>),
    /// That call has ended.
    End(u64, End),
}

#[derive(Debug)]
struct Sender(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There is something for a keeper that sleeps.
    more: Condvar,
    /// There is room again.
    room: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    batch: Batch,
    numbers: u64,
    /// The keeper waits to be woken. Otherwise it comes by itself, and waking it would only cost.
    asleep: bool,
    /// Why nothing can be written.
    trouble: Option<Arc<str>>,
    /// Facts that were written. Memory is freed soonest by whoever took it, so they go back to those who bring new ones.
    spent: Spent,
}

type Spent = Vec<Box<Fact>>;

/// How many facts may wait to be written before calls wait for room.
const WAITING: usize = 8192;
/// What is no call may take so much more before it is lost, and counted.
const RESERVE: usize = 8192;
/// How many facts that were written may wait to go back.
const SPENT: usize = 1024;
/// How long a call waits for room.
const PATIENCE: Duration = Duration::from_secs(1);

// === impl Trail ===

impl Trail {
    /// A trail, and the end of it for whoever keeps the record.
    pub fn new() -> (Self, Facts) {
        let shared = Arc::<Shared>::default();
        (Self(Some(Arc::new(Sender(Arc::clone(&shared))))), Facts(shared))
    }

    /// Whether anybody keeps a record.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Whether anything may be done: not while it could not be written down.
    pub fn ready(&self) -> Result<()> {
        match &self.0 {
            Some(sender) => sender.0.lock().ready(),
            None => Ok(()),
        }
    }

    /// Puts a call on record before it is made. An error: it must not be made.
    pub async fn begin(&self, fact: impl FnOnce() -> Fact) -> Result<Option<Entry>> {
        let Some(sender) = &self.0 else { return Ok(None) };
        let mut fact = Box::new(fact());
        loop {
            match sender.begin(fact)? {
                Ok(entry) => return Ok(Some(entry)),
                Err(back) => fact = back,
            }
            let room = sender.0.room.notified();
            // Looked for again, as room may have been made before it was listened for.
            match sender.begin(fact)? {
                Ok(entry) => return Ok(Some(entry)),
                Err(back) => fact = back,
            }
            if tokio::time::timeout(PATIENCE, room).await.is_err() {
                let reason = format!("it takes longer than {} ms to be written", PATIENCE.as_millis());
                return Err(Error::Audit { reason });
            }
        }
    }

    /// Puts something on record, waiting for room if there is none. For what happens at a caller's wish.
    pub async fn note(&self, fact: impl FnOnce() -> Fact) {
        let Some(sender) = &self.0 else { return };
        let room = sender.0.room.notified();
        let is_full = sender.0.lock().batch.news.len() >= WAITING;
        if is_full {
            // In vain: then it is counted, if there is no room for it at all.
            let _ = tokio::time::timeout(PATIENCE, room).await;
        }
        self.record(fact);
    }

    /// Puts something on record. What there is no room for is counted.
    pub fn record(&self, fact: impl FnOnce() -> Fact) {
        let Some(sender) = &self.0 else { return };
        let fact = Box::new(fact());
        let mut queue = sender.0.lock();
        if queue.batch.news.len() >= WAITING + RESERVE {
            queue.batch.lost += 1;
            return;
        }
        sender.0.push(queue, News::Fact(fact));
    }

    /// Waits until everything so far is written, and says whether it is.
    pub async fn flush(&self) -> Result<()> {
        let Some(sender) = &self.0 else { return Ok(()) };
        let (tell, told) = oneshot::channel();
        {
            let mut queue = sender.0.lock();
            queue.batch.waiting.push(tell);
            sender.0.wake(queue);
        }
        told.await.unwrap_or_else(|_| Err(Error::Audit { reason: "nobody keeps it any more".into() }))
    }
}

// === impl Sender ===

impl Sender {
    /// Puts a call on record, if there is room; otherwise it comes back.
    fn begin(self: &Arc<Self>, fact: Box<Fact>) -> Result<std::result::Result<Entry, Box<Fact>>> {
        let mut queue = self.0.lock();
        queue.ready()?;
        if queue.batch.news.len() >= WAITING {
            return Ok(Err(fact));
        }
        queue.numbers += 1;
        let number = queue.numbers;
        self.0.push(queue, News::Begin(number, fact));
        Ok(Ok(Entry { trail: Arc::clone(self), number, over: false }))
    }
}

// === impl Entry ===

impl Entry {
    /// The call has ended.
    pub fn end(mut self, end: End) {
        self.over = true;
        self.trail.0.end(self.number, end);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.over {
            let reason = Some("whoever called gave up".to_owned());
            self.trail.0.end(self.number, End { outcome: "cancelled", took: None, reason });
        }
    }
}

// === impl Facts ===

impl Facts {
    /// Waits for something to write, then lets more of it come for a while, so that it is written together. Nothing, if
    /// nothing came within `idle`.
    pub fn take(&self, gather: Duration, idle: Option<Duration>) -> Batch {
        let shared = &self.0;
        let mut queue = shared.lock();
        queue.asleep = queue.batch.is_empty();
        if queue.asleep {
            // Nobody may come for long.
            let spent = std::mem::take(&mut queue.spent);
            drop(queue);
            drop(spent);
            queue = shared.lock();
            queue.asleep = queue.batch.is_empty();
        }
        let nothing = |queue: &mut Queue| queue.batch.is_empty();
        queue = match idle {
            None => shared.more.wait_while(queue, nothing).unwrap_or_else(PoisonError::into_inner),
            Some(idle) => {
                let waited = shared.more.wait_timeout_while(queue, idle, nothing);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        queue.asleep = false;
        if queue.batch.is_empty() {
            return Batch::default();
        }
        shared.gather(queue, gather)
    }

    /// Waits a while for more, whether or not there is something, and takes it all.
    pub fn gather(&self, gather: Duration) -> Batch {
        self.0.gather(self.0.lock(), gather)
    }

    /// Gives back what was written.
    pub fn give_back(&self, spent: impl Iterator<Item = Box<Fact>>) {
        let mut queue = self.0.lock();
        let room = SPENT.saturating_sub(queue.spent.len());
        let mut spent = spent;
        queue.spent.extend(spent.by_ref().take(room));
        drop(queue);
        drop(spent);
    }

    /// Says whether it can be written, and if not, why.
    pub fn tell(&self, trouble: Option<&str>) {
        let mut queue = self.0.lock();
        if queue.trouble.as_deref() != trouble {
            queue.trouble = trouble.map(Arc::from);
        }
    }
}

impl Drop for Facts {
    fn drop(&mut self) {
        // Whoever waits is told by the loss of its channel; whoever comes later, by this.
        self.tell(Some("nobody keeps it any more"));
        self.0.lock().batch.waiting.clear();
        self.0.room.notify_waiters();
    }
}

// === impl Batch ===

impl Batch {
    fn is_empty(&self) -> bool {
        self.news.is_empty() && self.lost == 0 && self.waiting.is_empty() && !self.last
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, news: News) {
        let spent = queue.spent.pop();
        queue.batch.news.push(news);
        if queue.asleep {
            self.wake(queue);
        } else {
            drop(queue);
        }
        drop(spent);
    }

    /// Lets more come for a while, unless somebody waits for it to be written.
    fn gather(&self, queue: MutexGuard<'_, Queue>, gather: Duration) -> Batch {
        let in_no_haste = |queue: &mut Queue| queue.batch.waiting.is_empty() && !queue.batch.last;
        let waited = self.more.wait_timeout_while(queue, gather, in_no_haste);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        let batch = std::mem::take(&mut queue.batch);
        // What is last stays last: whoever takes once more gets nothing, and need not wait for it.
        queue.batch.last = batch.last;
        drop(queue);
        self.room.notify_waiters();
        batch
    }

    /// The end of what was begun always has room: there are no more ends than beginnings.
    fn end(&self, number: u64, end: End) {
        self.push(self.lock(), News::End(number, end));
    }

    fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        queue.asleep = false;
        drop(queue);
        self.more.notify_one();
    }
}

// === impl Queue ===

impl Queue {
    fn ready(&self) -> Result<()> {
        match &self.trouble {
            Some(reason) => Err(Error::Audit { reason: reason.to_string() }),
            None => Ok(()),
        }
    }
}

// === impl Sender ===

impl Drop for Sender {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.batch.last = true;
        self.0.wake(queue);
    }
}
