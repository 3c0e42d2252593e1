//! How callers are received, as the configuration and the file of keys have it now.
//!
//! In: a setup, and where keys may be. Out: the terms for a gateway, at the start and after every edit. A file of keys that
//! counted once goes on to: whoever takes it away must not open the door.

use std::path::{Path, PathBuf};

use wharf::config::{KeyStore, StoredKey};
use wharf::gateway::{Callers, Gateway, Terms};

use crate::app::{App, Setup};
use crate::failure::Result;

/// Where keys are, and who may call because of them.
#[derive(Clone, Debug)]
pub(crate) struct Reception {
    /// The file that counts, or will when it is there. None for callers who are not asked.
    place: Option<PathBuf>,
    /// Whether tokens are taken: not of whoever started us.
    takes_tokens: bool,
    callers: Callers,
    /// What the file held when it was last in order; none if it does not count.
    keys: Option<Vec<StoredKey>>,
}

// === impl Reception ===

impl Reception {
    /// Callers over a pipe: whoever started us.
    pub(crate) fn of_pipe() -> Self {
        Self { place: None, takes_tokens: false, callers: Callers::default(), keys: None }
    }

    /// Callers with the keys of the file that is named, or of the user's own where there is one.
    pub(crate) fn new(app: &App, named: Option<&Path>) -> Result<Self> {
        let own = || app.world.own.as_ref().map(|own| own.keys.clone());
        let place = named.map(|file| app.world.cwd.join(file)).or_else(own);
        let mut reception = Self { place, takes_tokens: true, ..Self::of_pipe() };
        if let Some(file) = reception.place.clone().filter(|file| named.is_some() || is_there(file)) {
            reception.count(&file)?;
        }
        Ok(reception)
    }

    /// Whether callers need keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// The file whose edits matter.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.place.clone()
    }

    /// The terms of a configuration.
    pub(crate) fn terms(&self, setup: &Setup) -> Terms {
        let settings = &setup.config.gateway;
        Terms {
            callers: self.callers.clone(),
            tokens: settings.jwt.clone().filter(|_| self.takes_tokens),
            rules: setup.config.callers.clone(),
            limits: settings.limits.clone(),
            operators: settings.operators.clone(),
            required: settings.required.clone(),
        }
    }

    /// Has a gateway receive callers as the files say now. Gives what is other than before, in words; an error means that
    /// nothing is.
    pub(crate) fn follow(
        &mut self,
        app: &App,
        gateway: &Gateway,
        before: &Setup,
        new: &Setup,
    ) -> Result<Vec<&'static str>> {
        let (mut next, mut told) = (self.clone(), Vec::new());
        if next.look(app)? {
            told.push("other keys");
        }
        let (was, is) = (&before.config.gateway, &new.config.gateway);
        let changes = [
            (before.config.callers != new.config.callers, "other rules of callers"),
            (was.jwt != is.jwt && self.takes_tokens, "other tokens"),
            (was.limits != is.limits, "other limits of callers"),
            (was.operators != is.operators, "other operators"),
            (was.required != is.required, "other required servers"),
        ];
        told.extend(changes.into_iter().filter(|(changed, _)| *changed).map(|(_, what)| what));
        if !told.is_empty() {
            gateway.adopt(next.terms(new))?;
        }
        *self = next;
        Ok(told)
    }

    /// Looks at the file of keys. True if they are others, or count for the first time.
    fn look(&mut self, app: &App) -> Result<bool> {
        let Some(file) = self.place.clone() else { return Ok(false) };
        if self.keys.is_none() {
            return if is_there(&file) { self.count(&file).map(|()| true) } else { Ok(false) };
        }
        match read(&file) {
            Ok(keys) if self.keys.as_ref() == Some(&keys) => Ok(false),
            Ok(keys) => {
                self.keys = Some(keys);
                Ok(true)
            }
            Err(failure) => {
                app.ui.fail(&failure);
                app.ui.warn("no key of that file counts until it is in order");
                Ok(false)
            }
        }
    }

    /// From now on the keys of this file count.
    fn count(&mut self, file: &Path) -> Result<()> {
        self.callers = Callers::default().key_file(file)?;
        self.keys = Some(read(file)?);
        Ok(())
    }
}

fn read(file: &Path) -> Result<Vec<StoredKey>> {
    if !is_there(file) {
        let gone = format!("there is no file of keys at {} any more", file.display());
        return Err(crate::failure::Failure::general(gone).hint("make a key: wharf keys add NAME"));
    }
    Ok(KeyStore::open(file)?.keys().to_vec())
}

/// Whether there is a file. Where that cannot be found out there may be one, and it must not be passed over.
fn is_there(file: &Path) -> bool {
    !matches!(file.try_exists(), Ok(false))
}
