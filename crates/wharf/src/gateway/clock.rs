//! Waits that hardly ever come to their end, or last: for the next request, for an answer that takes long, for the next
//! look at what nobody uses any more.
//!
//! A timer of the runtime costs a request more than its place in a list that somebody looks through four times a second,
//! and each of the runtime's own waits costs more while it has any. So these have no timer; they end a little late, and
//! nobody minds. Where the runtime's clock is not the world's, as in tests that stop it, they are timers after all.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Where waits come from. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Clock(Option<Arc<Ticking>>);

/// A wait. It may be polled by another task each time.
#[derive(Debug)]
pub(super) enum Wait {
    Listed { clock: Arc<Ticking>, due: u64, place: Option<Kept> },
    Timer(Pin<Box<tokio::time::Sleep>>),
}

/// A place in the list, and what was put there: as long as that is good, the list need not be looked at.
#[derive(Debug)]
pub(super) struct Kept {
    number: usize,
    due: u64,
    waker: Waker,
}

/// The looks of one thread, counted.
#[derive(Debug)]
pub(super) struct Ticking {
    looks: AtomicU64,
    list: Mutex<List>,
    /// Rung for a thread that does not look because nobody waits.
    bell: Condvar,
}

#[derive(Debug, Default)]
struct List {
    places: Vec<Place>,
    free: Vec<usize>,
    asleep: bool,
}

/// `waker` is `None` if nobody waits there.
#[derive(Debug)]
struct Place {
    due: u64,
    waker: Option<Waker>,
}

/// How often somebody looks.
const TICK: Duration = Duration::from_millis(250);
/// How many looks in a row may find nobody before the thread sleeps.
const IDLE_LOOKS: u32 = 20;

// === impl Clock ===

impl Clock {
    /// The process's clock, if the runtime's goes as the world's.
    pub(super) fn new() -> Self {
        static TICKING: OnceLock<Option<Arc<Ticking>>> = OnceLock::new();
        let before = Instant::now();
        let now = tokio::time::Instant::now().into_std();
        let is_real = (before..=Instant::now()).contains(&now);
        Self(is_real.then(|| TICKING.get_or_init(Ticking::start).clone()).flatten())
    }

    /// Waits so long, and up to two looks longer.
    pub(super) fn wait(&self, time: Duration) -> Wait {
        match &self.0 {
            Some(clock) => Wait::Listed { clock: Arc::clone(clock), due: clock.due(time), place: None },
            None => Wait::Timer(Box::pin(tokio::time::sleep(time))),
        }
    }

    /// Lets a wait begin anew. Its place in the list stays, and whoever waits is woken there for nothing, once.
    pub(super) fn restart(&self, wait: &mut Wait, time: Duration) {
        match wait {
            Wait::Listed { clock, due, .. } => *due = clock.due(time),
            Wait::Timer(_) => *wait = self.wait(time),
        }
    }
}

// === impl Ticking ===

impl Ticking {
    /// Starts the thread that looks. `None` if there cannot be one.
    fn start() -> Option<Arc<Self>> {
        let list = Mutex::new(List { asleep: true, ..List::default() });
        let (looks, bell) = (AtomicU64::new(0), Condvar::new());
        let clock = Arc::new(Self { looks, list, bell });
        let looking = Arc::clone(&clock);
        let thread = std::thread::Builder::new().name("wharf-waits".into());
        thread.spawn(move || looking.look_on()).ok().map(|_| clock)
    }

    /// At which look a wait ends that begins now.
    fn due(&self, time: Duration) -> u64 {
        let looks = u64::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX / 2);
        self.looks.load(Ordering::Relaxed) + looks + 2
    }

    fn look_on(&self) {
        let mut idle = 0;
        loop {
            let mut list = self.lock();
            while list.asleep {
                idle = 0;
                list = self.bell.wait(list).unwrap_or_else(PoisonError::into_inner);
            }
            drop(list);
            std::thread::sleep(TICK);
            let now = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
            let mut list = self.lock();
            idle = if list.is_empty() { idle + 1 } else { 0 };
            list.asleep = idle > IDLE_LOOKS;
            let over = |place: &mut Place| if place.due <= now { place.waker.take() } else { None };
            let over: Vec<Waker> = list.places.iter_mut().filter_map(over).collect();
            drop(list);
            over.into_iter().for_each(Waker::wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl List ===

impl List {
    fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Puts a waker where it was, or in a place of its own.
    fn enter(&mut self, at: Option<usize>, due: u64, waker: Waker) -> usize {
        let place = Place { due, waker: Some(waker) };
        if let Some(number) = at.or_else(|| self.free.pop()) {
            self.places[number] = place;
            return number;
        }
        self.places.push(place);
        self.places.len() - 1
    }
}

// === impl Wait ===

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            Self::Timer(timer) => timer.as_mut().poll(cx),
            Self::Listed { clock, due, place } => {
                let now = clock.looks.load(Ordering::Relaxed);
                if now >= *due {
                    return Poll::Ready(());
                }
                let is_good = |kept: &Kept| {
                    // Not rung yet, and not too late.
                    now < kept.due && kept.due <= *due && kept.waker.will_wake(cx.waker())
                };
                if place.as_ref().is_some_and(is_good) {
                    return Poll::Pending;
                }
                let waker = cx.waker().clone();
                let mut list = clock.lock();
                let number = list.enter(place.as_ref().map(|kept| kept.number), *due, waker.clone());
                let was_asleep = std::mem::take(&mut list.asleep);
                drop(list);
                *place = Some(Kept { number, due: *due, waker });
                if was_asleep {
                    clock.bell.notify_one();
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Self::Listed { clock, place: Some(Kept { number, .. }), .. } = self {
            let mut list = clock.lock();
            let waker = list.places[*number].waker.take();
            list.free.push(*number);
            drop(list);
            // A waker may run anything when it goes.
            drop(waker);
        }
    }
}
