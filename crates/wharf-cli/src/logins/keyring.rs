//! The keyring of a Linux desktop: the Secret Service, over D-Bus.
//!
//! In: a key and a text. Out: the text again, in this run or another. Whoever is not logged in to a desktop has no
//! session bus, and so no keyring; one that does not answer is as good as none.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use secret_service::EncryptionType;
use secret_service::blocking::{Collection, SecretService};
use wharf::secret::Secret;

/// The user's default keyring.
#[derive(Debug)]
pub(super) struct Keyring;

/// How long it may take: a person may have to type its password.
const PATIENCE: Duration = Duration::from_secs(30);

impl Keyring {
    /// A keyring, if there is a session that may have one.
    pub(super) fn find(env: &BTreeMap<String, String>) -> Option<Self> {
        let named = env.contains_key("DBUS_SESSION_BUS_ADDRESS");
        let usual = env.get("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(folder).join("bus").exists());
        (named || usual).then_some(Self)
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<Secret>, String> {
        let key = key.to_owned();
        patiently(move || {
            in_collection(|collection| {
                let Some(item) = collection.search_items(attributes(&key))?.pop() else { return Ok(None) };
                let text = String::from_utf8(item.get_secret()?);
                Ok(text.ok().map(Secret::new))
            })
        })
    }

    pub(super) fn put(&self, key: &str, text: &Secret) -> Result<(), String> {
        let (key, text) = (key.to_owned(), text.clone());
        patiently(move || {
            in_collection(|collection| {
                let label = format!("Wharf: login {key}");
                let bytes = text.expose().as_bytes();
                collection.create_item(&label, attributes(&key), bytes, true, "application/json")?;
                Ok(())
            })
        })
    }

    pub(super) fn remove(&self, key: &str) -> Result<(), String> {
        let key = key.to_owned();
        patiently(move || {
            in_collection(|collection| {
                collection.search_items(attributes(&key))?.iter().try_for_each(|item| item.delete())
            })
        })
    }
}

fn attributes(key: &str) -> HashMap<&str, &str> {
    HashMap::from([("service", "wharf"), ("login", key)])
}

fn in_collection<T>(
    work: impl FnOnce(&Collection<'_>) -> Result<T, secret_service::Error>,
) -> Result<T, secret_service::Error> {
    let service = SecretService::connect(EncryptionType::Dh)?;
    let collection = service.get_default_collection()?;
    if collection.is_locked()? {
        collection.unlock()?;
    }
    work(&collection)
}

/// In a thread of its own: a bus that never answers must not keep the command.
fn patiently<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, secret_service::Error> + Send + 'static,
) -> Result<T, String> {
    let (tell, told) = mpsc::channel();
    let asking = std::thread::Builder::new().spawn(move || drop(tell.send(work())));
    asking.map_err(|error| error.to_string())?;
    match told.recv_timeout(PATIENCE) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("it does not answer".to_owned()),
    }
}
