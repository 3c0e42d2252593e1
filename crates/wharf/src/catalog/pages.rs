//! All pages of a list, whatever it is a list of, within bounds: no circles, no list without an end.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::connect::{Connection, Request};
use crate::error::{Error, Result};
use crate::mcp::Era;
use crate::wire::{Json, Members};

/// A list that a server gives in pages.
pub(super) struct List {
    /// What is asked.
    pub(super) method: &'static str,
    /// Under which key the entries stand.
    pub(super) key: &'static str,
    /// By which of their members the entries are told apart.
    pub(super) name: &'static str,
    /// What it is called in a sentence: `its list of tools`.
    pub(super) what: &'static str,
}

/// How much a list may hold before it is refused as a whole.
pub(super) const MAX_ENTRIES: usize = 10_000;
const MAX_PAGES: usize = 1_000;
/// All pages together must come within this many timeouts.
const MAX_TIMEOUTS: u32 = 4;
/// For longer than this no list may be kept, whatever its server says.
const LONGEST: Duration = Duration::from_secs(60 * 60);

impl List {
    /// Asks for every page, and gives each entry to `take` as it came, in order. What comes back is how long the list may
    /// be kept, if its server says so.
    pub(super) async fn walk(
        &self,
        connection: &Connection,
        timeout: Duration,
        mut take: impl FnMut(Json),
    ) -> Result<Option<Duration>> {
        let what = self.what;
        let mut ttl = None;
        let mut cursor: Option<Json> = None;
        let mut seen = HashSet::new();
        let mut left = timeout.saturating_mul(MAX_TIMEOUTS);
        let mut listed = 0;
        for _ in 0..MAX_PAGES {
            let mut params = Members::new();
            if let Some(cursor) = &cursor {
                params.json("cursor", cursor);
            }
            let asked = Instant::now();
            let page = connection.request(Request::new(self.method, params, left.min(timeout))).await?;
            left = left.saturating_sub(asked.elapsed());
            let (entries, next) = self.read(&page).map_err(|reason| broken(connection, reason))?;
            listed += entries.len();
            if listed > MAX_ENTRIES {
                let reason = format!("its list of {what} has more than {MAX_ENTRIES} entries");
                return Err(broken(connection, reason));
            }
            entries.into_iter().for_each(&mut take);
            // The whole is not newer than its oldest part.
            ttl = [ttl, ttl_of(connection, &page)].into_iter().flatten().min();
            let Some(next) = next else { return Ok(ttl) };
            if !seen.insert(next.clone()) {
                let reason = format!("its list of {what} goes round in circles: a cursor came twice");
                return Err(broken(connection, reason));
            }
            cursor = Some(next);
            if left.is_zero() {
                break;
            }
        }
        Err(broken(connection, format!("its list of {what} does not end ({listed} so far)")))
    }

    /// The entries of a page, and the cursor of the next one.
    fn read(&self, page: &Json) -> Result<(Vec<Json>, Option<Json>), String> {
        let [entries, cursor] = page.pick([self.key, "nextCursor"]);
        let unreadable = |why: String| format!("its list of {} cannot be read: {why}", self.what);
        let entries = entries.ok_or_else(|| unreadable(format!("there is no `{}`", self.key)))?;
        let entries = entries.to().map_err(|e| unreadable(e.to_string()))?;
        Ok((entries, cursor.filter(|cursor| !cursor.is_null())))
    }
}

/// How long a page may be kept. In the legacy era there is no such word; what is no number of milliseconds says nothing.
fn ttl_of(connection: &Connection, page: &Json) -> Option<Duration> {
    let is_modern = connection.info().revision.era() == Era::Modern;
    let ttl = page.member("ttlMs").filter(|_| is_modern)?.to().ok()?;
    Some(Duration::from_millis(ttl).min(LONGEST))
}

pub(super) fn broken(connection: &Connection, reason: String) -> Error {
    Error::Protocol { server: connection.server().clone(), reason, sent: false, stderr: connection.stderr() }
}
