//! Whether a log is what was written: nothing changed, nothing taken out, nothing cut off.
//!
//! In: a log, and the head beside it. Out: every place where it is not. What that proves and what not is told in
//! `docs/audit.md`.

use std::fmt;

use super::chain::{Link, START, hex};
use super::database::words;
use super::head::{Head, HeadFile};
use super::record::Own;
use super::search::{Log, unreadable};
use super::writer::{anchor, pruned, unsigned};
use crate::error::Result;

/// What became of the look at a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many records there are.
    pub records: u64,
    /// The last one, and its hash in hexadecimal. Kept elsewhere, it proves later that nothing before it was changed.
    pub last: Option<(u64, String)>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A record was changed, or put in.
    Changed(u64),
    /// Records are missing: from one, to another.
    Missing(u64, u64),
    /// The end is missing: after one, up to another.
    Cut(u64, u64),
    /// The oldest records went, and no record says so.
    Beheaded(u64),
    /// The second place says something else.
    Head(&'static str),
    /// The log itself says that it was found damaged, at this record.
    Gap(u64, String),
    /// The log itself says that facts were lost, at this record.
    Dropped(u64, String),
}

impl Log {
    /// Looks at every record. It takes as long as reading them does.
    pub fn verify(&self) -> Result<Verified> {
        // In this order: another process may be writing.
        let head = HeadFile::look(&self.path).map_or(Head::Missing, |head| head.read());
        self.walk(&head).map_err(|e| unreadable(&self.path, &words(e)))
    }

    fn walk(&self, head: &Head) -> rusqlite::Result<Verified> {
        let mut seen = Verified::default();
        // All in one look, however long it takes.
        let look = self.database.unchecked_transaction()?;
        let anchor = anchor(&look)?;
        let mut before = anchor.unwrap_or(START);
        let mut told = anchor.is_none();
        let mut head_found = matches!(head, Head::At(link) if *link == before);
        let mut rows = look.prepare("SELECT seq, record, hash FROM audit ORDER BY seq")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (seq, record) = (unsigned(row.get(0)?), row.get_ref(1)?.as_str().unwrap_or_default());
            let hash: [u8; 32] = row.get(2)?;
            let said: Said = serde_json::from_str(record).unwrap_or_default();
            let link = Link { seq, hash };
            let own = |own: Own| said.kind == own.as_str();
            let fits = before.next(seq, record.as_bytes()) == link && said.seq == seq;
            if seq != before.seq + 1 && !(fits && own(Own::Gap)) {
                seen.findings.push(Finding::Missing(before.seq + 1, seq - 1));
            } else if !fits {
                seen.findings.push(Finding::Changed(seq));
            }
            if own(Own::Gap) {
                seen.findings.push(Finding::Gap(seq, said.reason));
            } else if own(Own::Dropped) {
                seen.findings.push(Finding::Dropped(seq, said.reason));
            } else if own(Own::Pruned) && anchor.is_some_and(|anchor| pruned(&anchor) == said.reason) {
                told = true;
            }
            head_found |= *head == Head::At(link);
            seen.records += 1;
            before = link;
        }
        if !told {
            seen.findings.push(Finding::Beheaded(anchor.map_or(0, |anchor| anchor.seq)));
        }
        match head {
            Head::At(head) if !head_found && head.seq > before.seq => {
                seen.findings.push(Finding::Cut(before.seq, head.seq));
            }
            Head::At(_) if !head_found => {
                seen.findings.push(Finding::Head("names a record that is not in the log"))
            }
            Head::At(_) => {}
            Head::Missing => seen.findings.push(Finding::Head("is gone")),
            Head::Forged => seen.findings.push(Finding::Head("was changed")),
        }
        seen.last = (before != START).then(|| (before.seq, hex(&before.hash)));
        Ok(seen)
    }
}

/// What a record says of itself.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Said {
    seq: u64,
    kind: String,
    reason: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(seq) => write!(f, "record {seq} is not what was written"),
            Self::Missing(from, to) if from == to => write!(f, "record {from} was taken out"),
            Self::Missing(from, to) => write!(f, "records {from} to {to} were taken out"),
            Self::Cut(end, head) => {
                write!(f, "the end was cut off: the log ends with record {end}, and its head says {head}")
            }
            Self::Beheaded(seq) => write!(f, "records up to {seq} were removed, and no record says so"),
            Self::Head(what) => write!(f, "the head beside the log {what}"),
            Self::Gap(seq, why) => write!(f, "record {seq} says that the log was found damaged: {why}"),
            Self::Dropped(seq, why) => write!(f, "record {seq} says: {why}"),
        }
    }
}
