//! The one thread of a process that writes the log.
//!
//! In: facts, as they come. Out: records, in groups. The first group that cannot be written stops every new call; it
//! is kept and tried again until it is written, and then calls go on.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::chain::{Link, START, hex};
use super::database::{self, words};
use super::head::{Head, HeadFile, beside};
use super::record::{Draft, Own, Pen};
use super::{AuditOptions, GROUP, SYNC};
use crate::error::{Error, Result as Answer};
use crate::event::{End, Fact, Facts, News};
use crate::policy::Live;

/// How long is waited before what could not be written is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// How often it is tried when nobody is left to tell.
const LAST_TRIES: u32 = 3;
/// How often is looked for records that are kept no longer.
const LOOK: Duration = Duration::from_secs(60 * 60);
/// How many records go at a time: meanwhile nothing is written.
const PRUNED_AT_ONCE: u64 = 20_000;

const INSERT: &str = "INSERT INTO audit (seq, record, hash) VALUES (?1, ?2, ?3)";

/// Writes the log.
pub(super) struct Writer {
    path: PathBuf,
    options: Live<AuditOptions>,
    facts: Facts,
    pen: Pen,
    open: Option<Open>,
    /// Calls that are under way.
    calls: HashMap<u64, Begun, foldhash::fast::RandomState>,
    /// Those of them that came with the last group. Most have ended when the next is written.
    fresh: Vec<u64>,
    /// Those that came before it, and are not on record yet.
    due: Vec<u64>,
    drafts: Vec<Draft>,
    /// Room for a record.
    line: Vec<u8>,
    /// Since when something is written that a loss of power would take.
    unsynced: Option<Instant>,
    looked: Option<Instant>,
}

/// The files, as long as they can be written.
struct Open {
    database: Connection,
    head: HeadFile,
    identity: (u64, u64),
    /// Numbers up to this one were given, though the log does not have them any more.
    given: u64,
}

struct Begun {
    fact: Box<Fact>,
    record: Option<u64>,
}

type Written<T> = Result<T, String>;

impl Writer {
    pub(super) fn open(path: PathBuf, options: Live<AuditOptions>, facts: Facts) -> Written<Self> {
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(|e| e.to_string())?;
        let pen = Pen { run: hex(&run), digest_only: options.now().digest_only };
        let mut writer = Self {
            path,
            options,
            facts,
            pen,
            open: None,
            calls: HashMap::default(),
            fresh: Vec::new(),
            due: Vec::new(),
            drafts: Vec::new(),
            line: Vec::new(),
            unsynced: None,
            looked: None,
        };
        // A folder that is full is found out now, and not by the first call.
        writer.commit()?;
        Ok(writer)
    }

    pub(super) fn run(mut self) {
        let mut failures = 0;
        loop {
            let mut batch = match failures {
                0 if !self.fresh.is_empty() => self.facts.gather(GROUP),
                0 => self.facts.take(GROUP, self.unsynced.map(|_| SYNC)),
                _ => self.facts.take(GROUP, Some(RETRY)),
            };
            self.due.append(&mut self.fresh);
            if batch.lost > 0 {
                let words = format!("{} facts could not be kept: there were too many at once", batch.lost);
                self.drafts.push(Draft::Own(Own::Dropped, words));
            }
            batch.news.drain(..).for_each(|news| self.draft(news));
            let in_haste = !batch.waiting.is_empty() || batch.last;
            if in_haste {
                self.due.append(&mut self.fresh);
            }
            let written = self.commit().and_then(|()| self.sync(in_haste));
            self.facts.tell(written.as_ref().err().map(String::as_str));
            for waiting in batch.waiting {
                let answer: Answer<()> = written.clone().map_err(|reason| Error::Audit { reason });
                // Whoever does not want to know any more need not.
                let _ = waiting.send(answer);
            }
            match written {
                Ok(()) if batch.last => return,
                Ok(()) => failures = 0,
                Err(_) if batch.last && failures >= LAST_TRIES => return,
                Err(_) => {
                    failures += 1;
                    // Opened anew the next time: the file may be another then.
                    self.open = None;
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    fn draft(&mut self, news: News) {
        match news {
            News::Fact(fact) => self.drafts.push(Draft::Fact(fact, None)),
            News::Begin(number, fact) => {
                self.calls.insert(number, Begun { fact, record: None });
                self.fresh.push(number);
            }
            News::End(number, End { outcome, took, reason }) => {
                let Some(Begun { mut fact, record }) = self.calls.remove(&number) else { return };
                fact.outcome = Some(outcome);
                fact.took = took;
                fact.reason = reason;
                self.drafts.push(Draft::Fact(fact, record));
            }
        }
    }

    /// Writes everything that waits, whole or not at all.
    fn commit(&mut self) -> Written<()> {
        let under_way = |number: &u64| self.calls.contains_key(number);
        self.fresh.retain(under_way);
        self.due.retain(under_way);
        let mut open = match self.open.take() {
            Some(open) if database::identity(&self.path).is_ok_and(|now| now == open.identity) => open,
            Some(_) => return Err("the file was taken away, or another was put in its place".into()),
            None => self.reopen()?,
        };
        let options = self.options.now();
        self.pen.digest_only = options.digest_only;
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        let prunes = due && (options.keep_for.is_some() || options.keep_size.is_some());
        if !self.drafts.is_empty() || !self.due.is_empty() || prunes {
            let (link, begun) = self.write(&mut open, prunes)?;
            self.facts.give_back(self.drafts.drain(..).filter_map(Draft::into_fact));
            self.due.clear();
            for (number, record) in begun {
                if let Some(call) = self.calls.get_mut(&number) {
                    call.record = Some(record);
                }
            }
            open.given = open.given.max(link.seq);
            self.unsynced.get_or_insert_with(Instant::now);
            open.head.write(&link).map_err(|e| format!("its head cannot be written: {e}"))?;
        }
        self.open = Some(open);
        Ok(())
    }

    fn write(&mut self, open: &mut Open, prunes: bool) -> Written<(Link, Vec<(u64, u64)>)> {
        let given = open.given;
        let behaviour = TransactionBehavior::Immediate;
        let change = open.database.transaction_with_behavior(behaviour).map_err(words)?;
        let last = last(&change).map_err(words)?;
        let insert = change.prepare_cached(INSERT).map_err(words)?;
        let (pen, line) = (&self.pen, &mut self.line);
        let mut chain = Chain { insert, pen, line, last, seq: last.seq.max(given) };
        for draft in &self.drafts {
            chain.add(draft)?;
        }
        let mut begun = Vec::with_capacity(self.due.len());
        for number in &self.due {
            if let Some(call) = self.calls.get(number) {
                begun.push((*number, chain.begin(&call.fact)?));
            }
        }
        if prunes {
            let (anchor, more) = prune(&change, &self.options.now())?;
            if let Some(anchor) = anchor {
                chain.add(&Draft::Own(Own::Pruned, pruned(&anchor)))?;
            }
            self.looked = (!more).then(Instant::now);
        }
        let end = chain.last;
        drop(chain);
        change.commit().map_err(words)?;
        Ok((end, begun))
    }

    /// Opens the files, and finds out whether they are as they were left.
    fn reopen(&mut self) -> Written<Open> {
        let database = database::open(&self.path)?;
        let head = HeadFile::open(&self.path).map_err(|e| format!("its head cannot be written: {e}"))?;
        // In this order: another process may be writing.
        let said = head.read();
        let last = last(&database).map_err(words)?;
        let mut given = 0;
        let gap = match said {
            Head::Missing if last == START => {
                head.write(&START).map_err(|e| format!("its head cannot be written: {e}"))?;
                None
            }
            Head::Missing => Some("its head was gone".to_owned()),
            Head::Forged => Some("its head was changed".to_owned()),
            Head::At(link) if holds(&database, &link).map_err(words)? => None,
            Head::At(link) => {
                given = link.seq;
                Some(format!("it ended at {}, and its head said {}", last.seq, link.seq))
            }
        };
        // Found once, however often it had to be opened to write that down.
        self.drafts.retain(|draft| !matches!(draft, Draft::Own(Own::Gap, _)));
        if let Some(what) = gap {
            self.drafts.insert(0, Draft::Own(Own::Gap, what));
        }
        let identity = database::identity(&self.path).map_err(|e| e.to_string())?;
        Ok(Open { database, head, identity, given })
    }

    /// Makes what was written survive a loss of power, now and then or at once.
    fn sync(&mut self, in_haste: bool) -> Written<()> {
        if !self.unsynced.is_some_and(|since| in_haste || since.elapsed() >= SYNC) {
            return Ok(());
        }
        // The journal has no locks that would go when it is closed. Where there is none, all is in the file, synced.
        match File::open(beside(&self.path, "-wal")).and_then(|journal| journal.sync_data()) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.to_string()),
            _ => {}
        }
        // Whoever waits does so for the records. An older head is in the chain as well.
        if let Some(open) = self.open.as_ref().filter(|_| !in_haste) {
            open.head.sync().map_err(|e| format!("its head cannot be written: {e}"))?;
        }
        self.unsynced = None;
        Ok(())
    }
}

/// The chain while a group is added to it.
struct Chain<'a> {
    insert: CachedStatement<'a>,
    pen: &'a Pen,
    /// The record that is being written.
    line: &'a mut Vec<u8>,
    last: Link,
    seq: u64,
}

impl Chain<'_> {
    fn add(&mut self, draft: &Draft) -> Written<u64> {
        self.pen.write(self.line, self.seq + 1, draft)?;
        self.insert()
    }

    fn begin(&mut self, call: &Fact) -> Written<u64> {
        self.pen.begin(self.line, self.seq + 1, call)?;
        self.insert()
    }

    fn insert(&mut self) -> Written<u64> {
        self.seq += 1;
        self.last = self.last.next(self.seq, self.line);
        let record = std::str::from_utf8(self.line).map_err(|e| e.to_string())?;
        self.insert.execute((number(self.seq), record, &self.last.hash[..])).map_err(words)?;
        Ok(self.seq)
    }
}

/// The end of the chain.
pub(super) fn last(database: &Connection) -> rusqlite::Result<Link> {
    let sql = "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1";
    match database.prepare_cached(sql)?.query_row([], link).optional()? {
        Some(last) => Ok(last),
        None => Ok(anchor(database)?.unwrap_or(START)),
    }
}

/// The last record that is kept no longer.
pub(super) fn anchor(database: &Connection) -> rusqlite::Result<Option<Link>> {
    database.prepare_cached("SELECT seq, hash FROM anchor")?.query_row([], link).optional()
}

/// Whether a place is in the chain.
pub(super) fn holds(database: &Connection, at: &Link) -> rusqlite::Result<bool> {
    if *at == START {
        return Ok(true);
    }
    let sql = "SELECT seq, hash FROM audit WHERE seq = ?1";
    let found = database.prepare_cached(sql)?.query_row([number(at.seq)], link).optional()?;
    Ok(found == Some(*at))
}

/// What the record of a pruning says, so that nobody else can do it unseen.
pub(super) fn pruned(anchor: &Link) -> String {
    format!(
        "records up to {} were kept long enough; the hash of the last is {}",
        anchor.seq,
        hex(&anchor.hash)
    )
}

/// Removes the oldest records that are to be kept no longer, and gives the last of them, and whether there may be more.
fn prune(change: &Transaction<'_>, options: &AuditOptions) -> Written<(Option<Link>, bool)> {
    let found = || -> rusqlite::Result<Option<u64>> {
        let first: Option<u64> = change.query_row("SELECT min(seq) FROM audit", [], |row| {
            Ok(row.get::<_, Option<i64>>(0)?.map(unsigned))
        })?;
        let Some(first) = first else { return Ok(None) };
        let (mut end, most) = (None, first + PRUNED_AT_ONCE);
        if let Some(keep) = options.keep_for {
            let oldest =
                super::record::now().saturating_sub(u64::try_from(keep.as_micros()).unwrap_or(u64::MAX));
            let sql = "SELECT seq, at FROM audit_read WHERE seq < ?1 ORDER BY seq";
            let mut rows = change.prepare(sql)?;
            let mut rows = rows.query([number(most)])?;
            while let Some(row) = rows.next()? {
                if unsigned(row.get(1)?) >= oldest {
                    break;
                }
                end = Some(unsigned(row.get(0)?));
            }
        }
        if let Some(keep) = options.keep_size {
            let pages = |what| change.pragma_query_value(None, what, |row| row.get(0).map(unsigned));
            let used = (pages("page_count")? - pages("freelist_count")?) * pages("page_size")?;
            let last = last(change)?.seq;
            if used > keep {
                // A tenth more than must be, so that it is not done at every look.
                let share = 1.0 - 0.9 * (keep as f64 / used as f64);
                let goes = ((last - first) as f64 * share) as u64;
                end = end.max(Some((first + goes).min(most)));
            }
        }
        Ok(end)
    };
    let Some(end) = found().map_err(words)? else { return Ok((None, false)) };
    let sql = "SELECT seq, hash FROM audit WHERE seq <= ?1 ORDER BY seq DESC LIMIT 1";
    let anchor = change.query_row(sql, [number(end)], link).map_err(words)?;
    let gone = change.execute("DELETE FROM audit WHERE seq <= ?1", [number(end)]).map_err(words)?;
    let sql = "INSERT OR REPLACE INTO anchor (one, seq, hash) VALUES (1, ?1, ?2)";
    change.execute(sql, (number(anchor.seq), &anchor.hash[..])).map_err(words)?;
    Ok((Some(anchor), gone as u64 >= PRUNED_AT_ONCE))
}

fn link(row: &rusqlite::Row<'_>) -> rusqlite::Result<Link> {
    Ok(Link { seq: unsigned(row.get(0)?), hash: row.get(1)? })
}

/// Numbers as the database has them.
pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
