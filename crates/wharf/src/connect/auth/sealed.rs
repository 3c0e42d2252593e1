//! Logins in files, for machines without a keyring.
//!
//! In: a folder of the user's own. Out: one sealed file a login, readable by its owner alone. The key lies beside them
//! in a file of its own: that keeps tokens out of backups, searches and shared screens that see one file, and notices
//! when one was changed or swapped. It does not keep them from a program that runs as the same user.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::store::{Lock, Outline, TokenStore};
use crate::config::edit::write_atomically;
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::text::Escaped;

/// Logins in sealed files.
#[derive(Debug)]
pub struct SealedFiles {
    notes: LoginNotes,
}

/// What may be told of logins, and locks on them: files without a secret, wherever the logins themselves are kept.
#[derive(Clone, Debug)]
pub struct LoginNotes {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Note {
    issuer: String,
    /// Seconds since 1970.
    expires: Option<u64>,
    renewable: bool,
    scopes: Vec<String>,
    #[serde(default)]
    wanted: Vec<String>,
}

const KEY: &str = "key";
const KEY_LEN: usize = 32;
const MARK: &str = "wharf-login-1 ";
const LARGEST: u64 = 1024 * 1024;

// === impl SealedFiles ===

impl SealedFiles {
    /// Keeps logins in this folder. It is made when there is something to keep.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { notes: LoginNotes::new(folder) }
    }

    fn place(&self, key: &str) -> PathBuf {
        self.notes.place(key, "sealed")
    }

    /// The key of all files, made at the first use.
    fn key(&self) -> Result<LessSafeKey> {
        let path = self.notes.folder.join(KEY);
        let bytes = match read(&path)? {
            Some(bytes) => bytes,
            None => {
                self.notes.make_folder()?;
                make_key(&path).map_err(|error| trouble("cannot make", &path, &error))?;
                read(&path)?.unwrap_or_default()
            }
        };
        let key = UnboundKey::new(&AES_256_GCM, &bytes);
        key.map(LessSafeKey::new).map_err(|_| Error::Config {
            message: format!("the key in {} is broken", shown(&path)),
            hint: Some("remove it, and log in again".into()),
        })
    }
}

impl TokenStore for SealedFiles {
    fn get(&self, key: &str) -> Result<Option<Secret>> {
        let path = self.place(key);
        let Some(bytes) = read(&path)? else { return Ok(None) };
        let open = || {
            let text = std::str::from_utf8(&bytes).ok()?.trim_end().strip_prefix(MARK)?;
            let mut sealed = STANDARD.decode(text).ok()?;
            let mut body = Zeroizing::new(sealed.split_off(NONCE_LEN.min(sealed.len())));
            let nonce = Nonce::try_assume_unique_for_key(&sealed).ok()?;
            let plain = self.key().ok()?.open_in_place(nonce, Aad::from(key.as_bytes()), &mut body).ok()?;
            Some(Secret::new(std::str::from_utf8(plain).ok()?))
        };
        open().map(Some).ok_or_else(|| Error::Config {
            message: format!(
                "the login in {} cannot be opened: it was changed, or its key was",
                shown(&path)
            ),
            hint: Some("remove the file, and log in again".into()),
        })
    }

    fn put(&self, key: &str, text: &Secret, outline: &Outline) -> Result<()> {
        let failed = || Error::Internal("the login cannot be sealed".into());
        let mut nonce = [0_u8; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|_| Error::Internal("no random numbers to be had".into()))?;
        let mut body = text.expose().as_bytes().to_vec();
        let sealer = self.key()?;
        let aad = Aad::from(key.as_bytes());
        let sealed = sealer.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut body);
        sealed.map_err(|_| failed())?;
        let whole = [nonce.as_slice(), &body].concat();
        self.notes.make_folder()?;
        write_atomically(&self.place(key), &format!("{MARK}{}\n", STANDARD.encode(whole)))?;
        self.notes.note(key, outline)
    }

    fn remove(&self, key: &str) -> Result<bool> {
        let was = erase(&self.place(key))?;
        self.notes.erase(key)?;
        Ok(was)
    }

    fn outline(&self, key: &str) -> Option<Outline> {
        self.notes.outline(key).filter(|_| self.place(key).exists())
    }

    fn try_lock(&self, key: &str) -> Result<Option<Lock>> {
        self.notes.try_lock(key)
    }
}

// === impl LoginNotes ===

impl LoginNotes {
    /// Keeps them in this folder. It is made when there is something to keep.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Writes down what may be told of a login.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note(&self, key: &str, outline: &Outline) -> Result<()> {
        let expires = outline.expires.and_then(|end| end.duration_since(UNIX_EPOCH).ok());
        let note = Note {
            issuer: outline.issuer.clone(),
            expires: expires.map(|end| end.as_secs()),
            renewable: outline.renewable,
            scopes: outline.scopes.clone(),
            wanted: outline.wanted.clone(),
        };
        self.make_folder()?;
        let text = serde_json::to_string(&note).map_err(|error| Error::Internal(error.to_string()))?;
        write_atomically(&self.place(key, "json"), &text)
    }

    /// What was written down.
    pub fn outline(&self, key: &str) -> Option<Outline> {
        let bytes = read(&self.place(key, "json")).ok()??;
        let note: Note = serde_json::from_slice(&bytes).ok()?;
        Some(Outline {
            issuer: note.issuer,
            expires: note.expires.and_then(|end| UNIX_EPOCH.checked_add(Duration::from_secs(end))),
            renewable: note.renewable,
            scopes: note.scopes,
            wanted: note.wanted,
        })
    }

    /// Forgets it. False if there is nothing.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn erase(&self, key: &str) -> Result<bool> {
        erase(&self.place(key, "json"))
    }

    /// Locks a login against every other process, until the value is dropped. `None` if one has it.
    ///
    /// # Errors
    /// If there can be no lock.
    pub fn try_lock(&self, key: &str) -> Result<Option<Lock>> {
        self.make_folder()?;
        let path = self.place(key, "lock");
        let opened = private().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|error| trouble("cannot open", &path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(trouble("cannot lock", &path, &error)),
        }
    }

    fn place(&self, key: &str, kind: &str) -> PathBuf {
        // Keys are made of a server's name and letters; whatever else one may be, it stays in the folder.
        let name: String = key
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' })
            .collect();
        self.folder.join(format!("{name}.{kind}"))
    }

    fn make_folder(&self) -> Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.folder).map_err(|error| trouble("cannot make", &self.folder, &error))
    }
}

/// Makes a key where there is none. Of two that do it at once, one wins.
fn make_key(path: &Path) -> io::Result<()> {
    let mut key = Zeroizing::new([0_u8; KEY_LEN]);
    getrandom::fill(key.as_mut_slice()).map_err(|_| io::Error::other("no random numbers to be had"))?;
    let beside = path.with_extension(format!("{:016x}", fastrand::u64(..)));
    let mut file = private().create_new(true).write(true).open(&beside)?;
    let made =
        io::Write::write_all(&mut file, key.as_slice()).and_then(|()| file.sync_all()).and_then(|()| {
            match fs::hard_link(&beside, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked,
            }
        });
    let _ = fs::remove_file(&beside);
    made
}

/// A file of ours, if it is there and nobody else can look into it.
fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(trouble("cannot read", path, &error)),
    };
    let facts = file.metadata().map_err(|error| trouble("cannot read", path, &error))?;
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::mode(&facts) & 0o077 != 0 {
        return Err(Error::Config {
            message: format!("others can look into {}, where a login is kept", shown(path)),
            hint: Some(format!("take that away: chmod 600 {}", shown(path))),
        });
    }
    let mut bytes =
        Zeroizing::new(Vec::with_capacity(usize::try_from(facts.len().min(LARGEST)).unwrap_or(0)));
    let read = file.take(LARGEST).read_to_end(&mut bytes);
    read.map_err(|error| trouble("cannot read", path, &error))?;
    Ok(Some(bytes))
}

fn erase(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(trouble("cannot remove", path, &error)),
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn trouble(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::config(format!("{what} {}: {error}", shown(path)))
}

fn shown(path: &Path) -> String {
    Escaped(&path.display().to_string()).to_string()
}
