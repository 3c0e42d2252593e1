//! Looking into the log, from any process, while it is written.
//!
//! In: what is looked for. Out: records, oldest first. Checking them is `verify`'s.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::Value as Sql;

use super::chain::hex;
use super::database::{self, words};
use super::writer::{number, unsigned};
use crate::error::{Error, Result};

/// A log that is there, to be read.
#[derive(Debug)]
pub struct Log {
    pub(super) path: PathBuf,
    pub(super) database: Connection,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place.
    pub seq: u64,
    /// One line of JSON: exactly what its hash covers.
    pub json: String,
    /// The hash of the record before and of this one, in hexadecimal.
    pub hash: String,
}

/// What is looked for: everything that is said must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The kind of record, such as `call`.
    pub kind: Option<String>,
    /// Who wanted it.
    pub caller: Option<String>,
    /// The server.
    pub server: Option<String>,
    /// The tool, by its original name.
    pub tool: Option<String>,
    /// `allow` or `deny`.
    pub decision: Option<String>,
    /// `ok`, or the kind of an error.
    pub outcome: Option<String>,
    /// Not before this: microseconds since 1970.
    pub since: Option<u64>,
    /// Before this.
    pub until: Option<u64>,
    /// After this record.
    pub after: Option<u64>,
    /// Only so many, the newest.
    pub limit: Option<usize>,
}

// === impl Log ===

impl Log {
    /// Opens a log to read. It is not made if there is none.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match database::open_to_read(&path) {
            Ok(database) => Ok(Self { path, database }),
            Err(why) => Err(unreadable(&path, &why)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The records that fit, oldest first.
    pub fn search(&self, wanted: &Search) -> Result<Vec<Record>> {
        let mut found = self.select(wanted).map_err(|e| unreadable(&self.path, &words(e)))?;
        found.reverse();
        Ok(found)
    }

    /// A number that changes when another process has written something.
    pub fn version(&self) -> Result<u64> {
        let read = self.database.pragma_query_value(None, "data_version", |row| row.get(0).map(unsigned));
        read.map_err(|e| unreadable(&self.path, &words(e)))
    }

    fn select(&self, wanted: &Search) -> rusqlite::Result<Vec<Record>> {
        let mut sql = "SELECT seq, record, hash FROM audit_read".to_owned();
        let mut values: Vec<Sql> = Vec::new();
        let texts = [
            ("kind = ", &wanted.kind),
            ("caller = ", &wanted.caller),
            ("server = ", &wanted.server),
            ("tool = ", &wanted.tool),
            ("decision = ", &wanted.decision),
            ("outcome = ", &wanted.outcome),
        ];
        let texts = texts.into_iter().filter_map(|(is, text)| Some((is, Sql::Text(text.clone()?))));
        let numbers = [("at >= ", wanted.since), ("at < ", wanted.until), ("seq > ", wanted.after)];
        let numbers = numbers.into_iter().filter_map(|(is, n)| Some((is, Sql::Integer(number(n?)))));
        for (is, value) in numbers.chain(texts) {
            values.push(value);
            let and = if values.len() == 1 { "WHERE" } else { "AND" };
            sql.push_str(&format!(" {and} {is}?{}", values.len()));
        }
        sql.push_str(" ORDER BY seq DESC");
        if let Some(limit) = wanted.limit {
            sql.push_str(&format!(" LIMIT {limit}"));
        }
        let mut rows = self.database.prepare_cached(&sql)?;
        let rows = rows.query_map(rusqlite::params_from_iter(values), |row| {
            let hash: [u8; 32] = row.get(2)?;
            Ok(Record { seq: unsigned(row.get(0)?), json: row.get(1)?, hash: hex(&hash) })
        })?;
        rows.collect()
    }
}

pub(super) fn unreadable(path: &Path, why: &str) -> Error {
    let message = format!("the audit log {} cannot be read: {why}", path.display());
    let hint = match path.exists() {
        true => None,
        false => Some("there is none yet: it begins with the first call".to_owned()),
    };
    Error::Config { message, hint }
}
