//! Where logins are kept: a small trait that the program fills in. In memory here; files in `sealed.rs`; the keyring of
//! the machine is the binary's.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::error::Result;
use crate::secret::Secret;

/// Keeps logins from run to run. Its calls may block; they are made where that harms nobody.
pub trait TokenStore: Send + Sync + 'static {
    /// What is kept under a key.
    ///
    /// # Errors
    /// If it cannot be read. What is not there is `None`.
    fn get(&self, key: &str) -> Result<Option<Secret>>;

    /// Keeps a text, whole or not at all, and what may be told of it.
    ///
    /// # Errors
    /// If it cannot be kept.
    fn put(&self, key: &str, text: &Secret, outline: &Outline) -> Result<()>;

    /// Forgets it. False if there is nothing.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove(&self, key: &str) -> Result<bool>;

    /// What may be told of a login. Nothing secret is opened, nobody is asked for a password.
    fn outline(&self, key: &str) -> Option<Outline>;

    /// Locks a key against every other user of the store, in this process or another, until the value is dropped.
    /// `None` if somebody has it.
    ///
    /// # Errors
    /// If there can be no lock.
    fn try_lock(&self, key: &str) -> Result<Option<Lock>>;
}

/// A lock that ends when it is dropped.
pub type Lock = Box<dyn Any + Send>;

/// What may be seen of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Who handed the tokens out.
    pub issuer: String,
    /// When the token ends, if that is known.
    pub expires: Option<SystemTime>,
    /// Whether it can be renewed without a person.
    pub renewable: bool,
    /// What it is good for, as far as is known.
    pub scopes: Vec<String>,
    /// What the server wanted more, since: logging in again asks for it.
    pub wanted: Vec<String>,
}

/// Whether somebody is logged in at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoginState {
    /// Nobody logs in there: it is a program, or it has a credential of its own in `headers`.
    NotUsed,
    /// Nobody is.
    LoggedOut,
    /// Somebody is.
    LoggedIn(Outline),
    /// Somebody was, and must again.
    Expired(Outline),
}

/// Logins for the life of the process.
#[derive(Debug, Default)]
pub struct TokenMemory {
    kept: Mutex<HashMap<String, (Secret, Outline)>>,
    locks: Arc<Mutex<HashMap<String, ()>>>,
}

struct MemoryLock(Arc<Mutex<HashMap<String, ()>>>, String);

// === impl TokenMemory ===

impl TokenStore for TokenMemory {
    fn get(&self, key: &str) -> Result<Option<Secret>> {
        Ok(self.kept().get(key).map(|(text, _)| text.clone()))
    }

    fn put(&self, key: &str, text: &Secret, outline: &Outline) -> Result<()> {
        self.kept().insert(key.to_owned(), (text.clone(), outline.clone()));
        Ok(())
    }

    fn remove(&self, key: &str) -> Result<bool> {
        Ok(self.kept().remove(key).is_some())
    }

    fn outline(&self, key: &str) -> Option<Outline> {
        self.kept().get(key).map(|(_, outline)| outline.clone())
    }

    fn try_lock(&self, key: &str) -> Result<Option<Lock>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = locks.insert(key.to_owned(), ()).is_none();
        Ok(is_free.then(|| Box::new(MemoryLock(Arc::clone(&self.locks), key.to_owned())) as Lock))
    }
}

impl TokenMemory {
    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Secret, Outline)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

// === impl LoginState ===

impl LoginState {
    pub(super) fn of(outline: Option<Outline>, now: SystemTime) -> Self {
        match outline {
            None => Self::LoggedOut,
            Some(outline) => {
                let over = outline.expires.is_some_and(|end| now >= end) && !outline.renewable;
                if over { Self::Expired(outline) } else { Self::LoggedIn(outline) }
            }
        }
    }
}
