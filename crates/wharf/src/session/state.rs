//! What an agent remembers: typed slices in an immutable snapshot, changed by transactions.
//!
//! A call works on a snapshot. If it fails, nothing has happened; if it succeeds, all its changes take effect at once.
//! Calls may overlap. A change by [`Transaction::update`] is a function and is applied again to what another call
//! committed meanwhile, so neither is lost. A change by [`Transaction::set`] is a value and cannot be: if another call
//! committed the same slice meanwhile, this one ends with a [`Conflict`] and changes nothing.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

/// What can be a slice: any value that can be shared between threads.
pub trait Slice: Any + Send + Sync {}

impl<T: Any + Send + Sync> Slice for T {}

/// What is remembered at one moment: one value of each type. Immutable and cheap to clone.
#[derive(Clone, Default)]
pub struct State(Arc<Slices>);

/// Where a scope's state lives.
#[derive(Default)]
pub struct Memory(ArcSwap<Slices>);

type Slices = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// Changes on their way: seen by whoever makes them, and by nobody else until they are committed.
pub struct Transaction {
    base: State,
    work: Mutex<Work>,
}

struct Work {
    now: State,
    changes: Vec<Change>,
}

#[derive(Clone)]
struct Change {
    slice: TypeId,
    name: &'static str,
    kind: Kind,
}

/// Makes a slice of what was there before.
type Apply = dyn Fn(Option<&(dyn Any + Send + Sync)>) -> Arc<dyn Any + Send + Sync> + Send + Sync;

#[derive(Clone)]
enum Kind {
    Set,
    Update(Arc<Apply>),
}

/// Two calls set the same slice at the same time. The first to end has won; nothing of the other's has been kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another call changed `{slice}` in the meantime; nothing of this call's changes was kept")]
pub struct Conflict {
    /// The type of the slice.
    pub slice: &'static str,
}

// === impl State ===

impl State {
    /// The slice of that type, if there is one.
    pub fn get<T: Slice>(&self) -> Option<Arc<T>> {
        Arc::clone(self.0.get(&TypeId::of::<T>())?).downcast().ok()
    }

    fn with(&self, slice: TypeId, value: Arc<dyn Any + Send + Sync>) -> Self {
        let mut slices = HashMap::clone(&self.0);
        slices.insert(slice, value);
        Self(Arc::new(slices))
    }

    fn raw(&self, slice: TypeId) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.0.get(&slice)
    }
}

// === impl Memory ===

impl Memory {
    /// What is remembered now.
    pub fn state(&self) -> State {
        State(self.0.load_full())
    }

    /// Starts from what is remembered now. Dropping the transaction changes nothing.
    pub fn begin(&self) -> Transaction {
        let base = self.state();
        Transaction { work: Mutex::new(Work { now: base.clone(), changes: Vec::new() }), base }
    }

    /// Makes all changes of a transaction at once, or none. Either way they are over then: committing once more changes
    /// nothing.
    pub fn commit(&self, transaction: &Transaction) -> Result<(), Conflict> {
        let (now, changes) = transaction.take();
        if changes.is_empty() {
            return Ok(());
        }
        // No lock is held while the changes run, so that they may look at anything. Whoever was faster makes them run
        // again.
        loop {
            let met = self.state();
            let made = transaction.apply(&now, &changes, &met)?;
            if Arc::ptr_eq(&self.0.compare_and_swap(&met.0, made.0), &met.0) {
                return Ok(());
            }
        }
    }
}

// === impl Transaction ===

impl Transaction {
    /// The slice of that type, as this transaction sees it.
    pub fn get<T: Slice>(&self) -> Option<Arc<T>> {
        self.lock().now.get()
    }

    /// Puts a value in the place of the slice. If another call commits the slice before this one does, this one fails.
    pub fn set<T: Slice>(&self, value: T) {
        self.lock().change::<T>(Kind::Set, Arc::new(value));
    }

    /// Makes the slice anew of what it was. The function may run again, when this is committed, on what other calls made
    /// of the slice in the meantime: it must not have effects of its own.
    pub fn update<T: Slice>(&self, change: impl Fn(Option<&T>) -> T + Send + Sync + 'static) {
        let slice = TypeId::of::<T>();
        let apply = move |before: Option<&(dyn Any + Send + Sync)>| {
            Arc::new(change(before.and_then(|value| value.downcast_ref()))) as Arc<dyn Any + Send + Sync>
        };
        // The function runs without the lock, so that it can do no harm; whoever was faster makes it run again.
        let mut before = self.lock().now.clone();
        loop {
            let value = apply(before.raw(slice).map(|value| &**value));
            let mut work = self.lock();
            if same(before.raw(slice), work.now.raw(slice)) {
                return work.change::<T>(Kind::Update(Arc::new(apply)), value);
            }
            before = work.now.clone();
        }
    }

    /// The changes on top of what is remembered now.
    fn apply(&self, now: &State, changes: &[Change], met: &State) -> Result<State, Conflict> {
        let mut made = met.clone();
        for change in changes {
            let undisturbed = same(self.base.raw(change.slice), met.raw(change.slice));
            let value = match &change.kind {
                _ if undisturbed => now.raw(change.slice).cloned(),
                Kind::Update(apply) => Some(apply(made.raw(change.slice).map(|value| &**value))),
                Kind::Set => return Err(Conflict { slice: change.name }),
            };
            if let Some(value) = value {
                made = made.with(change.slice, value);
            }
        }
        Ok(made)
    }

    fn take(&self) -> (State, Vec<Change>) {
        let mut work = self.lock();
        (work.now.clone(), std::mem::take(&mut work.changes))
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        // Changes are pushed whole, so a panic elsewhere leaves nothing half done.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Work ===

impl Work {
    fn change<T: Slice>(&mut self, kind: Kind, value: Arc<dyn Any + Send + Sync>) {
        let slice = TypeId::of::<T>();
        self.now = self.now.with(slice, value);
        self.changes.push(Change { slice, name: type_name::<T>(), kind });
    }
}

/// Whether two slices are one value, and not only equal ones.
fn same(a: Option<&Arc<dyn Any + Send + Sync>>, b: Option<&Arc<dyn Any + Send + Sync>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the values: they may hold secrets.
        write!(f, "State({} slices)", self.0.len())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(f)
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction({} changes)", self.lock().changes.len())
    }
}
