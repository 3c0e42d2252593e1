//! The proofs of what is promised when servers crash, hang, stand still, flood and lie, and a test for each
//! of the promises P1 to P6. `docs/reliability.md` says which proves what.
//!
//! As a rule they are short; with `WHARF_ALL=1`, which `./check --all` sets, they are long. What measures a whole process,
//! or needs a world of its own, runs in a process of its own: see [`alone`].

mod deadlines;
mod effects;
pub(crate) mod half_open;
mod interrupted;
pub(crate) mod measure;
mod model;
mod promises;
mod reconnects;
mod reload;
mod seeds;
mod storms;
mod troubles;

use std::any::type_name;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use wharf::Outcome;

/// One measured process at a time: they are many on a small machine.
static TURN: Mutex<()> = Mutex::new(());

/// Whether the long form is wanted.
pub(crate) fn long() -> bool {
    std::env::var_os("WHARF_ALL").is_some_and(|all| all == "1")
}

/// As many as wanted: a few as a rule, many in the long form.
pub(crate) fn rounds(few: usize, many: usize) -> usize {
    if long() { many } else { few }
}

/// Runs the test it is called in once more, in a process of its own, `under` another program if one is named. True in
/// that process; false in the first one, once the other has passed.
pub(crate) fn alone<F: Fn()>(_test: F, under: &[&str]) -> bool {
    // The name of the function without that of the test binary.
    let name = type_name::<F>().split_once("::").expect("a function lies in a module").1;
    if std::env::var("WHARF_ALONE").is_ok_and(|other| other == name) {
        return true;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::env::current_exe().unwrap().display().to_string();
    let mut words = under.to_vec();
    words.extend([own.as_str(), "--exact", name, "--nocapture", "--test-threads=1"]);
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let ran =
        Command::new(words[0]).args(&words[1..]).env("PATH", path).env("WHARF_ALONE", name).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("1 passed"), "{words:?}\n{said}\n{complained}");
    // The first one stands behind the name of the test.
    said.lines().filter_map(|line| line.find("R-").map(|at| &line[at..])).for_each(tell);
    false
}

/// Tells a figure.
#[expect(clippy::print_stdout, reason = "the figures of a proof are for whoever runs it")]
pub(crate) fn tell(figure: impl AsRef<str>) {
    println!("{}", figure.as_ref());
}

/// How calls ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) timeout: u64,
    pub(crate) cancelled: u64,
    pub(crate) unknown: u64,
    pub(crate) not_sent: u64,
}

impl Tally {
    /// Counts an outcome. One that is none of the promised kinds is a failure of the test.
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        let place = match outcome.error.as_deref().map(wharf::Error::kind) {
            None => &mut self.ok,
            Some("tool" | "tool_failed" | "rpc" | "protocol") => &mut self.failed,
            Some("timeout") => &mut self.timeout,
            Some("cancelled") => &mut self.cancelled,
            Some("unknown_outcome") => &mut self.unknown,
            Some("connection" | "not_connected" | "unknown_tool") => &mut self.not_sent,
            Some(_) => panic!("{outcome:?}"),
        };
        *place += 1;
    }

    /// The sum of all ends.
    pub(crate) fn ends(&self) -> u64 {
        self.ok + self.failed + self.timeout + self.cancelled + self.unknown + self.not_sent
    }

    /// Adds another's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.ok += other.ok;
        self.failed += other.failed;
        self.timeout += other.timeout;
        self.cancelled += other.cancelled;
        self.unknown += other.unknown;
        self.not_sent += other.not_sent;
    }

    /// Compares what the callers saw with what a host counted by itself, of all calls that it ever had.
    pub(crate) fn agrees_with(&self, host: &wharf::Host) {
        let counts = host.counts();
        let ended = |kinds: &[&str]| -> u64 {
            let of = |reading: &wharf::event::Reading| {
                let pairs = wharf::event::OUTCOMES.iter().zip(reading.outcomes);
                pairs.filter(|(kind, _)| kinds.contains(kind)).map(|(_, times)| times).sum::<u64>()
            };
            counts.iter().map(of).sum()
        };
        let counted = Self {
            sent: counts.iter().map(|reading| reading.started).sum(),
            ok: ended(&["ok"]),
            failed: ended(&["tool", "tool_failed", "rpc", "protocol"]),
            timeout: ended(&["timeout"]),
            cancelled: ended(&["cancelled"]),
            unknown: ended(&["unknown_outcome"]),
            not_sent: ended(&["connection", "not_connected", "unknown_tool"]),
        };
        assert_eq!(*self, counted, "seen by the callers, and counted by the host");
    }
}
