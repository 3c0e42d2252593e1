//! Things that a tool's handler can reach, by their type.
//!
//! In: whatever the program puts there: a database pool, a client, the connections. Out: the same, shared.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// One thing of each type. A scope's own hides the shared one of the same type. Cheap to clone.
#[derive(Clone, Default)]
pub struct Extensions {
    own: Arc<RwLock<HashMap<TypeId, Entry>>>,
    below: Option<Box<Self>>,
}

#[derive(Clone)]
struct Entry {
    name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

// === impl Extensions ===

impl Extensions {
    /// An empty registry on top of this one: it sees what is here, and what is put there is not seen here.
    pub fn above(&self) -> Self {
        Self { own: Arc::default(), below: Some(Box::new(self.clone())) }
    }

    /// Puts a thing there, in the place of the one of its type, which is given back.
    pub fn insert<T: Any + Send + Sync>(&self, value: T) -> Option<Arc<T>> {
        let entry = Entry { name: type_name::<T>(), value: Arc::new(value) };
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        own.insert(TypeId::of::<T>(), entry).and_then(|before| before.value.downcast().ok())
    }

    /// The thing of that type, if there is one.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        match own.get(&TypeId::of::<T>()) {
            Some(entry) => Arc::clone(&entry.value).downcast().ok(),
            None => {
                drop(own);
                self.below.as_ref()?.get()
            }
        }
    }

    /// Takes a thing away. What is shared from below is not touched.
    pub fn remove<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        own.remove(&TypeId::of::<T>()).and_then(|before| before.value.downcast().ok())
    }

    /// Takes everything away that is this scope's own.
    pub(crate) fn clear(&self) {
        let own = std::mem::take(&mut *self.own.write().unwrap_or_else(PoisonError::into_inner));
        // Dropped outside the lock: a thing may look for another while it goes.
        drop(own);
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the types: a thing may hold a secret.
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(own.values().map(|entry| entry.name)).finish()
    }
}
