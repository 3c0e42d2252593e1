//! Whether one of several instances offers what is shown of its server.
//!
//! In: an instance, and the catalogue of its server. Out: leave to use it, once for each connection and catalogue. It is
//! asked by a task of its own: whoever does not wait for the answer leaves it to the next one, and meanwhile the other
//! instances come first. One that does not answer in time has failed, as one that cannot be connected has.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::Instant;

use super::fleet::HEAD_START;
use super::server::{Seen, Server};
use crate::catalog::Catalog;
use crate::connect::{Berth, Connection};
use crate::error::{Error, Result};

/// What is known of an instance's tools.
#[derive(Default)]
pub(super) struct Compared(Mutex<Option<Look>>);

/// One comparison, under way or over.
struct Look {
    connection: u64,
    catalogue: [u8; 32],
    since: Instant,
    /// When it was over, and whether they are the same.
    end: Shared<BoxFuture<'static, Result<(Instant, bool)>>>,
}

/// An instance that is held to what was accepted is compared again at the first use after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

// === impl Compared ===

impl Compared {
    /// Compares what an instance offers with what is shown of its server. Under a lock one that differs is not used.
    pub(super) async fn with(
        &self,
        server: &Server,
        (number, berth): (usize, &Berth),
        connection: &Connection,
    ) -> Result<()> {
        let Some(seen) = server.tools.last().filter(|_| !server.tools.is_of(connection.number())) else {
            return Ok(());
        };
        let locked = server.is_locked();
        let end = {
            let mut look = self.lock();
            let known = look.as_ref().filter(|look| look.holds((connection, &seen), locked));
            let end = known.map(|look| look.end.clone());
            end.unwrap_or_else(|| {
                let begun = Look::begin(server, (number, berth), connection, seen);
                look.insert(begun).end.clone()
            })
        };
        let (_, fits) = end.await?;
        if fits || !locked {
            return Ok(());
        }
        Err(Error::Denied {
            what: format!("instance {} of server `{}`", number + 1, server.config.name),
            rule: "the lockfile: it offers other tools than the instance that was looked at".into(),
            hint: "bring all instances to the same version; the others go on meanwhile".into(),
        })
    }

    /// Whether an answer is waited for.
    pub(super) fn is_awaited(&self) -> bool {
        self.lock().as_ref().is_some_and(|look| look.end.peek().is_none())
    }

    /// What is wrong with an instance that is connected and does not say which tools it has.
    pub(super) fn trouble(&self, berth: &Berth) -> Option<String> {
        let look = self.lock();
        let look = look.as_ref().filter(|look| look.connection == berth.number())?;
        match look.end.peek() {
            // Before the first call has gone elsewhere it is not slow.
            None if look.since.elapsed() < HEAD_START / 2 => None,
            None => Some("it is connected, and has not said yet which tools it has".into()),
            Some(Err(error)) => Some(format!("it did not say which tools it has: {error}")),
            Some(Ok(_)) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Look>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Look ===

impl Look {
    fn begin(server: &Server, (number, berth): (usize, &Berth), connection: &Connection, seen: Seen) -> Self {
        let (timeout, catalogue) = (server.config.timeout, seen.offered.fingerprint);
        let (misfit, events) = (server.misfit(number), server.events.clone());
        let (asked, berth) = (connection.clone(), berth.clone());
        let look = async move {
            let offered = berth.prove(Catalog::fetch(&asked, timeout)).await?;
            let fits = tools_of(&seen) == offered.tools.iter().map(|tool| &tool.raw.bytes()[..]).collect();
            if !fits {
                events.publish(|| misfit);
            }
            Ok((Instant::now(), fits))
        };
        let end = look.boxed().shared();
        tokio::spawn(end.clone());
        Self { connection: connection.number(), catalogue, since: Instant::now(), end }
    }

    /// Whether it is about the same, and was neither in vain nor too long ago.
    fn holds(&self, (connection, seen): (&Connection, &Seen), locked: bool) -> bool {
        let is_same = self.connection == connection.number() && self.catalogue == seen.offered.fingerprint;
        is_same
            && match self.end.peek() {
                None => true,
                Some(Ok((at, _))) => !locked || at.elapsed() <= LOOK_AGAIN,
                Some(Err(_)) => false,
            }
    }
}

fn tools_of(seen: &Seen) -> BTreeSet<&[u8]> {
    seen.offered.tools.iter().map(|tool| &tool.raw.bytes()[..]).collect()
}
