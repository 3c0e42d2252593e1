//! One clock for all calls.
//!
//! A timer of its own costs a call more than most calls take to be answered. So a call has none at first: somebody looks
//! now and then who still waits, and only those watch their deadlines from then on. That is a thread for the whole
//! process: while the runtime has any timer at all, however far away, each of its waits costs more. Where the runtime's
//! clock is not the world's, as in tests that stop it, a task looks instead, by that clock.

use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use tokio::runtime::Handle;

use super::inbox::Inbox;

/// A connection whose calls are looked after.
struct Watched {
    inbox: Weak<Inbox>,
    /// How many looks in a row found nobody.
    idle: u32,
    /// Where its calls run.
    runtime: Handle,
}

/// How often somebody looks. Calls with less time than two of these watch their deadlines from the beginning.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// How many looks in a row may find nobody before nobody looks any more.
const IDLE_TICKS: u32 = 20;

/// Sees to it that somebody looks. Call it when a call has begun to wait.
pub(super) fn keep(inbox: &Arc<Inbox>) {
    if !inbox.start_clock() {
        return;
    }
    let watched = Watched { inbox: Arc::downgrade(inbox), idle: 0, runtime: Handle::current() };
    let refused = match thread().filter(|_| is_real_time()) {
        Some(thread) => thread.send(watched).err().map(|refused| refused.0),
        None => Some(watched),
    };
    if let Some(mut watched) = refused {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                if !watched.look() {
                    return;
                }
            }
        });
    }
}

/// Whether the runtime's clock goes as the world's. One that is stopped, or was, is behind it or ahead of it.
fn is_real_time() -> bool {
    let before = std::time::Instant::now();
    let now = tokio::time::Instant::now().into_std();
    (before..=std::time::Instant::now()).contains(&now)
}

/// The thread that looks, started when it is first needed. `None` if it cannot be.
fn thread() -> Option<&'static mpsc::Sender<Watched>> {
    static THREAD: OnceLock<Option<mpsc::Sender<Watched>>> = OnceLock::new();
    let start = || {
        let (sender, new) = mpsc::channel();
        let started = std::thread::Builder::new().name("wharf-clock".into()).spawn(move || watch(&new));
        started.ok().map(|_| sender)
    };
    THREAD.get_or_init(start).as_ref()
}

/// Sleeps while there is nobody to look after.
fn watch(new: &mpsc::Receiver<Watched>) {
    let mut all = Vec::new();
    loop {
        if all.is_empty() {
            let Ok(first) = new.recv() else { return };
            all.push(first);
        }
        std::thread::sleep(TICK);
        all.extend(new.try_iter());
        all.retain_mut(Watched::look);
    }
}

impl Watched {
    /// Looks who waits. False if there is no need to look again.
    fn look(&mut self) -> bool {
        // What is dropped here, or woken, finds itself where it belongs.
        let _there = self.runtime.enter();
        let Some(inbox) = self.inbox.upgrade() else { return false };
        if inbox.is_closed() {
            return false;
        }
        self.idle = if inbox.mark_late() { 0 } else { self.idle + 1 };
        self.idle <= IDLE_TICKS || !inbox.stop_clock()
    }
}
