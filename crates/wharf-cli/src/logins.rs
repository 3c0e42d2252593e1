//! Where logins are kept: in the keyring of the machine where there is one, else in sealed files.
//!
//! In: the user's folder, and whether there may be a keyring. Out: a [`TokenStore`]. What may be told of a login, and the
//! locks, are always files: listing servers opens no keyring, and asks nobody for a password.

use std::sync::Arc;

use wharf::connect::{Lock, LoginNotes, Outline, SealedFiles, TokenMemory, TokenStore};
use wharf::secret::Secret;
use wharf::{Error, Result};

use crate::world::World;

#[cfg(all(feature = "keyring", target_os = "linux"))]
mod keyring;
#[cfg(not(all(feature = "keyring", target_os = "linux")))]
#[path = "logins/no_keyring.rs"]
mod keyring;

use keyring::Keyring;

/// Logins of the user.
#[derive(Debug)]
pub(crate) struct UserLogins {
    notes: LoginNotes,
    files: SealedFiles,
    keyring: Option<Keyring>,
}

/// Where the user's logins are kept; without a home they are forgotten with the process.
pub(crate) fn store(world: &World) -> Arc<dyn TokenStore> {
    match &world.own {
        Some(own) => Arc::new(UserLogins {
            notes: LoginNotes::new(&own.logins),
            files: SealedFiles::new(&own.logins),
            keyring: Keyring::find(&world.env),
        }),
        None => Arc::new(TokenMemory::default()),
    }
}

impl TokenStore for UserLogins {
    fn get(&self, key: &str) -> Result<Option<Secret>> {
        // Whoever never logged in has no reason to be asked for the keyring's password.
        if self.notes.outline(key).is_none() {
            return Ok(None);
        }
        if let Some(text) = self.files.get(key)? {
            return Ok(Some(text));
        }
        match &self.keyring {
            Some(keyring) => keyring.get(key).map_err(|reason| silent(&reason)),
            None => Err(silent("there is none in this session")),
        }
    }

    fn put(&self, key: &str, text: &Secret, outline: &Outline) -> Result<()> {
        if let Some(keyring) = &self.keyring
            && keyring.put(key, text).is_ok()
        {
            self.notes.note(key, outline)?;
            return self.files.discard(key);
        }
        self.files.put(key, text, outline)
    }

    fn remove(&self, key: &str) -> Result<bool> {
        let was = self.notes.outline(key).is_some();
        let in_file = self.files.remove(key)?;
        if let (Some(keyring), true, false) = (&self.keyring, was, in_file) {
            keyring.remove(key).map_err(|reason| silent(&reason))?;
        }
        Ok(was || in_file)
    }

    fn outline(&self, key: &str) -> Option<Outline> {
        self.notes.outline(key)
    }

    fn try_lock(&self, key: &str) -> Result<Option<Lock>> {
        self.notes.try_lock(key)
    }
}

fn silent(reason: &str) -> Error {
    Error::Config {
        message: format!("the login is in the keyring of this machine, which cannot be opened: {reason}"),
        hint: Some(
            "unlock the keyring; or log in again, and it is kept in a file where there is no keyring".into(),
        ),
    }
}
