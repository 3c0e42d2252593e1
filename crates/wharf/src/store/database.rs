//! The file: made for its owner alone, opened by several processes at a time, brought to the newest form.
//!
//! In: a path. Out: a connection. Reasons are words, because they are told to people and not acted upon.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

/// How long another process that writes is waited for.
const BUSY: Duration = Duration::from_secs(5);

/// How large a page of a new file is, in bytes.
const PAGE: i64 = 16 << 10;
/// How large the journal may grow before it is moved into the file, in bytes: meanwhile nothing is written.
const JOURNAL: i64 = 4 << 20;

/// Each step brings the file from the form of its place to the next.
const STEPS: [&str; 3] = [
    // What is hashed is what is stored: the columns besides are views of the record.
    "CREATE TABLE audit (
        seq INTEGER PRIMARY KEY,
        record TEXT NOT NULL,
        hash BLOB NOT NULL,
        at INTEGER GENERATED ALWAYS AS (record ->> 'at') VIRTUAL,
        kind TEXT GENERATED ALWAYS AS (record ->> 'kind') VIRTUAL,
        caller TEXT GENERATED ALWAYS AS (record ->> 'caller') VIRTUAL,
        server TEXT GENERATED ALWAYS AS (record ->> 'server') VIRTUAL,
        tool TEXT GENERATED ALWAYS AS (record ->> 'tool') VIRTUAL,
        decision TEXT GENERATED ALWAYS AS (record ->> 'decision') VIRTUAL,
        outcome TEXT GENERATED ALWAYS AS (record ->> 'outcome') VIRTUAL
    ) STRICT;
    CREATE TABLE anchor (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        seq INTEGER NOT NULL,
        hash BLOB NOT NULL
    ) STRICT;",
    "CREATE TABLE approvals (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        created INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'allowed', 'denied', 'used')),
        reach TEXT,
        caller TEXT NOT NULL,
        session TEXT NOT NULL,
        server TEXT NOT NULL,
        identity TEXT NOT NULL,
        tool TEXT NOT NULL,
        digest TEXT NOT NULL,
        shape TEXT NOT NULL,
        arguments TEXT,
        why TEXT
    ) STRICT;
    CREATE INDEX approvals_of ON approvals (caller, server);",
    // Columns that are made of the record were made of every record that was written; a view makes them when it is read.
    "ALTER TABLE audit RENAME TO audit_before;
    CREATE TABLE audit (
        seq INTEGER PRIMARY KEY,
        record TEXT NOT NULL,
        hash BLOB NOT NULL
    ) STRICT;
    INSERT INTO audit SELECT seq, record, hash FROM audit_before;
    DROP TABLE audit_before;
    CREATE VIEW audit_read AS SELECT
        seq,
        record,
        hash,
        record ->> 'at' AS at,
        record ->> 'kind' AS kind,
        record ->> 'caller' AS caller,
        record ->> 'server' AS server,
        record ->> 'tool' AS tool,
        record ->> 'decision' AS decision,
        record ->> 'outcome' AS outcome
    FROM audit;",
];

/// Opens the file to write, and makes it if there is none.
pub(super) fn open(path: &Path) -> Result<Connection, String> {
    make(path).map_err(|e| e.to_string())?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut database = Connection::open_with_flags(path, flags).map_err(words)?;
    prepare(&mut database).map_err(words)?;
    migrate(&mut database)?;
    Ok(database)
}

/// Opens the file to read. It must be there.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags).map_err(words)?;
    database.busy_timeout(BUSY).map_err(words)?;
    database.pragma_update(None, "trusted_schema", false).map_err(words)?;
    is_known(version(&database)?)?;
    Ok(database)
}

/// What makes a file this very file, and not another that was put in its place.
pub(super) fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// Makes folder and file for their owner alone. A file that is there is not opened: its locks would go when it is closed.
pub(super) fn make(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let open_to_others = path.metadata()?.permissions().mode() & 0o077 != 0;
            if open_to_others {
                std::fs::set_permissions(path, Permissions::from_mode(0o600))
            } else {
                Ok(())
            }
        }
        Err(e) => Err(e),
    }
}

fn prepare(database: &mut Connection) -> rusqlite::Result<()> {
    database.busy_timeout(BUSY)?;
    // Of a file that is made now. A group of records fills few pages so, and a page costs two writes and a copy.
    database.pragma_update(None, "page_size", PAGE)?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    let page: i64 = database.pragma_query_value(None, "page_size", |row| row.get(0))?;
    database.pragma_update(None, "wal_autocheckpoint", JOURNAL / page.max(1))?;
    // A process that is killed loses nothing so; against a loss of power the journal is synced by the writer.
    database.pragma_update(None, "synchronous", "NORMAL")?;
    database.pragma_update(None, "journal_size_limit", 16 << 20)?;
    database.pragma_update(None, "trusted_schema", false)
}

fn migrate(database: &mut Connection) -> Result<(), String> {
    if is_known(version(database)?)? == STEPS.len() {
        return Ok(());
    }
    let change = database.transaction_with_behavior(TransactionBehavior::Immediate).map_err(words)?;
    // Another process may have been faster.
    let from = is_known(version(&change)?)?;
    for step in &STEPS[from..] {
        change.execute_batch(step).map_err(words)?;
    }
    change.pragma_update(None, "user_version", STEPS.len() as i64).map_err(words)?;
    change.commit().map_err(words)
}

fn version(database: &Connection) -> Result<i64, String> {
    database.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(words)
}

fn is_known(version: i64) -> Result<usize, String> {
    let known = usize::try_from(version).ok().filter(|version| *version <= STEPS.len());
    known.ok_or_else(|| "it was written by a newer Wharf".to_owned())
}

/// What the database says, in words.
pub(super) fn words(error: rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => message.unwrap_or_else(|| code.to_string()),
        error => error.to_string(),
    }
}
