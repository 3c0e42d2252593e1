//! What happened, and the bus it goes out on.
//!
//! In: facts from every room below. Out: a stream for whoever listens. A slow listener loses the oldest events and is
//! told how many; it never slows a call down. Secrets are redacted before they get here.

mod fact;
mod meter;
mod redacted;
mod refusal;
mod state;
mod trail;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::mcp::ListKind;
use crate::names::{CallerName, ServerName, ToolName};
use crate::text::Foreign;

pub use fact::{Arguments, Fact, Kind, LARGEST_SHOWN, Named, Verdict};
pub use meter::{BOUNDS, Counted, Durations, Label, Meter, OUTCOMES, Reading, Tally, TallyPlace};
pub(crate) use redacted::Exchange;
pub use redacted::{Invocation, Redacted};
pub use refusal::Refusal;
pub use state::{Circuit, State};
pub use trail::{Batch, End, Entry, Facts, News, Trail};

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A connection changed its state.
    State {
        /// The server.
        server: ServerName,
        /// Which of its instances, from 1; `None` where there is but one.
        instance: Option<usize>,
        /// What it is now.
        state: State,
        /// Why, in words.
        reason: Option<String>,
    },
    /// Calls of a server are refused at once from now on, or one is let through to see, or all are. Of several instances it
    /// is one that gets no calls: the others go on.
    Circuit {
        /// The server.
        server: ServerName,
        /// Which of its instances, from 1; `None` where there is but one.
        instance: Option<usize>,
        /// Whether it is asked.
        circuit: Circuit,
        /// Why, in words.
        reason: Option<String>,
    },
    /// A call is made again: nothing of it had reached the server, or its tool may be run twice.
    Retried {
        /// The server.
        server: ServerName,
        /// The tool, by its original name.
        tool: ToolName,
        /// How the attempt before failed.
        reason: String,
    },
    /// A server did not answer when it was asked for a sign of life, or does again.
    Health {
        /// The server.
        server: ServerName,
        /// Which of its instances, from 1; `None` where there is but one.
        instance: Option<usize>,
        /// How many signs in a row were missed; 0 if it is well again.
        missed: u32,
    },
    /// A server's list of tools changed.
    ToolsChanged {
        /// The server.
        server: ServerName,
        /// The number of the session that it changed for; `None` where it is everybody\'s.
        session: Option<u64>,
    },
    /// A server's list of resources changed.
    ResourcesChanged {
        /// The server.
        server: ServerName,
        /// The number of the session that it changed for; `None` where it is everybody\'s.
        session: Option<u64>,
    },
    /// A resource that is subscribed to changed, or may have while nobody could hear it.
    ResourceUpdated {
        /// The server.
        server: ServerName,
        /// The resource.
        uri: Foreign,
    },
    /// A server's list of prompts changed.
    PromptsChanged {
        /// The server.
        server: ServerName,
        /// The number of the session that it changed for; `None` where it is everybody\'s.
        session: Option<u64>,
    },
    /// What a server wanted done on a page was done there.
    PageVisited {
        /// The server.
        server: ServerName,
        /// The question, by the server's own id for it.
        id: Foreign,
    },
    /// A server reports how far a call is.
    Progress {
        /// The server.
        server: ServerName,
        /// The number of the call on its connection: steps of one call have one number.
        call: u64,
        /// The tool, if it is a call of one.
        tool: Option<ToolName>,
        /// How far.
        progress: f64,
        /// Of how much.
        total: Option<f64>,
        /// What it is doing.
        message: Option<Foreign>,
    },
    /// A server logs something.
    Log {
        /// The server.
        server: ServerName,
        /// How grave, in the protocol's words.
        level: Foreign,
        /// What.
        data: Foreign,
    },
    /// A line on a server's standard error; only for servers with `debug`.
    Stderr {
        /// The server.
        server: ServerName,
        /// The line, redacted.
        line: Foreign,
    },
    /// A message to or from a server; only for servers with `debug`.
    Traffic {
        /// The server.
        server: ServerName,
        /// Whether Wharf sent it.
        sent: bool,
        /// The message, redacted and cut.
        message: Foreign,
    },
    /// Something that a server offers is kept back, until somebody accepts it.
    Blocked {
        /// The server.
        server: ServerName,
        /// What it is: a tool, a prompt, a resource template.
        kind: ListKind,
        /// Its name.
        name: Foreign,
        /// The rule, and what to do.
        reason: String,
    },
    /// The scan found something in what a server offers or answered.
    Suspicious {
        /// The server.
        server: ServerName,
        /// The rule: `hidden.tags`.
        rule: &'static str,
        /// Whether no honest server does it.
        grave: bool,
        /// Where, and an excerpt in which nothing hides.
        finding: String,
    },
    /// Something a person should know, though it went on.
    Warning {
        /// The server.
        server: ServerName,
        /// What.
        message: String,
    },
    /// The host has another configuration.
    Reloaded {
        /// Servers that are new.
        added: Vec<ServerName>,
        /// Servers that are gone.
        removed: Vec<ServerName>,
        /// Servers whose connection is made anew.
        restarted: Vec<ServerName>,
        /// Servers that are shown or called in another way.
        changed: Vec<ServerName>,
    },
    /// A server's package is being fetched, which may take a while.
    PackageWanted {
        /// The server.
        server: ServerName,
        /// The package, as it is written.
        package: String,
    },
    /// A server's package was fetched from its registry and is kept.
    PackageFetched {
        /// The server.
        server: ServerName,
        /// The package.
        package: Foreign,
        /// The version that was found.
        version: Foreign,
        /// Its hashes; where there is more than one, it is one of them.
        integrity: Vec<Foreign>,
        /// How many others it needs.
        others: usize,
        /// How long it took.
        took: Duration,
    },
    /// A confined server wanted to reach a host.
    Egress {
        /// The server.
        server: ServerName,
        /// The host, as far as it could be read.
        host: Foreign,
        /// The port; 0 where it could not be read.
        port: u16,
        /// The rule that allows it, as it is written.
        rule: Option<String>,
        /// What came of it.
        reached: Reached,
    },
    /// A tool was called and the call has ended.
    ToolInvoked(Arc<Invocation>),
    /// A rule refused a call. Nothing was sent.
    Refused(Arc<Refusal>),
    /// Somebody was asked whether a tool may be called, and said so or not.
    Consent {
        /// Who wanted to call it.
        caller: CallerName,
        /// The server, or the set of local tools.
        server: ServerName,
        /// The tool, by its original name.
        tool: ToolName,
        /// Whether it was allowed.
        allowed: bool,
    },
}

/// What came of a confined server's wish to reach a host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reached {
    /// It is connected.
    Opened,
    /// The connection has ended.
    Closed {
        /// How many bytes went to the host.
        sent: u64,
        /// How many bytes came from it.
        received: u64,
    },
    /// A rule forbids it; why. Where it was open already, it is cut.
    Refused(String),
    /// It is allowed, but did not come about; why.
    Failed(String),
}

/// Where events go. Cheap to clone; publishing without a listener costs an atomic read.
#[derive(Clone, Debug)]
pub struct Bus(Arc<Channels>);

#[derive(Debug)]
struct Channels {
    /// For those who want to hear of every call.
    all: broadcast::Sender<Event>,
    /// For the others, who would otherwise be woken by each of them.
    rare: broadcast::Sender<Event>,
}

/// How many events a listener may fall behind before it loses the oldest. Defaults to 1024.
const BACKLOG: usize = 1024;

impl Default for Bus {
    fn default() -> Self {
        Self(Arc::new(Channels { all: broadcast::channel(BACKLOG).0, rare: broadcast::channel(BACKLOG).0 }))
    }
}

impl Bus {
    /// Tells everyone who listens. The event is only made if somebody does.
    pub fn publish(&self, event: impl FnOnce() -> Event) {
        let Channels { all, rare } = &*self.0;
        if rare.receiver_count() > 0 {
            let event = event();
            // An error means the last listener left in between: nobody missed anything.
            let _ = rare.send(event.clone());
            let _ = all.send(event);
        } else if all.receiver_count() > 0 {
            let _ = all.send(event());
        }
    }

    /// Tells of a call, which happens all the time.
    pub(crate) fn publish_call(&self, event: impl FnOnce() -> Event) {
        if self.0.all.receiver_count() > 0 {
            let _ = self.0.all.send(event());
        }
    }

    /// Listens from now on. [`broadcast::error::RecvError::Lagged`] says how many events were lost.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.all.subscribe()
    }

    /// The same for everything but [`Event::ToolInvoked`]: for a listener that calls would only wake in vain.
    pub fn subscribe_but_calls(&self) -> broadcast::Receiver<Event> {
        self.0.rare.subscribe()
    }
}
