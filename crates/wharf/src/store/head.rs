//! The end of the chain, written down a second time beside the log, so that a log that was cut short is found out.
//!
//! It is signed with a key of this machine. Who may read the key may forge it: it tells a log that was cut from one
//! that was not, as long as whoever cut it could not also write here (`docs/audit.md`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

use super::chain::{Link, hex, unhex};
use crate::config::edit::sweep;

/// The files beside a log.
pub(super) struct HeadFile {
    file: PathBuf,
    fresh: PathBuf,
    key: hmac::Key,
}

/// What the second place says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// So far the log went.
    At(Link),
    /// There is none.
    Missing,
    /// It was changed, or signed with another key.
    Forged,
}

#[derive(Deserialize, Serialize)]
struct Written {
    seq: u64,
    hash: String,
    mac: String,
}

/// A head is as long as every other, with spaces at its end: the longest number has 20 digits. It fits a sector of a disk.
const SIZE: usize = 192;
/// No more than this is read.
const LONGEST: u64 = 4096;
/// How often is looked again at what seems to be changed.
const LOOKS: usize = 4;

impl HeadFile {
    /// The head of a log. A key is made if there is none.
    pub(super) fn open(log: &Path) -> io::Result<Self> {
        if let (Some(folder), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) {
            let left = [format!("{name}.head."), format!("{name}.key.")];
            sweep(folder, |file| left.iter().any(|left| file.starts_with(left)));
        }
        let key_file = beside(log, ".key");
        let key = match read_key(&key_file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => make_key(&key_file)?,
            read => read?,
        };
        Ok(Self::with(log, &key))
    }

    /// The same for whoever only looks: `None` if there is no key.
    pub(super) fn look(log: &Path) -> Option<Self> {
        read_key(&beside(log, ".key")).ok().map(|key| Self::with(log, &key))
    }

    fn with(log: &Path, key: &[u8; 32]) -> Self {
        let fresh = beside(log, &format!(".head.{}", unlike_others()));
        Self { file: beside(log, ".head"), fresh, key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    pub(super) fn read(&self) -> Head {
        let mut head = self.look_once();
        for _ in 0..LOOKS {
            if head != Head::Forged {
                break;
            }
            // It may have been looked at while it was written.
            std::thread::sleep(Duration::from_millis(1));
            head = self.look_once();
        }
        head
    }

    fn look_once(&self) -> Head {
        let mut text = String::new();
        match File::open(&self.file).and_then(|file| file.take(LONGEST).read_to_string(&mut text)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Head::Missing,
            Err(_) => return Head::Forged,
            Ok(_) => {}
        }
        let read = || {
            let written: Written = serde_json::from_str(&text).ok()?;
            let link = Link { seq: written.seq, hash: unhex(&written.hash)? };
            hmac::verify(&self.key, &signed(&link), &unhex(&written.mac)?).ok()?;
            Some(link)
        };
        read().map_or(Head::Forged, Head::At)
    }

    /// Writes the end down, whole or not at all.
    pub(super) fn write(&self, link: &Link) -> io::Result<()> {
        let mac = hex(hmac::sign(&self.key, &signed(link)).as_ref());
        let written = Written { seq: link.seq, hash: hex(&link.hash), mac };
        let mut text = serde_json::to_vec(&written).map_err(io::Error::other)?;
        text.resize(SIZE, b' ');
        match OpenOptions::new().write(true).open(&self.file) {
            // All of it in one piece, over what is as long: a new file each time costs as much as thirty records.
            Ok(file) if file.metadata()?.len() == SIZE as u64 => file.write_all_at(&text, 0),
            _ => self.replace(&text),
        }
    }

    /// The same where there is none, or something else.
    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.fresh)?;
        file.write_all(text)?;
        std::fs::rename(&self.fresh, &self.file)
    }

    /// Makes what was written survive a loss of power.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.file)?.sync_data()
    }
}

fn signed(link: &Link) -> Vec<u8> {
    [b"wharf audit head".as_slice(), &link.seq.to_be_bytes(), &link.hash].concat()
}

pub(super) fn beside(log: &Path, ending: &str) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// A number that no other writer has, in this process or another.
fn unlike_others() -> String {
    static WRITERS: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), WRITERS.fetch_add(1, Ordering::Relaxed))
}

fn read_key(file: &Path) -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    File::open(file)?.read_exact(&mut key)?;
    Ok(key)
}

fn make_key(file: &Path) -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|e| io::Error::other(e.to_string()))?;
    // Whole or not at all, and never in the place of one that another process made meanwhile.
    let fresh = beside(file, &format!(".{}", unlike_others()));
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    out.write_all(&key)?;
    let linked = std::fs::hard_link(&fresh, file);
    std::fs::remove_file(&fresh)?;
    match linked {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => read_key(file),
        linked => linked.map(|()| key),
    }
}
