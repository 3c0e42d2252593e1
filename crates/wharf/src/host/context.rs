//! What a local tool's handler reaches while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::Host;
use crate::ask::{Answer, Question};
use crate::connect::Progress;
use crate::names::{CallerName, ServerName};
use crate::session::{Extensions, Transaction};
use crate::text::Foreign;

/// The call that a handler serves, and the scope it runs in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) host: Host,
    pub(super) caller: CallerName,
    pub(super) set: ServerName,
    pub(super) transaction: Arc<Transaction>,
    pub(super) reports: mpsc::Sender<Report>,
    /// How many questions of its own are open.
    pub(super) asking: Arc<AtomicUsize>,
}

/// A sign of life.
#[derive(Debug)]
pub(super) enum Report {
    /// How far it is.
    Progress(Progress),
    /// It goes on after somebody answered.
    Answered,
}

/// A question that is open as long as this lives.
struct Asking<'a>(&'a Context);

impl Context {
    /// The host as the caller sees it: its tools, its connections, its permissions.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Who called.
    pub fn caller(&self) -> &CallerName {
        &self.caller
    }

    /// What the caller's scope remembers. Changes take effect together when the call succeeds, and not at all if it
    /// fails.
    pub fn state(&self) -> &Transaction {
        &self.transaction
    }

    /// What the program put within reach of its tools.
    pub fn extensions(&self) -> &Extensions {
        self.host.extensions()
    }

    /// Tells how far the call is. It also says that the tool is alive, so a timeout starts anew.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let message = message.map(|text| Foreign::from(text.to_owned()));
        // Whoever listens too slowly misses some.
        let _ = self.reports.try_send(Report::Progress(Progress { progress, total, message, raw: None }));
    }

    /// Asks whoever answers for the caller. The time that the answer takes is not the tool's.
    pub async fn ask(&self, question: Question) -> Answer {
        self.asking.fetch_add(1, Ordering::Relaxed);
        let _open = Asking(self);
        self.host.asker().ask(&self.set, question).await
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // The timeout starts anew first. If there is no room, other reports do the same.
        let _ = self.0.reports.try_send(Report::Answered);
        self.0.asking.fetch_sub(1, Ordering::Relaxed);
    }
}
